"""ReinstateWorker: reinstates a worker that AWS did not reclaim, when the fleet has capacity for it.

In a full fleet a drained worker is terminated, because its replacement runs. A worker with pods waits for capacity;
after some hours an operator must decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from node_fleet.domain.interruption.closing import capacity_wait_seconds
from node_fleet.domain.interruption.response import Interruption
from node_fleet.payload import take
from node_fleet.services import Services, load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Return `settle`: "uncordoned", "removed", "waiting" for capacity or the end of a pause, at last "kept".

    Or "superseded" by a later notice. `tries` counts the calls; `wait_seconds` is present while it is "waiting".
    """
    services = load_services()
    interruption = take(event, "interruption", Interruption)
    status, detail = _reinstate(services, interruption, event.get("response", {}).get("drain", {}))
    tries = event.get("settle", {}).get("tries", 0) + 1
    wait_seconds = capacity_wait_seconds(tries) if status == "kept" else None
    if wait_seconds is None:
        return {**event, "settle": {"status": status, "detail": detail, "tries": tries}}
    waiting = {"status": "waiting", "detail": detail, "tries": tries, "wait_seconds": wait_seconds}
    return {**event, "settle": waiting}


def _reinstate(services: Services, interruption: Interruption, drain: Mapping[str, Any]) -> tuple[str, str]:
    """Status and sentence of this try."""
    if pause := services.state.load().active_pause(services.clock.now()):
        return "kept", pause.sentence
    return services.reinstatement.reinstate(
        interruption.instance_id,
        claimed_by=interruption.claimed_by,
        node_name=drain.get("node_name") or interruption.instance_id,
        drained=drain.get("status") == "drained",
    )
