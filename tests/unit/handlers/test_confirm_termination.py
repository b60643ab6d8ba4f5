"""ConfirmTermination: the machine first, then its node."""

from __future__ import annotations

from typing import Any

import pytest

from handlers import confirm_termination
from node_fleet.domain.model.errors import ServerNotFoundError, ServerUnreachableError
from tests.support.handlers.scale_down import A, Tools, answer, event, look_text, wired


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Tools:
    return wired(monkeypatch, confirm_termination)


def call(payload: dict[str, Any]) -> dict[str, Any]:
    return confirm_termination.handler(payload, None)


@pytest.mark.parametrize(
    "case",
    [
        ("shutting-down", "ready", "waiting", "terminating"),
        ("terminated", "ready", "waiting", "terminating"),
        ("terminated", "not-ready", "terminated", "terminated"),
        ("gone", "not-ready", "terminated", "terminated"),
    ],
)
def test_the_node_is_forgotten_only_after_machine_and_agent_are_gone(
    tools: Tools, case: tuple[str, str, str, str]
) -> None:
    ec2, look, status, phase = case
    tools.begun("terminating")
    tools.ec2.state[A] = ec2
    tools.server.says["CheckNode"] = answer(look_text(ready=look))
    answered = call(event(tools))
    assert tools.state.item.operation is not None
    assert (answered["termination"]["status"], tools.state.item.operation.targets[0].phase) == (status, phase)


@pytest.mark.parametrize("error", [ServerUnreachableError("away"), ServerNotFoundError("no server")])
def test_a_server_that_is_away_does_not_hold_up_what_ec2_knows(tools: Tools, error: Exception) -> None:
    tools.begun("terminating")
    tools.ec2.state[A] = "terminated"
    tools.server.says["CheckNode"] = error
    assert call(event(tools))["termination"]["status"] == "terminated"


def test_a_machine_that_runs_on_is_looked_at_again_before_the_next_try(tools: Tools) -> None:
    tools.begun("terminating")
    tools.ec2.state[A] = "running"
    tools.clock.time += 61
    assert call(event(tools))["termination"]["status"] == "timeout"
    assert tools.state.calls[-1] == "save drained"


def test_a_second_call_says_the_same(tools: Tools) -> None:
    tools.begun("terminated")
    assert call(event(tools))["termination"]["status"] == "terminated"
