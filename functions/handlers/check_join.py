"""CheckJoin: one look at whether the launched workers are usable. Not yet is an answer; every look renews the lease."""

from __future__ import annotations

from typing import Any

from node_fleet.adapters.node_listing import look, pods_waiting
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.run import Run
from node_fleet.domain.scale_up.join import join_of, judge
from node_fleet.payload import put, take
from node_fleet.services import Wiring, wiring


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answer `join` and `operation`."""
    tools = wiring()
    run = take(event, "run", Run)
    recorded = tools.state.renew(run, even_paused=True).operation or take(event, "operation", Operation)
    operation = _looked_at(tools, recorded)
    if operation != recorded:
        tools.state.save_operation(run, operation)
    now, limit = tools.clock.now(), tools.settings.join_limit_seconds
    waiting = None if operation.waiting else pods_waiting(tools.prometheus, now)
    return put(event, operation=operation, join=join_of(operation, now=now, limit_seconds=limit, pods_waiting=waiting))


def _looked_at(tools: Wiring, operation: Operation) -> Operation:
    """EC2 says what lives, the cluster says what is usable; unless nothing waits, which needs no look."""
    if not operation.waiting:
        return operation
    states = tools.ec2.states(slot.instance_id for slot in operation.waiting)
    sight = look(tools.prometheus, tools.server, tools.clock.now())
    return judge(operation, states=states, nodes=sight.nodes, now=tools.clock.now())
