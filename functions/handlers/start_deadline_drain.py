"""StartDeadlineDrain: sends the drain that must end before the instance does. Does not wait for it."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.interruption.response import (
    MIN_DRAIN_SECONDS,
    DeadlineDrain,
    Interruption,
    reason_to_skip_drain,
)
from node_fleet.domain.model.operation import Operation
from node_fleet.payload import put, take
from node_fleet.services import Services, load_services

RECORDED_WITHIN_SECONDS = 86_400


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Return `drain`. After a repeated call the second drain waits for the lock and finds the node empty."""
    services = load_services()
    interruption = take(event, "interruption", Interruption)
    state, now = services.state.load(), services.clock.now()
    reason = reason_to_skip_drain(interruption, state, now)
    if reason:
        node_name = _node_name(services, interruption)
        return put(event, drain=DeadlineDrain(status="skipped", detail=reason, node_name=node_name))
    _stop_scale_down(services, state.operation, interruption.instance_id)
    node_name, seconds = _node_name(services, interruption), interruption.drain_until - now
    command_id = services.server.start_drain(
        node_name,
        operation_id=interruption.operation_id,
        mode=interruption.drain_mode,
        not_after=interruption.drain_until,
        drain_seconds=seconds,
        execution_seconds=seconds + MIN_DRAIN_SECONDS,
        cause=interruption.kind,
    )
    drain = DeadlineDrain(
        status="waiting",
        detail=f"draining {node_name} with command {command_id}",
        node_name=node_name,
        command_id=command_id,
        started_at=now,
        until=interruption.drain_until,
    )
    return put(event, drain=drain)


def _stop_scale_down(services: Services, operation: Operation | None, instance_id: str) -> None:
    """Cancel a scale-down's drain of the same worker: it holds the node's lock and does not evict blocking pods."""
    target = operation.current if operation else None
    if target is not None and target.instance_id == instance_id and target.command_id:
        services.server.cancel(target.command_id)


def _node_name(services: Services, interruption: Interruption) -> str:
    """The node of that instance in a recorded snapshot; else the instance id, which the bootstrap uses as node name."""
    snapshot = services.records.latest_snapshot(services.clock.now() - RECORDED_WITHIN_SECONDS)
    names = {w.instance_id: w.node_name for w in snapshot.workers} if snapshot else {}
    return names.get(interruption.instance_id) or interruption.instance_id
