"""ForgetNodes: deletes the Node object and the K3s password secret of an instance that has ended.

A standby worker registers its Node anew when it is started, with the password on its volume.
"""

from __future__ import annotations

from typing import Any

from node_fleet.domain.model.errors import ServerNotFoundError, ServerUnreachableError
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.run import Alert, Run
from node_fleet.domain.scale_down.drain import after_target, moved
from node_fleet.domain.scale_down.lost_volumes import lost_volumes_alert
from node_fleet.payload import add_alerts, put, take
from node_fleet.services import load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Return the `operation` and `next`. Safe twice.

    The instance has ended, so an unreachable server must not block the fleet: a later removal deletes the node.
    """
    services = load_services()
    run = take(event, "run", Run)
    operation = services.state.renew(run).operation or take(event, "operation", Operation)
    target = operation.current
    if target is None or target.phase != "terminated":
        return put(event, operation=operation, next=after_target(operation))
    now, alerts = services.clock.now(), list[Alert]()
    done = "stopped as a standby worker" if target.standby else "terminated"
    detail = f"drained, {done} and its node deleted"
    try:
        volumes = services.server.ensure_forgotten(target.node_name, target.instance_id)
        alerts += lost_volumes_alert(target.instance_id, volumes)
    except (ServerUnreachableError, ServerNotFoundError) as error:
        detail = f"drained and {done}, its node is still to be deleted"
        text = f"node {target.node_name} of {target.instance_id} remains in the cluster: {error}. One of the next runs"
        text += " deletes it. What you can do, on the server: sudo /usr/local/bin/k3s kubectl delete node"
        text += f" {target.node_name}"
        alerts.append(Alert(kind=f"not_forgotten:{target.instance_id}", text=text))
    operation = moved(operation, "forgotten", now, detail=detail)
    services.state.save_operation(run, operation)
    return add_alerts(put(event, operation=operation, next=after_target(operation)), alerts=alerts)
