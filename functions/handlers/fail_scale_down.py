"""FailScaleDown: closes an operation that removed no worker; one with a termination that has begun stays open.

A cordon that could not be removed is set aside: the next runs remove it.
"""

from __future__ import annotations

from typing import Any

from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.run import Run
from node_fleet.domain.model.set_aside import SetAside
from node_fleet.domain.notify.message import Outcome, plain_failure
from node_fleet.domain.notify.totals import count_operation
from node_fleet.domain.scale_down.drain import alert_once
from node_fleet.domain.scale_down.set_aside import set_aside
from node_fleet.domain.scale_down.termination import must_stay_open, removal_sentence
from node_fleet.domain.scaling.memory_update import record_reboots
from node_fleet.payload import add_alerts, put, take
from node_fleet.services import load_services

NO_FAILURE = ("withdrawn", "blocked", "skipped")


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Return `outcome`, and `failure` when the drain failed without an error, so that the execution fails too."""
    services = load_services()
    run = take(event, "run", Run)
    operation = services.state.renew(run, even_paused=True).operation
    memory = take(event, "memory", Memory, default=Memory())
    if operation is None:
        text = "nothing was changed" if event.get("operation") is None else "the operation is closed"
        return put(event, memory=memory, outcome=Outcome(kind="failed", text=text))
    stays_open = must_stay_open(operation)
    now, quiet_seconds = services.clock.now(), services.settings.alert_quiet_seconds
    rollback = _rollback(event, operation, now)
    memory, alerts = alert_once(memory, rollback.alert, now, quiet_seconds) if rollback else (memory, ())
    memory = record_reboots(memory, operation, now)
    if not stays_open:
        memory = count_operation(memory, operation, event.get("decision", {}).get("rule", ""))
        services.state.close_operation(run, memory, set_aside=rollback)
    status = event.get("drain", {}).get("status", "failed")
    may_wait = status in NO_FAILURE or bool(operation.hibernate)
    is_planned_end = "failure" not in event and "later_failure" not in event and may_wait
    text = removal_sentence(operation, None) + ("; the next run resumes it" if stays_open else "")
    outcome = Outcome(kind="none" if is_planned_end else "failed", text=text)
    answer = add_alerts(put(event, operation=operation, memory=memory, outcome=outcome), alerts=alerts)
    return answer if is_planned_end or "failure" in event else put(answer, failure=_failure(event, operation))


def _failure(event: dict[str, Any], operation: Operation) -> dict[str, str]:
    if "later_failure" in event:
        found: dict[str, str] = event["later_failure"]
        return found
    termination = event.get("termination", {})
    if termination.get("status") == "not_terminated":
        return {"Error": "Ec2Error", "Cause": termination.get("detail", "")}
    return {"Error": "DrainFailedError", "Cause": removal_sentence(operation, None)}


def _rollback(event: dict[str, Any], operation: Operation, now: int) -> SetAside | None:
    """The record of a cordon that may remain, because UndoDrain has failed."""
    target = operation.current
    if target is None or target.phase not in ("draining", "drained", "rebooting"):
        return None
    failure = plain_failure(event.get("later_failure") or event.get("failure") or {"Cause": "the drain did not end"})
    return set_aside(operation, target, "rollback", now, failure["Cause"])
