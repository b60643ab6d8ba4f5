"""CompleteScaleUp and FailScaleUp: how a scale-up is closed, what is recorded, which error is reported."""

from __future__ import annotations

from typing import Any

import pytest

from handlers.check_join import handler as check_join
from handlers.complete_scale_up import handler as complete
from handlers.fail_scale_up import handler as fail
from handlers.launch_nodes import handler as launch_nodes
from node_fleet.domain.model.memory import BackOff, Memory
from node_fleet.domain.model.snapshot import PodShape
from node_fleet.domain.model.standby import PREFIX
from node_fleet.payload import from_payload, to_payload
from tests.support.handlers.bench import ZONES, Bench


def joined(made: Bench, *, pods: int = 0, **run: Any) -> dict[str, Any]:
    payload, _ = made.launched(**run)
    made.ready(*made.ids())
    made.prometheus.shapes = (PodShape(cpu_milli=1, memory_mib=1, count=pods),) if pods else ()
    return check_join(payload, None)


def memory_of(payload: dict[str, Any]) -> Memory:
    return from_payload(Memory, payload["memory"])  # type: ignore[no-any-return]


def test_a_completed_scale_up_is_closed_and_stamped_and_a_second_call_answers_the_same(fleet: Bench) -> None:
    payload = joined(fleet)
    answer = complete(payload, None)
    state = fleet.state()
    assert state.operation is None and state.reservations == () and state.node_count == 2
    assert (state.memory.last_action, state.memory.last_action_at) == ("scale_up", int(fleet.clock.now()))
    assert answer["outcome"]["kind"] == "scaled_up" and "from 0 to 2" in answer["outcome"]["text"]
    assert (answer["next"], answer["notes"]) == ("done", [])
    assert complete(payload, None) == answer


@pytest.mark.parametrize(("round_number", "following"), [(1, "again"), (2, "again"), (3, "done")])
def test_while_pods_wait_the_same_execution_begins_another_round(
    fleet: Bench, round_number: int, following: str
) -> None:
    answer = complete(joined(fleet, pods=3, round=round_number), None)
    assert answer["next"] == following
    assert answer["run"]["round"] == round_number + (following == "again")
    assert answer["notes"] == ([answer["outcome"]["text"]] if following == "again" else [])
    rounds = [one["operation_id"] for one in answer.get("rounds", [])]
    assert rounds == ([answer["operation"]["operation_id"]] if following == "again" else [])


def test_a_scale_up_that_gained_no_worker_is_not_stamped(fleet: Bench) -> None:
    payload, _ = fleet.launched(1, seconds=0)
    assert complete(check_join(payload, None), None)["outcome"]["kind"] == "none"
    assert fleet.state().memory.last_action_at == 0


def test_a_join_closes_the_breaker(fleet: Bench) -> None:
    payload = joined(fleet)
    payload["memory"] = to_payload(Memory(back_offs=(BackOff(key="join", failures=2, until=0),)))
    assert memory_of(complete(payload, None)).back_offs == ()


def test_pools_in_back_off_are_recorded_after_success_and_failure(fleet: Bench) -> None:
    fleet.cloud.ec2.dry_pool(az=ZONES[0])
    assert {d.zone for d in memory_of(complete(joined(fleet), None)).dry_pools} == {ZONES[0]}
    fleet.cloud.ec2.dry_pool()
    event = fleet.event(fleet.begin(round=2), 1)
    with pytest.raises(Exception, match="no capacity"):
        launch_nodes(event, None)
    answer = fail({**event, "failure": {"Error": "NoCapacityError", "Cause": "no capacity"}}, None)
    assert {d.zone for d in memory_of(answer).dry_pools} == set(ZONES)


