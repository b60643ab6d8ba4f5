"""AcquireLock: acquires the lease and decides whether this run continues. Changes only the lock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from node_fleet.domain.model.fleet_state import FleetState, times_of
from node_fleet.domain.model.hibernation import next_step
from node_fleet.domain.model.operation import resume_state
from node_fleet.domain.model.run import Alert, Run, Timing, read_input
from node_fleet.logs import logger
from node_fleet.payload import put, to_payload
from node_fleet.services import Services, load_services
from node_fleet.settings import Settings

UNSENT = "alerts of an earlier run are here, because no topic accepted them then"


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Take `input`, `execution_id`, `started_at`; answer the payload for every later state."""
    services = load_services()
    run = read_input(event["input"], execution_id=event["execution_id"], started_at=event["started_at"])
    acquired = services.state.acquire(run)
    held = int(acquired.status == "held")  # the alarm LockHeld reads it
    logger.info("lock", status=acquired.status, held=held, detail=acquired.detail, execution_id=run.execution_id)
    if acquired.status != "acquired":
        return {"run": to_payload(run), "status": acquired.status, "detail": acquired.detail}
    state = acquired.state
    limit = services.settings.operation_limit_seconds
    operation = None if run.dry_run else state.operation
    unsent = () if run.dry_run else state.memory.unsent
    resume = resume_state(operation, now=services.clock.now(), limit_seconds=limit)
    return put(
        {},
        notes=[note for note in (acquired.detail, UNSENT if unsent else "") if note],
        alerts=(*unsent, *((Alert(kind="lock_taken_over", text=acquired.detail),) if acquired.detail else ())),
        run=replace(run, fence=state.fence),
        timing=_timing(services.settings),
        status=acquired.status,
        set_aside=bool(state.set_aside) and not run.dry_run,
        resume=resume or _hibernate_state(services, state, run),
        memory=state.memory,
        operation=operation,
    )


def _hibernate_state(services: Services, state: FleetState, run: Run) -> str:
    """The state that switches the fleet off or on; empty without anything to do. A dry run switches nothing."""
    if run.dry_run or (state.hibernation.is_settled and not services.settings.hibernate):
        return ""
    times = times_of(services.settings, state)
    is_on = next_step(state.hibernation, times, services.clock.now()) == "on"
    return "" if is_on and state.hibernation.is_settled else "Hibernate"


def _timing(settings: Settings) -> Timing:
    return Timing(
        join_poll_seconds=settings.join_poll_seconds,
        drain_poll_seconds=settings.drain_poll_seconds,
        terminate_poll_seconds=settings.terminate_poll_seconds,
        scheduling_grace_seconds=settings.scheduling_grace_seconds,
    )
