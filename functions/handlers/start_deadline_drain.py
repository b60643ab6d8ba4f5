"""StartDeadlineDrain: sends the drain that must end before the instance does. Never waits for it."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.interruption.response import (
    LEAST_DRAIN_SECONDS,
    DeadlineDrain,
    Interruption,
    why_no_drain,
)
from node_fleet.domain.model.operation import Operation
from node_fleet.payload import put, take
from node_fleet.services import Services, load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answer `drain`. Sent twice, the second drain waits for the first one's lock and finds the node empty."""
    services = load_services()
    interruption = take(event, "interruption", Interruption)
    state, now = services.state.load(), services.clock.now()
    why = why_no_drain(interruption, state, now, least_seconds=LEAST_DRAIN_SECONDS)
    if why:
        return put(
            event, drain=DeadlineDrain(status="skipped", detail=why, node_name=_node_name(services, interruption))
        )
    _stop_own_drain(services, state.operation, interruption.instance_id)
    node_name = _node_name(services, interruption)
    command_id = _send(services, interruption, node_name, interruption.drain_until - now)
    drain = DeadlineDrain(
        status="waiting",
        detail=f"draining {node_name} with command {command_id}",
        node_name=node_name,
        command_id=command_id,
        started_at=now,
        until=interruption.drain_until,
    )
    return put(event, drain=drain)


def _stop_own_drain(services: Services, operation: Operation | None, instance_id: str) -> None:
    """A scale-down's drain of the same worker holds the node's lock and respects blockers: it makes way."""
    target = operation.current if operation else None
    if target is not None and target.instance_id == instance_id and target.command_id:
        services.server.cancel(target.command_id)


def _node_name(services: Services, interruption: Interruption) -> str:
    """The node of that instance as last seen by provider id; the bootstrap's name when it was never seen."""
    snapshot = services.records.latest_snapshot()
    names = {w.instance_id: w.node_name for w in snapshot.workers} if snapshot else {}
    return names.get(interruption.instance_id) or interruption.instance_id


def _send(services: Services, interruption: Interruption, node_name: str, seconds: int) -> str:
    return services.server.send(
        "DrainNode",
        {
            "NodeName": node_name,
            "OperationId": interruption.operation_id,
            "NotAfter": str(interruption.drain_until),
            "DrainTimeoutSeconds": str(seconds),
            "DrainMode": interruption.drain_mode,
            "ExecutionTimeoutSeconds": str(seconds + LEAST_DRAIN_SECONDS),
        },
    )