def test_a_failed_launch_is_closed_with_a_back_off_and_without_a_stamp(fleet: Bench) -> None:
    fleet.cloud.ec2.dry_pool(code="VcpuLimitExceeded")
    event = fleet.event(fleet.begin(), 1)
    with pytest.raises(Exception, match="quota"):
        launch_nodes(event, None)
    cause = '{"errorMessage": "no worker could be launched: quota", "errorType": "QuotaExceededError"}'
    answer = fail({**event, "failure": {"Error": "QuotaExceededError", "Cause": cause}}, None)
    state = fleet.state()
    assert state.operation is None and state.reservations == () and state.memory.last_action == ""
    assert [b.key for b in state.memory.back_offs] == ["scale_up"]
    assert answer["failure"] == {"Error": "QuotaExceededError", "Cause": "no worker could be launched: quota"}
    assert answer["alerts"]["rows"] == [["quota_exceeded", "no worker could be launched: quota", False]]


@pytest.mark.parametrize("before", [{}, {"replace_reason": "on-demand"}, {"operation_id": f"{PREFIX}1"}])
def test_a_launch_without_any_pool_left_is_no_failure_of_the_round_before_it(
    fleet: Bench, before: dict[str, str]
) -> None:
    first = complete(joined(fleet, pods=3), None)
    first["operation"] |= before
    first["rounds"][0] |= {name: value for name, value in before.items() if name == "operation_id"}
    decision = {"action": "scale_up", "count": 1, "rule": "pending", "sentence": "pods wait -> +1"}
    failure = {"Error": "NoCapacityError", "Cause": "EC2 recently refused every pool"}
    answer = fail({**first, "decision": decision, "failure": failure}, None)
    memory = memory_of(answer)
    assert ([b.key for b in memory.back_offs], answer["failure"]) == (["scale_up"], failure)
    assert answer["alerts"]["rows"] == [["no_capacity", failure["Cause"], False]]
    assert memory.totals == memory_of(first).totals, "the launches of the earlier round are counted"


@pytest.mark.parametrize(("times", "seconds"), [(1, 0), (2, 0), (3, 900), (4, 1800)])
def test_joins_that_fail_in_a_row_end_in_one_open_breaker_not_in_a_loop(fleet: Bench, times: int, seconds: int) -> None:
    payload, _ = fleet.launched(1, seconds=0)
    if times > 1:
        payload["memory"] = to_payload(Memory(back_offs=(BackOff(key="join", failures=times - 1, until=0),)))
    answer = fail(payload, None)
    kept = memory_of(answer).back_offs[0]
    assert (kept.key, kept.failures, kept.until - int(fleet.clock.now())) == ("join", times, seconds)
    kinds = [row[0] for row in answer["alerts"]["rows"]] if isinstance(answer["alerts"], dict) else []
    assert kinds == (["circuit_breaker"] if times >= 3 else [])
    assert answer["failure"]["Error"] == "NothingJoinedError"
    assert "token" not in str(answer["alerts"]).lower()


def test_a_pause_adds_no_back_off(fleet: Bench) -> None:
    payload, _ = fleet.launched(1)
    answer = fail({**payload, "failure": {"Error": "PausedError", "Cause": "paused by ann"}}, None)
    assert memory_of(answer).back_offs == () and fleet.state().operation is None
    assert len(fleet.instances()) == 1


def test_without_capacity_left_for_a_launch_nothing_failed(fleet: Bench) -> None:
    event = fleet.event(fleet.begin(), 1)
    answer = fail({**event, "launch": {"status": "none", "detail": ""}}, None)
    assert answer["outcome"]["kind"] == "none" and "failure" not in answer


@pytest.mark.settings(min_workers=1, max_vcpu=4)
def test_a_launch_that_a_limit_forbids_ends_without_a_failure_and_alerts_once(fleet: Bench) -> None:
    fleet.running(1), fleet.running(2)
    event = launch_nodes(fleet.event(fleet.begin(), 1), None)
    answer = fail(event, None)
    why = "the limit allows no further worker (max_vcpu: 4 of 4 vCPU)"
    assert answer["outcome"]["text"] == f"no worker was launched: {why}"
    assert [(row[0], row[1].startswith(f"{why}: pods wait -> +1")) for row in answer["alerts"]["rows"]] == [
        ("at_maximum:limits", True)
    ]
    assert "failure" not in answer and memory_of(answer).back_offs == () and fleet.state().reservations == ()
    again = launch_nodes({**fleet.event(fleet.begin(round=2), 1), "memory": answer["memory"]}, None)
    assert fail(again, None)["alerts"] == []
