"""ReinstateWorker: takes a spared worker back if there is room; else an empty one goes, as its replacement has come.

One that still has pods waits for room; after hours a person decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from node_fleet.domain.interruption.response import Interruption, capacity_wait_seconds
from node_fleet.payload import take
from node_fleet.services import Services, load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answer `settle`: "uncordoned", "removed", "waiting" for room or for the end of a pause, at last "kept".

    Or "superseded": a later notice took over. tries counts the tries; wait_seconds is there when it is waiting.
    """
    services = load_services()
    interruption = take(event, "interruption", Interruption)
    status, detail = _settled(services, interruption, event.get("response", {}).get("drain", {}))
    tries = event.get("settle", {}).get("tries", 0) + 1
    wait_seconds = capacity_wait_seconds(tries) if status == "kept" else None
    if wait_seconds is None:
        return {**event, "settle": {"status": status, "detail": detail, "tries": tries}}
    waiting = {"status": "waiting", "detail": detail, "tries": tries, "wait_seconds": wait_seconds}
    return {**event, "settle": waiting}


def _settled(services: Services, interruption: Interruption, drain: Mapping[str, Any]) -> tuple[str, str]:
    """What became of it now, and a sentence."""
    pause = services.state.load().pause
    if pause is not None and pause.until > services.clock.now():
        return "kept", f"paused by {pause.by}: {pause.reason}; decide by hand about {interruption.instance_id}"
    return services.reinstatement.reinstate(
        interruption.instance_id,
        claimed_by=interruption.claimed_by,
        node_name=drain.get("node_name") or interruption.instance_id,
        drained=drain.get("status") == "drained",
    )
