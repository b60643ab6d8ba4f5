"""The clairvoyant lower bound: the cheapest fleet that knows the load beforehand and has no avoidable waiting.

It pays for boots and drains like every policy. The figure is exact for this model: see docs/backtest.md.
"""

from __future__ import annotations

from backtest.load import Load
from backtest.measures import Action, Measures
from backtest.model import Capacity
from backtest.trace import DAY_SECONDS
from node_fleet.domain.model.instance_types import CpuCredits, baseline_percent


def clairvoyant(load: Load, capacity: Capacity, cpu_credits: CpuCredits = "unlimited") -> Measures:
    """Computes each k-th worker by itself: it runs while k workers are needed, and through pauses up to one restart.

    Workers are alike and pods move freely. Keeping the k-th worker through a pause costs the length of the pause, and
    replacing it costs one boot and one drain. The cheaper of the two at each level gives the cheapest schedule.
    """
    needs, end = _needs(load)
    restart = capacity.boot_seconds + capacity.drain_seconds
    seconds = load.seconds * load.min_workers
    actions: list[Action] = []
    for level in range(load.min_workers + 1, load.max_workers + 1):
        for since, until in _with_short_pauses(_intervals(needs, level, end), restart):
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
        charged_vcpu_hours=_least_surplus(load, capacity, seconds / 3600) if cpu_credits == "unlimited" else 0.0,
        actions=tuple(sorted(_combined(actions), key=lambda action: action.at)),
    )


def _least_surplus(load: Load, capacity: Capacity, worker_hours: float) -> float:
    """The fewest vCPU-hours above the baseline with which so many worker-hours carry this load.

    As if the workers shared one account without a limit, so no fleet of these worker-hours is charged for less.
    """
    baseline = baseline_percent(capacity.instance_type)
    if baseline is None:
        return 0.0
    used = sum(phase.used_milli_seconds[-1] for phase in load.phases) / 3.6e6
    used += worker_hours * capacity.system_cpu_milli / 1000
    return max(0.0, used - worker_hours * capacity.vcpus * baseline / 100)


def _needs(load: Load) -> tuple[list[tuple[int, int]], int]:
    """(second of the covered time, workers needed), and the covered time in seconds; gaps are left out."""
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
    """The intervals in which at least `level` workers are needed."""
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


def _with_short_pauses(intervals: list[tuple[int, int]], restart: int) -> list[tuple[int, int]]:
    """The intervals, joined where the pause between them is not longer than a restart."""
    found: list[tuple[int, int]] = []
    for since, until in intervals:
        if found and since - found[-1][1] <= restart:
            found[-1] = (found[-1][0], until)
        else:
            found.append((since, until))
    return found


def _combined(actions: list[Action]) -> list[Action]:
    """Actions of several levels at one time are one action."""
    total: dict[int, int] = {}
    for action in actions:
        total[action.at] = total.get(action.at, 0) + action.change
    return [Action(at=at, change=change) for at, change in total.items() if change]


def _pod_seconds_beyond(load: Load) -> int:
    """Pod-seconds of pods that exceed the capacity of the largest fleet."""
    total = 0
    for phase in load.phases:
        ends = [at for at, _ in phase.changes[1:]] + [phase.end]
        for (at, replicas), until in zip(phase.changes, ends, strict=True):
            total += max(0, replicas - load.max_running_pods) * (until - at)
    return total
