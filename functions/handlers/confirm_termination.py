"""ConfirmTermination: asks EC2 whether the instance has ended, and the server whether its node is still Ready."""

from __future__ import annotations

import contextlib
from typing import Any

from node_fleet.domain.model.errors import Ec2Error, ServerNotFoundError, ServerUnreachableError
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation, Target
from node_fleet.domain.model.run import Run
from node_fleet.domain.model.standby import KEPT
from node_fleet.domain.scale_down.drain import after_target, alert_once, moved
from node_fleet.domain.scale_down.set_aside import set_aside
from node_fleet.domain.scale_down.termination import has_ended, judge_reboot, judge_termination
from node_fleet.payload import add_alerts, put, take
from node_fleet.services import Services, load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Return `termination`, the `operation`, and `next` when the removal is set aside.

    "waiting", "terminated", "not_terminated" for an instance that still runs, or "set_aside" after the time limit;
    "rebooted" when the node of a rebooted worker may be uncordoned.
    """
    services = load_services()
    run = take(event, "run", Run)
    state = services.state.renew(run, even_paused=True)
    operation = state.operation or take(event, "operation", Operation)
    target = operation.current
    if target is not None and target.phase == "rebooting":
        rebooted = judge_reboot(services.clock.now() - operation.phase_at)
        return put(event, operation=operation, termination={"status": rebooted.status, "detail": rebooted.detail})
    if target is None or target.phase != "terminating":
        return put(event, operation=operation, termination={"status": "terminated", "detail": "confirmed before"})
    now = services.clock.now()
    ec2_state = services.ec2.states([target.instance_id])[target.instance_id]
    still_ready = has_ended(ec2_state, standby=target.standby) and _is_still_ready(services, target)
    waited, limit = now - operation.phase_at, services.settings.terminate_limit_seconds
    verdict = judge_termination(ec2_state, still_ready, waited, limit, standby=target.standby)
    answer = put(event, termination={"status": verdict.status, "detail": verdict.detail})
    if not verdict.phase:
        return put(answer, operation=operation)
    removal = set_aside(operation, target, "termination", now, verdict.detail)
    detail = f"drained, {verdict.detail}"
    operation = moved(operation, verdict.phase, now, detail=detail)
    if verdict.status == "not_terminated" and target.standby:
        with contextlib.suppress(Ec2Error):  # without the tag it stays a usual worker; a failure here would never end
            services.ec2.tag([target.instance_id], {"Standby": KEPT})
    if verdict.status != "set_aside":
        services.state.save_operation(run, operation)
        return put(answer, operation=operation)
    if len(state.ids_set_aside | {target.instance_id}) >= services.settings.set_aside_limit:
        operation = operation.without_the_rest("removals pause, because too many are set aside")
    services.state.save_operation(run, operation, removal)
    quiet_seconds = services.settings.alert_quiet_seconds
    memory, alerts = alert_once(take(event, "memory", Memory, default=Memory()), removal.alert, now, quiet_seconds)
    return add_alerts(put(answer, operation=operation, memory=memory, next=after_target(operation)), alerts=alerts)


def _is_still_ready(services: Services, target: Target) -> bool:
    """A node is shown as Ready for some 50 s after its instance ended; without an answer of the server: False."""
    try:
        check = services.server.check(target.node_name)
    except (ServerUnreachableError, ServerNotFoundError):
        return False
    return check.known and check.ready and check.instance_id == target.instance_id
