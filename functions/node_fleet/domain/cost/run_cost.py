"""The cost and size of the fleet before a run's first round and after its last. Unknown stays unknown, never 0.

Workers under interruption notice are on the bill, and not in the size.
"""

from __future__ import annotations

from node_fleet.domain.cost.fleet_cost import Priced, fleet_hour, fleet_vcpus, standby_hour
from node_fleet.domain.cost.tariff import Cost, Tariff
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.domain.model.value_class import value_class

REMOVED = frozenset({"terminating", "terminated", "forgotten", "set_aside"})
ADDED = frozenset({"joined", "launched"})


@value_class
class FleetBefore:
    """The fleet before a run's first round, kept in the payload while further rounds replace the snapshot."""

    workers: int
    hourly_cost: Cost


def fleet_before(snapshot: Snapshot | None, operation: Operation | None, tariff: Tariff) -> FleetBefore | None:
    """The fleet at the start of this round; None without a snapshot."""
    if snapshot is None:
        return None
    workers = operation.workers_before if operation else len(snapshot.counted)
    running = fleet_hour(tariff, snapshot.workers, snapshot.cpu_percent)
    cost = Cost.total((running, standby_hour(tariff, len(snapshot.standby))))
    return FleetBefore(workers=workers, hourly_cost=cost)


def hourly_cost_after(snapshot: Snapshot | None, operation: Operation | None, tariff: Tariff) -> Cost | None:
    """The cost of the snapshot's workers and of those launched since, without those removed; None without a snapshot.

    Stopped standby workers cost their volumes.

    The CPU that was measured before the run is spread over the vCPUs after it.
    """
    if snapshot is None:
        return None
    workers: dict[str, Priced] = {worker.instance_id: worker for worker in snapshot.workers}
    standby = {worker.instance_id for worker in snapshot.standby}
    if operation is not None:
        standby -= {slot.instance_id for slot in operation.slots if slot.outcome in ADDED}
        standby |= {target.instance_id for target in operation.targets if target.standby and target.phase in REMOVED}
        workers |= {slot.instance_id: slot for slot in operation.slots if slot.outcome in ADDED}
        for target in operation.targets:
            if target.phase in REMOVED:
                workers.pop(target.instance_id, None)
    before, after = fleet_vcpus(snapshot.workers), fleet_vcpus(workers.values())
    cpu = snapshot.cpu_percent
    spread = min(100.0, cpu * before / after) if cpu is not None and after else cpu
    return Cost.total((fleet_hour(tariff, workers.values(), spread), standby_hour(tariff, len(standby))))
