"""FailScaleUp: how a failed scale-up is closed, who is blamed, what people hear."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from handlers.fail_scale_up import handler as fail
from handlers.launch_nodes import handler as launch_nodes
from node_fleet.domain.model.errors import LeaseLostError
from node_fleet.domain.model.memory import BackOff, Memory
from node_fleet.payload import from_payload, to_payload
from tests.support.handlers.scale_up import Bench, bench


@pytest.fixture
def fleet() -> Iterator[Bench]:
    with bench() as made:
        yield made


def memory_of(payload: dict[str, Any]) -> Memory:
    return from_payload(Memory, payload["memory"])  # type: ignore[no-any-return]


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
    assert answer["alerts"]["rows"] == [["quota_exceeded", "no worker could be launched: quota"]]


@pytest.mark.parametrize("times", [1, 2, 3, 4])
def test_5_joins_that_fail_in_a_row_end_in_one_open_breaker_not_in_a_loop(fleet: Bench, times: int) -> None:
    memory = Memory(back_offs=(BackOff(key="join", failures=times - 1, until=0),) if times > 1 else ())
    payload = launch_nodes(fleet.event(fleet.begin(), 1), None)
    payload["memory"] = to_payload(memory)
    answer = fail(payload, None)
    kept = memory_of(answer).back_offs[0]
    assert (kept.key, kept.failures) == ("join", times)
    rest = kept.until - int(fleet.clock.now())
    assert rest == {1: 0, 2: 0, 3: 900, 4: 1800}[times]
    kinds = [row[0] for row in answer["alerts"]["rows"]] if isinstance(answer["alerts"], dict) else []
    assert kinds == (["circuit_breaker"] if times >= 3 else [])
    assert answer["failure"]["Error"] == "NothingJoinedError"
    assert "token" not in str(answer["alerts"]).lower()


@pytest.mark.parametrize("error", ["PausedError"])
def test_nobody_is_blamed_for_a_pause(fleet: Bench, error: str) -> None:
    payload = launch_nodes(fleet.event(fleet.begin(), 1), None)
    answer = fail({**payload, "failure": {"Error": error, "Cause": "paused by ann"}}, None)
    assert memory_of(answer).back_offs == () and fleet.state().operation is None
    assert len(fleet.instances()) == 1


def test_a_run_that_lost_its_lease_closes_nothing(fleet: Bench) -> None:
    payload = launch_nodes(fleet.event(fleet.begin("old"), 1), None)
    fleet.clock.advance(400)
    fleet.begin("new")
    with pytest.raises(LeaseLostError):
        fail({**payload, "failure": {"Error": "LeaseLostError", "Cause": "lost"}}, None)
    assert fleet.state().operation is not None


def test_without_room_nothing_failed(fleet: Bench) -> None:
    event = fleet.event(fleet.begin(), 1)
    answer = fail({**event, "launch": {"status": "none", "detail": ""}}, None)
    assert answer["outcome"]["kind"] == "none" and "failure" not in answer
