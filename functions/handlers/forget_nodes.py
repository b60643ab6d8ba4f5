"""ForgetNodes: deletes the Node object and the K3s password secret of a machine that EC2 says is gone."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.drain import after_target, moved
from node_fleet.domain.errors import NodeFleetError, ServerUnreachableError
from node_fleet.domain.model import Alert
from node_fleet.domain.operation import Operation, Target
from node_fleet.domain.run import Run
from node_fleet.payload import put, take
from node_fleet.wiring import Wiring, wiring


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answer the `operation` and `next`. An operation past its limit is not held open by a server that is away.

    Raises:
        ServerUnreachableError: the node could not be forgotten now; the operation stays open.
    """
    tools = wiring()
    run = take(event, "run", Run)
    operation = tools.state.renew(run).operation or take(event, "operation", Operation)
    target = operation.current
    if target is None or target.phase != "terminated":
        return put(event, operation=operation, next=after_target(operation))
    now = tools.clock.now()
    alerts = take({"alerts": (), **event}, "alerts", tuple[Alert, ...])
    try:
        _forget(tools, target)
    except NodeFleetError as error:
        if now - operation.started_at <= tools.settings.operation_limit_seconds:
            raise
        text = f"{error}; remove it by hand: kubectl delete node {target.node_name}"
        alerts = (*alerts, Alert(kind=f"not_forgotten:{target.instance_id}", text=text))
    operation = moved(operation, "forgotten", now, detail="drained, terminated and forgotten")
    tools.state.save_operation(run, operation)
    return put(event, operation=operation, next=after_target(operation), alerts=alerts)


def _forget(tools: Wiring, target: Target) -> None:
    result = tools.server.run("ForgetNode", {"NodeName": target.node_name, "InstanceId": target.instance_id})
    if not result.succeeded or result.word not in ("forgotten", "other-instance"):
        said = f"{result.word} {result.detail}".strip() or f"SSM says {result.status}"
        raise ServerUnreachableError(f"node {target.node_name} of {target.instance_id} is not forgotten: {said}")
