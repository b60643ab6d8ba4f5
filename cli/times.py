"""Moments and spans of time as the commands print them."""

from __future__ import annotations

import datetime as dt

from node_fleet.domain.model.text import span

DAY_SECONDS = 86400


def clock(epoch: float, *, day: bool = False) -> str:
    """A moment in UTC."""
    return dt.datetime.fromtimestamp(epoch, tz=dt.UTC).strftime("%Y-%m-%d %H:%M" if day else "%H:%M:%S")


def ago(seconds: float) -> str:
    """'12 min ago'."""
    return f"{span(max(0, seconds))} ago"
