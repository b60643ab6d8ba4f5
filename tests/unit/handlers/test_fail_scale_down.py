"""FailScaleDown: keeps the first fault, and keeps open what must be finished."""

from __future__ import annotations

from typing import Any

import pytest

from handlers import fail_scale_down
from node_fleet.domain.model.operation import TargetPhase
from tests.support.handlers.scale_down import A, Tools, event, wired


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Tools:
    return wired(monkeypatch, fail_scale_down)


def call(payload: dict[str, Any]) -> dict[str, Any]:
    return fail_scale_down.handler(payload, None)


@pytest.mark.parametrize(
    ("status", "kind", "red"),
    [("failed", "failed", True), ("withdrawn", "none", False), ("blocked", "none", False)],
)
def test_a_failed_drain_ends_the_run_red_a_withdrawn_one_does_not(
    tools: Tools, status: str, kind: str, red: bool
) -> None:
    tools.begun("undone")
    answered = call(event(tools, drain={"status": status, "detail": "x"}))
    assert (answered["outcome"]["kind"], "failure" in answered) == (kind, red)
    assert tools.state.item.operation is None


def test_the_first_fault_is_kept(tools: Tools) -> None:
    tools.begun("undone")
    failure = {"Error": "DrainFailedError", "Cause": "first"}
    answered = call(event(tools, failure=failure, later_failure={"Error": "X", "Cause": "second"}))
    assert answered["failure"] == failure


def test_a_fault_while_undoing_ends_the_run_red(tools: Tools) -> None:
    tools.begun("draining")
    answered = call(
        event(tools, drain={"status": "withdrawn"}, later_failure={"Error": "ServerUnreachableError", "Cause": "x"}),
    )
    assert answered["failure"]["Error"] == "ServerUnreachableError"


@pytest.mark.parametrize("phase", ["terminating", "terminated", "draining", "drained"])
def test_what_must_be_finished_or_undone_stays_open(tools: Tools, phase: TargetPhase) -> None:
    tools.begun(phase)
    answered = call(event(tools, failure={"Error": "E", "Cause": "c"}))
    assert (tools.state.item.operation is not None, tools.state.closed) == (True, [])
    assert "the next run resumes it" in answered["outcome"]["text"]


def test_past_twice_its_limit_a_cordon_that_may_stand_is_told_and_the_fleet_goes_on(tools: Tools) -> None:
    tools.begun("draining")
    tools.clock.time += 1801
    answered = call(event(tools, failure={"Error": "E", "Cause": "c"}))
    assert tools.state.item.operation is None
    assert f"kubectl uncordon {A}" in answered["alerts"]["rows"][0][1]


def test_a_run_without_an_operation_fails_quietly(tools: Tools) -> None:
    payload = event(tools, failure={"Error": "E", "Cause": "c"})
    assert call(payload)["outcome"]["text"] == "nothing was changed"
