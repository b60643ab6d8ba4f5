"""CheckDrain: waits, withdraws, gives up, and believes only an empty node."""

from __future__ import annotations

from typing import Any

import pytest

from handlers import check_drain
from node_fleet.domain.model.errors import MetricsUnavailableError, ServerUnreachableError
from node_fleet.domain.model.snapshot import PodShape
from node_fleet.payload import put
from tests.support.handlers.scale_down import DRAINED, A, Tools, answer, event, look_text, wired


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Tools:
    return wired(monkeypatch, check_drain)


def call(payload: dict[str, Any]) -> dict[str, Any]:
    return check_drain.handler(payload, None)


def test_it_waits_while_ssm_says_in_progress(tools: Tools) -> None:
    tools.begun("draining")
    answered = call(event(tools))
    assert (answered["drain"]["status"], tools.server.documents()) == ("waiting", [])


@pytest.mark.parametrize("seconds", [10, 60, 300])
def test_a_good_drain_is_looked_at_before_it_counts(tools: Tools, seconds: int) -> None:
    tools.begun("draining")
    tools.clock.time += seconds
    tools.server.drain_result = answer(DRAINED)
    tools.server.says["CheckNode"] = answer(look_text())
    answered = call(event(tools))
    assert (answered["drain"]["status"], answered["drain"]["seconds"]) == ("drained", seconds)
    assert tools.state.calls[-1] == "save drained"


@pytest.mark.parametrize(("left", "waited", "status"), [(1, 10, "waiting"), (3, 420, "waiting"), (1, 421, "failed")])
def test_pods_that_still_shut_down_are_waited_for(tools: Tools, left: int, waited: int, status: str) -> None:
    tools.begun("draining")
    tools.clock.time += waited
    tools.server.drain_result = answer(DRAINED)
    tools.server.says["CheckNode"] = answer(look_text(left=left, going=left))
    assert call(event(tools))["drain"]["status"] == status
    assert tools.ec2.terminated == []


@pytest.mark.parametrize("pods", [1, 2, 9])
def test_it_is_withdrawn_when_pods_become_unschedulable(tools: Tools, pods: int) -> None:
    tools.begun("draining")
    tools.prometheus.shapes = (PodShape(cpu_milli=100, memory_mib=64, count=pods),)
    answered = call(event(tools))
    assert answered["drain"]["status"] == "withdrawn"
    assert f"{pods} pods" in answered["drain"]["detail"]


@pytest.mark.parametrize("missing", [None, MetricsUnavailableError("away")])
def test_what_is_missing_withdraws_nothing(tools: Tools, missing: Any) -> None:
    tools.begun("draining")
    tools.prometheus.shapes = None
    tools.prometheus.error = missing
    assert call(event(tools))["drain"]["status"] == "waiting"


def test_the_drain_of_a_worker_under_interruption_notice_is_left_to_the_interruption_workflow(tools: Tools) -> None:
    tools.begun("draining", "selected")
    tools.notice(A)
    answered = call(event(tools))
    assert (answered["drain"]["status"], answered["next"]) == ("skipped", "target")
    assert "the interruption workflow drains it" in answered["drain"]["detail"]


def test_a_pause_withdraws_it(tools: Tools) -> None:
    tools.begun("draining")
    tools.pause()
    assert call(event(tools))["drain"] == {
        "status": "withdrawn",
        "detail": "paused by ana: a sale",
        "alert": "",
    }


@pytest.mark.parametrize(("waited", "status"), [(10, "waiting"), (421, "failed")])
def test_a_server_that_cannot_be_asked_for_a_moment_is_asked_again(
    tools: Tools, waited: int, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools.begun("draining")
    tools.clock.time += waited

    def away(command_id: str) -> Any:
        raise ServerUnreachableError("SSM: cannot ask: ThrottlingException")

    monkeypatch.setattr(tools.server, "result", away)
    assert call(event(tools))["drain"]["status"] == status


def test_a_lost_node_is_left_out_and_the_next_target_follows(tools: Tools) -> None:
    tools.begun("draining", "selected")
    tools.server.drain_result = answer(f"result: no-node {A}", 66)
    answered = call(event(tools))
    assert (answered["drain"]["status"], answered["next"]) == ("skipped", "target")
    assert tools.state.calls[-1] == "save skipped+selected"


def test_a_drain_that_outlives_its_limit_is_given_up(tools: Tools) -> None:
    tools.begun("draining")
    tools.clock.time += 421
    assert call(event(tools))["drain"]["status"] == "failed"


def test_each_state_answers_the_whole_payload(tools: Tools) -> None:
    tools.begun("draining")
    payload = put(event(tools), marker="kept")
    assert call(payload)["marker"] == "kept"
