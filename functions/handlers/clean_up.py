"""CleanUp: after an execution died, takes its lock, closes its operation, and only then undoes its own cordons.

The notices that it was answering are settled, and the nodes of machines that ended meanwhile are forgotten.

Started by the rule on FAILED, TIMED_OUT and ABORTED. Safe twice, late, and beside a run that already resumed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from node_fleet.adapters.cordon import give_back
from node_fleet.adapters.forget import forget_node
from node_fleet.domain.interruption.response import ENDED, read_announcement
from node_fleet.domain.model.errors import (
    CleanUpUnfinishedError,
    InvalidInputError,
    NodeFleetError,
    ServerNotFoundError,
    ServerUnreachableError,
)
from node_fleet.domain.model.operation import Operation, Target
from node_fleet.domain.model.run import Run
from node_fleet.domain.notify.message import Outcome
from node_fleet.domain.scale_down.recovery import cordons_to_undo, given_up, left_open, may_close
from node_fleet.domain.scale_up.launch import reservations_to_release
from node_fleet.logs import logger
from node_fleet.payload import to_payload
from node_fleet.services import Services, load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Take EventBridge's execution status event; answer what was done, in one sentence.

    Raises:
        CleanUpUnfinishedError: all else is done, but a notice or a dead worker's node still stands; the same event
            is due again.
    """
    services = load_services()
    dead = event["detail"]["executionArn"]
    orphans = [notice for notice in services.state.load().notices if notice.claimed_by == dead]
    settled, standing = services.reinstatement.settle_orphans(orphans) if orphans else ([], [])
    told = _lock(services, event, dead, [*settled, *standing])
    standing += _dead_workers(services, [*_announced(event), *(notice.instance_id for notice in orphans)])
    if standing:
        raise CleanUpUnfinishedError("; ".join(standing))
    return told


def _lock(services: Services, event: dict[str, Any], dead: str, notices: list[str]) -> dict[str, Any]:
    """Free the lock of the dead execution and close its operation; a lock that is another's is left alone."""
    run = services.state.take_over(dead, f"clean-up:{event['id']}")
    if run is None:
        open_still = left_open(services.state.load().operation)
        return _told(dead, "nothing to do: the lock is not that execution's", open_still, *notices)
    operation = services.state.renew(run, even_paused=True).operation
    done = _close(services, run, operation) if operation and may_close(operation, dead) else left_open(operation)
    services.state.release(run)
    told = _told(dead, f"freed the lock of {dead}", done, *notices)
    services.records.put_event(
        "clean_up", services.clock.now(), {"execution": dead, **told["outcome"]}, key=event["id"]
    )
    return told


def _announced(event: dict[str, Any]) -> tuple[str, ...]:
    """The instances of the announcement that the dead execution was started with; none for the autoscaler's."""
    try:
        return read_announcement(json.loads(event["detail"]["input"])).instance_ids
    except (KeyError, TypeError, ValueError, InvalidInputError):
        return ()


def _dead_workers(services: Services, instance_ids: Iterable[str]) -> list[str]:
    """Forget the nodes of those that have ended, as the dead execution would have; why a node still stands."""
    standing: list[str] = []
    for instance_id in dict.fromkeys(instance_ids):
        try:
            worker = services.ec2.find_worker(instance_id)
            if worker is not None and worker.state in ENDED:
                forget_node(services.server, instance_id, instance_id)
        except NodeFleetError as error:
            standing.append(str(error))
    return standing


def _close(services: Services, run: Run, operation: Operation) -> str:
    """Given up in the record first, so that no run goes on with it; gone from it once every cordon is back."""
    operation = given_up(operation)
    services.state.save_operation(run, operation)
    standing = [why for target in cordons_to_undo(operation) if (why := _undo(services, operation, target))]
    if standing:
        return f"gave up {operation.operation_id}; the next run undoes the rest: {'; '.join(standing)}"
    services.state.unreserve(reservations_to_release(operation, services.clock.now()))
    services.state.close_operation(run, services.state.load().memory)
    return f"closed {operation.operation_id}"


def _undo(services: Services, operation: Operation, target: Target) -> str:
    """Empty, or why the cordon may still stand."""
    try:
        give_back(services.server, operation, target)
    except (ServerUnreachableError, ServerNotFoundError) as error:
        return str(error)
    return ""


def _told(dead: str, *parts: str) -> dict[str, Any]:
    text = "; ".join(part for part in parts if part)
    logger.info("clean-up", sentence=text, execution_id=dead)
    return {"outcome": to_payload(Outcome(kind="failed", text=text))}
