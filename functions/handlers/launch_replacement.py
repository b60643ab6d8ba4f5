"""LaunchReplacement: launches one worker from another pool, beside the autoscaler, within the same maximum.

It holds no lock and waits for no cooldown. Repeated, it finds what it launched by tag and by client token.
"""

from __future__ import annotations

from typing import Any

from node_fleet.adapters.launcher import Launcher, found_by_tag
from node_fleet.domain.interruption.response import (
    Interruption,
    Replacement,
    needs_no_replacement,
    replacement_of,
    replacement_operation,
)
from node_fleet.domain.model.errors import PausedError
from node_fleet.logs import log
from node_fleet.payload import put, take
from node_fleet.services import Wiring, wiring


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answer `replacement`. A refusal of EC2 is an answer; the next tick sees the gap."""
    tools = wiring()
    interruption = take(event, "interruption", Interruption)
    replacement = _replace(tools, interruption)
    log("replacement", instance=interruption.instance_id, status=replacement.status, detail=replacement.detail)
    return put(event, replacement=replacement)


def _replace(tools: Wiring, interruption: Interruption) -> Replacement:
    _refuse_when_paused(tools)
    state = tools.state.load()
    if needs_no_replacement(state.operation, interruption.instance_id):
        return Replacement(status="none", detail="a scale-down was removing this worker anyway")
    if interruption.slot is None:
        return Replacement(status="failed", detail="every pool ran dry minutes ago and rests")
    operation = replacement_operation(interruption, interruption.slot, state.memory.dry_pools)
    launcher = Launcher(
        ec2=tools.ec2,
        state=tools.state,
        clock=tools.clock,
        settings=tools.settings,
        guard=lambda _: _refuse_when_paused(tools),
        record=lambda _: None,
        zones=tools.settings.zones,
    )
    operation = launcher.launch(launcher.reserve(found_by_tag(tools.ec2, operation)))
    return replacement_of(operation)


def _refuse_when_paused(tools: Wiring) -> None:
    pause = tools.state.load().pause
    if pause is not None and pause.until > tools.clock.now():
        raise PausedError(f"paused by {pause.by}: {pause.reason}")
