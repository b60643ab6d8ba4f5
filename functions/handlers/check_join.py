"""CheckJoin: checks once whether the launched workers are usable. Each check renews the lease."""

from __future__ import annotations

from typing import Any

from node_fleet.adapters.launcher import check_slots
from node_fleet.adapters.node_listing import list_nodes, pending_pod_count
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.run import Run
from node_fleet.domain.scale_up.join import join_progress
from node_fleet.payload import put, take
from node_fleet.services import Services, load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answer `join` and `operation`."""
    services = load_services()
    run = take(event, "run", Run)
    recorded = services.state.renew(run, even_paused=True).operation or take(event, "operation", Operation)
    operation = _checked(services, recorded)
    if operation != recorded:
        services.state.save_operation(run, operation)
    now, limit = services.clock.now(), services.settings.join_limit_seconds
    waiting = None if operation.waiting else pending_pod_count(services.prometheus, now)
    progress = join_progress(operation, now=now, limit_seconds=limit, pods_waiting=waiting)
    return put(event, operation=operation, join=progress)


def _checked(services: Services, operation: Operation) -> Operation:
    """EC2 gives the state of each waiting instance, the cluster its usable nodes. Asks neither when no slot waits."""
    if not operation.waiting:
        return operation
    return check_slots(services, operation, list_nodes(services.prometheus, services.server, services.clock.now()))
