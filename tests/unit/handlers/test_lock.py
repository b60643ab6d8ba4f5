"""AcquireLock and ReleaseLock on DynamoDB's own expressions: which run may work, what it stores, and who is next."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from handlers.acquire_lock import handler as acquire_lock
from handlers.release_lock import handler as release_lock
from node_fleet.adapters.dynamodb import to_attributes
from node_fleet.domain.cost.run_cost import hourly_cost_after
from node_fleet.domain.model.errors import InvalidInputError, RunFailedError, StateStoreError
from node_fleet.domain.model.memory import BackOff, Memory, newest_memory
from node_fleet.domain.model.run import Alert, Run
from node_fleet.domain.model.snapshot import PodShape, Snapshot
from node_fleet.domain.notify.totals import packed
from node_fleet.payload import LONG_TABLE_ROWS, PACKED_TABLE_ROWS, put, take
from tests.support.handlers.bench import START, Bench
from tests.support.handlers.fakes import A, aside, scale_down, worker
from tests.support.shipped_scripts import load_server

FAULT = {"Error": "ChaosError", "Cause": "it broke"}
STAMPED = Memory(last_action="scale_up", last_action_at=START)
TICK = "2026-09-21T14:13:20Z"
"""START as EventBridge writes it."""


def ask(name: str = "run-1", **given: Any) -> dict[str, Any]:
    started_at = given.get("scheduled_at", TICK)
    event = {"input": {"trigger": "manual", **given}, "execution_id": name, "started_at": started_at}
    return acquire_lock(event, None)


def tick(name: str, at: str = TICK) -> dict[str, Any]:
    return ask(name, trigger="schedule", scheduled_at=at)


def release(run: Run, memory: Memory | None = None, **more: Any) -> dict[str, Any]:
    return release_lock(put({}, run=run, **({} if memory is None else {"memory": memory}), **more), None)


def test_the_first_run_gets_the_lock_and_its_fence(fleet: Bench) -> None:
    answer = ask()
    assert (answer["status"], answer["resume"], answer["run"]["fence"]) == ("acquired", "", 1)
    assert (answer["notes"], take(answer, "alerts", tuple[Alert, ...])) == ([], ())
    assert answer["timing"]["join_poll_seconds"] == fleet.settings.join_poll_seconds


def test_what_no_topic_accepted_is_an_alert_of_the_next_run_but_not_of_a_dry_one(fleet: Bench) -> None:
    unsent = (Alert(kind="volumes_lost:i-1", text="the volume of shop/db is lost", is_critical=True),)
    fleet.tools.state.release(fleet.begin("before"), Memory(unsent=unsent))
    dry = ask("dry", dry_run=True)
    assert (dry["notes"], take(dry, "alerts", tuple[Alert, ...])) == ([], ())
    release(take(dry, "run", Run))
    answer = ask()
    assert take(answer, "alerts", tuple[Alert, ...]) == unsent
    assert answer["notes"] == ["alerts of an earlier run are here, because no topic accepted them then"]


@pytest.mark.parametrize(("stored", "dry_run", "checked"), [(1, False, True), (1, True, False), (0, False, False)])
def test_a_removal_that_is_set_aside_is_checked_by_every_run_but_a_dry_one(
    fleet: Bench, stored: int, dry_run: bool, checked: bool
) -> None:
    run = fleet.begin("before")
    for removal in [aside(A)] * stored:
        fleet.tools.state.update_set_aside(run, removal)
    fleet.tools.state.release(run)
    assert ask(dry_run=dry_run)["set_aside"] is checked


def test_a_retried_invocation_of_the_same_execution_gets_it_again(fleet: Bench) -> None:
    first, again = tick("run-1"), tick("run-1")
    assert (first["status"], again["status"]) == ("acquired", "acquired")
    assert again["run"]["fence"] == first["run"]["fence"] + 1


def test_the_lock_of_a_dead_owner_is_acquired_on_the_first_try_after_its_lease_with_an_alert(fleet: Bench) -> None:
    fleet.begin("exec-dead")
    fleet.clock.advance(fleet.settings.lease_seconds + fleet.settings.lease_skew_seconds)
    assert ask("next")["status"] == "held", "within the margin for clocks that differ"
    fleet.clock.advance(1)
    answer = ask("next")
    assert answer["status"] == "acquired"
    assert "exec-dead" in answer["notes"][0]
    assert answer["alerts"]["rows"][0][0] == "lock_taken_over"


def test_a_held_lock_is_an_answer_and_no_error(fleet: Bench) -> None:
    fleet.begin("exec-a")
    answer = ask("exec-b")
    assert answer["status"] == "held" and "exec-a" in answer["detail"]
    assert fleet.state().lease is not None


def test_the_line_of_the_lock_says_in_a_number_whether_it_was_held_which_the_alarm_reads(
    fleet: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    run = take(ask("exec-a"), "run", Run)
    ask("exec-b")
    fleet.tools.state.release(run)
    ask("exec-c")
    lines = map(json.loads, capsys.readouterr().out.splitlines())
    assert [line["held"] for line in lines if line["message"] == "lock"] == [0, 1, 0]


def test_an_expiry_in_milliseconds_blocks_no_run_and_is_alerted(fleet: Bench) -> None:
    lease = {"lock_owner": "exec-a", "lock_fence": 4, "lock_acquired_at": START, "lock_expires_at": 1_767_225_600_000}
    item = to_attributes({"cluster_id": fleet.settings.cluster_id, **lease})
    fleet.cloud.client("dynamodb").put_item(TableName=fleet.settings.state_table, Item=item)
    answer = ask("exec-b")
    assert (answer["status"], answer["run"]["fence"]) == ("acquired", 5)
    assert "corrupt" in answer["alerts"]["rows"][0][1]


def test_the_same_tick_delivered_twice_is_stale_the_second_time(fleet: Bench) -> None:
    fleet.tools.state.release(take(tick("first"), "run", Run))
    assert tick("second")["status"] == "stale"
    assert tick("third", at="2026-09-21T14:15:20Z")["status"] == "acquired"


def test_a_pause_ends_the_run_before_it_holds_anything(fleet: Bench) -> None:
    fleet.pause()
    answer = ask()
    assert answer["status"] == "paused" and "sale" in answer["detail"]
    assert fleet.state().lease is None


@pytest.mark.parametrize(("age", "state"), [(900, "LaunchNodes"), (901, "AbandonUnjoined")])
def test_an_unfinished_operation_is_resumed_or_past_its_limit_closed(fleet: Bench, age: int, state: str) -> None:
    run = fleet.begin("dead")
    begun = int(fleet.clock.now()) - age
    operation = scale_down(operation_id="up-1", kind="scale_up", phase="begin", started_at=begun)
    fleet.tools.state.save_operation(run, operation)
    fleet.tools.state.release(run)
    answer = ask("next")
    assert (answer["resume"], answer["operation"]["operation_id"]) == (state, "up-1")
    fleet.tools.state.release(take(answer, "run", Run))
    dry = ask("dry", dry_run=True)
    assert (dry["resume"], dry["operation"]) == ("", None)


def test_a_malformed_input_takes_no_lock(fleet: Bench) -> None:
    with pytest.raises(InvalidInputError, match="trigger is 'cron'"):
        ask(trigger="cron")
    assert fleet.state().lease is None


def test_the_lock_is_released_once_the_memory_stored_and_the_decision_recorded(fleet: Bench) -> None:
    run = fleet.begin()
    assert release(run, STAMPED)["released"] is True
    state = fleet.state()
    assert (state.lease, state.memory.last_action) == (None, "scale_up")
    assert [(event.kind, event.key) for event in fleet.records.stored] == [("decision", "exec-1")]
    assert release(run, Memory())["released"] is False
    assert fleet.state() == state


@pytest.mark.parametrize("kinds", [1, LONG_TABLE_ROWS, PACKED_TABLE_ROWS])
def test_the_metrics_of_a_run_count_pending_pods_of_however_many_sizes(
    fleet: Bench, capsys: pytest.CaptureFixture[str], kinds: int
) -> None:
    pending = tuple(PodShape(cpu_milli=1 + kind, memory_mib=1, count=2) for kind in range(kinds))
    release(fleet.begin("exec-1"), snapshot=Snapshot(at=START, source="live", pending=pending))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if '"PendingPods":' in line]
    assert [line["PendingPods"] for line in lines] == [[2.0 * kinds]]


@pytest.mark.settings(region="ap-southeast-1")
def test_the_metrics_of_a_run_have_a_cost_when_there_was_a_snapshot(
    fleet: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = Snapshot(at=START, source="live", cpu_percent=10.0, workers=(worker(A, market="on-demand"),))
    cost = hourly_cost_after(snapshot, None, fleet.settings.tariff())
    assert cost is not None and cost.known_usd
    release(fleet.begin("exec-1"), snapshot=snapshot)
    release(fleet.begin("exec-2"))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if '"ScaleUpEvents":' in line]
    assert [line.get("EstimatedHourlyCost") for line in lines] == [[cost.known_usd], None]


def test_a_deposed_owner_that_resumes_late_releases_and_stores_nothing(fleet: Bench) -> None:
    old = fleet.begin("old")
    fleet.clock.advance(fleet.settings.lease_seconds + fleet.settings.lease_skew_seconds + 1)
    fleet.begin("new")
    before = fleet.state()
    assert release(old, STAMPED)["released"] is False
    assert release(old, STAMPED, later_failure=FAULT)["released"] is False
    with pytest.raises(RunFailedError):
        release(old, STAMPED, failure=FAULT)
    assert fleet.state() == before


def test_a_failed_run_ends_red_after_its_release_and_keeps_the_stamp_that_a_step_has_stored(fleet: Bench) -> None:
    run = fleet.begin()
    fleet.tools.state.close_operation(run, STAMPED)
    with pytest.raises(RunFailedError, match="ChaosError: it broke"):
        release(run, Memory(), failure=FAULT)
    assert (fleet.state().lease, fleet.state().memory) == (None, replace(STAMPED, totals=packed({"runs/failed/": 1})))


def test_a_failed_run_without_a_memory_releases_the_lock_and_keeps_the_stored_one(fleet: Bench) -> None:
    run = fleet.begin()
    fleet.tools.state.close_operation(run, STAMPED)
    with pytest.raises(RunFailedError):
        release(run, failure=FAULT)
    assert (fleet.state().lease, fleet.state().memory) == (None, STAMPED)


def test_without_a_failure_the_memory_of_the_payload_is_stored_as_it_is(fleet: Bench) -> None:
    run = fleet.begin()
    fleet.tools.state.close_operation(run, STAMPED)
    release(run, Memory())
    assert fleet.state().memory == Memory(totals=packed({"runs/succeeded/": 1}), succeeded_at=fleet.clock.now())


METRICS = load_server("state_metrics")


def stored_exposition(fleet: Bench) -> Any:
    key = {"cluster_id": {"S": fleet.settings.cluster_id}}
    found = fleet.cloud.client("dynamodb").get_item(TableName=fleet.settings.state_table, Key=key)["Item"]
    return METRICS.stored_text(found.get("exposition"))


def test_the_metrics_for_prometheus_are_stored_with_the_release(fleet: Bench) -> None:
    decided = {"action": "scale_up", "count": 2, "sentence": "two more", "rule": "cpu"}
    release(fleet.begin("exec-1"), Memory(), decision=decided, rounds=[{"kind": "scale_up"}])
    lines = stored_exposition(fleet).splitlines()
    assert 'node_fleet_runs_total{result="succeeded"} 1' in lines
    assert 'node_fleet_decisions_total{action="scale_up"} 2' in lines
    assert f"node_fleet_last_success_timestamp_seconds {int(fleet.clock.now())}" in lines
    with pytest.raises(RunFailedError):
        release(fleet.begin("exec-2"), fleet.state().memory, failure=FAULT)
    assert 'node_fleet_runs_total{result="failed"} 1' in stored_exposition(fleet).splitlines()


def test_a_dry_run_stores_no_metrics(fleet: Bench) -> None:
    release(replace(fleet.begin("exec-1"), dry_run=True), Memory())
    assert stored_exposition(fleet) == ""


def test_a_table_that_refuses_the_record_does_not_keep_the_lock(fleet: Bench) -> None:
    run = fleet.begin()
    fleet.records.error = StateStoreError("events: throttled")
    with pytest.raises(StateStoreError):
        release(run)
    assert fleet.state().lease is None


def test_of_two_memories_the_later_stamp_wins_whole_and_else_the_longer_row_of_failures() -> None:
    twice, once = (BackOff(key="scale_up", failures=n, until=START + 60 * n) for n in (2, 1))
    other = BackOff(key="node:i-1", failures=1, until=START)
    assert newest_memory(STAMPED, Memory(back_offs=(once,))) == STAMPED
    assert newest_memory(Memory(back_offs=(twice,)), Memory(back_offs=(once, other))).back_offs == (other, twice)
    assert newest_memory(Memory(), STAMPED) == STAMPED
    assert newest_memory(Memory(back_offs=(once,)), Memory(back_offs=(twice,))).back_offs == (twice,)
    again = BackOff(key="scale_up", failures=1, until=START + 999)
    assert newest_memory(Memory(back_offs=(once,)), Memory(back_offs=(again,))).back_offs == (again,)
