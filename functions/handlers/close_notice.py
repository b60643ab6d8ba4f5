"""CloseNotice: records how an announcement ended, tells it when a person should know, and lifts the notice."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.interruption.response import (
    Interruption,
    closing_alerts,
    closing_sentence,
    interruption_message,
)
from node_fleet.domain.notify.message import plain_failure
from node_fleet.payload import take, to_payload
from node_fleet.services import Services, load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answer the sentence. Safe twice. A worker that nobody could settle stays under notice, and is told of."""
    services = load_services()
    interruption = take(event, "interruption", Interruption)
    failure = plain_failure(event["failure"]) if "failure" in event else None
    status, detail = event.get("settle", {}).get("status", ""), event.get("settle", {}).get("detail", "")
    text = closing_sentence(interruption, status, detail, failure)
    alerts = closing_alerts(interruption, status, text, failed=failure is not None)
    if failure is None and status != "kept":
        _lift(services, interruption)
    data = {"interruption": event["interruption"], "settle": event.get("settle", {}), "text": text}
    services.records.put_event("interruption_end", services.clock.now(), data, key=interruption.event_key)
    if alerts:
        message = interruption_message(interruption, services.settings.cluster_id, text, alerts)
        services.publisher.publish(
            f"node-fleet {services.settings.cluster_id}: {interruption.why}", to_payload(message)
        )
    return {"interruption": event["interruption"], "sentence": text}


def _lift(services: Services, interruption: Interruption) -> None:
    """Its own notice; that of a machine that has ended is nobody's matter any more."""
    if interruption.path == "forget":
        services.state.drop_notice(interruption.instance_id)
    else:
        services.state.remove_notice(interruption.instance_id, claimed_by=interruption.claimed_by)
