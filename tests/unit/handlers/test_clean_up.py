"""CleanUp on DynamoDB's own expressions: the lease first, the record next, the cordons last; twice, late, beside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import boto3
import pytest
from moto import mock_aws

from handlers import clean_up
from node_fleet.adapters.server import ServerCommands
from node_fleet.adapters.state_store import StateStore
from node_fleet.domain.model.errors import (
    LeaseLostError,
    ServerNotFoundError,
    ServerUnreachableError,
    StateStoreError,
)
from node_fleet.domain.model.operation import LaunchSlot, Operation, Target, resume_state
from node_fleet.domain.model.run import Run
from node_fleet.domain.scale_down.drain import CommandResult
from node_fleet.settings import Settings

START = 1_790_000_000
SETTINGS = Settings()
DEAD = "arn:aws:states:eu-central-1:123456789012:execution:autoscaler:run-1"


class Clock:
    def __init__(self) -> None:
        self.time = START

    def now(self) -> int:
        return self.time


@dataclass
class Server(ServerCommands):
    """Records its commands, and the state item at the time of each."""

    store: StateStore
    word: str = "uncordoned"
    error: Exception | None = None
    running: bool = True
    log: list[str] = field(default_factory=list)
    phases: list[str] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)

    def result(self, command_id: str) -> CommandResult:
        return CommandResult(status="InProgress" if self.running else "Cancelled", final=not self.running)

    def cancel(self, command_id: str) -> None:
        self.log.append(f"cancel {command_id}")

    def wait(self, command_id: str) -> CommandResult:
        self.log.append(f"wait {command_id}")
        self.running = False
        return self.result(command_id)

    def run(self, document: str, parameters: dict[str, str]) -> CommandResult:
        if self.error:
            raise self.error
        state = self.store.load()
        self.log.append(f"{document} {parameters['NodeName']} of {parameters['OperationId']}")
        self.phases.append(state.operation.phase if state.operation else "closed")
        self.owners.append(state.lease.owner if state.lease else "no owner")
        return CommandResult(status="Success", exit_code=0, stdout=f"result: {self.word} x\n", final=True, known=True)


@dataclass
class Records:
    events: list[tuple[str, str]] = field(default_factory=list)

    def put_event(self, kind: str, at: int, data: dict[str, Any], *, key: str = "") -> None:
        self.events.append((kind, data["text"]))


@dataclass
class Tools:
    state: StateStore
    clock: Clock
    server: Server
    records: Records = field(default_factory=Records)
    settings: Settings = SETTINGS


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tools]:
    with mock_aws():
        client = boto3.client("dynamodb", region_name="ap-southeast-1")
        client.create_table(
            TableName=SETTINGS.state_table,
            KeySchema=[{"AttributeName": "cluster_id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "cluster_id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        clock = Clock()
        store = StateStore(client, SETTINGS, clock)
        made = Tools(store, clock, Server(store))
        monkeypatch.setattr(clean_up, "load_services", lambda: made)
        yield made


def run_of(name: str = DEAD) -> Run:
    return Run(execution_id=name, trigger="manual", scheduled_at=0, started_at=START)


def held(tools: Tools, name: str = DEAD) -> Run:
    return replace(run_of(name), fence=tools.state.acquire(run_of(name)).state.fence)


def removal(*phases: str, execution_id: str = DEAD, phase: str = "draining") -> Operation:
    targets = tuple(
        Target(instance_id=f"i-{n:08x}", node_name=f"node-{n}", phase=p, command_id="c-1" if p == "draining" else "")  # type: ignore[arg-type]
        for n, p in enumerate(phases)
    )
    return Operation(
        operation_id="down-1",
        kind="scale_down",
        phase=phase,  # type: ignore[arg-type]
        started_at=START,
        requested=len(targets),
        reason="idle",
        execution_id=execution_id,
        targets=targets,
    )


def growth() -> Operation:
    slot = LaunchSlot(number=0, zone="a", subnet_id="s", instance_type="t3.small", market="spot")
    seen = replace(slot, number=1, outcome="launched", instance_id="i-1", launched_at=START)
    return Operation(
        operation_id="up-1",
        kind="scale_up",
        phase="begin",
        started_at=START,
        requested=2,
        reason="busy",
        execution_id=DEAD,
        slots=(slot, seen),
    )


def event(name: str = DEAD, number: str = "e-1") -> dict[str, Any]:
    return {"id": number, "detail-type": "Step Functions Execution Status Change", "detail": {"executionArn": name}}


def cleaned(tools: Tools, **given: str) -> str:
    return str(clean_up.handler(event(**given), None)["outcome"]["text"])


def test_a_dead_runs_lock_is_freed_under_a_higher_fence(tools: Tools) -> None:
    dead = held(tools)
    assert cleaned(tools) == f"freed the lock of {DEAD}"
    state = tools.state.load()
    assert (state.lease, state.fence > dead.fence) == (None, True)
    with pytest.raises(LeaseLostError):
        tools.state.renew(dead)


@pytest.mark.parametrize("phase", ["selected", "draining", "drained"])
def test_the_operation_is_given_up_before_its_cordon_is_taken_back_and_closed_after(tools: Tools, phase: str) -> None:
    tools.state.save_operation(held(tools), removal(phase))
    assert "closed down-1" in cleaned(tools)
    assert tools.server.log[-1] == "UncordonNode node-0 of down-1"
    assert (tools.server.phases, tools.server.owners) == (["fail"], ["clean-up:e-1"])
    assert tools.state.load().operation is None


def test_a_drain_that_still_runs_is_stopped_for_certain_before_its_node_is_freed(tools: Tools) -> None:
    tools.state.save_operation(held(tools), removal("draining"))
    cleaned(tools)
    assert tools.server.log == ["cancel c-1", "wait c-1", "UncordonNode node-0 of down-1"]


def test_targets_that_were_not_begun_and_those_that_are_done_are_left_alone(tools: Tools) -> None:
    tools.state.save_operation(held(tools), removal("forgotten", "drained", "selected"))
    cleaned(tools)
    assert tools.server.log == ["UncordonNode node-1 of down-1"]


@pytest.mark.parametrize("phase", ["terminating", "terminated"])
def test_a_machine_that_is_being_terminated_is_left_for_the_next_run(tools: Tools, phase: str) -> None:
    tools.state.save_operation(held(tools), removal(phase))
    assert "stays open: the next run" in cleaned(tools)
    state = tools.state.load()
    assert (state.operation is not None, state.lease, tools.server.log) == (True, None, [])


def test_an_operation_that_the_dead_run_had_only_taken_up_stays_open(tools: Tools) -> None:
    tools.state.save_operation(held(tools), removal("draining", execution_id="an earlier run"))
    assert "stays open" in cleaned(tools)
    assert tools.server.log == []


@pytest.mark.parametrize("error", [ServerUnreachableError("SSM: no answer"), ServerNotFoundError("no server")])
def test_a_server_that_cannot_be_asked_leaves_the_operation_given_up_for_the_next_run_to_undo(
    tools: Tools, error: Exception
) -> None:
    tools.state.save_operation(held(tools), removal("draining", "selected"))
    tools.server.error = error
    assert f"the next run rolls back the rest: {error}" in cleaned(tools)
    state = tools.state.load()
    assert state.lease is None
    assert state.operation is not None and state.operation.phase == "fail"
    assert resume_state(state.operation, now=START + 1, limit_seconds=900) == "UndoDrain"


def test_an_uncordon_that_was_refused_counts_as_a_standing_cordon(tools: Tools) -> None:
    tools.state.save_operation(held(tools), removal("drained"))
    tools.server.word = "unreadable"
    assert "may still be cordoned" in cleaned(tools)
    assert tools.state.load().operation is not None


def test_a_scale_up_is_closed_and_gives_back_the_room_it_did_not_use(tools: Tools) -> None:
    run = held(tools)
    tools.state.save_operation(run, growth())
    for number in (0, 1):
        tools.state.reserve(f"up-1:{number}", lambda s: 0, maximum=9, until=START + 900)
    cleaned(tools)
    state = tools.state.load()
    assert state.operation is None
    assert [r.key for r in state.reservations] == ["up-1:1"], "EC2 may not list that instance yet"


def test_delivered_twice_it_does_its_work_once(tools: Tools) -> None:
    tools.state.save_operation(held(tools), removal("drained"))
    cleaned(tools)
    before = tools.state.load()
    assert "nothing to do" in cleaned(tools)
    assert tools.state.load() == before
    assert tools.server.log == ["UncordonNode node-0 of down-1"]


def test_after_its_own_death_half_way_the_same_event_goes_on(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    tools.state.save_operation(held(tools), removal("drained"))
    close = tools.state.close_operation
    monkeypatch.setattr(tools.state, "close_operation", _broken)
    with pytest.raises(StateStoreError):
        cleaned(tools)
    monkeypatch.setattr(tools.state, "close_operation", close)
    assert "closed down-1" in cleaned(tools)
    assert tools.state.load().lease is None


def _broken(*_: Any, **__: Any) -> None:
    raise StateStoreError("table gone")


def test_another_event_for_the_same_execution_waits_for_nobody_and_changes_nothing(tools: Tools) -> None:
    held(tools)
    cleaned(tools)
    assert "nothing to do" in cleaned(tools, number="e-2")


def test_late_it_leaves_the_run_alone_that_has_the_lock_by_now(tools: Tools) -> None:
    tools.state.save_operation(held(tools), removal("draining"))
    tools.clock.time += SETTINGS.lease_seconds + SETTINGS.lease_skew_seconds + 1
    held(tools, "the run that took over")
    before = tools.state.load()
    assert "nothing to do" in cleaned(tools)
    assert (tools.state.load(), tools.server.log) == (before, [])


def test_when_the_lock_is_free_and_the_operation_open_it_says_that_the_next_run_goes_on(tools: Tools) -> None:
    """A run that ended red after it had freed its lock: what it left is resumed, not closed here."""
    run = held(tools)
    tools.state.save_operation(run, removal("terminating"))
    tools.state.release(run)
    text = cleaned(tools)
    assert "nothing to do" in text and "operation down-1 (draining) stays open" in text
    assert tools.state.load().operation is not None


def test_what_it_did_is_recorded_under_the_events_id(tools: Tools) -> None:
    held(tools)
    cleaned(tools)
    assert tools.records.events == [("clean_up", f"freed the lock of {DEAD}")]
