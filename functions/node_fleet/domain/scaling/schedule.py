"""Schedule windows: a minimum number of workers while a window of local time is open.

A window is one unbroken span of time. Where daylight saving time moves the clock, the window has the earlier possible
start and the later possible end, so that the minimum is never missed.
"""

from __future__ import annotations

import functools
import re
from datetime import date, datetime, timedelta
from typing import Any

from node_fleet.domain.model.local_time import WINDOW, instants, parse_window, zone
from node_fleet.domain.model.policy import ScheduleWindow

_WINDOW = rf"^{WINDOW}:\s*(?P<minimum>\d+)$"


def parse_schedules(value: Any) -> tuple[ScheduleWindow, ...]:
    """Read windows such as "Mon-Sat 09:00-21:00: 4; 2026-11-27 18:00-24:00: 8".

    Raises:
        ValueError: names the window that cannot be read and shows the form.
    """
    texts = value.split(";") if isinstance(value, str) else [str(v) for v in value]
    return tuple(_window(text.strip()) for text in texts if text.strip())


def _window(text: str) -> ScheduleWindow:
    match = re.match(_WINDOW, text)
    if not match:
        raise ValueError(
            f"cannot read window {text!r}, expected e.g. 'Mon-Sat 09:00-21:00: 4' or '2026-11-27 18:00-24:00: 8'"
        )
    found = parse_window(match, text)
    if int(match["minimum"]) == 0:
        raise ValueError(f"window {text!r}: a minimum of 0 raises nothing, expected 1 or more")
    return ScheduleWindow(
        minimum=int(match["minimum"]),
        start_minute=found.start_minute,
        end_minute=found.end_minute,
        days=found.days,
        date=found.date,
        text=text,
    )


def open_window(windows: tuple[ScheduleWindow, ...], timezone: str, now: int) -> ScheduleWindow | None:
    """The open window with the highest minimum; None when none is open. `now` is epoch seconds."""
    if not windows:
        return None
    today = datetime.fromtimestamp(now, zone(timezone)).date()
    open_now = [window for first, past, window in _spans(windows, timezone, today) if first <= now < past]
    return max(open_now, key=lambda w: (w.minimum, w.text), default=None)


@functools.lru_cache(maxsize=512)
def _spans(
    windows: tuple[ScheduleWindow, ...], timezone: str, today: date
) -> tuple[tuple[int, int, ScheduleWindow], ...]:
    """First and past-last epoch second of every window that may be open at some time of this local day."""
    days = (today - timedelta(days=1), today, today + timedelta(days=1))
    return tuple((*_span(w, timezone, day), w) for w in windows for day in days if w.starts_on(day))


def _span(window: ScheduleWindow, timezone: str, day: date) -> tuple[int, int]:
    end = window.start_minute + window.length_minutes
    return min(instants(day, window.start_minute, timezone)), max(instants(day, end, timezone))
