"""Moments and spans of time as the commands print them."""

from __future__ import annotations

import datetime as dt

DAY_SECONDS = 86400


def clock(epoch: float, *, day: bool = False) -> str:
    """A moment in UTC."""
    return dt.datetime.fromtimestamp(epoch, tz=dt.UTC).strftime("%Y-%m-%d %H:%M" if day else "%H:%M:%S")


def span(seconds: float) -> str:
    """'45 s', '12 min', '3 h', '2 d'."""
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / DAY_SECONDS:.0f} d"


def ago(seconds: float) -> str:
    """'12 min ago'."""
    return f"{span(max(0, seconds))} ago"
