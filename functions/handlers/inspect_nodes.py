"""InspectNodes: one read-only look at every worker through kubectl on the server. Decides and changes nothing."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.model.errors import ServerNotFoundError, ServerUnreachableError
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.run import Alert
from node_fleet.domain.scale_down.drain import alert_once
from node_fleet.domain.scale_down.inspection import parse_inspection, written_down
from node_fleet.payload import put, take
from node_fleet.services import Services, load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answer `inspection`: the server's lines as they came, or why nothing is known. Unknown is an answer."""
    services = load_services()
    kind = "inspection_unknown"
    try:
        inspection = _look(services)
    except (ServerUnreachableError, ServerNotFoundError) as error:
        kind, inspection = "server_unreachable", _unknown(str(error))
    if inspection["known"]:
        return put(event, inspection=inspection)
    alert = Alert(kind=kind, text=f"no worker can be removed: {inspection['detail']}")
    memory = take({"memory": {}, **event}, "memory", Memory)
    memory, told = alert_once(memory, alert, services.clock.now(), services.settings.policy().alert_quiet_seconds)
    alerts = take({"alerts": (), **event}, "alerts", tuple[Alert, ...])
    return put(event, inspection=inspection, memory=memory, alerts=(*alerts, *told))


def _look(services: Services) -> dict[str, Any]:
    result = services.server.run("InspectNodes", {})
    if not result.succeeded:
        said = result.stderr.strip()[:300]
        return _unknown(f"the server's answer is not known: SSM says {result.status}{': ' + said if said else ''}")
    parsed = parse_inspection(result.stdout)
    if not parsed.known:
        return _unknown(parsed.detail)
    return {"known": True, "detail": f"{len(parsed.nodes)} nodes", **written_down(result.stdout.strip())}


def _unknown(detail: str) -> dict[str, Any]:
    return {"known": False, "detail": detail, "lines": []}
