"""How sentences name a number of things."""

from __future__ import annotations


def count_of(count: int, noun: str) -> str:
    """For example: 1 worker, 2 workers."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
