"""ForgetInterrupted: deletes the Node object and the K3s password secret of a worker that is gone."""

from __future__ import annotations

from typing import Any

from node_fleet.adapters.forget import forget_node
from node_fleet.domain.interruption.response import Interruption
from node_fleet.payload import take
from node_fleet.services import load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answer `settle`. Forgetting twice is harmless.

    Raises:
        ServerUnreachableError: the node is still ready, or the server cannot be asked; later it may work.
    """
    services = load_services()
    interruption = take(event, "interruption", Interruption)
    instance_id = interruption.instance_id
    name = event.get("response", {}).get("drain", {}).get("node_name") or instance_id
    forget_node(services.server, name, instance_id)
    return {**event, "settle": {"status": "gone", "detail": f"node {name} is forgotten"}}
