"""FailScaleDown: closes an operation that removed nobody; one that must be finished or undone later stays open."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.run import Alert, Run
from node_fleet.domain.notify.message import Outcome
from node_fleet.domain.scale_down.drain import must_stay_open, removal_sentence
from node_fleet.payload import put, take
from node_fleet.services import load_services

UNDOING_LIMITS = 2
"""Past its limit an operation is only undone; as long again the cordon may be taken back before people are asked."""
NO_FAULT = ("withdrawn", "blocked", "skipped")


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answer `outcome`, and `failure` when the drain failed without an error, so that the run ends red."""
    services = load_services()
    run = take(event, "run", Run)
    operation = services.state.renew(run, even_paused=True).operation
    memory = take({"memory": {}, **event}, "memory", Memory)
    now = services.clock.now()
    alerts = take({"alerts": (), **event}, "alerts", tuple[Alert, ...])
    if operation is None:
        text = "nothing was changed" if event.get("operation") is None else "the operation is closed"
        return put(event, memory=memory, outcome=Outcome(kind="failed", text=text))
    expired = now - operation.started_at > UNDOING_LIMITS * services.settings.operation_limit_seconds
    open_still = must_stay_open(operation, expired=expired)
    if not open_still:
        services.state.close_operation(run, memory)
        alerts = (*alerts, *_may_be_cordoned(operation))
    status = event.get("drain", {}).get("status", "failed")
    calm = "failure" not in event and "later_failure" not in event and status in NO_FAULT
    text = removal_sentence(operation, None) + ("; the next run goes on with it" if open_still else "")
    ended = Outcome(kind="none" if calm else "failed", text=text)
    told = put(event, operation=operation, memory=memory, alerts=alerts, outcome=ended)
    return told if calm or "failure" in event else put(told, failure=_failure(event, operation))


def _failure(event: dict[str, Any], operation: Operation) -> dict[str, str]:
    if "later_failure" in event:
        found: dict[str, str] = event["later_failure"]
        return found
    termination = event.get("termination", {})
    if termination.get("status") == "timeout":
        return {"Error": "Ec2Error", "Cause": termination.get("detail", "")}
    return {"Error": "DrainFailedError", "Cause": removal_sentence(operation, None)}


def _may_be_cordoned(operation: Operation) -> tuple[Alert, ...]:
    return tuple(
        Alert(
            kind=f"may_be_cordoned:{t.instance_id}",
            text=f"node {t.node_name} may still be cordoned by operation {operation.operation_id}:"
            f" kubectl uncordon {t.node_name}",
        )
        for t in operation.targets
        if t.phase in ("draining", "drained")
    )
