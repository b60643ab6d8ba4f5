"""InspectNodes: one read-only look at every worker through kubectl on the server. Decides and changes nothing."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.errors import ServerNotFoundError, ServerUnreachableError
from node_fleet.domain.inspection import parse_inspection
from node_fleet.domain.model import Alert
from node_fleet.payload import put, take
from node_fleet.wiring import Wiring, wiring


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answer `inspection`: the server's lines as they came, or why nothing is known. Unknown is an answer."""
    try:
        inspection = _look(wiring())
    except (ServerUnreachableError, ServerNotFoundError) as error:
        inspection = {"known": False, "detail": str(error), "lines": []}
        alert = Alert(kind="server_unreachable", text=f"no worker can be removed: {error}")
        alerts = take({"alerts": (), **event}, "alerts", tuple[Alert, ...])
        return put(event, inspection=inspection, alerts=(*alerts, alert))
    return put(event, inspection=inspection)


def _look(tools: Wiring) -> dict[str, Any]:
    result = tools.server.run("InspectNodes", {})
    if not result.succeeded:
        said = result.stderr.strip()[:300]
        detail = f"the server's answer is not known: SSM says {result.status}{': ' + said if said else ''}"
        return {"known": False, "detail": detail, "lines": []}
    parsed = parse_inspection(result.stdout)
    lines = result.stdout.strip().splitlines() if parsed.known else []
    return {"known": parsed.known, "detail": parsed.detail, "lines": lines}
