"""CheckOutcome: after the announced time, checks whether AWS reclaimed the instance. Often it does not."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.interruption.response import Interruption, what_happened
from node_fleet.payload import take
from node_fleet.services import load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answer `settle`: "gone", "not_reclaimed", or "superseded" when a later notice took over; its `tries` stay."""
    services = load_services()
    interruption = take(event, "interruption", Interruption)
    found = services.ec2.states([interruption.instance_id])[interruption.instance_id]
    notice = services.state.load().notice_of(interruption.instance_id)
    status = what_happened(found, notice, interruption.claimed_by)
    tries = event.get("settle", {}).get("tries", 0)
    return {**event, "settle": {"status": status, "detail": f"EC2 reports {found}", "tries": tries}}
