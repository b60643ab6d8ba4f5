"""Times decisions: one with 10 and with 1,000 workers, and a year of 2-minute ticks in one process.

Run: PYTHONPATH=.:functions python tests/performance/bench_decision.py [--ticks 262800]. Prints figures, asserts none.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable

from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import PodShape, Snapshot, Worker
from node_fleet.domain.scaling.decision import decide
from node_fleet.domain.scaling.memory_update import record_success
from node_fleet.domain.scaling.schedule import parse_schedules
from node_fleet.settings import Settings

START = 1_767_225_600
YEAR_TICKS = 262_800


def workers(count: int) -> tuple[Worker, ...]:
    """Usable workers with every figure known."""
    return tuple(
        Worker(
            instance_id=f"i-{number:05d}",
            zone=f"zone-{number % 3}",
            market="spot",
            instance_type="t3.small",
            phase="usable",
            launched_at=START - 86_400,
            cpu_percent=50.0,
            cpu_allocatable_milli=2000,
            cpu_requested_milli=900,
            memory_allocatable_mib=1900,
            memory_requested_mib=700,
            pods=9,
            pods_allocatable=110,
        )
        for number in range(count)
    )


def median_seconds(action: Callable[[], object], times: int) -> float:
    """Median of so many single runs."""
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        action()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def single(count: int, times: int) -> float:
    """Median seconds of one decision with that many workers and twenty shapes of waiting pods."""
    waiting = tuple(PodShape(cpu_milli=100 + n, memory_mib=64, count=50, example=f"shop/p{n}") for n in range(20))
    seen = Snapshot(
        at=START,
        source="live",
        read_at=START,
        cpu_percent=72.0,
        memory_percent=61.0,
        pending=waiting,
        workers=workers(count),
    )
    policy = Settings(max_workers=1000).policy()
    return median_seconds(lambda: decide(seen, Memory(), policy, START), times)


def year(ticks: int) -> tuple[float, float, int]:
    """Seconds by the clock and of this process for so many ticks of a day-and-night load, and the number of actions."""
    policy = Settings(schedules=parse_schedules("Mon-Sat 09:00-21:00: 4"), timezone="Asia/Dhaka").policy()
    fleets = {count: workers(count) for count in range(policy.max_workers + 1)}
    memory, count, actions = Memory(), 3, 0
    begun = time.perf_counter(), time.process_time()
    for tick in range(ticks):
        now = START + tick * 120
        demand = 260 - 200 * math.cos(now % 86_400 / 86_400 * 2 * math.pi)
        memory, change = _tick(now, min(100.0, demand / count), memory, policy, fleets[count])
        count, actions = count + change, actions + bool(change)
    return time.perf_counter() - begun[0], time.process_time() - begun[1], actions


def _tick(now: int, cpu: float, memory: Memory, policy: Policy, fleet: tuple[Worker, ...]) -> tuple[Memory, int]:
    seen = Snapshot(at=now, source="live", read_at=now, cpu_percent=cpu, memory_percent=40.0, pending=(), workers=fleet)
    decision = decide(seen, memory, policy, now)
    if decision.action == "none":
        return decision.memory, 0
    return record_success(decision.memory, decision.action, decision.rule, now + 80), (
        decision.workers_after - decision.workers_before
    )


def main() -> None:
    """Print the three figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ticks", type=int, default=YEAR_TICKS, help="ticks of the long run")
    ticks = parser.parse_args().ticks
    print(f"one decision, 10 workers: {single(10, 300) * 1e3:.3f} ms (promised: under 0.3 ms)")
    print(f"one decision, 1,000 workers: {single(1000, 30) * 1e3:.2f} ms (promised: under 20 ms)")
    wall, own, actions = year(ticks)
    print(f"{ticks} decisions: {wall:.1f} s, {own:.1f} s of them in this process, {actions} actions")
    print(f"a year at this pace: {own / ticks * YEAR_TICKS:.1f} s (promised: under 30 s)")


if __name__ == "__main__":
    main()
