"""Schedule floors: a minimum number of workers while a window of local time is open."""

from __future__ import annotations

import re
from typing import Any

from node_fleet.domain.policy import ScheduleWindow

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WINDOW = re.compile(r"^(?P<days>\S+)\s+(?P<start>\d\d:\d\d)-(?P<end>\d\d:\d\d):\s*(?P<minimum>\d+)$")


def parse_schedules(value: Any) -> tuple[ScheduleWindow, ...]:
    """Read windows such as "Mon-Sat 09:00-21:00: 4; 2026-11-27 18:00-24:00: 8".

    Raises:
        ValueError: names the window that cannot be read and shows the form.
    """
    texts = value.split(";") if isinstance(value, str) else [str(v) for v in value]
    return tuple(_window(text.strip()) for text in texts if text.strip())


def _window(text: str) -> ScheduleWindow:
    match = _WINDOW.match(text)
    if not match:
        raise ValueError(
            f"cannot read window {text!r}, expected e.g. 'Mon-Sat 09:00-21:00: 4' or '2026-11-27 18:00-24:00: 8'"
        )
    start, end = (_minute(match[name], text) for name in ("start", "end"))
    days, date = _days(match["days"], text)
    return ScheduleWindow(
        minimum=int(match["minimum"]), start_minute=start, end_minute=end, days=days, date=date, text=text
    )


def _minute(clock: str, text: str) -> int:
    hours, minutes = (int(part) for part in clock.split(":"))
    if hours * 60 + minutes > 24 * 60 or minutes > 59:
        raise ValueError(f"window {text!r}: {clock} is not a time of day, expected 00:00 to 24:00")
    return hours * 60 + minutes


def _days(word: str, text: str) -> tuple[tuple[int, ...], str]:
    if re.fullmatch(r"\d{4}-\d\d-\d\d", word):
        return (), word
    found: list[int] = []
    for part in word.lower().split(","):
        first, _, last = part.partition("-")
        if first not in _DAYS or (last and last not in _DAYS):
            raise ValueError(
                f"window {text!r}: {part!r} is not a day, expected Mon to Sun or a date such as 2026-11-27"
            )
        a, b = _DAYS.index(first), _DAYS.index(last or first)
        found += [(a + k) % 7 for k in range((b - a) % 7 + 1)]
    return tuple(sorted(set(found))), ""
