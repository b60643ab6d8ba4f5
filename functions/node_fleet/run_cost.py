"""What a run's payload says about money: the fleet's hourly cost before its first change and after its last.

Reads the payload only; what is not known (no snapshot, no price) stays unknown and is never shown as 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from node_fleet.domain.cost.fleet_cost import Priced, fleet_cost
from node_fleet.domain.model.errors import InvalidInputError
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.payload import from_payload

GONE = frozenset({"terminating", "terminated", "forgotten"})
RUNS = frozenset({"joined", "launched"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetBefore:
    """The fleet before a run's first round, kept in the payload while further rounds replace the snapshot."""

    workers: int
    usd_per_hour: float | None


def fleet_before(event: Mapping[str, Any], region: str) -> FleetBefore | None:
    """What the run began with: as an earlier round kept it, else as this round's snapshot and operation say."""
    if event.get("fleet_before"):
        kept: FleetBefore = from_payload(FleetBefore, event["fleet_before"], path="fleet_before")
        return kept
    snapshot, operation = _snapshot(event), _operation(event)
    if snapshot is None:
        return None
    workers = operation.workers_before if operation else len(snapshot.counted)
    return FleetBefore(workers=workers, usd_per_hour=_priced(region, snapshot.counted))


def usd_per_hour_after(event: Mapping[str, Any], region: str) -> float | None:
    """The fleet's hourly cost as the run leaves it: the snapshot's workers, those launched since, less those gone."""
    snapshot, operation = _snapshot(event), _operation(event)
    if snapshot is None:
        return None
    runs: dict[str, Priced] = {worker.instance_id: worker for worker in snapshot.counted}
    if operation is not None:
        runs |= {slot.instance_id: slot for slot in operation.slots if slot.outcome in RUNS}
        for target in operation.targets:
            if target.phase in GONE:
                runs.pop(target.instance_id, None)
    return _priced(region, runs.values())


def _priced(region: str, workers: Any) -> float | None:
    cost = fleet_cost(region, workers)
    return None if cost.unpriced else cost.usd_per_hour


def _snapshot(event: Mapping[str, Any]) -> Snapshot | None:
    found: Snapshot | None = _read(Snapshot, event.get("snapshot"))
    return found


def _operation(event: Mapping[str, Any]) -> Operation | None:
    found: Operation | None = _read(Operation, event.get("operation"))
    return found


def _read(kind: Any, data: Any) -> Any:
    """A payload that cannot be read costs the figure, never the run: this is asked while the lock is being freed."""
    try:
        return from_payload(kind, data) if data else None
    except InvalidInputError:
        return None
