"""Times what a run computes: decisions, a year of ticks, the preset `adaptive` under demand, and a plan of launches.

Run: PYTHONPATH=.:functions python tests/performance/bench_decision.py [--ticks 262800]. Prints each figure beside its
promise; fails when a decision of `adaptive` takes more than 40 ms of processor time or a plan more than 50 ms.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

from node_fleet.domain.fit.demand import demand_of
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import Instance, PodShape, Snapshot, Worker
from node_fleet.domain.scale_up.placement import Placement, plan_slots
from node_fleet.domain.scaling.decision import decide
from node_fleet.domain.scaling.memory_update import record_success
from node_fleet.domain.scaling.schedule import parse_schedules
from node_fleet.payload import to_payload
from node_fleet.settings import Settings

START = 1_767_225_600
YEAR_TICKS = 262_800
TICK_SECONDS = 120
ADAPTIVE_LIMIT_MS, PLAN_LIMIT_MS = 40.0, 50.0
SHAPES, WAITING_PODS, RUNNING_PODS = 500, 2000, 8000


def workers(count: int, **figures: Any) -> tuple[Worker, ...]:
    """Usable workers with every figure known."""
    usual = {
        "cpu_allocatable_milli": 1900,
        "cpu_requested_milli": 900,
        "memory_allocatable_mib": 1698,
        "memory_requested_mib": 700,
        "pods": 9,
        "pods_allocatable": 110,
    }
    return tuple(
        Worker(
            instance_id=f"i-{number:05d}",
            zone=f"zone-{number % 3}",
            market="spot",
            instance_type="t3.small",
            phase="usable",
            launched_at=START - 86_400,
            cpu_percent=50.0,
            **{**usual, **figures},
        )
        for number in range(count)
    )


def snapshot(at: int, seen: tuple[Worker, ...], cpu: float, pending: tuple[PodShape, ...] = ()) -> Snapshot:
    return Snapshot(
        at=at, source="live", read_at=at, cpu_percent=cpu, memory_percent=50.0, pending=pending, workers=seen
    )


def milliseconds(action: Callable[[], object], times: int) -> float:
    """Median processor time of so many single runs."""
    taken = []
    for _ in range(times):
        begun = time.process_time()
        action()
        taken.append(1000 * (time.process_time() - begun))
    return statistics.median(taken)


def single(count: int, times: int) -> float:
    """One decision with that many workers and twenty shapes of waiting pods."""
    waiting = tuple(PodShape(cpu_milli=100 + n, memory_mib=64, count=50, example=f"shop/p{n}") for n in range(20))
    seen, policy = snapshot(START, workers(count), 72.0, waiting), Settings(max_workers=1000).policy()
    return milliseconds(lambda: decide(seen, Memory(), policy, START), times)


def year(ticks: int) -> tuple[float, int]:
    """Seconds of this process for so many ticks of a day-and-night load, and the number of actions."""
    policy = Settings(schedules=parse_schedules("Mon-Sat 09:00-21:00: 4"), timezone="Asia/Dhaka").policy()
    fleets = {count: workers(count) for count in range(policy.max_workers + 1)}
    memory, count, actions = Memory(), 3, 0
    begun = time.process_time()
    for tick in range(ticks):
        now = START + tick * TICK_SECONDS
        demand = 260 - 200 * math.cos(now % 86_400 / 86_400 * 2 * math.pi)
        memory, change = _tick(snapshot(now, fleets[count], min(100.0, demand / count)), memory, policy)
        count, actions = count + change, actions + bool(change)
    return time.process_time() - begun, actions


def _tick(seen: Snapshot, memory: Memory, policy: Policy) -> tuple[Memory, int]:
    decision = decide(seen, memory, policy, seen.at)
    if decision.action == "none":
        return decision.memory, 0
    after = record_success(decision.memory, decision.action, decision.rule, seen.at + 80)
    return after, decision.workers_after - decision.workers_before


def adaptive(count: int = 800, times: int = 15) -> tuple[float, int]:
    """Milliseconds of a decision of `adaptive` with the whole fleet busy and pods of many shapes waiting, and the
    characters that it remembers."""
    policy = Settings.from_mapping({"preset": "adaptive", "max_workers": 1000}).policy()
    per_worker = RUNNING_PODS // count
    busy = workers(count, cpu_requested_milli=20 + 200 * per_worker, memory_requested_mib=32 + 100 * per_worker)
    zones, each = ("", "zone-0", "zone-1", "zone-2"), WAITING_PODS // SHAPES
    selectors = [{"topology.kubernetes.io/zone": zone} if zone else {} for zone in zones]
    demands = [demand_of({"metadata": {}, "spec": {"nodeSelector": selector}}) for selector in selectors]
    waiting = tuple(
        PodShape(cpu_milli=150 + n, memory_mib=64 + n % 90, count=each, oldest_seconds=40, demand=demands[n % 4])
        for n in range(SHAPES)
    )
    memories = [Memory()]

    def tick() -> None:
        now = START + len(memories) * TICK_SECONDS
        memories.append(decide(snapshot(now, busy, 60.0, waiting), memories[-1], policy, now).memory)

    median = milliseconds(tick, times)
    return median, len(json.dumps(to_payload(memories[-1].learned)))


def plan(launches: int = 10, fleet: int = 1000) -> float:
    """A plan of launches over three zones beside workers of two types and both markets."""
    zones = {f"eu-central-1{letter}": f"subnet-{letter}" for letter in "abc"}
    placement = Placement(zones=zones, instance_types=("t3.small", "t3a.small"))
    instances = tuple(
        Instance(
            instance_id=f"i-{number:017x}",
            zone=list(zones)[number * number % 3],
            instance_type="t3.small" if number % 4 else "t3a.small",
            market="spot" if number % 3 else "on-demand",
            state="running",
            launched_at=START - number,
        )
        for number in range(fleet)
    )
    return milliseconds(lambda: plan_slots(launches, instances, placement, now=START), 50)


def main() -> int:
    """Print the figures; exit status 1 when a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ticks", type=int, default=YEAR_TICKS, help="ticks of the long run")
    ticks = parser.parse_args().ticks
    print(f"one decision, 10 workers, 1,000 pods of 20 shapes waiting: {single(10, 300):.2f} ms (promised: under 5 ms)")
    print(f"one decision, 1,000 workers, 1,000 pods waiting: {single(1000, 30):.2f} ms (promised: under 20 ms)")
    spent, actions = year(ticks)
    print(f"{ticks} decisions: {spent:.1f} s of this process, {actions} actions")
    print(f"a year at this pace: {spent / ticks * YEAR_TICKS:.1f} s (promised: under 30 s)")
    decided, remembered = adaptive()
    pods = RUNNING_PODS + WAITING_PODS
    print(f"adaptive, 800 workers of 1,000, {pods} pods: {decided:.1f} ms (promised: under 20 ms)")
    print(f"adaptive remembers {remembered} characters")
    planned = plan()
    print(f"plan of 10 launches beside 1,000 workers: {planned:.2f} ms (promised: under {PLAN_LIMIT_MS:g} ms)")
    return int(decided > ADAPTIVE_LIMIT_MS or planned > PLAN_LIMIT_MS)


if __name__ == "__main__":
    raise SystemExit(main())
