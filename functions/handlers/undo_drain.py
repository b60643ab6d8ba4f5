"""UndoDrain: stops the drain, then removes the cordon of this operation and of no other."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.model.back_off import OWN_PODS_WEIGHT, REMOVAL, node_key, seconds_left
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation, Target, TargetPhase
from node_fleet.domain.model.run import Run
from node_fleet.domain.notify.message import plain_failure
from node_fleet.domain.scale_down.drain import (
    CommandResult,
    after_target,
    alert_once,
    describe_own_pods,
    drain_failed_alert,
    moved,
    removals_paused_alert,
    undone_sentence,
)
from node_fleet.domain.scaling.memory_update import record_failure
from node_fleet.payload import add_alerts, put, take
from node_fleet.services import Services, load_services

TRY_THE_NEXT = ("failed", "blocked")
STAYS_CORDONED = "it is under interruption notice, so it stays cordoned"


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Return the `operation`, `next`, and a back-off in `memory` when the drain failed.

    A drain that is withdrawn because pods of the worker found no other place counts as several failures. A rebooted
    worker that came under interruption notice meanwhile stays cordoned; a reinstatement uncordons it.

    Raises:
        ServerUnreachableError: the cordon may remain; the operation stays open for the next run.
    """
    services = load_services()
    run = take(event, "run", Run)
    state = services.state.renew(run, even_paused=True)
    operation = state.operation
    target = operation.current if operation else None
    if operation is None or target is None or target.phase in ("terminating", "terminated"):
        return put(event, operation=operation, next="failed")
    stays_cordoned = target.phase == "rebooting" and target.instance_id in state.ids_under_notice
    result = CommandResult(status="not sent") if stays_cordoned else _uncordon(services, operation, target)
    now = services.clock.now()
    status, why = ("rebooted", target.detail) if target.phase == "rebooting" else _cause(event)
    own_pods = describe_own_pods(result) if status == "withdrawn" and not operation.hibernate else ""
    why = "; ".join(filter(None, (why, own_pods, STAYS_CORDONED if stays_cordoned else "")))
    phases: dict[str, TargetPhase] = {"blocked": "skipped", "rebooted": "rebooted"}
    changed = moved(operation, phases.get(status, "undone"), now, detail=why)
    if "failure" in event or status not in TRY_THE_NEXT or _is_expired(services, operation, now):
        changed = changed.without_the_rest(why)
    services.state.save_operation(run, changed)
    answer = put(event, operation=changed, next=after_target(changed))
    answer = add_alerts(answer, notes=[undone_sentence(target, result.word, why)])
    if status != "failed" and not own_pods:
        return answer
    return _with_back_off(services, answer, target, why, own_pods=bool(own_pods), reports=not operation.hibernate)


def _uncordon(services: Services, operation: Operation, target: Target) -> CommandResult:
    operation_id, command_id = operation.operation_id, target.command_id
    result: CommandResult = services.server.ensure_uncordoned(
        target.node_name, operation_id, drain_command_id=command_id
    )
    return result


def _cause(event: dict[str, Any]) -> tuple[str, str]:
    """Status and reason of the rollback: an error of the run, else the result of the drain or of the termination.

    A pause is no failure.
    """
    drain, termination = event.get("drain", {}), event.get("termination", {})
    if "failure" not in event:
        if termination.get("status") == "not_terminated":
            return "failed", termination["detail"]
        return drain.get("status", "failed"), drain.get("detail", "")
    failure = plain_failure(event["failure"])
    return "withdrawn" if failure["Error"] == "PausedError" else "failed", failure["Cause"]


def _is_expired(services: Services, operation: Operation, now: int) -> bool:
    return operation.phase == "fail" or now - operation.started_at > services.settings.operation_limit_seconds


def _with_back_off(
    services: Services, event: dict[str, Any], target: Target, why: str, *, own_pods: bool, reports: bool
) -> dict[str, Any]:
    """reports: False while the fleet is switched off, where a budget may hold a worker until the time limit."""
    key, now, policy = node_key(target.instance_id), services.clock.now(), services.settings.policy()
    memory, weight = take(event, "memory", Memory, default=Memory()), OWN_PODS_WEIGHT if own_pods else 1
    memory = record_failure(memory, key, now, policy, weight=weight)
    if event.get("failure", {}).get("Error") == "TerminationRefusedError":
        memory = record_failure(memory, REMOVAL, now, policy)
        alert = removals_paused_alert(why, seconds_left(memory.back_offs, REMOVAL, now))
    elif not reports:
        return put(event, memory=memory)
    else:
        kind = "own_pods_waiting" if own_pods else event.get("drain", {}).get("alert") or "drain_failed"
        alert = drain_failed_alert(target, kind, why, seconds_left(memory.back_offs, key, now))
    memory, alerts = alert_once(memory, alert, now, policy.alert_quiet_seconds)
    return add_alerts(put(event, memory=memory), alerts=alerts)
