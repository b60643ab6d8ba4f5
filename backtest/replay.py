"""Replays one load under one policy: it advances the clock, changes the pods, and calls the policy.

It knows no policy: a Sizer names the times at which it acts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from backtest.fleet import Fleet
from backtest.load import Load, Phase
from backtest.measures import Action, Measures, Point, TypeUsage
from backtest.model import Capacity
from backtest.trace import DAY_SECONDS
from node_fleet.domain.model.instance_types import CpuCredits


class Sizer(Protocol):
    """A policy that sizes the fleet. It acts at every change of pods or workers, and at the times that it names."""

    @property
    def name(self) -> str: ...
    @property
    def actions(self) -> list[Action]: ...
    def start(self, fleet: Fleet) -> None:
        """Prepare for the first time at which the fleet exists."""
        ...

    def wakes_at(self) -> int:
        """The next time at which it acts; NEVER if it acts at changes only."""
        ...

    def act(self, fleet: Fleet) -> None:
        """Change the fleet at fleet.now. Called again only at a later time."""
        ...


def replay(
    load: Load,
    capacity: Capacity,
    sizer: Sizer,
    *,
    cpu_credits: CpuCredits = "unlimited",
    chart_seconds: int = 0,
    start_workers: int = 0,
) -> Measures:
    """Replay the load. start_workers 0: the fleet starts with the workers that the first replicas need.

    chart_seconds: the interval of the points for charts; 0: no points.
    """
    first = load.phases[0]
    workers = start_workers or load.workers_for(first.changes[0][1])
    fleet = Fleet(capacity, load, first.start, workers, cpu_credits)
    points = _Points(chart_seconds)
    for phase in load.phases:
        fleet.skip_to(phase.start)
        fleet.settle(phase.changes[0][1])
        if phase is first:
            sizer.start(fleet)
        _phase(fleet, phase, sizer, points)
    counts = fleet.counts
    for machine in fleet.machines:
        counts.end(machine)
    return Measures(
        policy=sizer.name,
        trace=load.name,
        days=load.seconds / DAY_SECONDS,
        worker_hours=sum(counts.machine_seconds.values()) / 3600,
        pending_pod_minutes=counts.pending_pod_seconds / 60,
        avoidable_pod_minutes=counts.avoidable_pod_seconds / 60,
        overload_minutes=counts.overload_seconds / 60,
        charged_vcpu_hours=sum(counts.charged_vcpu_hours.values()),
        missing_vcpu_hours=counts.missing_vcpu_hours,
        standby_hours=counts.standby_seconds / 3600,
        usage=tuple(
            TypeUsage(
                instance_type=kind,
                worker_hours=seconds / 3600,
                charged_vcpu_hours=counts.charged_vcpu_hours.get(kind, 0.0),
            )
            for kind, seconds in counts.machine_seconds.items()
        ),
        actions=tuple(sizer.actions),
        points=tuple(points.found),
    )


class _Points:
    """Points for charts: the fleet at the start of each interval, and the highest values within it."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self._ends = 0
        self.found: list[Point] = []

    def record(self, fleet: Fleet) -> None:
        """Record the fleet after a change."""
        now, last = fleet.now, self.found[-1] if self.found else None
        if last is None or now >= self._ends:
            self.found.append(Point(at=now, workers=fleet.size, running=fleet.running, pending=fleet.pending))
            self._ends = now - now % self.seconds + self.seconds
        elif fleet.size > last.workers or fleet.pending > last.pending:
            workers, pending = max(last.workers, fleet.size), max(last.pending, fleet.pending)
            self.found[-1] = replace(last, workers=workers, pending=pending)


def _phase(fleet: Fleet, phase: Phase, sizer: Sizer, points: _Points) -> None:
    changes, index, count = phase.changes, 0, len(phase.changes)
    now, end, wanted = phase.start, phase.end, phase.changes[0][1]
    while now < end:
        sizer.act(fleet)
        if points.seconds:
            points.record(fleet)
        change_at = changes[index + 1][0] if index + 1 < count else end
        until = min(change_at, fleet.next_event_at, sizer.wakes_at(), end)
        until = until if until > now else now + 1
        fleet.advance(until, phase.used_between(now, until))
        now = until
        if index + 1 < count and changes[index + 1][0] <= now:
            index += 1
            wanted = changes[index][1]
        fleet.settle(wanted)
