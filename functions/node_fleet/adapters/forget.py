"""Deletes what a worker that EC2 has ended leaves in the cluster; the server refuses a node that still answers.

Pods of a StatefulSet stay bound to a dead node until its Node object goes.
"""

from __future__ import annotations

from node_fleet.adapters.server import ServerCommands
from node_fleet.domain.model.errors import ServerUnreachableError

FORGOTTEN = ("forgotten", "other-instance")


def forget_node(server: ServerCommands, node_name: str, instance_id: str) -> None:
    """Delete the Node object and its K3s password secret. Safe twice; a node that is another instance's by now stays.

    Raises:
        ServerNotFoundError: there is no server to tell.
        ServerUnreachableError: the node is still ready, or the server cannot be asked; later it may work.
    """
    result = server.run("ForgetNode", {"NodeName": node_name, "InstanceId": instance_id})
    if result.word not in FORGOTTEN:
        said = f"{result.word} {result.detail}".strip() or f"SSM says {result.status}"
        raise ServerUnreachableError(f"node {node_name} of {instance_id} is not forgotten: {said}")
