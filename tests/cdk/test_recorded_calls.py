"""What the whole suite checks: no call without a grant, no grant without a use, no handler branch without a test."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from simulator.aws.recorder import AwsCall
from tests.support.handler_coverage import branches_not_run, measurement
from tests.support.recorded_calls import Ledger, granted, judge, use_of


def call(function: str | None, service: str, operation: str, **parameters: Any) -> AwsCall:
    return AwsCall(
        service=service, operation=operation, parameters=parameters, function=function, at=0.0, protocol="json"
    )


@pytest.mark.parametrize(
    "made",
    [
        call("prod-Decide", "ec2", "DescribeInstances"),
        call("prod-Notify", "dynamodb", "PutItem", TableName="k3s-autoscaler-events"),
        call("prod-InspectNodes", "ssm", "SendCommand", DocumentName="node-fleet-DrainNode"),
        call("prod-ReleaseLock", "dynamodb", "PutItem", TableName="k3s-autoscaler-state"),
        call("prod-SlackMessage", "secretsmanager", "GetSecretValue", SecretId="node-fleet/prometheus-auth"),
    ],
    ids=lambda made: f"{made.function} {made.operation}",
)
def test_a_call_that_no_grant_covers_is_named(made: AwsCall) -> None:
    ledger = Ledger()
    ledger.note(made)
    (finding,) = ledger.wrong
    assert str(made.function).removeprefix("prod-") in finding
    assert made.operation in finding


def test_a_granted_call_is_recorded_without_a_finding() -> None:
    ledger = Ledger()
    ledger.note(call("prod-StartDrain", "ssm", "SendCommand", DocumentName="node-fleet-DrainNode"))
    assert ledger.wrong == []
    assert ledger.seen == {("StartDrain", "ssm:SendCommand", "document:DrainNode")}


def test_calls_of_the_simulator_itself_belong_to_no_function() -> None:
    assert use_of(call(None, "ec2", "CreateFleet")) is None
    assert use_of(call("toy-function", "ec2", "CreateFleet")) is None


def test_a_suite_that_used_every_grant_has_no_finding(tmp_path: Path) -> None:
    Ledger(seen=granted()).write(tmp_path / "gw0.json")
    assert judge(tmp_path, granted()) == []


def test_an_unused_grant_and_an_idle_function_are_named(tmp_path: Path) -> None:
    used = {use for use in granted() if use[0] != "Notify" and use != ("UndoDrain", "ssm:CancelCommand", "anything")}
    half = sorted(used)[: len(used) // 2]
    Ledger(seen=set(half)).write(tmp_path / "gw0.json")
    Ledger(seen=used - set(half)).write(tmp_path / "gw1.json")
    assert judge(tmp_path, granted()) == [
        "Notify made no call in any test",
        "UndoDrain may ssm:CancelCommand on anything, but no test uses it",
    ]


def test_a_call_without_a_grant_is_reported_once() -> None:
    ledger = Ledger()
    ledger.note(call("prod-Decide", "ec2", "DescribeInstances"))
    assert len(ledger.new_wrongs()) == 1
    assert ledger.new_wrongs() == []


def test_edges_that_no_process_took_are_named(tmp_path: Path) -> None:
    Ledger(seen=granted(), edges={("A", "B")}).write(tmp_path / "gw0.json")
    Ledger(edges={("B", "C")}).write(tmp_path / "gw1.json")
    edges = {("A", "B"), ("B", "C"), ("C", "D")}
    assert judge(tmp_path, granted(), edges) == ["no test takes the edge C -> D of the autoscaler"]


TOY = """
def handler(event):
    if event:
        return 1
    return 2

def second(event):
    return 3
"""


@pytest.mark.parametrize(
    ("calls_of_processes", "missing"),
    [
        ([[("handler", None)], [("handler", None)]], ["toy.py: line 4", "toy.py: line 3 -> line 4", "toy.py: line 8"]),
        ([[("handler", None)], [("handler", 1)]], ["toy.py: line 8"]),
        ([[("handler", None), ("second", 0)], [("handler", 1)]], []),
    ],
    ids=["two processes that run the same branch", "two that add up", "everything"],
)
def test_lines_and_branches_that_no_process_ran_are_named(
    tmp_path: Path, calls_of_processes: list[list[tuple[str, Any]]], missing: list[str]
) -> None:
    module = tmp_path / "toy.py"
    module.write_text(TOY, encoding="utf-8")
    toy = runpy.run_path(str(module))
    for number, calls in enumerate(calls_of_processes):
        measured = measurement(tmp_path, f"gw{number}", source=tmp_path)
        with measured.collect():
            for function, event in calls:
                toy[function](event)
        measured.save()
    findings = branches_not_run(tmp_path, source=tmp_path)
    assert [finding.rpartition("/")[2] for finding in findings] == missing
