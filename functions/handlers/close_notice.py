"""CloseNotice: records how the response to a notice ended, alerts when an operator must act, and lifts the notice."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.interruption.closing import closing_alerts, closing_sentence
from node_fleet.domain.interruption.response import Interruption, interruption_message
from node_fleet.domain.notify.message import plain_failure
from node_fleet.domain.scale_down.lost_volumes import LostVolume
from node_fleet.payload import take
from node_fleet.services import Services, load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Return status and sentence. Safe twice.

    "kept": the worker could not be settled, stays under notice and causes an alert; "closed" otherwise.
    """
    services = load_services()
    interruption = take(event, "interruption", Interruption)
    failure = plain_failure(event["failure"]) if "failure" in event else None
    settle = event.get("settle", {})
    status = settle.get("status", "")
    text = closing_sentence(interruption, status, settle.get("detail", ""), failure)
    volumes = take(settle, "volumes", tuple[LostVolume, ...], default=())
    if volumes and services.state.load().has_reported_volumes(interruption.instance_id):
        volumes = ()
    alerts = closing_alerts(interruption, status, text, failed=failure is not None, volumes=volumes)
    is_kept = failure is not None or status == "kept"
    is_open = interruption.path == "respond" or _has_notice(services, interruption)
    if not is_kept:
        _lift(services, interruption)
    data = {"interruption": event["interruption"], "settle": settle, "text": text}
    services.records.put_event("interruption_end", services.clock.now(), data, key=interruption.event_key)
    if alerts or is_open:
        is_end = is_open and not is_kept and not _has_notice(services, interruption)
        cluster_id = services.settings.cluster_id
        services.publisher.publish(interruption_message(interruption, cluster_id, text, alerts, is_end=is_end))
    return {"status": "kept" if is_kept else "closed", "sentence": text}


def _has_notice(services: Services, interruption: Interruption) -> bool:
    """Whether an execution has reported a notice of this worker: its end belongs to that incident."""
    return services.state.load().notice_of(interruption.instance_id) is not None


def _lift(services: Services, interruption: Interruption) -> None:
    """Lift this execution's notice; after the end of the instance, the notice of any execution."""
    if interruption.path == "forget":
        services.state.drop_notice(interruption.instance_id)
    else:
        services.state.remove_notice(interruption.instance_id, claimed_by=interruption.claimed_by)
