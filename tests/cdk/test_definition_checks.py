"""The workflows pass four readers, and each kind of mistake is caught by at least one of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdk_app.workflow import Workflow, workflows
from tests.cdk.conftest import STACKS, App
from tests.support import asl_tools, definition_checks

FLOWS = workflows()
ACCEPTED = {
    "W3005": "the CDK writes dependencies that references already give",
    "W3010": "zones are named by the configuration, so that no synth has to look them up",
}


@pytest.fixture(scope="module")
def linter() -> Path:
    try:
        return asl_tools.installed()
    except asl_tools.ToolsMissing as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"asl-validator cannot be installed from npm: {error}")


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_cloudformation_accepts_the_states(flow: Workflow) -> None:
    assert definition_checks.by_cloudformation(flow.text) == []


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_the_interpreter_parses_the_states(flow: Workflow) -> None:
    assert definition_checks.by_interpreter(flow.text) == []


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_the_linter_accepts_the_states(flow: Workflow, linter: Path, tmp_path: Path) -> None:
    assert definition_checks.by_linter(flow.text, tmp_path, linter) == []


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_sdk_actions_and_their_parameters_exist(flow: Workflow) -> None:
    assert definition_checks.by_models(flow.text) == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize("stack", STACKS)
def test_cloudformation_accepts_the_templates(app: App, stack: str) -> None:
    found = definition_checks.lint_template(app.templates[stack])
    assert [finding for finding in found if finding.split()[0] not in ACCEPTED] == []


def task(**changes: Any) -> dict[str, Any]:
    return {"Type": "Task", "Resource": "${AFunctionArn}", "End": True, **changes}


def machine(**states: Any) -> dict[str, Any]:
    return {"StartAt": next(iter(states)), "States": states}


BROKEN = {
    "next names no state": machine(A=task(End=False, Next="B")),
    "start names no state": {"StartAt": "B", "States": {"A": task()}},
    "a state without a transition": machine(A={"Type": "Task", "Resource": "${AFunctionArn}"}),
    "a state that nothing reaches": machine(A=task(), B=task()),
    "a misspelt type": machine(A={"Type": "Taks", "End": True}),
    "a wait without a time": machine(A={"Type": "Wait", "End": True}),
    "a choice without choices": machine(A={"Type": "Choice", "Default": "B"}, B=task()),
    "a choice that leads nowhere": machine(
        A={"Type": "Choice", "Choices": [{"Variable": "$.a", "IsNull": True, "Next": "C"}]}
    ),
    "a catcher that leads nowhere": machine(A=task(Catch=[{"ErrorEquals": ["States.ALL"], "Next": "C"}])),
    "a retry with a word for a number": machine(A=task(Retry=[{"ErrorEquals": ["States.ALL"], "MaxAttempts": "two"}])),
    "a path that is no path": machine(A=task(ResultPath="failure")),
    "an unknown field": machine(A=task(TimeoutSecond=3)),
    "an unknown intrinsic": machine(A={"Type": "Pass", "Parameters": {"a.$": "States.Frmat('{}', $.a)"}, "End": True}),
    "a misspelt SDK action": machine(A=task(Resource="arn:aws:states:::aws-sdk:ec2:describeInstancez")),
    "a misspelt SDK service": machine(A=task(Resource="arn:aws:states:::aws-sdk:ecc2:describeInstances")),
    "a misspelt SDK parameter": machine(
        A=task(Resource="arn:aws:states:::aws-sdk:ec2:terminateInstances", Parameters={"InstanceId": ["i-1"]})
    ),
    "a placeholder that stands bare": '{"StartAt": "A", "States": {"A": {"Type": "Wait", "Seconds": ${S}}}}',
}


@pytest.mark.parametrize("title", BROKEN)
def test_each_kind_of_mistake_is_caught(title: str, linter: Path, tmp_path: Path) -> None:
    broken = BROKEN[title]
    text = broken if isinstance(broken, str) else json.dumps(broken)
    readers: tuple[Callable[[str], list[str]], ...] = (
        definition_checks.by_interpreter,
        _guarded_models,
        definition_checks.by_cloudformation,
        lambda t: definition_checks.by_linter(t, tmp_path, linter),  # last, because it starts a process
    )
    assert any(reader(text) for reader in readers)


def _guarded_models(text: str) -> list[str]:
    try:
        return definition_checks.by_models(text)
    except json.JSONDecodeError as error:
        return [str(error)]


def test_a_sound_definition_passes_all_four(linter: Path, tmp_path: Path) -> None:
    text = json.dumps(
        machine(A=task(Resource="arn:aws:states:::aws-sdk:ec2:terminateInstances", Parameters={"InstanceIds": ["i-1"]}))
    )
    assert definition_checks.by_cloudformation(text) == []
    assert definition_checks.by_interpreter(text) == []
    assert definition_checks.by_linter(text, tmp_path, linter) == []
    assert definition_checks.by_models(text) == []
