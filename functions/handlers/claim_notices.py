"""ClaimNotices: reads an announcement of AWS, claims each worker of the fleet once, and plans the response."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from node_fleet.adapters.launcher import placement_from
from node_fleet.domain.interruption.announcement import Announcement, outranks, pool_lost, read_announcement
from node_fleet.domain.interruption.response import (
    Interruption,
    interruption_message,
    plan_response,
    waiting_sentence,
    with_replacement,
)
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
        why = _reason_to_ignore(services, announcement, instance)
        if not why and instance is not None:
            planned = _plan(services, announcement, instance, event["execution_id"])
            planned, why = _claim(services, announcement, instance, planned)
            if not why:
                found.append(_begin(services, announcement, instance, planned))
        if why:
            ignored[instance_id] = why
    logger.info("notice", kind=announcement.kind, claimed=[i.instance_id for i in found], ignored=ignored)
    return {
        "status": "claimed" if found else "ignored",
        "interruptions": [to_payload(interruption) for interruption in found],
        "ignored": ignored,
    }


def _reason_to_ignore(services: Services, announcement: Announcement, instance: Instance | None) -> str:
    """Why there is no response for that instance; empty when it may be claimed."""
    if announcement.kind is None:
        return "the event asks for nothing"
    if instance is None:
        return "not a worker of this fleet"
    if instance.is_standby and announcement.kind != "gone":
        return "it is a stopped standby worker, which node-fleet starts or renews"
    if announcement.kind == "rebalance" and not services.settings.handle_rebalance:
        return "rebalance recommendations are not followed (handle_rebalance=false)"
    return ""


def _plan(services: Services, announcement: Announcement, instance: Instance, execution_id: str) -> Interruption:
    return plan_response(
        announcement,
        instance,
        claimed_by=execution_id,
        now=services.clock.now(),
        times=services.settings,
        join_limit_seconds=services.settings.join_limit_seconds,
    )


def _claim(
    services: Services, announcement: Announcement, instance: Instance, planned: Interruption
) -> tuple[Interruption, str]:
    """The response of this execution, and why another execution responds; the reason is empty when this one does.

    A worker whose replacement runs already, for an earlier date of its change, stays under notice.
    """
    if announcement.kind in ("gone", "stopped"):
        return planned, ""
    notice = Notice(
        instance_id=planned.instance_id,
        kind=planned.kind,
        at=announcement.at,
        deadline=announcement.deadline,
        claimed_by=planned.claimed_by,
        event=announcement.event,
        is_due=planned.path != "wait",
    )
    lost_pool = pool_lost(announcement, instance) if services.settings.spot_learning != "off" else ""
    if services.state.add_notice(notice, lost_pool):
        return planned, ""
    known = services.state.load().notice_of(planned.instance_id) or notice
    if known.claimed_by == planned.claimed_by:
        return planned, ""
    if not outranks(announcement, known):
        return planned, f"execution {known.claimed_by} already responds to a notice of kind {known.kind}"
    if planned.path == "wait" and known.is_due:
        planned, notice = replace(planned, path="respond"), replace(notice, is_due=True)
    services.state.replace_notice(notice, lost_pool)
    return planned, ""


def _begin(services: Services, announcement: Announcement, instance: Instance, planned: Interruption) -> Interruption:
    """Plan the replacement of a response that begins now; report one that begins later."""
    if planned.path == "wait":
        text = waiting_sentence(planned, announcement.deadline)
        message = interruption_message(planned, services.settings.cluster_id, text, ())
        services.publisher.publish(message)
    if planned.path != "respond":
        return planned
    state, now = services.state.load(), services.clock.now()
    placement = placement_from(services.settings, state.memory, now)
    instances, tariff = services.ec2.instances(), services.settings.tariff()
    return with_replacement(planned, instance, instances, state, placement, tariff=tariff, now=now)
