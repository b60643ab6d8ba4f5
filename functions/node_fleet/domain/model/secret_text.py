"""Texts without secrets: what a message, the state item and the records may show."""

from __future__ import annotations

import re

_SECRETS = (
    re.compile(r"https://hooks\.slack\.com/\S+"),
    re.compile(r"\bK10[0-9a-f]{16,}::\S+"),
    re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    re.compile(r"(?i)\b(?:basic|bearer)\s+[A-Za-z0-9+/=_.~-]{8,}"),
    re.compile(r"(?i)\b[\w-]*(?:secret|session)[_-]?(?:access[_-]?)?(?:key|token)\b\"?\s*[=:]\s*\"?[^\s\",;]+"),
    re.compile(r"(?<![A-Za-z0-9/+=])(?=\S*[A-Z])(?=\S*[a-z])(?=\S*[0-9])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])"),
    re.compile(r"(?i)(?<=authorization: )\S+ \S+"),
    re.compile(r"(?i)(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"),
    re.compile(r"(?i)\b(?:password|passwd|secret|token|api[_-]?key)\b\"?\s*[=:]\s*\"?[^\s\",;]+"),
)


def redacted(text: str) -> str:
    """The text without strings in the form of a secret: webhook addresses, join tokens, access keys, passwords."""
    for pattern in _SECRETS:
        text = pattern.sub("[removed]", text)
    return text
