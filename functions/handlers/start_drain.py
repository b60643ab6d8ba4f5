"""StartDrain: sends the drain of the next worker to the server and records its command. Does not wait for it."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.model.fleet_state import times_of
from node_fleet.domain.model.run import Run
from node_fleet.domain.scale_down.drain import closing_budget, left_for_later, moved
from node_fleet.payload import put, take
from node_fleet.services import load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Return `drain` and the `operation` as recorded. A second call finds the command recorded and sends nothing.

    After a crash between sending and recording, the second drain waits for the server's lock and finds an empty node.
    """
    services = load_services()
    run = take(event, "run", Run)
    state = services.state.renew(run)
    operation = state.operation
    target = operation.current if operation else None
    if operation is None or target is None or target.phase != "selected":
        return put(event, operation=operation, drain={"status": "waiting", "detail": "it was started before"})
    now, times = services.clock.now(), times_of(services.settings, state)
    if why := left_for_later(times, operation, services.settings.operation_limit_seconds, now):
        detail = why
        changed = moved(operation.without_the_rest(why), "skipped", now, detail=why)
    elif target.instance_id in state.ids_under_notice:
        detail = "it is under interruption notice"
        changed = moved(operation, "skipped", now, detail=detail)
    elif not target.not_ready and (protection := state.active_protections(now).get(target.instance_id)):
        detail = protection.sentence
        changed = moved(operation, "skipped", now, detail=detail)
    elif budget := closing_budget(operation, target, services.settings.policy().budgets, now):
        detail = f"its drain had not begun, and no worker is removed now: {budget}"
        changed = moved(operation, "skipped", now, detail=detail)
    else:
        limits = services.settings.drain_limits
        command_id = services.server.start_drain(
            target.node_name,
            operation_id=operation.operation_id,
            mode="not-ready" if target.not_ready else "hibernate" if operation.hibernate else "voluntary",
            not_after=limits.not_after(now),
            drain_seconds=limits.drain_seconds,
            execution_seconds=limits.execution_seconds,
        )
        detail = f"draining {target.node_name} with command {command_id}"
        changed = moved(operation, "draining", now, detail=detail, command_id=command_id)
    services.state.save_operation(run, changed)
    return put(event, operation=changed, drain={"status": "waiting", "detail": detail})
