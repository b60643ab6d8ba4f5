"""ForgetNodes: deletes the Node object and the K3s password secret of a machine that EC2 says is gone."""

from __future__ import annotations

from typing import Any

from node_fleet.adapters.forget import forget_node
from node_fleet.domain.model.errors import ServerNotFoundError, ServerUnreachableError
from node_fleet.domain.model.operation import Operation, Target
from node_fleet.domain.model.run import Alert, Run
from node_fleet.domain.scale_down.drain import after_target, moved
from node_fleet.payload import put, take
from node_fleet.services import Services, load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answer the `operation` and `next`. Calling it twice forgets once.

    The machine is gone, so a server that is away must not hold up the fleet: its node is swept by a later removal.
    """
    services = load_services()
    run = take(event, "run", Run)
    operation = services.state.renew(run).operation or take(event, "operation", Operation)
    target = operation.current
    if target is None or target.phase != "terminated":
        return put(event, operation=operation, next=after_target(operation))
    now = services.clock.now()
    alerts = take({"alerts": (), **event}, "alerts", tuple[Alert, ...])
    problem = _forget(services, target)
    if problem:
        text = f"{problem}; a later removal sweeps it, or: kubectl delete node {target.node_name}"
        alerts = (*alerts, Alert(kind=f"not_forgotten:{target.instance_id}", text=text))
    detail = "drained and terminated, its node is still to be swept" if problem else "drained, terminated and forgotten"
    operation = moved(operation, "forgotten", now, detail=detail)
    services.state.save_operation(run, operation)
    return put(event, operation=operation, next=after_target(operation), alerts=alerts)


def _forget(services: Services, target: Target) -> str:
    """Empty, or why the node stands for now."""
    try:
        forget_node(services.server, target.node_name, target.instance_id)
    except ServerUnreachableError as error:
        return str(error)
    except ServerNotFoundError as error:
        return f"node {target.node_name} of {target.instance_id} is not forgotten: {error}"
    return ""
