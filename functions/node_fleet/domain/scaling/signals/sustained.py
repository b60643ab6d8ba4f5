"""How long a condition has held: its readings and seconds in a row. A long gap between readings ends the streak.

The signals give the condition; nothing here knows what it is about.
"""

from __future__ import annotations

from node_fleet.domain.model.memory import Streak
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.scaling.tick import Tick


def advance(streak: Streak | None, *, holds: bool | None, at: int, gap_seconds: int) -> Streak | None:
    """The streak after a reading at `at` (epoch); holds: None when the reading lacks the value.

    A reading without the value neither lengthens nor ends the streak; more than gap_seconds without a reading end it.
    The same reading seen twice counts once.
    """
    if holds is False:
        return None
    current = streak if streak is not None and at - streak.last <= gap_seconds else None
    if holds is None:
        return current
    if current is None:
        return Streak(since=at, last=at, readings=1)
    if at <= current.last:
        return current
    return Streak(since=current.since, last=at, readings=current.readings + 1)


def advance_streak(tick: Tick, streaks: dict[str, Streak], name: str, holds: bool | None) -> Streak | None:
    """Advance the stored streak of a condition by this tick's reading, and add it to `streaks` while it lasts."""
    gap_seconds = tick.policy.reading_gap_seconds
    streak = advance(tick.memory.since.get(name), holds=holds, at=tick.read_at, gap_seconds=gap_seconds)
    if streak:
        streaks[name] = streak
    return streak


def needed_seconds(readings: int, policy: Policy) -> int:
    """The time that so many readings must span. Ticks may be early by the jitter; a burst of readings is too short."""
    return max(0, (readings - 1) * policy.interval_seconds - policy.interval_jitter_seconds)


def is_sustained(streak: Streak | None, readings: int, policy: Policy) -> bool:
    """Whether the streak has enough readings and spans enough seconds."""
    if streak is None or streak.readings < readings:
        return False
    return streak.last - streak.since >= needed_seconds(readings, policy)
