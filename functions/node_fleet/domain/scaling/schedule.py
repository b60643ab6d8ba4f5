"""Schedule windows: a minimum number of workers while a window of local time is open.

A window is one unbroken span of time. Where daylight saving time moves the clock, the window has the earlier possible
start and the later possible end, so that the minimum is never missed.
"""

from __future__ import annotations

import functools
import re
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from node_fleet.domain.model.policy import DAY_NAMES, ScheduleWindow

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_WINDOW = r"^(?P<days>\S+)\s+(?P<start>\d\d:\d\d)-(?P<end>\d\d:\d\d):\s*(?P<minimum>\d+)$"


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
    start, end = (_minute(match[name], text) for name in ("start", "end"))
    if start in (end, 24 * 60):
        raise ValueError(
            f"window {text!r} never opens, expected a start and an end that differ, 00:00-24:00 for all day"
        )
    if int(match["minimum"]) == 0:
        raise ValueError(f"window {text!r}: a minimum of 0 raises nothing, expected 1 or more")
    days, day = _days(match["days"], text)
    return ScheduleWindow(
        minimum=int(match["minimum"]), start_minute=start, end_minute=end, days=days, date=day, text=text
    )


def _minute(clock: str, text: str) -> int:
    hours, minutes = (int(part) for part in clock.split(":"))
    if hours * 60 + minutes > 24 * 60 or minutes > 59:
        raise ValueError(f"window {text!r}: {clock} is not a time of day, expected 00:00 to 24:00")
    return hours * 60 + minutes


def _days(word: str, text: str) -> tuple[tuple[int, ...], str]:
    if re.fullmatch(r"\d{4}-\d\d-\d\d", word):
        return (), _date(word, text)
    found: list[int] = []
    for part in word.lower().split(","):
        first, _, last = part.partition("-")
        if first not in DAY_NAMES or (last and last not in DAY_NAMES):
            raise ValueError(
                f"window {text!r}: {part!r} is not a day, expected Mon to Sun or a date such as 2026-11-27"
            )
        a, b = DAY_NAMES.index(first), DAY_NAMES.index(last or first)
        found += [(a + k) % 7 for k in range((b - a) % 7 + 1)]
    return tuple(sorted(set(found))), ""


def _date(word: str, text: str) -> str:
    try:
        return date.fromisoformat(word).isoformat()
    except ValueError:
        raise ValueError(f"window {text!r} never opens: {word} is not in the calendar") from None


def open_window(windows: tuple[ScheduleWindow, ...], timezone: str, now: int) -> ScheduleWindow | None:
    """The open window with the highest minimum; None when none is open. `now` is epoch seconds."""
    if not windows:
        return None
    today = datetime.fromtimestamp(now, zone(timezone)).date()
    open_now = [window for first, past, window in _spans(windows, timezone, today) if first <= now < past]
    return max(open_now, key=lambda w: (w.minimum, w.text), default=None)


@functools.cache
def zone(name: str) -> ZoneInfo:
    """The IANA zone of that name."""
    from zoneinfo import ZoneInfo  # only windows and predictions have local times

    return ZoneInfo(name)


@functools.lru_cache(maxsize=512)
def _spans(
    windows: tuple[ScheduleWindow, ...], timezone: str, today: date
) -> tuple[tuple[int, int, ScheduleWindow], ...]:
    """First and past-last epoch second of every window that may be open at some time of this local day."""
    days = (today - timedelta(days=1), today, today + timedelta(days=1))
    return tuple((*_span(w, timezone, day), w) for w in windows for day in days if _starts_on(w, day))


def _starts_on(window: ScheduleWindow, day: date) -> bool:
    return window.date == day.isoformat() if window.date else day.weekday() in window.days


def _span(window: ScheduleWindow, timezone: str, day: date) -> tuple[int, int]:
    length = window.end_minute - window.start_minute
    end = window.start_minute + (length if length > 0 else length + 24 * 60)
    return min(_instants(day, window.start_minute, timezone)), max(_instants(day, end, timezone))


def _instants(day: date, minute: int, timezone: str) -> tuple[int, int]:
    """Both readings of a wall-clock time; they differ only where the clock jumps."""
    wall = datetime(day.year, day.month, day.day) + timedelta(minutes=minute)
    first, second = (int(wall.replace(tzinfo=zone(timezone), fold=fold).astimezone(UTC).timestamp()) for fold in (0, 1))
    return first, second
