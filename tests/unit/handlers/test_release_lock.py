"""ReleaseLock on DynamoDB's own expressions: records, remembers, frees; never takes back what a step has stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import boto3
import pytest
from moto import mock_aws

from handlers import release_lock
from node_fleet.adapters.state_store import StateStore
from node_fleet.domain.model.errors import RunFailedError, StateStoreError
from node_fleet.domain.model.memory import BackOff, Memory, newest_memory
from node_fleet.domain.model.run import Run
from node_fleet.payload import put
from node_fleet.settings import Settings

START = 1_790_000_000
SETTINGS = Settings()
RUN = Run(execution_id="run-1", trigger="manual", scheduled_at=0, started_at=START)
FAULT = {"Error": "ChaosError", "Cause": "it broke"}


@dataclass
class Clock:
    time: int = START

    def now(self) -> int:
        return self.time


@dataclass
class Records:
    error: Exception | None = None
    events: list[tuple[str, str]] = field(default_factory=list)

    def put_event(self, kind: str, at: int, data: dict[str, Any], *, key: str = "") -> None:
        if self.error:
            raise self.error
        self.events.append((kind, key))


@dataclass
class Tools:
    state: StateStore
    clock: Clock
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
        made = Tools(StateStore(client, SETTINGS, clock), clock)
        monkeypatch.setattr(release_lock, "load_services", lambda: made)
        yield made


def held(tools: Tools) -> Run:
    return replace(RUN, fence=tools.state.acquire(RUN).state.fence)


def release(run: Run, memory: Memory | None = None, **more: Any) -> dict[str, Any]:
    event = put({}, run=run, **({} if memory is None else {"memory": memory}), **more)
    return release_lock.handler(event, None)


STAMPED = Memory(last_action="scale_up", last_action_at=START)


def test_the_lock_is_free_the_memory_stored_and_the_decision_recorded(tools: Tools) -> None:
    assert release(held(tools), STAMPED)["released"] is True
    state = tools.state.load()
    assert (state.lease, state.memory.last_action) == (None, "scale_up")
    assert tools.records.events == [("decision", "run-1")]


def test_a_second_release_changes_nothing_and_says_so(tools: Tools) -> None:
    run = held(tools)
    release(run, STAMPED)
    before = tools.state.load()
    assert release(run, Memory())["released"] is False
    assert tools.state.load() == before


def test_a_deposed_owner_that_wakes_late_releases_and_stores_nothing(tools: Tools) -> None:
    old = held(tools)
    tools.clock.time += SETTINGS.lease_seconds + SETTINGS.lease_skew_seconds + 1
    tools.state.acquire(replace(RUN, execution_id="run-2"))
    before = tools.state.load()
    assert release(old, STAMPED)["released"] is False
    with pytest.raises(RunFailedError):
        release(old, STAMPED, failure=FAULT)
    assert tools.state.load() == before


def test_a_failed_run_ends_red_after_its_lock_is_free(tools: Tools) -> None:
    run = held(tools)
    with pytest.raises(RunFailedError, match="ChaosError: it broke"):
        release(run, failure=FAULT)
    assert tools.state.load().lease is None


def test_a_stamp_that_a_dying_step_had_stored_outlives_the_older_payload(tools: Tools) -> None:
    run = held(tools)
    tools.state.close_operation(run, STAMPED)
    with pytest.raises(RunFailedError):
        release(run, Memory(), failure=FAULT)
    assert tools.state.load().memory == STAMPED


def test_a_table_that_refuses_the_record_does_not_keep_the_lock(tools: Tools) -> None:
    run = held(tools)
    tools.records.error = StateStoreError("events: throttled")
    with pytest.raises(StateStoreError):
        release(run)
    assert tools.state.load().lease is None


def test_of_two_memories_the_later_stamp_wins_whole_and_else_the_longer_row_of_failures() -> None:
    twice, once = (BackOff(key="scale_up", failures=n, until=START + 60 * n) for n in (2, 1))
    other = BackOff(key="node:i-1", failures=1, until=START)
    assert newest_memory(STAMPED, Memory(back_offs=(once,))) == STAMPED
    assert newest_memory(Memory(back_offs=(twice,)), Memory(back_offs=(once, other))).back_offs == (other, twice)
    assert newest_memory(Memory(), STAMPED) == STAMPED
    assert newest_memory(Memory(back_offs=(once,)), Memory(back_offs=(twice,))).back_offs == (twice,)
