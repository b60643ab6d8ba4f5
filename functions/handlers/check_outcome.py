"""CheckOutcome: after the date of a notice, asks EC2 whether AWS reclaimed the worker. Often it did not."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.interruption.closing import outcome_status
from node_fleet.domain.interruption.response import Interruption
from node_fleet.payload import take
from node_fleet.services import load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Return `settle`: "gone", "not_reclaimed", or "superseded" by a later notice. Its `tries` are kept."""
    services = load_services()
    interruption = take(event, "interruption", Interruption)
    ec2_state = services.ec2.states([interruption.instance_id])[interruption.instance_id]
    notice = services.state.load().notice_of(interruption.instance_id)
    status = outcome_status(ec2_state, notice, interruption.claimed_by)
    tries = event.get("settle", {}).get("tries", 0)
    return {**event, "settle": {"status": status, "detail": f"EC2 state {ec2_state}", "tries": tries}}
