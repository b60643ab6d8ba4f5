"""StartDrain: sends the drain of the next worker to the server and records its command. Never waits for it."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.model.operation import Target
from node_fleet.domain.model.run import Run
from node_fleet.domain.scale_down.drain import DrainLimits, moved
from node_fleet.payload import put, take
from node_fleet.services import Services, load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answer `drain` and the `operation` as recorded. A second call finds the command recorded and sends nothing.

    Should it die between sending and recording, the second command finds the server's lock, and an empty node.
    """
    services = load_services()
    run = take(event, "run", Run)
    state = services.state.renew(run)
    operation = state.operation
    target = operation.current if operation else None
    if operation is None or target is None or target.phase != "selected":
        return put(event, operation=operation, drain={"status": "waiting", "detail": "it was started before"})
    now = services.clock.now()
    if target.instance_id in {n.instance_id for n in state.notices}:
        detail = "AWS has announced to take it"
        changed = moved(operation, "skipped", now, detail=detail)
    else:
        command_id = _send(services, target, operation.operation_id, now)
        detail = f"draining {target.node_name} with command {command_id}"
        changed = moved(operation, "draining", now, detail=detail, command_id=command_id)
    services.state.save_operation(run, changed)
    return put(event, operation=changed, drain={"status": "waiting", "detail": detail})


def _send(services: Services, target: Target, operation_id: str, now: int) -> str:
    settings = services.settings
    limits = DrainLimits(
        drain_seconds=settings.drain_timeout_seconds, delivery_seconds=settings.delivery_timeout_seconds
    )
    return services.server.send(
        "DrainNode",
        {
            "NodeName": target.node_name,
            "OperationId": operation_id,
            "NotAfter": str(limits.not_after(now)),
            "DrainTimeoutSeconds": str(limits.drain_seconds),
            "DrainMode": "not-ready" if target.not_ready else "voluntary",
            "ExecutionTimeoutSeconds": str(limits.execution_seconds),
        },
    )
