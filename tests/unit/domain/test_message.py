"""One message for each run: what leads it, and the ten figures of its metrics line."""

from __future__ import annotations

from typing import Any

import pytest

from node_fleet.domain.model.operation import LaunchSlot, Operation, Target
from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.snapshot import PodShape, Snapshot
from node_fleet.domain.notify.message import Message, Outcome, compose, plain_failure
from node_fleet.domain.notify.run_metrics import run_metrics
from node_fleet.logs import UNITS

FAILURE = {"Error": "QuotaExceededError", "Cause": "vCPU quota L-1216C47A is used up"}
ALERTS = (Alert(kind="at_maximum", text="at the maximum of 10 workers"),)


def composed(**changes: Any) -> Message:
    base = Message(
        cluster_id="shop",
        level="info",
        what="all is well",
        why="all is well",
        execution_id="run-1",
        trigger="schedule",
        alerts=changes.pop("alerts", ()),
    )
    parts = {"snapshot": None, "operation": None, "outcome": None, "failure": None, **changes}
    return compose(base, **parts)


@pytest.mark.parametrize(
    ("parts", "level", "what"),
    [
        ({}, "info", "all is well"),
        ({"alerts": ALERTS}, "warning", "at the maximum of 10 workers"),
        ({"outcome": Outcome(kind="scaled_up", text="two more")}, "success", "two more"),
        ({"outcome": Outcome(kind="none", text="no worker was removed")}, "info", "no worker was removed"),
        ({"outcome": Outcome(kind="scaled_up", text="two more"), "alerts": ALERTS}, "success", "two more"),
        (
            {"outcome": Outcome(kind="failed", text="x"), "alerts": ALERTS, "failure": FAILURE},
            "error",
            "vCPU quota L-1216C47A is used up [QuotaExceededError]",
        ),
    ],
)
def test_a_failure_leads_then_the_outcome_then_an_alert_then_the_decision(
    parts: dict[str, Any], level: str, what: str
) -> None:
    message = composed(**parts)
    assert (message.level, message.what, message.why) == (level, what, "all is well")


def test_counts_come_from_the_run_not_from_its_last_round() -> None:
    operation = Operation(
        operation_id="up",
        kind="scale_up",
        phase="verify",
        started_at=1,
        requested=1,
        reason="r",
        execution_id="run-1",
        workers_before=4,
        slots=(
            LaunchSlot(number=1, zone="a", subnet_id="s", instance_type="t3.small", market="spot", instance_id="i-1"),
            LaunchSlot(number=2, zone="b", subnet_id="s", instance_type="t3.small", market="spot"),
        ),
        targets=(Target(instance_id="i-2", node_name="i-2", zone="b"),),
    )
    outcome = Outcome(kind="scaled_up", text="t", workers_after=5)
    assert composed(operation=operation, outcome=outcome).workers_before == 4
    message = composed(operation=operation, outcome=outcome, workers_at_start=2)
    assert (message.workers_before, message.workers_after) == (2, 5)
    assert message.placements == ("i-1 t3.small spot a", "i-2 on-demand b"), "what was never launched has no place"


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ('{"errorMessage": "no room", "errorType": "X"}', "no room"),
        ('{"other": 1}', '{"other": 1}'),
        ("[1]", "[1]"),
        ("plain text", "plain text"),
        ("", ""),
    ],
)
def test_a_lambda_error_document_is_told_in_its_own_words(cause: str, words: str) -> None:
    assert plain_failure({"Error": "X", "Cause": cause}) == {"Error": "X", "Cause": words}
    assert plain_failure({})["Error"] == "Unknown"


def test_the_metrics_line_has_the_ten_promised_figures_and_the_cost() -> None:
    snapshot = Snapshot(
        at=1,
        source="live",
        cpu_percent=40.0,
        memory_percent=50.0,
        pending=(PodShape(cpu_milli=1, memory_mib=1, count=2), PodShape(cpu_milli=2, memory_mib=1, count=3)),
    )
    event = {
        "outcome": {"kind": "scaled_up"},
        "node_count": 4,
        "join": {"seconds": 80},
        "failure": FAILURE,
    }
    found = run_metrics(event, snapshot, 0.07)
    assert set(found) == set(UNITS) and len(found) == 10
    assert found == {
        "CpuPercent": 40.0,
        "MemoryPercent": 50.0,
        "PendingPods": 5.0,
        "CurrentNodeCount": 4,
        "ScaleUpEvents": 1.0,
        "ScaleDownEvents": 0.0,
        "ScalingFailures": 1.0,
        "NodeJoinSeconds": 80,
        "DrainSeconds": None,
        "EstimatedHourlyCost": 0.07,
    }


@pytest.mark.parametrize("snapshot", [None, Snapshot(at=1, source="none")])
def test_what_is_not_known_is_missing_and_never_zero(snapshot: Snapshot | None) -> None:
    found = run_metrics({}, snapshot, None)
    assert [found[name] for name in ("CpuPercent", "MemoryPercent", "PendingPods", "EstimatedHourlyCost")] == [None] * 4
