"""BeginResponse: near the date of a scheduled change, stops counting the worker and plans its replacement."""

from __future__ import annotations

from typing import Any

from node_fleet.adapters.launcher import placement_from
from node_fleet.domain.interruption.response import ENDED, Interruption, with_replacement
from node_fleet.payload import put, take
from node_fleet.services import load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Return `interruption` and `settle`: "due", "gone" when no instance runs any more, or "superseded". Safe twice."""
    services = load_services()
    interruption = take(event, "interruption", Interruption)
    if not services.state.begin_response(interruption.instance_id, claimed_by=interruption.claimed_by):
        detail = "another execution responds, or the notice was lifted"
        return put(event, settle={"status": "superseded", "detail": detail})
    instance = services.ec2.find_worker(interruption.instance_id)
    if instance is None or instance.state in ENDED:
        return put(event, settle={"status": "gone", "detail": "the instance ended before its date"})
    if instance.is_standby:
        return put(event, settle={"status": "gone", "detail": "it became a stopped standby worker before its date"})
    state, now = services.state.load(), services.clock.now()
    placement = placement_from(services.settings, state.memory, now)
    instances, tariff = services.ec2.instances(), services.settings.tariff()
    interruption = with_replacement(interruption, instance, instances, state, placement, tariff=tariff, now=now)
    return put(event, interruption=interruption, settle={"status": "due", "detail": ""})
