"""TerminateNodes: checks the drained worker again, records the intent, then terminates or reboots its instance."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

from node_fleet.domain.model.back_off import seconds_left
from node_fleet.domain.model.errors import DrainFailedError, Ec2Error, PausedError, TerminationRefusedError
from node_fleet.domain.model.fleet_state import FleetState, times_of
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation, Target
from node_fleet.domain.model.run import Run
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.domain.model.standby import KEPT, READY, STANDBY
from node_fleet.domain.model.timed_minimum import minimum_in_force
from node_fleet.domain.scale_down.drain import alert_once, judge_check, moved, to_be_on
from node_fleet.domain.scale_down.eligibility import judge_workers
from node_fleet.domain.scale_down.last_proof import kept_text, last_refusal
from node_fleet.domain.scale_down.termination import NOT_REBOOTED
from node_fleet.domain.scale_up.standby import not_stopped_alert
from node_fleet.domain.scaling.memory_update import record_failure
from node_fleet.domain.scaling.minimum_size import effective_minimum
from node_fleet.domain.scaling.tick import make_tick
from node_fleet.payload import add_alerts, put, take
from node_fleet.services import Services, load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Return the `operation`. A second call stops or terminates the same instance again, which changes nothing.

    A reboot is sent once at most: a call that finds it recorded sends nothing.

    Raises:
        DrainFailedError: the worker is not empty, its cordon is missing, its replacement is lost, it is Ready again
            before its reboot, or the minimum or the headroom would break.
        PausedError: an operator pauses the fleet or protects the worker, or a fleet that was switched off is to be on.
            Nothing was done.
        TerminationRefusedError: EC2 refuses for good; the record then says that the termination never began.
    """
    services = load_services()
    run = take(event, "run", Run)
    state = services.state.renew(run)
    operation = state.operation or take(event, "operation", Operation)
    target = operation.current
    if target is None:
        raise DrainFailedError(f"operation {operation.operation_id} has no worker left to terminate")
    if target.phase == "rebooting":
        return put(event, operation=operation, termination={"status": "waiting", "detail": target.instance_id})
    if target.phase != "terminating":
        _require_off(services, state, operation, target)
        if operation.hibernate != "end":
            _require_empty(services, operation, target)
            _require_minimum(services, run, operation, target)
        if operation.reboot:
            operation = _reboot(services, run, operation, target)
            return put(event, operation=operation, termination={"status": "waiting", "detail": target.instance_id})
        verb = "stopped" if target.standby else "terminated"
        detail = f"being {verb}" if operation.hibernate == "end" else f"drained, being {verb}"
        operation = moved(operation, "terminating", services.clock.now(), detail=detail)
        _record(services, run, operation, target)
    if target.standby:
        problem = _stop(services, target)
        if not problem:
            return put(event, operation=operation, termination={"status": "waiting", "detail": target.instance_id})
        operation = operation.with_target(replace(operation.current or target, standby=False))
        services.state.save_operation(run, operation)
        event = _with_back_off(services, event, target, problem)
    try:
        services.ec2.terminate([target.instance_id])
    except TerminationRefusedError as error:
        services.state.save_operation(run, moved(operation, "drained", services.clock.now(), detail=str(error)))
        raise
    if operation.hibernate == "end":
        operation = _end_the_rest(services, run, operation)
    return put(event, operation=operation, termination={"status": "waiting", "detail": target.instance_id})


def _end_the_rest(services: Services, run: Run, operation: Operation) -> Operation:
    """Terminate the other workers of a fleet that is switched off, so that all end together.

    One that is protected meanwhile is skipped; one that EC2 refuses to terminate is tried again in its turn.
    """
    for target in [one for one in operation.targets if one.phase == "drained"]:
        begun = operation.with_target(replace(target, phase="terminating", detail="being terminated"))
        try:
            services.state.begin_termination(run, begun, target.instance_id)
            services.ec2.terminate([target.instance_id])
        except PausedError as protected:
            operation = operation.with_target(replace(target, phase="skipped", detail=str(protected)))
            services.state.save_operation(run, operation)
        except TerminationRefusedError:
            services.state.save_operation(run, operation)
        else:
            operation = begun
    return operation


def _record(services: Services, run: Run, operation: Operation, target: Target) -> None:
    """Store the intent. A protection that came meanwhile keeps a worker, unless it is NotReady."""
    if target.not_ready:
        services.state.save_operation(run, operation)
    else:
        services.state.begin_termination(run, operation, target.instance_id)


def _stop(services: Services, target: Target) -> str:
    """Stop the worker as a standby worker. Returns why EC2 refuses, and it is terminated instead; empty when it stops.

    The tag comes first: node-fleet would not find a stopped instance without it. It does not stay on one that runs.
    """
    try:
        services.ec2.tag([target.instance_id], {"Standby": READY})
        services.ec2.stop_worker(target.instance_id)
    except Ec2Error as error:
        with contextlib.suppress(Ec2Error):
            services.ec2.tag([target.instance_id], {"Standby": KEPT})
        return str(error)
    return ""


def _with_back_off(services: Services, event: dict[str, Any], target: Target, problem: str) -> dict[str, Any]:
    """The next worker would not be stopped either: none is launched for it before the back-off ends."""
    now, policy = services.clock.now(), services.settings.policy()
    memory = record_failure(take(event, "memory", Memory, default=Memory()), STANDBY, now, policy)
    alert = not_stopped_alert(target.instance_id, problem, seconds_left(memory.back_offs, STANDBY, now))
    memory, alerts = alert_once(memory, alert, now, policy.alert_quiet_seconds)
    return add_alerts(put(event, memory=memory), alerts=alerts)


def _require_off(services: Services, state: FleetState, operation: Operation, target: Target) -> None:
    """A run that continues an operation of the night may come after its end, or after an order to be on."""
    if why := to_be_on(times_of(services.settings, state), operation, services.clock.now()):
        raise PausedError(f"{kept_text(operation, target)}: {why}")


def _reboot(services: Services, run: Run, operation: Operation, target: Target) -> Operation:
    """Record the reboot, then send it: a run that dies in between leaves a worker that is replaced after the wait."""
    operation = moved(operation, "rebooting", services.clock.now(), detail="drained and rebooted")
    _record(services, run, operation, target)
    try:
        services.ec2.reboot(target.instance_id)
    except Ec2Error as error:
        operation = moved(operation, "rebooting", services.clock.now(), detail=f"{NOT_REBOOTED}: {error}")
        services.state.save_operation(run, operation)
    return operation


def _require_empty(services: Services, operation: Operation, target: Target) -> None:
    check = services.server.check(target.node_name)
    verdict = judge_check(check, target, operation.operation_id, dead=target.not_ready, waited=1, limit=0)
    if verdict.status != "drained":
        raise DrainFailedError(f"{kept_text(operation, target)}: {verdict.detail}")
    if operation.reboot and target.not_ready and check.ready:
        raise DrainFailedError(f"{kept_text(operation, target)}: it is Ready again")


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
    policy = services.settings.policy()
    snapshot = Snapshot(at=now, source="none", timed_minimum=minimum_in_force(state.timed_minimums, now))
    tick = make_tick(snapshot, state.memory, policy, now)
    refusal = last_refusal(
        operation,
        target,
        judged,
        inspection,
        policy,
        minimum=effective_minimum(tick).workers,
        current=state.memory.roll_out.current,
    )
    if refusal:
        raise DrainFailedError(refusal)
