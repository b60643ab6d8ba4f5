"""ConfirmTermination: asks EC2 whether the instance has ended, and the server whether its node is still Ready."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.model.errors import ServerNotFoundError, ServerUnreachableError
from node_fleet.domain.model.operation import Operation, Target
from node_fleet.domain.model.run import Run
from node_fleet.domain.scale_down.drain import moved
from node_fleet.domain.scale_down.termination import judge_termination
from node_fleet.payload import put, take
from node_fleet.services import Services, load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Return `termination`: "waiting", "terminated" or "timeout". The operation stays open on a timeout."""
    services = load_services()
    run = take(event, "run", Run)
    operation = services.state.renew(run, even_paused=True).operation or take(event, "operation", Operation)
    target = operation.current
    if target is None or target.phase != "terminating":
        return put(event, operation=operation, termination={"status": "terminated", "detail": "confirmed before"})
    now = services.clock.now()
    ec2_state = services.ec2.states([target.instance_id])[target.instance_id]
    still_ready = ec2_state in ("terminated", "gone") and _is_still_ready(services, target)
    waited = now - operation.phase_at
    verdict = judge_termination(ec2_state, still_ready, waited, services.settings.terminate_limit_seconds)
    if verdict.phase:
        operation = moved(operation, verdict.phase, now, detail=verdict.detail)
        services.state.save_operation(run, operation)
    return put(event, operation=operation, termination={"status": verdict.status, "detail": verdict.detail})


def _is_still_ready(services: Services, target: Target) -> bool:
    """A node is shown as Ready for some 50 s after its instance ended; without an answer of the server: False."""
    try:
        check = services.server.check(target.node_name)
    except (ServerUnreachableError, ServerNotFoundError):
        return False
    return check.known and check.ready and check.instance_id == target.instance_id
