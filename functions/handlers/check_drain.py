"""CheckDrain: checks the drain, and withdraws it when load returns or an operator pauses or protects the worker."""

from __future__ import annotations

from typing import Any

from node_fleet.adapters.node_listing import pending_pod_count
from node_fleet.domain.model.errors import ServerUnreachableError
from node_fleet.domain.model.fleet_state import FleetState, times_of
from node_fleet.domain.model.operation import Operation, Target, TargetPhase
from node_fleet.domain.model.run import Run
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.domain.scale_down.drain import (
    DrainVerdict,
    after_target,
    judge_check,
    judge_drain,
    moved,
    to_be_on,
)
from node_fleet.domain.scale_down.inspection import NodeCheck
from node_fleet.payload import put, take
from node_fleet.services import Services, load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Return `drain` ("waiting" until it ends), the `operation`, and `next` for a target that is skipped."""
    services = load_services()
    run = take(event, "run", Run)
    state = services.state.renew(run, even_paused=True)
    operation = state.operation or take(event, "operation", Operation)
    target = operation.current
    if target is None or target.phase == "selected":
        return put(event, operation=operation, next=after_target(operation), drain={"status": "skipped"})
    now = services.clock.now()
    verdict = (
        _under_notice_paused_or_protected(state, target, now)
        or _to_be_on(services, state, operation, now)
        or _load_returned(services, event, operation, target, now)
        or _judge(services, operation, target, now)
    )
    drain: dict[str, Any] = {"status": verdict.status, "detail": verdict.detail, "alert": verdict.alert}
    if verdict.status in ("drained", "skipped"):
        phase: TargetPhase = "drained" if verdict.status == "drained" else "skipped"
        operation = moved(operation, phase, now, detail=verdict.detail)
        services.state.save_operation(run, operation)
    if verdict.status == "drained":
        drain["seconds"] = now - target.started_at
    return put(event, operation=operation, next=after_target(operation), drain=drain)


def _under_notice_paused_or_protected(state: FleetState, target: Target, now: int) -> DrainVerdict | None:
    """A worker under notice is drained by the interruption workflow, which has stopped this drain."""
    if target.instance_id in state.ids_under_notice:
        text = "it is under interruption notice; the interruption workflow drains it"
        return DrainVerdict(status="skipped", detail=text)
    if pause := state.active_pause(now):
        return DrainVerdict(status="withdrawn", detail=pause.sentence)
    protection = state.active_protections(now).get(target.instance_id)
    if protection and not target.not_ready:
        return DrainVerdict(status="withdrawn", detail=protection.sentence)
    return None


def _to_be_on(services: Services, state: FleetState, operation: Operation, now: int) -> DrainVerdict | None:
    why = to_be_on(times_of(services.settings, state), operation, now)
    return DrainVerdict(status="withdrawn", detail=why) if why else None


def _load_returned(
    services: Services, event: dict[str, Any], operation: Operation, target: Target, now: int
) -> DrainVerdict | None:
    """More unschedulable pods than at the decision. Missing metrics withdraw nothing.

    The pods of a fleet that is switched off need no other place.
    """
    if operation.hibernate:
        return None
    waiting = pending_pod_count(services.prometheus, now) or 0
    before = (take(event, "snapshot", Snapshot).pending_count or 0) if event.get("snapshot") else 0
    if target.not_ready or waiting <= before:
        return None
    pods = "1 pod was" if waiting == 1 else f"{waiting} pods were"
    return DrainVerdict(status="withdrawn", detail=f"{pods} unschedulable during the drain")


def _judge(services: Services, operation: Operation, target: Target, now: int) -> DrainVerdict:
    try:
        if target.phase == "draining":
            verdict = judge_drain(
                services.server.result(target.command_id), target, services.settings.drain_limits, now
            )
            if verdict.status != "drained":
                return verdict
        check = services.server.check(target.node_name)
    except ServerUnreachableError as error:
        check = NodeCheck(known=False, detail=str(error))
    waited, limit = now - target.started_at, services.settings.drain_limits.state_seconds
    return judge_check(check, target, operation.operation_id, dead=target.not_ready, waited=waited, limit=limit)
