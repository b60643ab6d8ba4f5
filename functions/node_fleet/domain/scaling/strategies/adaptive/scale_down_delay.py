"""The scale-down delay: how long capacity must be unneeded before it is removed.

Every candidate delay is simulated on the needs of this fleet: the unused capacity that it would have held, and the
changes of direction that it would have made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from node_fleet.domain.model.memory import DelayTrials, WorkerNeed

DELAY_MINUTES = (2, 4, 6, 8, 12, 16, 20, 30, 45, 60, 90, 120, 180, 240, 360, 480)
"""The candidate delays."""

FORGET_SECONDS = DELAY_MINUTES[-1] * 60
STEPS_KEPT = 24
GAP_MINUTES = 10.0
"""The longest time between two readings that is counted."""

_DELAY_SECONDS = tuple(minutes * 60 for minutes in DELAY_MINUTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleDownDelay:
    """The delay in force and its cost over the last days, in worker-minutes, which decays.

    holding: unused capacity held. changing: the price of the changes of direction. shortest: the sum of both for the
    shortest delay.
    """

    seconds: int
    holding: float
    changing: float
    shortest: float


def initial_trials() -> DelayTrials:
    """The trials before the first reading."""
    none, nothing = (0,) * len(DELAY_MINUTES), (0.0,) * len(DELAY_MINUTES)
    return DelayTrials(workers=none, moved=none, held=nothing, turns=nothing)


def update_needs(needs: Sequence[WorkerNeed], now: int, workers: int) -> tuple[WorkerNeed, ...]:
    """The needs with the present one last; needs that are not higher than the present one are dropped."""
    recent = [n for n in needs if n.workers > workers and now - n.at <= FORGET_SECONDS]
    return (*recent[-(STEPS_KEPT - 1) :], WorkerNeed(at=now, workers=workers))


def recently_needed(needs: Sequence[WorkerNeed], now: int, delay_seconds: int) -> int:
    """The highest number of workers that was needed within the delay."""
    return max((n.workers for n in needs if now - n.at < delay_seconds), default=0)


def advance_trials(
    tried: DelayTrials, needs: Sequence[WorkerNeed], now: int, *, start: int, hold: int, minutes: float, keep: float
) -> DelayTrials:
    """Every trial one reading later: its fleet holds what was needed within the delay, and at most what it had.

    start: up to how many workers are started at this reading; hold: how many are held at most besides the delay.
    minutes: since the last reading. `keep` of the old sums remains.
    """
    workers, moved, held, turns = [], [], [], []
    at, minutes = len(needs) - 1, min(minutes, GAP_MINUTES)
    for delay, last, direction, unused, changes in zip(
        _DELAY_SECONDS, tried.workers, tried.moved, tried.held, tried.turns, strict=True
    ):
        while at > 0 and now - needs[at - 1].at < delay:
            at -= 1
        before = last or start
        after = max(start, min(before, max(hold, needs[at].workers)))
        to = 1 if after > before else -1 if after < before else direction
        workers.append(after)
        moved.append(to)
        held.append(unused * keep + max(0, before - start) * minutes)
        turns.append(changes * keep + (1 if to * direction < 0 else 0))
    return DelayTrials(workers=tuple(workers), moved=tuple(moved), held=tuple(held), turns=tuple(turns))


def choose_delay(tried: DelayTrials, *, change_cost: float) -> ScaleDownDelay:
    """The delay with the lowest cost; the shortest of equals. change_cost: worker-minutes for a change of direction."""
    costs = [held + change_cost * turns for held, turns in zip(tried.held, tried.turns, strict=True)]
    best = costs.index(min(costs))
    return ScaleDownDelay(
        seconds=_DELAY_SECONDS[best],
        holding=tried.held[best],
        changing=change_cost * tried.turns[best],
        shortest=costs[0],
    )
