"""CheckDrain: asks how the drain stands, and withdraws it when load returns or an operator pauses the fleet."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.model.errors import MetricsUnavailableError, ServerUnreachableError
from node_fleet.domain.model.fleet_state import FleetState
from node_fleet.domain.model.operation import Operation, Target
from node_fleet.domain.model.run import Run
from node_fleet.domain.model.snapshot import PodShape, Snapshot
from node_fleet.domain.scale_down.drain import (
    DrainLimits,
    DrainVerdict,
    after_target,
    judge_check,
    judge_drain,
    moved,
)
from node_fleet.domain.scale_down.inspection import NodeCheck, parse_node_check
from node_fleet.payload import put, take
from node_fleet.services import Services, load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answer `drain` ("waiting" until there is an end), the `operation`, and `next` for a target that is left out."""
    services = load_services()
    run = take(event, "run", Run)
    state = services.state.renew(run, even_paused=True)
    operation = state.operation or take(event, "operation", Operation)
    target = operation.current
    if target is None or target.phase == "selected":
        return put(event, operation=operation, next=after_target(operation), drain={"status": "skipped"})
    now = services.clock.now()
    verdict = (
        _announced(state, target)
        or _paused(state, now)
        or _load_is_back(services, event, target, now)
        or _judge(services, operation, target, now)
    )
    if verdict.status in ("drained", "skipped"):
        operation = moved(
            operation, "drained" if verdict.status == "drained" else "skipped", now, detail=verdict.detail
        )
        services.state.save_operation(run, operation)
    drain = {"status": verdict.status, "detail": verdict.detail, "alert": verdict.alert}
    if verdict.status == "drained":
        drain["seconds"] = now - target.started_at  # type: ignore[assignment]
    return put(event, operation=operation, next=after_target(operation), drain=drain)


def _announced(state: FleetState, target: Target) -> DrainVerdict | None:
    """A worker that AWS takes meanwhile is emptied by the interruption workflow, which has stopped this drain."""
    if target.instance_id not in {notice.instance_id for notice in state.notices}:
        return None
    return DrainVerdict(status="skipped", detail="AWS has announced to take it; the interruption workflow empties it")


def _paused(state: FleetState, now: int) -> DrainVerdict | None:
    if state.pause is None or state.pause.until <= now:
        return None
    return DrainVerdict(status="withdrawn", detail=f"paused by {state.pause.by}: {state.pause.reason}")


def _load_is_back(services: Services, event: dict[str, Any], target: Target, now: int) -> DrainVerdict | None:
    """More unschedulable pods than when it was decided. What is missing withdraws nothing."""
    try:
        pending = services.prometheus.pending(now)
    except MetricsUnavailableError:
        return None
    waiting, before = _count(pending), _pending_before(event)
    if pending is None or target.not_ready or waiting <= before:
        return None
    return DrainVerdict(status="withdrawn", detail=f"{waiting} pods became unschedulable while it was drained")


def _count(shapes: tuple[PodShape, ...] | None) -> int:
    return sum(shape.count for shape in shapes or ())


def _pending_before(event: dict[str, Any]) -> int:
    return (take(event, "snapshot", Snapshot).pending_count or 0) if event.get("snapshot") else 0


def _judge(services: Services, operation: Operation, target: Target, now: int) -> DrainVerdict:
    limits = DrainLimits(
        drain_seconds=services.settings.drain_timeout_seconds,
        delivery_seconds=services.settings.delivery_timeout_seconds,
    )
    waited = now - target.started_at
    try:
        if target.phase == "draining":
            verdict = judge_drain(services.server.result(target.command_id), target, limits, now)
            if verdict.status != "drained":
                return verdict
        look = _look(services, target)
    except ServerUnreachableError as error:
        look = NodeCheck(known=False, detail=str(error))
    return judge_check(
        look, target, operation.operation_id, dead=target.not_ready, waited=waited, limit=limits.state_seconds
    )


def _look(services: Services, target: Target) -> NodeCheck:
    result = services.server.run("CheckNode", {"NodeName": target.node_name})
    if not result.succeeded:
        return NodeCheck(known=False, detail=f"the look at {target.node_name} has no answer: SSM says {result.status}")
    return parse_node_check(result.stdout, target.node_name)
