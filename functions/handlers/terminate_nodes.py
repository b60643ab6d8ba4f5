"""TerminateNodes: looks once more, records the intent, then terminates the one drained worker."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.model.errors import DrainFailedError
from node_fleet.domain.model.fleet_state import FleetState
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation, Target
from node_fleet.domain.model.run import Run
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.domain.scale_down.drain import judge_check, moved
from node_fleet.domain.scale_down.eligibility import judge_workers
from node_fleet.domain.scale_down.inspection import Inspection, parse_inspection, parse_node_check
from node_fleet.domain.scale_down.selection import stays_above
from node_fleet.domain.scaling.minimum_size import effective_minimum
from node_fleet.domain.scaling.tick import make_tick
from node_fleet.payload import put, take
from node_fleet.services import Services, load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answer the `operation`. A second call terminates the same instance again, which changes nothing.

    Raises:
        DrainFailedError: the worker is not empty, not ours any more, or the minimum would break. Nothing was done.
    """
    services = load_services()
    run = take(event, "run", Run)
    state = services.state.renew(run)
    operation = state.operation or take(event, "operation", Operation)
    target = operation.current
    if target is None:
        raise DrainFailedError(f"operation {operation.operation_id} has no worker left to terminate")
    if target.phase != "terminating":
        _verify(services, state, operation, target)
        services.state.renew(run)
        operation = moved(operation, "terminating", services.clock.now(), detail="drained, being terminated")
        services.state.save_operation(run, operation)
    services.ec2.terminate([target.instance_id])
    return put(event, operation=operation, termination={"status": "waiting", "detail": target.instance_id})


def _verify(services: Services, state: FleetState, operation: Operation, target: Target) -> None:
    answer = services.server.run("CheckNode", {"NodeName": target.node_name})
    seen = parse_node_check(answer.stdout if answer.succeeded else "", target.node_name)
    verdict = judge_check(seen, target, operation.operation_id, dead=target.not_ready, waited=1, limit=0)
    if verdict.status != "drained":
        raise DrainFailedError(f"worker {target.instance_id} was not terminated: {verdict.detail}")
    _hold_minimum(services, state, operation)


def _hold_minimum(services: Services, state: FleetState, operation: Operation) -> None:
    """Fresh data on the whole set: usable on the server, running in EC2, not under notice, not going."""
    inspection, now = _inspect(services), services.clock.now()
    noticed = frozenset(n.instance_id for n in state.notices)
    judged = judge_workers(inspection, services.ec2.instances(), under_notice=noticed, back_offs=(), now=now)
    leaving = [t.instance_id for t in operation.targets if t.phase not in ("undone", "skipped")]
    minimum = _minimum(services, state.memory, now)
    if not stays_above(minimum, judged.usable, leaving):
        left = len(set(judged.usable) - set(leaving))
        raise DrainFailedError(f"at_min: only {left} usable workers would be left, the minimum is {minimum}")


def _inspect(services: Services) -> Inspection:
    answer = services.server.run("InspectNodes", {})
    inspection = parse_inspection(answer.stdout if answer.succeeded else "")
    if not inspection.known:
        raise DrainFailedError(f"the other workers could not be looked at: {inspection.detail}")
    return inspection


def _minimum(services: Services, memory: Memory, now: int) -> int:
    view = make_tick(Snapshot(at=now, source="none"), memory, services.settings.policy(), now)
    return effective_minimum(view).workers
