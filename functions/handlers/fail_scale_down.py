"""FailScaleDown: closes an operation that removed no worker; one that a later run must finish or undo stays open."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.run import Alert, Run
from node_fleet.domain.notify.message import Outcome
from node_fleet.domain.scale_down.termination import must_stay_open, removal_sentence
from node_fleet.payload import add_alerts, put, take
from node_fleet.services import load_services

UNDO_LIMITS = 2
"""After its time limit an operation is only undone; after twice the limit it is closed and an operator is alerted."""
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
    age = services.clock.now() - operation.started_at
    stays_open = must_stay_open(operation, expired=age > UNDO_LIMITS * services.settings.operation_limit_seconds)
    alerts: tuple[Alert, ...] = ()
    if not stays_open:
        services.state.close_operation(run, memory)
        alerts = _cordon_alerts(operation)
    status = event.get("drain", {}).get("status", "failed")
    is_planned_end = "failure" not in event and "later_failure" not in event and status in NO_FAILURE
    text = removal_sentence(operation, None) + ("; the next run resumes it" if stays_open else "")
    outcome = Outcome(kind="none" if is_planned_end else "failed", text=text)
    answer = add_alerts(put(event, operation=operation, memory=memory, outcome=outcome), alerts=alerts)
    return answer if is_planned_end or "failure" in event else put(answer, failure=_failure(event, operation))


def _failure(event: dict[str, Any], operation: Operation) -> dict[str, str]:
    if "later_failure" in event:
        found: dict[str, str] = event["later_failure"]
        return found
    termination = event.get("termination", {})
    if termination.get("status") == "timeout":
        return {"Error": "Ec2Error", "Cause": termination.get("detail", "")}
    return {"Error": "DrainFailedError", "Cause": removal_sentence(operation, None)}


def _cordon_alerts(operation: Operation) -> tuple[Alert, ...]:
    return tuple(
        Alert(
            kind=f"may_be_cordoned:{t.instance_id}",
            text=f"node {t.node_name} may still be cordoned by operation {operation.operation_id}, which is closed;"
            f" uncordon it on the server: sudo /usr/local/bin/k3s kubectl uncordon {t.node_name}",
        )
        for t in operation.targets
        if t.phase in ("draining", "drained")
    )
