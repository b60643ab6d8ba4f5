"""TerminateNodes: checks the drained worker again, records the intent, then terminates or reboots its instance."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.model.errors import DrainFailedError, Ec2Error, TerminationRefusedError
from node_fleet.domain.model.operation import Operation, Target
from node_fleet.domain.model.run import Run
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.domain.scale_down.drain import judge_check, moved
from node_fleet.domain.scale_down.eligibility import judge_workers
from node_fleet.domain.scale_down.inspection import Inspection
from node_fleet.domain.scale_down.selection import missing_headroom, stays_above
from node_fleet.domain.scale_down.termination import NOT_REBOOTED
from node_fleet.domain.scaling.minimum_size import effective_minimum
from node_fleet.domain.scaling.tick import make_tick
from node_fleet.payload import put, take
from node_fleet.services import Services, load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Return the `operation`. A second call terminates the same instance again, which changes nothing.

    A reboot is sent once at most: a call that finds it recorded sends nothing.

    Raises:
        DrainFailedError: the worker is not empty, its cordon is missing, its replacement is lost, it is Ready again
            before its reboot, or the minimum or the headroom would break.
        PausedError: an operator pauses the fleet or protects the worker. Nothing was done.
        TerminationRefusedError: EC2 refuses for good; the record then says that the termination never began.
    """
    services = load_services()
    run = take(event, "run", Run)
    operation = services.state.renew(run).operation or take(event, "operation", Operation)
    target = operation.current
    if target is None:
        raise DrainFailedError(f"operation {operation.operation_id} has no worker left to terminate")
    if target.phase == "rebooting":
        return put(event, operation=operation, termination={"status": "waiting", "detail": target.instance_id})
    if target.phase != "terminating":
        _require_empty(services, operation, target)
        _require_minimum(services, run, operation, target)
        if operation.reboot:
            operation = _reboot(services, run, operation, target)
            return put(event, operation=operation, termination={"status": "waiting", "detail": target.instance_id})
        operation = moved(operation, "terminating", services.clock.now(), detail="drained, being terminated")
        if target.not_ready:
            services.state.save_operation(run, operation)
        else:
            services.state.begin_termination(run, operation, target.instance_id)
    try:
        services.ec2.terminate([target.instance_id])
    except TerminationRefusedError as error:
        services.state.save_operation(run, moved(operation, "drained", services.clock.now(), detail=str(error)))
        raise
    return put(event, operation=operation, termination={"status": "waiting", "detail": target.instance_id})


def _reboot(services: Services, run: Run, operation: Operation, target: Target) -> Operation:
    """Record the reboot, then send it: a run that dies in between leaves a worker that is replaced after the wait."""
    operation = moved(operation, "rebooting", services.clock.now(), detail="drained and rebooted")
    if target.not_ready:
        services.state.save_operation(run, operation)
    else:
        services.state.begin_termination(run, operation, target.instance_id)
    try:
        services.ec2.reboot(target.instance_id)
    except Ec2Error as error:
        operation = moved(operation, "rebooting", services.clock.now(), detail=f"{NOT_REBOOTED}: {error}")
        services.state.save_operation(run, operation)
    return operation


def _kept(operation: Operation, target: Target) -> str:
    return f"worker {target.instance_id} was not {'rebooted' if operation.reboot else 'terminated'}"


def _require_empty(services: Services, operation: Operation, target: Target) -> None:
    check = services.server.check(target.node_name)
    verdict = judge_check(check, target, operation.operation_id, dead=target.not_ready, waited=1, limit=0)
    if verdict.status != "drained":
        raise DrainFailedError(f"{_kept(operation, target)}: {verdict.detail}")
    if operation.reboot and target.not_ready and check.ready:
        raise DrainFailedError(f"{_kept(operation, target)}: it is Ready again")


def _require_minimum(services: Services, run: Run, operation: Operation, target: Target) -> None:
    """Minimum and headroom for the whole set, from fresh data: usable, running workers, not under notice or leaving.

    The lease is renewed last, with the newest state: a notice that came while the server answered counts. The drained
    Node must still be the only one that claims the instance: else another machine may hold its pods.
    """
    inspection = services.server.inspect()
    if not inspection.known:
        raise DrainFailedError(f"the other workers could not be inspected: {inspection.detail}")
    instances, state, now = services.ec2.instances(), services.state.renew(run), services.clock.now()
    judged = judge_workers(inspection, instances, under_notice=state.ids_under_notice, back_offs=(), now=now)
    if dispute := judged.disputed.get(target.instance_id):
        raise DrainFailedError(f"{_kept(operation, target)}: {dispute.sentence}")
    leaving = [t.instance_id for t in operation.targets if t.phase not in ("undone", "skipped")]
    tick = make_tick(Snapshot(at=now, source="none"), state.memory, services.settings.policy(), now)
    minimum = effective_minimum(tick).workers
    serves = not operation.reboot or not (target.not_ready or _accepts_no_pods(inspection, target))
    if serves and not stays_above(minimum, judged.usable, leaving):
        left = len(set(judged.usable) - set(leaving))
        raise DrainFailedError(f"at_min: only {left} usable workers would remain, the minimum is {minimum}")
    current = state.memory.roll_out.current
    launched = current.replacement if operation.replaces and current and current.worker == target.instance_id else ""
    if launched and launched not in judged.usable:
        why = f"its replacement {launched} is not usable any more"
        raise DrainFailedError(f"{_kept(operation, target)}: {why}")
    if target.not_ready or not serves or (operation.budget_reason != "idle" and not operation.reboot):
        return  # neither a replaced worker nor one that does not serve takes capacity away
    if text := missing_headroom(services.settings.policy(), inspection, frozenset(judged.usable) - frozenset(leaving)):
        raise DrainFailedError(f"{_kept(operation, target)}: {text}")


def _accepts_no_pods(inspection: Inspection, target: Target) -> bool:
    """Whether no pod could start on the worker even without the cordon of its own drain."""
    node = next((n for n in inspection.nodes if n.instance_id == target.instance_id), None)
    return node is not None and (node.tainted or not node.ready)
