"""CheckSetAside: checks the removals that earlier runs set aside, and settles at most one. Starts nothing new."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from node_fleet.domain.model.errors import ServerNotFoundError, ServerUnreachableError
from node_fleet.domain.model.run import Run
from node_fleet.domain.model.set_aside import SetAside
from node_fleet.domain.scale_down.set_aside import has_ended, next_to_settle, settled_sentence
from node_fleet.payload import add_alerts, take
from node_fleet.services import Services, load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Add a note about the settled removal. Safe twice. What cannot be settled stays for the next run."""
    services = load_services()
    run = take(event, "run", Run)
    state = services.state.renew(run)
    states = services.ec2.states(removal.instance_id for removal in state.set_aside)
    removal = next_to_settle(state.set_aside, states, state.ids_under_notice)
    if removal is None:
        return event
    ended = has_ended(removal, states[removal.instance_id])
    try:
        _settle(services, removal, ended=ended)
    except (ServerUnreachableError, ServerNotFoundError) as error:
        services.state.update_set_aside(run, replace(removal, tried_at=services.clock.now(), detail=str(error)))
        return event
    services.state.renew(run)
    services.state.drop_set_aside(run, removal.instance_id)
    return add_alerts(event, notes=[settled_sentence(removal, ended=ended, now=services.clock.now())])


def _settle(services: Services, removal: SetAside, *, ended: bool) -> None:
    if ended:
        services.server.ensure_forgotten(removal.node_name, removal.instance_id)
    else:
        services.server.ensure_uncordoned(removal.node_name, removal.operation_id, drain_command_id=removal.command_id)
