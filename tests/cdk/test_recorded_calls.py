"""The ledger that every simulator test writes: it sees a call without leave, a grant without use, an idle function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simulator.aws.recorder import AwsCall
from tests.support import branches
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
    assert use_of(call(None, "ec2", "RunInstances")) is None
    assert use_of(call("toy-function", "ec2", "RunInstances")) is None


def test_a_suite_that_used_everything_is_content(tmp_path: Path) -> None:
    Ledger(seen=granted()).write(tmp_path / "gw0.json")
    assert judge(tmp_path, granted()) == []


def test_an_unused_grant_and_an_idle_function_are_named(tmp_path: Path) -> None:
    used = {use for use in granted() if use[0] != "Notify" and use != ("UndoDrain", "ssm:CancelCommand", "anything")}
    half = sorted(used)[: len(used) // 2]
    Ledger(seen=set(half)).write(tmp_path / "gw0.json")
    Ledger(seen=used - set(half)).write(tmp_path / "gw1.json")
    assert judge(tmp_path, granted()) == [
        "Notify was never exercised",
        "UndoDrain may ssm:CancelCommand on anything, but no test ever needed it",
    ]


def test_what_a_shared_fixture_did_without_leave_is_told_once() -> None:
    ledger = Ledger()
    ledger.note(call("prod-Decide", "ec2", "DescribeInstances"))
    assert len(ledger.new_wrongs()) == 1
    assert ledger.new_wrongs() == []


HANDLER = b"""
def handler(event):
    \"\"\"Answers.\"\"\"
    if event:
        return 1
    return 2 if event is None else 3
"""


def test_an_arm_that_never_ran_is_named_with_its_file_and_line(tmp_path: Path) -> None:
    tree, arms = branches.marked(HANDLER, "toy.py")
    ran: list[str] = []
    space: dict[str, Any] = {branches.MARK: ran.append}
    exec(compile(tree, "toy.py", "exec"), space)
    assert (space["handler"](None), space["handler"](True)) == (2, 1)
    Ledger(seen=granted()).write(tmp_path / "gw0.json", ran)
    assert judge(tmp_path, granted(), arms) == [
        "functions/handlers/toy.py:6 if-expression, when false: no test ran this branch"
    ]


def test_every_handler_has_its_arms_in_the_judgement() -> None:
    files = {arm.partition(":")[0] for arm in branches.arms()}
    assert files == {path.name for path in branches.FOLDER.glob("*.py")} - {"__init__.py"}
