"""NotifyResponse: records and publishes the response to an interruption notice, before the outcome is known."""

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
from node_fleet.payload import take
from node_fleet.services import load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Write one event and publish one message; return the payload unchanged."""
    services = load_services()
    interruption, response = take(event, "interruption", Interruption), event["response"]
    drain, replacement = take(response, "drain", DeadlineDrain), take(response, "replacement", Replacement)
    text = response_sentence(interruption, drain, replacement)
    alerts = interruption_alerts(interruption, drain, replacement)
    data = {"interruption": event["interruption"], **response, "text": text}
    services.records.put_event("interruption", interruption.at, data, key=interruption.event_key)
    message = interruption_message(interruption, services.settings.cluster_id, text, alerts)
    services.publisher.publish(message)
    if drain.volumes:
        services.state.record_lost_volumes(interruption.instance_id)
    return event
