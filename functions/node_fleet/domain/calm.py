"""When room that is no longer needed may go: at once where it stays unneeded, later where it is soon needed again.

Learns how long the pauses were after which workers were needed again, and weighs holding them against starting anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from node_fleet.domain.adaptive_memory import Needed

PAUSES = (2, 4, 6, 8, 12, 16, 20, 30, 45, 60, 90, 120, 180, 240, 360, 480)
"""Minutes. A rest is one of these; pauses are counted by the first of these that is not shorter."""

FORGET_SECONDS = PAUSES[-1] * 60
KEEP = 0.5 ** (1 / 40)
STEPS_KEPT = 24
_UNSEEN = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """How long room must have been unneeded before it goes, and the sum behind it in worker-minutes."""

    seconds: int
    holding: float
    starting_anew: float
    times: float


def unlearned() -> tuple[float, ...]:
    """No pause was seen yet; the last place counts workers that were not needed again."""
    return (0.0,) * (len(PAUSES) + 1)


def next_staircase(needs: Sequence[Needed], now: int, workers: int) -> tuple[Needed, ...]:
    """The needs with the present one last; a need that a later one exceeds says nothing any more."""
    young = [n for n in needs if now - n.at <= FORGET_SECONDS and n.workers > workers]
    return (*young[-(STEPS_KEPT - 1) :], Needed(at=now, workers=workers))


def regained(needs: Sequence[Needed], now: int, workers: int) -> Iterator[tuple[int, int]]:
    """(seconds, workers) for workers that are needed again now, with the pause since they last were."""
    if not needs:
        return
    have = needs[-1].workers
    for step in reversed(needs[:-1]):
        if have >= workers:
            return
        if step.workers > have:
            top = min(step.workers, workers)
            yield now - step.at, top - have
            have = top


def forgotten(needs: Sequence[Needed], now: int) -> int:
    """Workers that were not needed again for so long that nobody waits for them."""
    old = [n.workers for n in needs if now - n.at > FORGET_SECONDS]
    young = [n.workers for n in needs if now - n.at <= FORGET_SECONDS]
    return max(0, old[0] - max(young, default=old[0])) if old else 0


def learn(
    workers: Sequence[float], times: Sequence[float], pauses: Sequence[tuple[int, int]], gone: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The counts with these pauses (one event, named by its longest) and the workers that are never needed again."""
    by_workers, by_times = list(workers), list(times)
    told = [(index, count) for seconds, count in pauses if (index := _place(seconds)) is not None]
    if told and max(seconds for seconds, _ in pauses) > PAUSES[0] * 60:
        by_workers = [value * KEEP for value in by_workers]
        by_times = [value * KEEP for value in by_times]
        by_times[max(index for index, _ in told)] += 1
        for index, count in told:
            by_workers[index] += count
    by_workers[-1] += gone
    return tuple(by_workers), tuple(by_times)


def _place(seconds: int) -> int | None:
    return next((k for k, minutes in enumerate(PAUSES) if seconds <= minutes * 60), None)


def choose_rest(workers: Sequence[float], times: Sequence[float], *, change_cost: float) -> Rest:
    """The rest at which holding the room and starting it anew together cost least; the shortest of equals."""

    def holding(rest: int) -> float:
        seen = sum(count * min(pause, rest) for pause, count in zip(PAUSES, workers, strict=False))
        return seen + (workers[-1] + _UNSEEN) * rest

    def anew(rest: int) -> float:
        return change_cost * sum(count for pause, count in zip(PAUSES, times, strict=False) if pause > rest)

    best = min(PAUSES, key=lambda rest: (holding(rest) + anew(rest), rest))
    return Rest(seconds=best * 60, holding=holding(best), starting_anew=anew(best), times=sum(times))


def still_needed(needs: Sequence[Needed], now: int, rest_seconds: int) -> int:
    """The most workers that were needed within the rest."""
    return max((n.workers for n in needs if now - n.at < rest_seconds), default=0)
