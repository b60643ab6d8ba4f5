"""AcquireLock on DynamoDB's own expressions: what each run may do, and where it takes up what is left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import boto3
import pytest
from moto import mock_aws

from handlers import acquire_lock
from node_fleet.adapters.dynamodb import to_attributes
from node_fleet.adapters.state_store import StateStore
from node_fleet.domain.model.errors import InvalidInputError
from node_fleet.domain.model.fleet_state import Pause
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.run import Run
from node_fleet.settings import Settings

START = 1_790_000_000
SETTINGS = Settings()
TICK = "2026-09-21T14:13:20Z"
"""START as EventBridge writes it."""


@dataclass
class Clock:
    time: int = START

    def now(self) -> int:
        return self.time


@dataclass
class Tools:
    state: StateStore
    clock: Clock
    client: Any
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
        made = Tools(StateStore(client, SETTINGS, clock), clock, client)
        monkeypatch.setattr(acquire_lock, "load_services", lambda: made)
        yield made


def ask(name: str = "run-1", **given: Any) -> dict[str, Any]:
    event = {"input": {"trigger": "manual", **given}, "execution_id": name, "started_at": TICK}
    return acquire_lock.handler(event, None)


def tick(name: str, at: str = TICK) -> dict[str, Any]:
    return ask(name, trigger="schedule", scheduled_at=at)


def held(tools: Tools, name: str) -> Run:
    run = Run(execution_id=name, trigger="manual", scheduled_at=0, started_at=START)
    return replace(run, fence=tools.state.acquire(run).state.fence)


def put(tools: Tools, **attributes: Any) -> None:
    item = {"cluster_id": SETTINGS.cluster_id, **attributes}
    tools.client.put_item(TableName=SETTINGS.state_table, Item=to_attributes(item))


def test_the_first_run_gets_the_lock_and_its_fence(tools: Tools) -> None:
    answer = ask()
    assert (answer["status"], answer["resume"], answer["run"]["fence"]) == ("acquired", "", 1)
    assert answer["timing"]["join_poll_seconds"] == SETTINGS.join_poll_seconds


def test_a_retried_invocation_of_the_same_execution_gets_it_again(tools: Tools) -> None:
    first, again = tick("run-1"), tick("run-1")
    assert (first["status"], again["status"]) == ("acquired", "acquired")
    assert again["run"]["fence"] == first["run"]["fence"] + 1


def test_a_dead_owners_lock_is_taken_on_the_first_try_after_its_lease_with_an_alert(tools: Tools) -> None:
    held(tools, "exec-dead")
    tools.clock.time += SETTINGS.lease_seconds + SETTINGS.lease_skew_seconds
    assert ask("next")["status"] == "held", "within the margin for clocks that differ"
    tools.clock.time += 1
    answer = ask("next")
    assert answer["status"] == "acquired"
    assert "exec-dead" in answer["notes"][0]
    assert answer["alerts"]["rows"][0][0] == "lock_taken_over"


def test_a_held_lock_is_an_answer_and_no_error(tools: Tools) -> None:
    held(tools, "exec-a")
    answer = ask("exec-b")
    assert answer["status"] == "held" and "exec-a" in answer["detail"]
    assert tools.state.load().lease is not None


def test_an_expiry_in_milliseconds_blocks_no_run_and_is_alerted(tools: Tools) -> None:
    put(tools, lock_owner="exec-a", lock_fence=4, lock_acquired_at=START, lock_expires_at=1_767_225_600_000)
    answer = ask("exec-b")
    assert (answer["status"], answer["run"]["fence"]) == ("acquired", 5)
    assert "corrupt" in answer["alerts"]["rows"][0][1]


def test_the_same_tick_delivered_twice_is_stale_the_second_time(tools: Tools) -> None:
    run = tick("first")
    tools.state.release(replace(held_as(run), fence=run["run"]["fence"]))
    assert tick("second")["status"] == "stale"
    assert tick("third", at="2026-09-21T14:15:20Z")["status"] == "acquired"


def held_as(answer: dict[str, Any]) -> Run:
    return Run(execution_id=answer["run"]["execution_id"], trigger="schedule", scheduled_at=START, started_at=START)


def test_a_pause_ends_the_run_before_it_holds_anything(tools: Tools) -> None:
    tools.state.set_pause(Pause(reason="moving house", by="mira", since=START, until=START + 60))
    answer = ask()
    assert answer["status"] == "paused" and "moving house" in answer["detail"]
    assert tools.state.load().lease is None


@pytest.mark.parametrize(("age", "state"), [(900, "LaunchNodes"), (901, "AbandonUnjoined")])
def test_an_unfinished_operation_is_resumed_or_past_its_limit_closed(tools: Tools, age: int, state: str) -> None:
    run = held(tools, "dead")
    operation = Operation(
        operation_id="up-1",
        kind="scale_up",
        phase="begin",
        started_at=START - age,
        requested=1,
        reason="busy",
        execution_id="dead",
    )
    tools.state.save_operation(run, operation)
    tools.state.release(run)
    answer = ask("next")
    assert (answer["resume"], answer["operation"]["operation_id"]) == (state, "up-1")


def test_a_malformed_input_takes_no_lock(tools: Tools) -> None:
    with pytest.raises(InvalidInputError, match="trigger is 'cron'"):
        ask(trigger="cron")
    assert tools.state.load().lease is None
