"""The ledger that every simulator test writes: it sees a call without leave, a grant without use, an idle function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simulator.aws.recorder import AwsCall
from tests.recorded_calls import Ledger, granted, judge, use_of


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


def test_a_granted_call_is_noted_and_nobody_is_blamed() -> None:
    ledger = Ledger()
    ledger.note(call("prod-StartDrain", "ssm", "SendCommand", DocumentName="node-fleet-DrainNode"))
    assert ledger.wrong == []
    assert ledger.seen == {("StartDrain", "ssm:SendCommand", "document:DrainNode")}


def test_calls_of_the_laptop_itself_are_nobodys() -> None:
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
