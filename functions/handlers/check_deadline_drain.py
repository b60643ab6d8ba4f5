"""CheckDeadlineDrain: checks the drain. After the deadline it counts as failed, whatever SSM answers later."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from node_fleet.domain.interruption.response import DeadlineDrain, Interruption
from node_fleet.domain.model.drain_limits import DrainLimits
from node_fleet.domain.model.errors import ServerUnreachableError
from node_fleet.domain.model.operation import Target
from node_fleet.domain.scale_down.drain import judge_drain
from node_fleet.domain.scale_down.lost_volumes import LostVolume
from node_fleet.payload import put, take
from node_fleet.services import Services, load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Return `drain`: "waiting" until it ends."""
    services = load_services()
    interruption, drain = take(event, "interruption", Interruption), take(event, "drain", DeadlineDrain)
    status, detail, volumes = _judge(services, interruption, drain)
    now = services.clock.now()
    if status == "waiting" and now > drain.until + interruption.poll_seconds:
        status, detail = "failed", f"it had not ended at the deadline: {detail}"
    if status == "drained":
        detail = f"{detail} after {now - drain.started_at} s"
    status = "failed" if status == "blocked" else status
    return put(event, drain=replace(drain, status=status, detail=detail, volumes=volumes))


def _judge(
    services: Services, interruption: Interruption, drain: DeadlineDrain
) -> tuple[str, str, tuple[LostVolume, ...]]:
    """Status and detail of the drain, and the volumes that end with the worker."""
    target = Target(
        instance_id=interruption.instance_id,
        node_name=drain.node_name,
        command_id=drain.command_id,
        started_at=drain.started_at,
    )
    limits = DrainLimits(drain_seconds=drain.until - drain.started_at, delivery_seconds=interruption.poll_seconds)
    try:
        result = services.server.result(drain.command_id)
    except ServerUnreachableError as error:
        return "waiting", str(error), ()
    verdict = judge_drain(result, target, limits, services.clock.now())
    return verdict.status, verdict.detail, result.volumes
