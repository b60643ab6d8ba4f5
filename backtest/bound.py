"""The clairvoyant lower bound: the cheapest fleet that knows the load beforehand and never lets an avoidable pod wait.

It pays the same boot and drain as everybody. The figure is exact for this model: see docs/backtest.md.
"""

from __future__ import annotations

from backtest.load import Load
from backtest.measures import Action, Measures
from backtest.model import Capacity
from backtest.trace import DAY_SECONDS


def clairvoyant(load: Load, capacity: Capacity) -> Measures:
    """Each k-th worker on its own: it runs while k workers are needed, and through pauses shorter than a restart.

    Workers are alike and pods move freely, so keeping the k-th worker through a pause costs the pause and replacing
    it costs one boot and one drain; taking the cheaper of the two, level by level, is the cheapest of all schedules.
    """
    needs, end = _needs(load)
    restart = capacity.boot_seconds + capacity.drain_seconds
    seconds = load.seconds * load.least_workers
    actions: list[Action] = []
    for level in range(load.least_workers + 1, load.most_workers + 1):
        for since, until in _kept(_intervals(needs, level, end), restart):
            first, last = since == 0, until == end
            seconds += until - since + (0 if first else min(since, capacity.boot_seconds))
            seconds += 0 if last else min(end - until, capacity.drain_seconds)
            actions += [] if first else [Action(at=max(0, since - capacity.boot_seconds), change=1)]
            actions += [] if last else [Action(at=until, change=-1)]
    beyond = _pod_seconds_beyond(load)
    return Measures(
        policy="clairvoyant",
        trace=load.name,
        days=load.seconds / DAY_SECONDS,
        worker_hours=seconds / 3600,
        pending_pod_minutes=beyond / 60,
        avoidable_pod_minutes=0.0,
        overload_minutes=0.0,
        actions=tuple(sorted(_merged(actions), key=lambda action: action.at)),
    )


def _needs(load: Load) -> tuple[list[tuple[int, int]], int]:
    """(second of covered time, workers needed), gaps taken out; and the whole covered time."""
    found: list[tuple[int, int]] = []
    offset = 0
    for phase in load.phases:
        for at, replicas in phase.changes:
            workers = load.workers_for(replicas)
            if not found or found[-1][1] != workers:
                found.append((offset + at - phase.start, workers))
        offset += phase.end - phase.start
    return found, offset


def _intervals(needs: list[tuple[int, int]], level: int, end: int) -> list[tuple[int, int]]:
    """When at least `level` workers are needed."""
    found: list[tuple[int, int]] = []
    since = -1
    for at, workers in needs:
        if workers >= level and since < 0:
            since = at
        elif workers < level and since >= 0:
            found.append((since, at))
            since = -1
    if since >= 0:
        found.append((since, end))
    return found


def _kept(intervals: list[tuple[int, int]], restart: int) -> list[tuple[int, int]]:
    """The intervals, with pauses that cost no more than a restart filled."""
    found: list[tuple[int, int]] = []
    for since, until in intervals:
        if found and since - found[-1][1] <= restart:
            found[-1] = (found[-1][0], until)
        else:
            found.append((since, until))
    return found


def _merged(actions: list[Action]) -> list[Action]:
    """Actions of several levels at one moment are one action."""
    total: dict[int, int] = {}
    for action in actions:
        total[action.at] = total.get(action.at, 0) + action.change
    return [Action(at=at, change=change) for at, change in total.items() if change]


def _pod_seconds_beyond(load: Load) -> int:
    """Pods that not even the largest fleet could hold, times their seconds."""
    total = 0
    for phase in load.phases:
        ends = [at for at, _ in phase.changes[1:]] + [phase.end]
        for (at, replicas), until in zip(phase.changes, ends, strict=True):
            total += max(0, replicas - load.holdable) * (until - at)
    return total
