"""Workers, pods and snapshots for tests of decisions: the quiet default, changed by what a test is about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import PodShape, Snapshot, Worker
from node_fleet.domain.scaling.decision import Decision, decide
from node_fleet.domain.scaling.memory_update import record_success

START = 1_790_000_040  # Monday 21 September 2026, 14:14 UTC
TICK = 120


def worker(number: int | str, phase: str = "usable", **changes: Any) -> Worker:
    """A worker of 2 cores and 2 GiB, half of it requested."""
    values: dict[str, Any] = {
        "instance_id": f"i-{number:0>4}",
        "zone": "ap-southeast-1a",
        "market": "spot",
        "instance_type": "t3.small",
        "phase": phase,
        "launched_at": START - 86_400,
    }
    if phase != "joining":
        values |= {
            "cpu_allocatable_milli": 2000,
            "cpu_requested_milli": 1000,
            "memory_allocatable_mib": 1900,
            "memory_requested_mib": 800,
            "pods": 8,
            "pods_allocatable": 110,
        }
    return Worker(**{**values, **changes})


def workers(count: int, **changes: Any) -> tuple[Worker, ...]:
    """That many usable workers."""
    return tuple(worker(number, **changes) for number in range(count))


def pods(count: int, cpu_milli: int = 500, memory_mib: int = 256, **changes: Any) -> tuple[PodShape, ...]:
    """Unschedulable pods of one shape; none when the count is 0."""
    values: dict[str, Any] = {"oldest_seconds": 95, "example": "shop/web-1", **changes}
    return (PodShape(cpu_milli=cpu_milli, memory_mib=memory_mib, count=count, **values),) if count else ()


def snapshot(at: int = START, **changes: Any) -> Snapshot:
    """A live reading of four usable workers at half load, nothing pending."""
    values: dict[str, Any] = {
        "at": at,
        "read_at": at,
        "source": "live",
        "cpu_percent": 50.0,
        "cpu_max_percent": 60.0,
        "memory_percent": 40.0,
        "memory_max_percent": 45.0,
        "pending": (),
        "workers": workers(4),
    }
    return Snapshot(**{**values, **changes})


def idle(at: int = START, **changes: Any) -> Snapshot:
    """A live reading at which nothing is needed: CPU 10 %, memory 20 %."""
    return snapshot(at, **{"cpu_percent": 10.0, "memory_percent": 20.0, **changes})


@dataclass
class Fleet:
    """Decides tick after tick with what it remembers; an action ends, successfully, `takes` seconds later."""

    policy: Policy = field(default_factory=Policy)
    memory: Memory = field(default_factory=Memory)
    takes: int = 0
    decisions: list[Decision] = field(default_factory=list)

    def tick(self, seen: Snapshot) -> Decision:
        decision = decide(seen, self.memory, self.policy, seen.at)
        self.memory = decision.memory
        self.decisions.append(decision)
        if decision.action != "none":
            self.memory = record_success(self.memory, decision.action, decision.rule, seen.at + self.takes)
        return decision

    def ticks(self, *seen: Snapshot) -> Decision:
        """Decide each in turn; returns the last decision."""
        return [self.tick(one) for one in seen][-1]


def at_ticks(readings: Iterable[dict[str, Any]], start: int = START) -> list[Snapshot]:
    """One snapshot for each set of changes, two minutes apart."""
    return [snapshot(start + index * TICK, **changes) for index, changes in enumerate(readings)]
