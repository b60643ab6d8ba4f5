"""ClaimNotices: reads an announcement of AWS, claims each worker of the fleet once, and plans the response."""

from __future__ import annotations

from typing import Any

from node_fleet.adapters.launcher import placement_from
from node_fleet.domain.interruption.announcement import Announcement, outranks, read_announcement
from node_fleet.domain.interruption.response import Interruption, plan_response, replacement_slot
from node_fleet.domain.model.fleet_state import Notice
from node_fleet.domain.model.snapshot import Instance
from node_fleet.logs import logger
from node_fleet.payload import to_payload
from node_fleet.services import Services, load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Take `event` and `execution_id`; return `interruptions` and, for each other instance, why it is ignored."""
    services = load_services()
    announcement = read_announcement(event["event"])
    found: list[Interruption] = []
    ignored: dict[str, str] = {}
    for instance_id in announcement.instance_ids:
        instance = services.ec2.find_worker(instance_id)
        why = _reason_to_ignore(services, announcement, instance, event["execution_id"])
        if why or instance is None:
            ignored[instance_id] = why
        else:
            found.append(_plan(services, announcement, instance, event["execution_id"]))
    logger.info("notice", kind=announcement.kind, claimed=[i.instance_id for i in found], ignored=ignored)
    return {
        "status": "claimed" if found else "ignored",
        "interruptions": [to_payload(interruption) for interruption in found],
        "ignored": ignored,
    }


def _reason_to_ignore(
    services: Services, announcement: Announcement, instance: Instance | None, execution_id: str
) -> str:
    """Why there is no response for that instance; empty when this execution claims it."""
    if announcement.kind is None:
        return "the event asks for nothing"
    if instance is None:
        return "not a worker of this fleet"
    if announcement.kind == "rebalance" and not services.settings.handle_rebalance:
        return "rebalance recommendations are not followed (HANDLE_REBALANCE=false)"
    if announcement.kind in ("gone", "stopped"):
        return ""
    return _claim(services, announcement, instance.instance_id, execution_id)


def _claim(services: Services, announcement: Announcement, instance_id: str, execution_id: str) -> str:
    notice = Notice(
        instance_id=instance_id,
        kind=announcement.kind or "",
        at=announcement.at,
        deadline=announcement.deadline,
        claimed_by=execution_id,
        event=announcement.event,
    )
    if services.state.add_notice(notice):
        return ""
    known = services.state.load().notice_of(instance_id) or notice
    if known.claimed_by == execution_id:
        return ""
    if outranks(announcement, known):
        services.state.replace_notice(notice)
        return ""
    return f"execution {known.claimed_by} already responds to a notice of kind {known.kind}"


def _plan(services: Services, announcement: Announcement, instance: Instance, execution_id: str) -> Interruption:
    settings, now = services.settings, services.clock.now()
    planned = plan_response(
        announcement,
        instance,
        claimed_by=execution_id,
        now=now,
        times=settings,
        join_limit_seconds=settings.join_limit_seconds,
    )
    if planned.path != "respond":
        return planned
    slot = replacement_slot(
        instance, services.ec2.instances(), services.state.load(), placement_from(settings), now=now
    )
    return planned.with_slot(slot)
