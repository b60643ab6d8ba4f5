"""InspectNodes: inspects every worker through kubectl on the server. Read-only."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.model.errors import ServerNotFoundError, ServerUnreachableError
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.run import Alert
from node_fleet.domain.scale_down.drain import alert_once
from node_fleet.domain.scale_down.inspection import Inspection
from node_fleet.payload import add_alerts, packed_lines, put, take
from node_fleet.services import load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Return `inspection`: the server's lines as printed, or why nothing is known. Unknown is no error.

    A server whose clock is off counts as unknown: it would begin a drain too late, or not at all.
    """
    services = load_services()
    kind = "inspection_unknown"
    try:
        inspection = services.server.inspect()
    except (ServerUnreachableError, ServerNotFoundError) as error:
        kind, inspection = "server_unreachable", Inspection(known=False, detail=str(error))
    if inspection.clock_problem:
        kind, inspection = "clock_difference", Inspection(known=False, detail=inspection.clock_problem)
    lines = packed_lines(inspection.text)
    answer = put(event, inspection={"known": inspection.known, "detail": inspection.detail, "lines": lines})
    if inspection.known:
        return answer
    text = f"no worker can be removed in this run; the next run tries again: {inspection.detail}"
    quiet_seconds = services.settings.policy().alert_quiet_seconds
    memory = take(event, "memory", Memory, default=Memory())
    memory, alerts = alert_once(memory, Alert(kind=kind, text=text), services.clock.now(), quiet_seconds)
    return add_alerts(put(answer, memory=memory), alerts=alerts)
