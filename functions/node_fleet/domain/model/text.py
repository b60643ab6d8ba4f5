"""How sentences name a number of things, a moment and a span of time."""

from __future__ import annotations

import re
import time

_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
"""Control characters but tab and line feed, characters that change the direction of text, and half characters."""


def printable(text: str) -> str:
    """The text without characters that a reader does not see and a terminal or a page obeys."""
    return _HIDDEN.sub("", text)


def escape_hidden(json_text: str) -> str:
    """The same JSON with such characters as escapes."""
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", json_text)


def utc(epoch: int) -> str:
    """For example: 2026-11-27 18:00:05 UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(epoch))


def span(seconds: float) -> str:
    """For example: 45 s, 12 min, 3 h, 2 d."""
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


def count_of(count: int, noun: str) -> str:
    """For example: 1 worker, 2 workers."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
