"""UncordonSurvivor: takes a spared worker back if there is room for it; else it goes, as its replacement has come."""

from __future__ import annotations

from typing import Any

from node_fleet.adapters.launcher import Headcount
from node_fleet.domain.errors import PausedError, ServerUnreachableError
from node_fleet.domain.interruption import Interruption
from node_fleet.payload import take
from node_fleet.wiring import Wiring, wiring

GIVEN_BACK = ("uncordoned", "not-cordoned", "foreign-cordon", "no-node")


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answer `settle`: "uncordoned", "removed", or "kept" when there is no room and it was not drained."""
    tools = wiring()
    interruption = take(event, "interruption", Interruption)
    pause = tools.state.load().pause
    if pause is not None and pause.until > tools.clock.now():
        raise PausedError(f"paused by {pause.by}: {pause.reason}")
    drain = event.get("response", {}).get("drain", {})
    status, detail = _settled(tools, interruption, drain)
    return {**event, "settle": {"status": status, "detail": detail}}


def _settled(tools: Wiring, interruption: Interruption, drain: dict[str, Any]) -> tuple[str, str]:
    """Room is reserved before the notice is lifted, so that the fleet never exceeds its maximum."""
    instance_id, key = interruption.instance_id, f"{interruption.operation_id}:survivor"
    until = tools.clock.now() + tools.settings.join_limit_seconds
    count = Headcount(tools.ec2, tools.clock)
    if tools.state.reserve(key, count, maximum=tools.settings.max_workers, until=until):
        _uncordon(tools, interruption, drain.get("node_name") or instance_id)
        tools.state.remove_notice(instance_id)
        tools.state.unreserve([key])
        return "uncordoned", f"{instance_id} was not taken and works again"
    if drain.get("status") != "drained":
        return "kept", f"{instance_id} was not taken, but the fleet is full and it still has pods: decide by hand"
    tools.ec2.terminate([instance_id])
    return "removed", f"{instance_id} was not taken, but its replacement took its place: terminated"


def _uncordon(tools: Wiring, interruption: Interruption, node_name: str) -> None:
    result = tools.server.run("UncordonNode", {"NodeName": node_name, "OperationId": interruption.operation_id})
    if not result.succeeded or result.word not in GIVEN_BACK:
        said = f"{result.word} {result.detail}".strip() or f"SSM says {result.status}"
        raise ServerUnreachableError(f"node {node_name} may still be cordoned by us: {said}")
