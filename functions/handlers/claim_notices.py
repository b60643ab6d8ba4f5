"""ClaimNotices: reads an announcement, ignores what is not ours, claims each worker once, and plans the answer."""

from __future__ import annotations

from typing import Any

from node_fleet.adapters.launcher import placement_from
from node_fleet.domain.interruption.response import (
    Announcement,
    Interruption,
    Times,
    answer_to,
    outranks,
    read_announcement,
    replacement_slot,
)
from node_fleet.domain.model.fleet_state import Notice
from node_fleet.domain.model.snapshot import Instance
from node_fleet.logs import logger
from node_fleet.payload import to_payload
from node_fleet.services import Services, load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Take `event` and `execution_id`; answer `interruptions` to respond to and, for each other instance, why not."""
    services = load_services()
    announcement = read_announcement(event["event"])
    found: list[Interruption] = []
    ignored: dict[str, str] = {}
    for instance_id in announcement.instance_ids:
        instance = services.ec2.find_worker(instance_id)
        why = _ignored(services, announcement, instance, event["execution_id"])
        if why or instance is None:
            ignored[instance_id] = why
        else:
            found.append(_planned(services, announcement, instance, event["execution_id"]))
    logger.info("notice", kind=announcement.kind, claimed=[i.instance_id for i in found], ignored=ignored)
    return {
        "status": "claimed" if found else "ignored",
        "interruptions": [to_payload(interruption) for interruption in found],
        "ignored": ignored,
    }


def _ignored(services: Services, announcement: Announcement, instance: Instance | None, execution_id: str) -> str:
    """Why nothing is done about that instance; empty when it is claimed for this execution."""
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
    return f"already being answered by {known.claimed_by} ({known.kind})"


def _planned(services: Services, announcement: Announcement, instance: Instance, execution_id: str) -> Interruption:
    settings, now = services.settings, services.clock.now()
    times = Times(
        margin_seconds=settings.interruption_margin_seconds,
        settle_seconds=settings.interruption_settle_seconds,
        rebalance_hold_seconds=settings.rebalance_hold_seconds,
        scheduled_lead_seconds=settings.scheduled_drain_lead_seconds,
        join_limit_seconds=settings.join_limit_seconds,
    )
    answer = answer_to(announcement, instance, claimed_by=execution_id, now=now, times=times)
    if answer.path != "respond":
        return answer
    slot = replacement_slot(
        instance, services.ec2.instances(), services.state.load(), placement_from(settings), now=now
    )
    return answer.with_slot(slot)
