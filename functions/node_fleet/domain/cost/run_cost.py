"""The fleet's hourly cost before the first change of a run and after its last. Unknown stays unknown, never 0."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from node_fleet.domain.cost.fleet_cost import Priced, fleet_cost
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.snapshot import Snapshot

REMOVED = frozenset({"terminating", "terminated", "forgotten", "set_aside"})
ADDED = frozenset({"joined", "launched"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetBefore:
    """The fleet before a run's first round, kept in the payload while further rounds replace the snapshot."""

    workers: int
    usd_per_hour: float | None


def fleet_before(snapshot: Snapshot | None, operation: Operation | None, region: str) -> FleetBefore | None:
    """The fleet at the start of this round; None without a snapshot."""
    if snapshot is None:
        return None
    workers = operation.workers_before if operation else len(snapshot.counted)
    return FleetBefore(workers=workers, usd_per_hour=_priced(region, snapshot.counted))


def usd_per_hour_after(snapshot: Snapshot | None, operation: Operation | None, region: str) -> float | None:
    """The cost of the snapshot's workers and of those launched since, without those removed; None when unknown."""
    if snapshot is None:
        return None
    workers: dict[str, Priced] = {worker.instance_id: worker for worker in snapshot.counted}
    if operation is not None:
        workers |= {slot.instance_id: slot for slot in operation.slots if slot.outcome in ADDED}
        for target in operation.targets:
            if target.phase in REMOVED:
                workers.pop(target.instance_id, None)
    return _priced(region, workers.values())


def _priced(region: str, workers: Iterable[Priced]) -> float | None:
    cost = fleet_cost(region, workers)
    return None if cost.unpriced else cost.usd_per_hour
