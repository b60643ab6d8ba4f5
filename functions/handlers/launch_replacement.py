"""LaunchReplacement: launches one worker in another pool, independently of the autoscaler, within the same maximum.

It holds no lock and waits for no cooldown. A repeated call finds the launched instance by tag and by client token.
"""

from __future__ import annotations

from typing import Any

from node_fleet.adapters.launcher import Launcher, placement_from, recover_by_tag
from node_fleet.domain.interruption.response import (
    Interruption,
    Replacement,
    needs_no_replacement,
    replacement_of,
    replacement_operation,
    worker_to_replace,
)
from node_fleet.domain.model.errors import PausedError
from node_fleet.domain.scaling.launch_version import version_to_launch
from node_fleet.logs import logger
from node_fleet.payload import put, take
from node_fleet.services import Services, load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Return `replacement`. A refusal of EC2 is an answer; the next tick counts the missing worker."""
    services = load_services()
    interruption = take(event, "interruption", Interruption)
    replacement = _replace(services, interruption)
    logger.info("replacement", instance=interruption.instance_id, status=replacement.status, detail=replacement.detail)
    return put(event, replacement=replacement)


def _replace(services: Services, interruption: Interruption) -> Replacement:
    _refuse_when_paused(services)
    state = services.state.load()
    if state.hibernation.forbids_launches:
        return Replacement(status="none", detail="the fleet is switched off")
    if needs_no_replacement(state.operation, interruption.instance_id):
        return Replacement(status="none", detail="a scale-down already removes this worker")
    worker = worker_to_replace(state, interruption.instance_id)
    if worker and services.ec2.states([worker])[worker] == "running":
        return Replacement(status="none", detail=f"{worker}, which it was to replace, still runs")
    if interruption.slot is None:
        return Replacement(status="failed", detail="every pool is in back-off after a refusal of EC2")
    settings = services.settings
    version = version_to_launch(state.memory.roll_out, settings.launch_template_version, settings.k3s_version)
    operation = replacement_operation(interruption, interruption.slot, state.memory.dry_pools, version)
    launcher = Launcher(
        ec2=services.ec2,
        state=services.state,
        clock=services.clock,
        settings=services.settings,
        guard=lambda _: _refuse_when_paused(services),
        record=lambda _: None,
        zones=services.settings.zones,
        placement=placement_from(settings, state.memory, services.clock.now()),
    )
    operation = launcher.launch(launcher.reserve(recover_by_tag(services.ec2, operation)))
    return replacement_of(operation)


def _refuse_when_paused(services: Services) -> None:
    if pause := services.state.load().active_pause(services.clock.now()):
        raise PausedError(pause.sentence)
