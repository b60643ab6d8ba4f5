"""What must hold for every state of every workflow, read from the definitions themselves."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import botocore.session
import pytest

from cdk_app.permissions import NEEDS
from cdk_app.workflow import definitions
from node_fleet.domain.model import errors

ROOT = Path(__file__).resolve().parents[2]
TRANSIENT = {
    "Lambda.ServiceException",
    "Lambda.AWSLambdaException",
    "Lambda.SdkClientException",
    "Lambda.TooManyRequestsException",
    "Lambda.ClientExecutionTimeoutException",
}
# What Lambda's Invoke answers while a function in a VPC has no network interface (botocore's model of the service).
VPC_NOT_READY = {
    "Lambda.ResourceNotReadyException",
    "Lambda.ENINotReadyException",
    "Lambda.EC2ThrottledException",
    "Lambda.ENILimitReachedException",
    "Lambda.SubnetIPAddressLimitReachedException",
}
BEFORE_THE_LOCK = {"AcquireLock"}
FUNCTION_SOURCES = [p for p in (ROOT / "functions").rglob("*.py")]


def states_of(definition: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """All states, those inside Parallel branches and Map processors too."""
    found: list[tuple[str, dict[str, Any]]] = []
    for name, state in definition["States"].items():
        found.append((name, state))
        for inner in [*state.get("Branches", ()), state.get("ItemProcessor") or state.get("Iterator")]:
            found += states_of(inner) if inner else []
    return found


ALL = [(machine, name, state) for machine, one in definitions().items() for name, state in states_of(one)]
TASKS = [(file, name, state) for file, name, state in ALL if state["Type"] == "Task"]
LAMBDAS = [(file, name, state) for file, name, state in TASKS if state["Resource"].startswith("${")]


def named(cases: list[tuple[str, str, dict[str, Any]]]) -> Any:
    return pytest.mark.parametrize(("file", "name", "state"), cases, ids=[f"{f}:{n}" for f, n, _ in cases])


def test_the_autoscaler_is_there_and_has_its_early_ends() -> None:
    definition = definitions()["autoscaler"]
    assert definition["StartAt"] == "AcquireLock"
    ends = {name for name, state in definition["States"].items() if state["Type"] == "Succeed"}
    assert {"AlreadyScaling", "Paused", "StaleTrigger"} <= ends


@pytest.mark.parametrize("machine", definitions())
def test_the_whole_machine_has_a_time_limit_and_says_what_it_is(machine: str) -> None:
    definition = definitions()[machine]
    assert definition["TimeoutSeconds"] > 0
    assert definition["Comment"]


@named(ALL)
def test_every_state_says_in_one_line_why_it_exists(file: str, name: str, state: dict[str, Any]) -> None:
    comment = state.get("Comment", "")
    assert 10 < len(comment) < 200
    assert "\n" not in comment


@named(TASKS)
def test_every_task_has_a_time_limit_of_its_own(file: str, name: str, state: dict[str, Any]) -> None:
    assert state["TimeoutSeconds"] > 0


@named(LAMBDAS)
def test_every_lambda_task_retries_all_transient_errors_with_back_off_and_jitter(
    file: str, name: str, state: dict[str, Any]
) -> None:
    (retry,) = [r for r in state["Retry"] if TRANSIENT & set(r["ErrorEquals"])]
    assert set(retry["ErrorEquals"]) == TRANSIENT
    assert retry["BackoffRate"] > 1
    assert retry["JitterStrategy"] == "FULL"
    assert retry["MaxAttempts"] >= 3


@named(LAMBDAS)
def test_exactly_the_tasks_in_the_vpc_wait_for_their_network_interfaces(
    file: str, name: str, state: dict[str, Any]
) -> None:
    waiting = [r for r in state["Retry"] if VPC_NOT_READY & set(r["ErrorEquals"])]
    assert bool(waiting) == NEEDS[name].prometheus
    for retry in waiting:
        assert set(retry["ErrorEquals"]) == VPC_NOT_READY
        assert (retry["IntervalSeconds"], retry["MaxAttempts"]) == (15, 6)


def test_the_errors_of_the_network_are_those_of_lambdas_invoke() -> None:
    model = botocore.session.get_session().get_service_model("lambda")
    possible = {f"Lambda.{shape.name}" for shape in model.operation_model("Invoke").error_shapes}
    assert possible >= VPC_NOT_READY


@named(LAMBDAS)
def test_every_lambda_task_catches_everything_last(file: str, name: str, state: dict[str, Any]) -> None:
    assert state["Catch"][-1]["ErrorEquals"] == ["States.ALL"]
    assert all("ResultPath" in catcher for catcher in state["Catch"]), "a catch must keep the payload"


@named(LAMBDAS)
def test_state_placeholder_handler_and_function_share_one_name(file: str, name: str, state: dict[str, Any]) -> None:
    module = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    assert state["Resource"] == "${" + name + "FunctionArn}"
    assert (ROOT / "functions" / "handlers" / f"{module}.py").is_file()


@named([case for case in ALL if case[2]["Type"] == "Wait"])
def test_every_pause_is_a_setting_that_arrives_by_payload(file: str, name: str, state: dict[str, Any]) -> None:
    assert state.get("SecondsPath", state.get("TimestampPath", "")).startswith("$.")


def test_every_error_name_in_a_definition_is_a_class_of_ours_or_one_of_aws() -> None:
    classes = {name for name, _ in inspect.getmembers(errors, inspect.isclass)}
    for file, name, state in ALL:
        for rule in [*state.get("Retry", ()), *state.get("Catch", ())]:
            for error in rule["ErrorEquals"]:
                ours = "." not in error
                assert not ours or error in classes, f"{file}:{name} names {error}"


def test_every_error_class_is_raised_somewhere() -> None:
    """A class that nothing raises promises a path that does not exist."""
    text = "\n".join(p.read_text(encoding="utf-8") for p in FUNCTION_SOURCES if p.name != "errors.py")
    classes = [name for name, _ in inspect.getmembers(errors, inspect.isclass) if name != "NodeFleetError"]
    assert [name for name in classes if not re.search(rf"\b{name}\b", text)] == []


def test_every_state_can_be_reached_and_every_next_exists() -> None:
    for machine, definition in definitions().items():
        known, seen, frontier = set(definition["States"]), set(), [definition["StartAt"]]
        while frontier:
            name = frontier.pop()
            if name in seen:
                continue
            seen.add(name)
            state = definition["States"][name]
            targets = [state.get("Next"), state.get("Default")]
            targets += [r["Next"] for r in [*state.get("Choices", ()), *state.get("Catch", ())]]
            frontier += [target for target in targets if target]
        assert seen == known, f"{machine}: {seen ^ known}"


def test_every_path_from_the_lock_to_an_end_passes_through_release_lock() -> None:
    """Without ReleaseLock no end can be reached from any state that may hold the lock."""
    definition = definitions()["autoscaler"]
    states = definition["States"]
    holding, frontier = set(), ["CollectMetrics", "Resume"]
    while frontier:
        name = frontier.pop()
        if name in holding or name == "ReleaseLock":
            continue
        holding.add(name)
        state = states[name]
        assert state["Type"] not in ("Succeed", "Fail"), f"{name} ends a run without ReleaseLock"
        assert not state.get("End"), f"{name} ends a run without ReleaseLock"
        targets = [state.get("Next"), state.get("Default")]
        targets += [r["Next"] for r in [*state.get("Choices", ()), *state.get("Catch", ())]]
        frontier += [target for target in targets if target]
    assert {"LaunchNodes", "UndoDrain", "Notify"} <= holding
