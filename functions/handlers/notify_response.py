"""NotifyResponse: records and tells what was done about an announcement, while it is news."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.interruption.response import (
    DeadlineDrain,
    Interruption,
    Replacement,
    interruption_alerts,
    interruption_message,
    response_sentence,
)
from node_fleet.payload import from_payload, take, to_payload
from node_fleet.services import load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Write one event and publish one message; the payload goes on as it came."""
    services = load_services()
    interruption = take(event, "interruption", Interruption)
    drain = from_payload(DeadlineDrain, event["response"]["drain"])
    replacement = from_payload(Replacement, event["response"]["replacement"])
    text = response_sentence(interruption, drain, replacement)
    alerts = interruption_alerts(interruption, drain, replacement)
    data = {"interruption": event["interruption"], **event["response"], "text": text}
    services.records.put_event("interruption", interruption.at, data, key=interruption.event_key)
    message = interruption_message(interruption, services.settings.cluster_id, text, alerts)
    services.publisher.publish(f"node-fleet {services.settings.cluster_id}: {interruption.why}", to_payload(message))
    return event
