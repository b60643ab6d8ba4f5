"""ForgetInterrupted: deletes the Node object and the K3s password secret of an interrupted worker that has ended."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.interruption.response import Interruption
from node_fleet.payload import take, to_payload
from node_fleet.services import load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Return `settle`, with the volumes that ended with the worker. Safe twice.

    Raises:
        ServerUnreachableError: the node is still Ready, or the server cannot be reached; a later try may succeed.
    """
    services = load_services()
    interruption = take(event, "interruption", Interruption)
    instance_id = interruption.instance_id
    node_name = event.get("response", {}).get("drain", {}).get("node_name") or instance_id
    volumes = services.server.ensure_forgotten(node_name, instance_id)
    detail = f"the instance has ended and node {node_name} is deleted"
    return {**event, "settle": {"status": "gone", "detail": detail, "volumes": to_payload(volumes)}}
