"""CleanUp: after an execution ended without success, takes its lock, rolls back its operation and closes it.

It settles the notices that the execution responded to and deletes the nodes of instances that have ended. A rule on
FAILED, TIMED_OUT and ABORTED starts it. Safe twice, late, and beside a run that already resumed.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable
from typing import Any

from node_fleet.domain.interruption.announcement import read_announcement
from node_fleet.domain.interruption.response import ENDED
from node_fleet.domain.model.errors import (
    CleanUpUnfinishedError,
    InvalidInputError,
    NodeFleetError,
    ServerNotFoundError,
    ServerUnreachableError,
)
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation, Target, cordons_to_undo, given_up, may_close
from node_fleet.domain.model.run import Alert, Run
from node_fleet.domain.notify.incident_state import incident_keys
from node_fleet.domain.notify.message import Message, Outcome
from node_fleet.domain.scale_down.lost_volumes import lost_volumes_alert
from node_fleet.domain.scale_up.launch import reservations_to_release
from node_fleet.domain.scaling.memory_update import record_reboots, record_replaced, record_replacement
from node_fleet.logs import logger
from node_fleet.payload import to_payload
from node_fleet.services import Services, load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Take EventBridge's execution status event; return what was done, in one sentence.

    Raises:
        CleanUpUnfinishedError: a notice or the node of an ended instance remains and all else is done; Lambda must
            deliver the same event again.
    """
    services = load_services()
    dead = event["detail"]["executionArn"]
    claimed = [notice for notice in services.state.load().notices if notice.claimed_by == dead]
    settled, remaining = services.reinstatement.settle_notices(claimed)
    answer = _close_execution(services, event, dead, [*settled, *remaining])
    reported = {notice.instance_id for notice in claimed if notice.reported_volumes}
    ended = dict.fromkeys([*_announced(event), *(notice.instance_id for notice in claimed)])
    remaining += _forget_ended(services, dead, ended, reported)
    if remaining:
        raise CleanUpUnfinishedError("; ".join(remaining))
    return answer


def _close_execution(services: Services, event: dict[str, Any], dead: str, notices: list[str]) -> dict[str, Any]:
    """Close the operation of the dead execution and free its lock; another execution's lock stays."""
    run = services.state.take_over(dead, f"clean-up:{event['id']}")
    if run is None:
        other = "the lock is not that execution's"
        lock = other if notices else f"nothing to do: {other}"
        return _answer(dead, *notices, lock, _still_open(services.state.load().operation))
    operation = services.state.renew(run, even_paused=True).operation
    done = _close(services, run, operation) if operation and may_close(operation, dead) else _still_open(operation)
    services.state.release(run)
    answer = _answer(dead, f"freed the lock of {dead}", done, *notices)
    data = {"execution": dead, **answer["outcome"]}
    services.records.put_event("clean_up", services.clock.now(), data, key=event["id"])
    return answer


def _announced(event: dict[str, Any]) -> tuple[str, ...]:
    """The instances in the event that started the dead execution; none for one of the autoscaler."""
    try:
        return read_announcement(json.loads(event["detail"]["input"])).instance_ids
    except (KeyError, TypeError, ValueError, InvalidInputError):
        return ()


def _forget_ended(services: Services, dead: str, instance_ids: Iterable[str], reported: Container[str]) -> list[str]:
    """Delete the nodes of those instances that have ended; return the reasons why a node remains.

    reported: instances whose lost volumes a message has named.
    """
    remaining: list[str] = []
    for instance_id in instance_ids:
        try:
            worker = services.ec2.find_worker(instance_id)
            if worker is not None and worker.state in ENDED:
                volumes = services.server.ensure_forgotten(instance_id, instance_id)
                if instance_id not in reported:
                    _report(services, dead, lost_volumes_alert(instance_id, volumes))
        except NodeFleetError as error:
            remaining.append(str(error))
    return remaining


def _report(services: Services, dead: str, alerts: tuple[Alert, ...]) -> None:
    for alert in alerts:
        message = Message(
            cluster_id=services.settings.cluster_id,
            level="error",
            what=alert.text,
            why="the clean-up deleted the node of an instance that has ended",
            execution_id=dead,
            trigger="clean-up",
            alerts=alerts,
            incidents=incident_keys((alert,)),
        )
        services.publisher.publish(message)


def _close(services: Services, run: Run, operation: Operation) -> str:
    """Mark the operation as given up, so that no run resumes it; remove it once its cordon is removed."""
    operation = given_up(operation)
    services.state.save_operation(run, operation)
    remaining = [why for target in cordons_to_undo(operation) if (why := _uncordon(services, operation, target))]
    if remaining:
        return f"gave up {operation.operation_id}; the next run rolls back the rest: {'; '.join(remaining)}"
    now = services.clock.now()
    services.state.unreserve(reservations_to_release(operation, now))
    services.state.close_operation(run, _memory(services.state.load().memory, operation, now))
    return f"closed {operation.operation_id}"


def _memory(memory: Memory, operation: Operation, now: int) -> Memory:
    """The memory, with what the operation did for an outdated worker: a later run goes on from there."""
    memory = record_reboots(memory, operation, now)
    if not operation.replaces:
        return memory
    if operation.kind == "scale_up":
        return record_replacement(memory, operation, now)
    return record_replaced(memory, operation, now) if operation.removed else memory


def _uncordon(services: Services, operation: Operation, target: Target) -> str:
    """Empty, or why the cordon may remain."""
    try:
        services.server.ensure_uncordoned(target.node_name, operation.operation_id, drain_command_id=target.command_id)
    except (ServerUnreachableError, ServerNotFoundError) as error:
        return str(error)
    return ""


def _still_open(operation: Operation | None) -> str:
    """What happens next to an operation that this clean-up must not close; empty when there is none."""
    if operation is None:
        return ""
    return (
        f"operation {operation.operation_id} ({operation.phase}) stays open: the next run finishes it or rolls it back"
    )


def _answer(dead: str, *parts: str) -> dict[str, Any]:
    text = "; ".join(part for part in parts if part)
    logger.info("clean-up", sentence=text, execution_id=dead)
    return {"outcome": to_payload(Outcome(kind="failed", text=text))}
