"""Small executions and timelines for the pages, made from histories as Step Functions lists them."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable
from typing import Any

from cdk_app.workflow import definitions
from simulator.report.page import Point, Report
from simulator.runner import Execution

START = 1_780_300_800.0
UP = ("AcquireLock", "LockStatus", "CollectMetrics", "Decide", "Route", "LaunchNodes", "LaunchStatus", "WaitForJoin")
UP += ("CheckJoin", "JoinStatus", "CompleteScaleUp", "MoreDemand", "Notify", "ReleaseLock")
QUIET = ("AcquireLock", "LockStatus", "CollectMetrics", "Decide", "Route", "ReleaseLock")
FAILED = ("AcquireLock", "LockStatus", "CollectMetrics", "Decide", "Route", "LaunchNodes", "FailScaleUp", "Notify")
FAILED += ("ReleaseLock", "RunFailed")
NASTY = '</script><img src=x onerror="document.title=1"> & <b>pods</b>'


def events(path: Iterable[str], start: float, payload: dict[str, Any]) -> list[dict[str, Any]]:
    """Entry and exit of each state, ten seconds apart."""
    types = {name: state["Type"] for name, state in definitions()["autoscaler"]["States"].items()}
    found: list[dict[str, Any]] = [{"id": 1, "previousEventId": 0, "type": "ExecutionStarted", "timestamp": _at(start)}]
    for number, name in enumerate(path):
        entered = {"name": name, "input": json.dumps({**payload, "step": number})}
        left = {"name": name, "output": json.dumps({**payload, "step": number + 1})}
        for key, details, kind in (
            ("stateEnteredEventDetails", entered, "StateEntered"),
            ("stateExitedEventDetails", left, "StateExited"),
        ):
            found.append(
                {
                    "id": len(found) + 1,
                    "previousEventId": len(found),
                    "type": types[name] + kind,
                    "timestamp": _at(start + number * 10 + (kind == "StateExited") * 10),
                    key: details,
                }
            )
    return found


def _at(epoch: float) -> str:
    return dt.datetime.fromtimestamp(epoch, tz=dt.UTC).isoformat()


def execution(
    number: int, path: Iterable[str], *, status: str = "SUCCEEDED", action: str = "scale_up", reason: str = "pending 3"
) -> Execution:
    start = START + number * 600
    payload = {
        "decision": {"action": "scale_up", "count": 1, "sentence": reason, "workers_before": number + 2},
        "operation": {
            "operation_id": f"up-{number}",
            "kind": "scale_up",
            "requested": 1,
            "reason": reason,
            "workers_before": number + 2,
            "slots": [],
        },
        "outcome": {"kind": "scaled_up", "workers_after": number + 3},
    }
    if action == "none":
        payload = {"decision": {"action": "none", "count": 0, "sentence": reason, "workers_before": 2}}
    if status == "FAILED":
        payload["failure"] = {"Error": "QuotaExceededError", "Cause": reason}
    steps = events(list(path), start, payload)
    return Execution(
        arn=f"arn:aws:states:x:1:execution:node-fleet-prod-autoscaler:run-{number}",
        name=f"run-{number}",
        machine="node-fleet-prod-autoscaler",
        input={"trigger": "schedule"},
        started_at=start,
        ended_at=start + 200,
        status=status,
        _events=lambda: steps,
    )


def report(**changes: Any) -> Report:
    points = tuple(
        Point(
            at=START + n * 30,
            load=100.0 + 10 * n,
            pending=2 if 20 < n < 26 else 0,
            usable=2 + n // 30,
            joining=int(n % 30 > 26),
            leaving=0,
        )
        for n in range(100)
    )
    runs = [
        execution(0, UP),
        execution(1, UP, reason=NASTY),
        execution(2, FAILED, status="FAILED", reason="quota L-1216C47A is used up"),
    ]
    fields: dict[str, Any] = {
        "title": "A <test> & more",
        "sentence": "The fleet grew.",
        "figures": {"workers": "2 → 5 → 2", "launched": "3"},
        "points": points,
        "executions": runs,
        "definitions": definitions(),
        "subtitle": "1 June 2026",
    }
    return Report(**{**fields, **changes})
