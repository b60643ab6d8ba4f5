"""The figures of a simulation, counted from what happened to the instances and from the executions' histories.

The table, the page and the terminal all show these; a test derives them a second way, from the recorded EC2 calls.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from node_fleet.domain.cost.fleet_cost import (
    BilledInstance,
    fixed_fleet,
    instances_usd,
    lives_cost,
)
from node_fleet.domain.cost.prices import PriceList
from node_fleet.domain.cost.tariff import Cost, Currency, Tariff, saved_percent
from node_fleet.domain.model.text import count_of
from node_fleet.domain.model.value_class import value_class
from node_fleet.payload import table_rows
from simulator.cluster.views import SnapshotLine
from simulator.report.story import changed_something, operations_of

if TYPE_CHECKING:
    from simulator.simulation import Simulation

ENDED = ("shutting-down", "terminated")


@value_class
class Figures:
    """What one simulation amounts to. Seconds, USD and counts; None where nothing of the kind happened.

    slowest_ready_seconds: from a decision to its last worker's first usable moment. longest_wait_seconds: no pod waited
    longer for capacity; from the last sample without pods that no worker could hold to the first one without them.
    """

    executions: int
    changed: int
    failed: int
    workers_start: int
    workers_highest: int
    workers_end: int
    launched: int
    removed: int
    slowest_ready_seconds: float | None
    longest_wait_seconds: float
    worker_hours: float
    spent: Cost
    instances_usd: float | None
    fixed_workers: int
    fixed: Cost

    @property
    def saved_percent(self) -> float | None:
        """Against the fixed fleet; None when a part is not known."""
        return saved_percent(self.spent, self.fixed)


def figures_of(simulation: Simulation, *, fixed_workers: int = 5) -> Figures:
    """Count a simulation that was run. The fixed fleet is so many on-demand workers of the first worker type."""
    executions, stays = simulation.executions, stays_of(simulation)
    tariff = _tariff(simulation)
    start, end = simulation.scenario.start_at, simulation.deployment.clock.now()
    first_type = simulation.scenario.workers[0].instance_type if simulation.scenario.workers else "t3.small"
    fixed_cpu = _mean(
        min(100.0, point.cpu_percent * point.workers_usable / fixed_workers)
        for point in simulation.points
        if point.cpu_percent is not None
    )
    over = [one for one in stays if one.ended_at < end]
    return Figures(
        executions=len(executions),
        changed=sum(changed_something(one) for one in executions),
        failed=sum(one.status not in ("SUCCEEDED", "RUNNING") for one in executions),
        workers_start=len(simulation.starting_ids),
        workers_highest=_highest(stays),
        workers_end=len(stays) - len(over),
        launched=len(stays) - len(simulation.starting_ids),
        removed=len(over),
        slowest_ready_seconds=_slowest_ready(operation for one in executions for operation in operations_of(one)),
        longest_wait_seconds=_longest_wait(simulation.points),
        worker_hours=sum(one.hours for one in stays),
        spent=lives_cost(tariff, stays),
        instances_usd=instances_usd(tariff, stays),
        fixed_workers=fixed_workers,
        fixed=fixed_fleet(tariff, first_type, fixed_cpu, workers=fixed_workers, hours=(end - start) / 3600),
    )


def stays_of(simulation: Simulation) -> list[BilledInstance]:
    """Every worker's life as EC2 announced it, in the order of their starts; one that still runs ends now."""
    begun: dict[str, float] = dict.fromkeys(simulation.starting_ids, simulation.scenario.start_at)
    ended: dict[str, float] = {}
    billed = _billed(simulation)
    for event in simulation.deployment.events:
        instance_id = event["detail"].get("instance-id", "")
        if event["detail-type"] != "EC2 Instance State-change Notification" or instance_id not in billed:
            continue
        at, state = _epoch(event["time"]), event["detail"]["state"]
        if state in ENDED:
            ended.setdefault(instance_id, at)
        else:
            begun.setdefault(instance_id, at)
    now = simulation.deployment.clock.now()
    return [
        BilledInstance(
            instance_id=instance_id,
            instance_type=billed[instance_id][0],
            market=billed[instance_id][1],
            begun_at=at,
            ended_at=ended.get(instance_id, now),
            cpu_percent=_mean(
                point.cpu_percent
                for point in simulation.points
                if point.cpu_percent is not None and at <= point.at <= ended.get(instance_id, now)
            ),
        )
        for instance_id, at in begun.items()
    ]


