"""CloseNotice: reports how the response to a notice ended, alerts when an operator must act, and lifts the notice.

The message comes first: from the stored notice a second try knows that the worker's incident is open.
"""

from __future__ import annotations

from typing import Any

from node_fleet.domain.interruption.closing import closing_alerts, closing_sentence
from node_fleet.domain.interruption.response import Interruption, interruption_message
from node_fleet.domain.notify.message import plain_failure
from node_fleet.domain.scale_down.lost_volumes import LostVolume
from node_fleet.payload import take
from node_fleet.services import load_services


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
    stored = services.state.load()
    if stored.has_reported_volumes(interruption.instance_id):
        volumes = ()
    alerts = closing_alerts(interruption, status, text, failed=failure is not None, volumes=volumes)
    is_kept = failure is not None or status == "kept"
    notice = stored.notice_of(interruption.instance_id)
    has_ended = interruption.path == "forget"
    is_open = interruption.path == "respond" or notice is not None
    if alerts or is_open:
        is_last = has_ended or notice is None or notice.claimed_by == interruption.claimed_by
        is_end = is_open and is_last and not is_kept
        cluster_id = services.settings.cluster_id
        services.publisher.publish(interruption_message(interruption, cluster_id, text, alerts, is_end=is_end))
    if not is_kept:
        if has_ended:
            services.state.drop_notice(interruption.instance_id)
        else:
            services.state.remove_notice(interruption.instance_id, claimed_by=interruption.claimed_by)
    data = {"interruption": event["interruption"], "settle": settle, "text": text}
    services.records.put_event("interruption_end", services.clock.now(), data, key=interruption.event_key)
    return {"status": "kept" if is_kept else "closed", "sentence": text}
