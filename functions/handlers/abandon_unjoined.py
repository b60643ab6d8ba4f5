"""AbandonUnjoined: gives up what is known not to have joined in time. What nobody can see is kept and adopted."""

from __future__ import annotations

from typing import Any

from node_fleet.adapters.launcher import found_by_tag
from node_fleet.adapters.node_listing import look_closely, pods_waiting
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.run import Run
from node_fleet.domain.scale_up.join import NOBODY_LOOKED, after_giving_up, give_up, join_alerts, judge
from node_fleet.domain.scale_up.launch import slot_key
from node_fleet.payload import put, take
from node_fleet.services import Wiring, wiring
from node_fleet.telling import tell


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answer `join` ("partial" when something joined or may yet join) and `operation`."""
    tools = wiring()
    run = take(event, "run", Run)
    recorded = tools.state.renew(run).operation or take(event, "operation", Operation)
    operation = _given_up(tools, recorded)
    tools.state.save_operation(run, operation)
    _remove(tools, operation)
    now = tools.clock.now()
    join = after_giving_up(operation, now=now, pods_waiting=pods_waiting(tools.prometheus, now))
    alerts = join_alerts(operation, keep_unjoined=tools.settings.keep_unjoined)
    return tell(put(event, operation=operation, join=join), alerts=alerts)


def _given_up(tools: Wiring, operation: Operation) -> Operation:
    """One last, closer look; an operation that died between launching and recording is completed from EC2's tags."""
    if any(slot.outcome == "planned" for slot in operation.slots):
        operation = found_by_tag(tools.ec2, operation)
    states = tools.ec2.states(slot.instance_id for slot in operation.waiting)
    now = tools.clock.now()
    sight = look_closely(tools.prometheus, tools.server, now) if operation.waiting else NOBODY_LOOKED
    operation = judge(operation, states=states, nodes=sight.nodes, now=now)
    return give_up(operation, sight, now=now, limit_seconds=tools.settings.join_limit_seconds)


def _remove(tools: Wiring, operation: Operation) -> None:
    """Tag, then terminate (unless kept for inspection), then give the room back. Safe twice."""
    lost = [slot for slot in operation.slots if slot.outcome == "unjoined"]
    tools.ec2.tag((slot.instance_id for slot in lost), {"JoinFailed": "true"})
    if not tools.settings.keep_unjoined:
        tools.ec2.terminate(slot.instance_id for slot in lost)
    gone = (slot for slot in operation.slots if slot.outcome in ("unjoined", "failed"))
    tools.state.unreserve(slot_key(operation.operation_id, slot.number) for slot in gone)