def _tariff(simulation: Simulation) -> Tariff:
    """That of the deployed functions."""
    return simulation.deployment.settings().tariff(PriceList.shipped(simulation.deployment.cloud.region))


def _mean(values: Iterable[float]) -> float | None:
    every = tuple(values)
    return sum(every) / len(every) if every else None


def _billed(simulation: Simulation) -> dict[str, tuple[str, str]]:
    """Worker -> type and market, from the answers to launches: EC2 itself forgets what it terminated."""
    found: dict[str, tuple[str, str]] = {}
    for call in simulation.deployment.cloud.recorder.of("CreateFleet"):
        for part in (call.result or {}).get("Instances", ()):
            found |= dict.fromkeys(part["InstanceIds"], (part["InstanceType"], part["Lifecycle"]))
    for call in simulation.deployment.cloud.recorder.of("RunInstances"):
        for instance in (call.result or {}).get("Instances", ()):
            market = "spot" if instance.get("InstanceLifecycle") == "spot" else "on-demand"
            found[instance["InstanceId"]] = (instance["InstanceType"], market)
    found.pop(simulation.deployment.server_id, None)
    return found


def headline(figures: Figures, money: Currency) -> dict[str, str]:
    """The figures that a person reads first, by name."""
    shown = {
        "workers": f"{figures.workers_start} → {figures.workers_highest} → {figures.workers_end}",
        "launched, removed": f"{figures.launched}, {figures.removed}",
        "decision to Ready": _time(figures.slowest_ready_seconds),
        "longest wait of a pod": _time(figures.longest_wait_seconds),
        "runs that failed": f"{figures.failed} of {figures.executions}",
    }
    shown["worker cost"] = money.cost(figures.spent, digits=3)
    if figures.instances_usd is not None:
        shown["of it instances"] = money.text(figures.instances_usd, digits=3)
    if figures.saved_percent is not None:
        shown[f"saved against {figures.fixed_workers} fixed"] = f"{figures.saved_percent:.0f} %"
    return shown


def sentence(figures: Figures) -> str:
    """The whole simulation in one sentence."""
    grew = (
        f"grew from {figures.workers_start} to {figures.workers_highest} workers and ended with {figures.workers_end}"
    )
    if figures.workers_highest == figures.workers_start:
        grew = f"never needed more than its {figures.workers_start} workers and ended with {figures.workers_end}"
    failed = f"; {count_of(figures.failed, 'run')} failed" if figures.failed else "; no run failed"
    waited = f", no pod waited for capacity longer than {_time(figures.longest_wait_seconds)}"
    return f"The fleet {grew}{waited if figures.longest_wait_seconds else ''}{failed}."


def _highest(stays: Sequence[BilledInstance]) -> int:
    changes = sorted([(one.begun_at, 1) for one in stays] + [(one.ended_at, -1) for one in stays])
    return max((count for count in itertools.accumulate(step for _, step in changes)), default=0)


def _slowest_ready(operations: Any) -> float | None:
    """Only workers that joined count; one that never did is a failure of its own."""
    times = [
        slot["joined_at"] - operation["started_at"]
        for operation in operations
        for slot in _rows(operation.get("slots", ()))
        if slot["outcome"] == "joined"
    ]
    return float(max(times)) if times else None


def _rows(table: Any) -> list[dict[str, Any]]:
    """Records as dicts, whether the codec wrote them as a table or as a list."""
    if isinstance(table, dict):
        return table_rows(table)
    return list(table)


def _longest_wait(points: Sequence[SnapshotLine]) -> float:
    longest, without = 0.0, points[0].at if points else 0.0
    for before, point in itertools.pairwise(points):
        if before.unschedulable_pods:
            longest = max(longest, point.at - without)
        if not point.unschedulable_pods:
            without = point.at
    return longest


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "none"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _epoch(text: str) -> float:
    return dt.datetime.fromisoformat(text).timestamp()
