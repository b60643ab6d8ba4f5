"""When room that is no longer needed may go: at once where it stays unneeded, later where it is soon needed again.

Tries every rest on paper, on what this fleet met: the room it would have held, and the changes of direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from node_fleet.domain.model.memory import DelayTrials, WorkerNeed

DELAY_MINUTES = (2, 4, 6, 8, 12, 16, 20, 30, 45, 60, 90, 120, 180, 240, 360, 480)
"""Minutes. A rest is one of these."""

FORGET_SECONDS = DELAY_MINUTES[-1] * 60
STEPS_KEPT = 24
GAP_MINUTES = 10.0
"""What is counted at most for the time between two readings."""

_DELAY_SECONDS = tuple(minutes * 60 for minutes in DELAY_MINUTES)
_NOTHING = (0.0,) * len(DELAY_MINUTES)
_NO_WORKERS = (0,) * len(DELAY_MINUTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleDownDelay:
    """How long room must have been unneeded before it goes; and what this rest would have led to, which fades.

    holding, changing: worker-minutes of room held, and the price of the changes of direction; at_once: the sum of both
    at the shortest rest.
    """

    seconds: int
    holding: float
    changing: float
    at_once: float


def initial_trials() -> DelayTrials:
    """Nothing was seen yet."""
    return DelayTrials(workers=_NO_WORKERS, moved=_NO_WORKERS, held=_NOTHING, turns=_NOTHING)


def update_needs(needs: Sequence[WorkerNeed], now: int, workers: int) -> tuple[WorkerNeed, ...]:
    """The needs with the present one last; a need that a later one exceeds says nothing any more."""
    young = [n for n in needs if n.workers > workers and now - n.at <= FORGET_SECONDS]
    return (*young[-(STEPS_KEPT - 1) :], WorkerNeed(at=now, workers=workers))


def recently_needed(needs: Sequence[WorkerNeed], now: int, delay_seconds: int) -> int:
    """The most workers that were needed within the rest."""
    return max((n.workers for n in needs if now - n.at < delay_seconds), default=0)


def advance_trials(
    tried: DelayTrials, needs: Sequence[WorkerNeed], now: int, *, start: int, hold: int, minutes: float, keep: float
) -> DelayTrials:
    """Every rest, one reading later: its fleet holds what was needed within the rest, and at most what it had.

    start, hold: to how many workers some are started now, and how many at most are held beside the rest. minutes:
    since the reading before; `keep` of what was counted before is left.
    """
    workers, moved, held, turns = [], [], [], []
    at, minutes = len(needs) - 1, min(minutes, GAP_MINUTES)
    for delay, last, way, free, changes in zip(
        _DELAY_SECONDS, tried.workers, tried.moved, tried.held, tried.turns, strict=True
    ):
        while at > 0 and now - needs[at - 1].at < delay:
            at -= 1
        had = last or start
        have = max(start, min(had, max(hold, needs[at].workers)))
        to = 1 if have > had else -1 if have < had else way
        workers.append(have)
        moved.append(to)
        held.append(free * keep + max(0, had - start) * minutes)
        turns.append(changes * keep + (1 if to * way < 0 else 0))
    return DelayTrials(workers=tuple(workers), moved=tuple(moved), held=tuple(held), turns=tuple(turns))


def choose_delay(tried: DelayTrials, *, change_cost: float) -> ScaleDownDelay:
    """The rest whose held room and changes of direction together would have cost least; the shortest of equals."""
    sums = [free + change_cost * changes for free, changes in zip(tried.held, tried.turns, strict=True)]
    best = sums.index(min(sums))
    return ScaleDownDelay(
        seconds=_DELAY_SECONDS[best],
        holding=tried.held[best],
        changing=change_cost * tried.turns[best],
        at_once=sums[0],
    )
