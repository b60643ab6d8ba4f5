"""How long a condition has held: so many readings and so many seconds, and a gap between readings breaks the run.

Knows nothing of CPU or pods; the rules give it a condition and the time of the reading.
"""

from __future__ import annotations

from node_fleet.domain.model.memory import Streak
from node_fleet.domain.model.policy import Policy


def advance(streak: Streak | None, *, holds: bool | None, at: int, gap_seconds: int) -> Streak | None:
    """The run after one more reading; `holds` None means the reading could not say.

    A reading that cannot say neither lengthens nor ends the run, but a pause longer than gap_seconds does end it.
    The same reading seen twice counts once.
    """
    if holds is False:
        return None
    alive = streak if streak is not None and at - streak.last <= gap_seconds else None
    if holds is None:
        return alive
    if alive is None:
        return Streak(since=at, last=at, readings=1)
    if at <= alive.last:
        return alive
    return Streak(since=alive.since, last=at, readings=alive.readings + 1)


def needed_seconds(readings: int, policy: Policy) -> int:
    """Time that so many readings must span: ticks may come early by the jitter, a burst of them does not count."""
    return max(0, (readings - 1) * policy.interval_seconds - policy.interval_jitter_seconds)


def is_sustained(streak: Streak | None, readings: int, policy: Policy) -> bool:
    """Whether the run has both enough readings and enough seconds."""
    if streak is None or streak.readings < readings:
        return False
    return streak.last - streak.since >= needed_seconds(readings, policy)
