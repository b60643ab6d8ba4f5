"""UncordonSurvivor: takes a spared worker back if there is room for it; else it goes, as its replacement has come."""

from __future__ import annotations

from typing import Any

from node_fleet.adapters.survivor import Survivors
from node_fleet.domain.errors import PausedError
from node_fleet.domain.interruption import Interruption
from node_fleet.payload import take
from node_fleet.wiring import wiring


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answer `settle`: "uncordoned", "removed", or "kept" when there is no room and it is not empty and ours."""
    tools = wiring()
    interruption = take(event, "interruption", Interruption)
    pause = tools.state.load().pause
    if pause is not None and pause.until > tools.clock.now():
        raise PausedError(f"paused by {pause.by}: {pause.reason}")
    drain = event.get("response", {}).get("drain", {})
    survivors = Survivors(
        ec2=tools.ec2, state=tools.state, server=tools.server, clock=tools.clock, settings=tools.settings
    )
    status, detail = survivors.take_back(
        interruption.instance_id,
        node_name=drain.get("node_name") or interruption.instance_id,
        drained=drain.get("status") == "drained",
    )
    return {**event, "settle": {"status": status, "detail": detail}}
