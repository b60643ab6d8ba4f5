"""aws-local-stepfunctions agrees with moto about the shipped definitions and disagrees about any other one.

The fixture in conftest.py compares every execution of the tests in this folder. Here both machines are changed in one
place each, after they ran: each change must show.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from node_fleet.domain.model.errors import StateStoreError
from simulator.runner import Execution
from tests.support.handlers.bench import bench
from tests.support.interruptions import finish, prepare, scheduled, start, worker
from tests.support.second_interpreter import SecondInterpreter
from tests.support.workflow_harness import stage

Definition = dict[str, Any]
Walked = tuple[Execution, Definition]


@pytest.fixture(scope="module")
def interpreter(second_interpreter: SecondInterpreter | None) -> SecondInterpreter:
    if second_interpreter is None:
        pytest.skip("npm cannot install aws-local-stepfunctions, so no execution was compared with it")
    return second_interpreter


@pytest.fixture(scope="module")
def walked(interpreter: SecondInterpreter) -> Iterator[dict[str, Walked]]:
    """One run of each machine: a tick whose Decide fails once, one whose Decide fails for good, and two notices."""
    with stage(workers=2) as fleet:
        fleet.break_state("Decide", StateStoreError("the table is busy"), times=1)
        retried = fleet.tick()
        fleet.break_state("Decide", StateStoreError("the table is gone"))
        failed = fleet.tick()
        autoscaler = _deployed(fleet.cloud, "autoscaler")
    with bench(max_workers=4, spot_percent=100) as fleet:
        prepare(fleet)
        taken = [worker(fleet, number).instance_id for number in (1, 2)]
        notices = finish(fleet, start(fleet, scheduled(fleet, fleet.clock.now() + 3600, *taken)))
        interruption = _deployed(fleet.cloud, "interruption")
    yield {"retried": (retried, autoscaler), "failed": (failed, autoscaler), "notices": (notices, interruption)}


def _deployed(cloud: Any, name: str) -> Definition:
    machines = cloud.client("stepfunctions")
    (arn,) = (m["stateMachineArn"] for m in machines.list_state_machines()["stateMachines"] if m["name"].endswith(name))
    definition: Definition = json.loads(machines.describe_state_machine(stateMachineArn=arn)["definition"])
    return definition


@pytest.mark.parametrize("name", ["retried", "failed", "notices"])
def test_both_interpreters_walk_the_shipped_definition_alike(
    walked: dict[str, Walked], interpreter: SecondInterpreter, name: str
) -> None:
    execution, definition = walked[name]
    assert interpreter.differences(execution, definition) == []


def states(definition: Definition) -> dict[str, Any]:
    found: dict[str, Any] = definition["States"]
    return found


def item(definition: Definition) -> dict[str, Any]:
    found: dict[str, Any] = states(definition)["EachNotice"]["ItemProcessor"]["States"]
    return found


CHANGES: dict[str, tuple[str, Callable[[Definition], Any], str]] = {
    "a choice leads elsewhere": (
        "retried",
        lambda d: states(d)["Route"].update(Default="Notify"),
        "Notify is called with an input that was not recorded",
    ),
    "a task is not retried": (
        "retried",
        lambda d: states(d)["Decide"].update(Retry=[]),
        "moto visits AcquireLock > LockStatus > CollectMetrics > Decide > Route > ReleaseLock, the second interpreter",
    ),
    "a task gets another input": (
        "retried",
        lambda d: states(d)["AcquireLock"]["Parameters"].update({"started_at.$": "$$.Execution.Id"}),
        "AcquireLock is called with an input that was not recorded",
    ),
    "a result replaces the payload": (
        "notices",
        lambda d: item(d)["Respond"].pop("ResultPath"),
        "NotifyResponse is called with an input that was not recorded",
    ),
    "an error is caught elsewhere": (
        "failed",
        lambda d: states(d)["Decide"]["Catch"][0].update(Next="ReleaseLock"),
        "Notify was called by moto only",
    ),
    "a failed run shows another error": (
        "failed",
        lambda d: states(d)["RunFailed"].update(CausePath="$.failure.Error"),
        "it ends as ('FAILED', None, 'StateStoreError', 'the table is gone') in moto",
    ),
    "an item is handed on under another name": (
        "notices",
        lambda d: states(d)["EachNotice"].update(ItemSelector={"notice.$": "$$.Map.Item.Value"}),
        "the second interpreter",
    ),
    "a branch of an item skips a state": (
        "notices",
        lambda d: item(d)["Respond"]["Branches"][0]["States"]["StartDrainStatus"]["Choices"][0].update(StringEquals=""),
        "CheckDeadlineDrain was called by moto only",
    ),
    "a wait reads a path that holds no time": (
        "notices",
        lambda d: item(d)["WaitForOutcome"].update(TimestampPath="$.interruption.instance_id"),
        "in the second interpreter",
    ),
    "the machine's time limit is shorter than its waits": (
        "notices",
        lambda d: d.update(TimeoutSeconds=60),
        "in the second interpreter",
    ),
}


@pytest.mark.parametrize("title", CHANGES)
def test_a_changed_definition_is_a_difference(
    walked: dict[str, Walked], interpreter: SecondInterpreter, title: str
) -> None:
    name, change, part = CHANGES[title]
    execution, definition = walked[name]
    changed = copy.deepcopy(definition)
    change(changed)
    assert part in "\n".join(interpreter.differences(execution, changed))
