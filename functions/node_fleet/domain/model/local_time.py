"""Windows of local time, and the zones that they are in. It knows nothing about what a window is for."""

from __future__ import annotations

import datetime as dt
import functools
import re
from typing import TYPE_CHECKING

from node_fleet.domain.model.value_class import value_class

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

DAY_NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_MINUTES = 24 * 60
WINDOW = r"(?P<days>\S+)\s+(?P<start>\d\d:\d\d)-(?P<end>\d\d:\d\d)"
"""The form of a window in a regular expression."""


@value_class
class DailyWindow:
    """A window of local time that opens on some days of the week, or on one date.

    days: 0 = Monday .. 6 = Sunday, empty when `date` (ISO) names one day. end_minute < start_minute runs past midnight:
    the window belongs to the day on which it starts.
    """

    start_minute: int
    end_minute: int
    days: tuple[int, ...] = ()
    date: str = ""
    text: str = ""

    @property
    def length_minutes(self) -> int:
        """From start to end on a clock that does not jump."""
        length = self.end_minute - self.start_minute
        return length if length > 0 else length + DAY_MINUTES

    def starts_on(self, day: dt.date) -> bool:
        """Whether the window opens on that day."""
        return self.date == day.isoformat() if self.date else day.weekday() in self.days


@functools.cache
def zone(name: str) -> ZoneInfo:
    """The IANA zone of that name."""
    from zoneinfo import ZoneInfo  # only windows and predictions have local times

    return ZoneInfo(name)


def is_zone(name: str) -> bool:
    """Looks up one zone only: listing all zones reads a directory, which is too slow for every start."""
    if name == "UTC":
        return True
    import zoneinfo

    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def parse_window(found: re.Match[str], text: str) -> DailyWindow:
    """The window in a match of WINDOW; `text` is what an error quotes.

    Raises:
        ValueError: names what is wrong in the window, and what would be right.
    """
    start, end = (_minute(found[name], text) for name in ("start", "end"))
    if start in (end, DAY_MINUTES):
        raise ValueError(
            f"window {text!r} never opens, expected a start and an end that differ, 00:00-24:00 for all day"
        )
    days, day = _days(found["days"], text)
    return DailyWindow(start_minute=start, end_minute=end, days=days, date=day, text=text)


def _minute(clock: str, text: str) -> int:
    hours, minutes = (int(part) for part in clock.split(":"))
    if hours * 60 + minutes > DAY_MINUTES or minutes > 59:
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
        return dt.date.fromisoformat(word).isoformat()
    except ValueError:
        raise ValueError(f"window {text!r} never opens: {word} is not in the calendar") from None


def instants(day: dt.date, minute: int, timezone: str) -> tuple[int, int]:
    """Both readings of a wall-clock time in epoch seconds; they differ only where the clock jumps."""
    wall = dt.datetime(day.year, day.month, day.day) + dt.timedelta(minutes=minute)
    first, second = (
        int(wall.replace(tzinfo=zone(timezone), fold=fold).astimezone(dt.UTC).timestamp()) for fold in (0, 1)
    )
    return first, second
