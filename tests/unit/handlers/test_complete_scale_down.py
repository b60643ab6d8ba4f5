"""CompleteScaleDown: stamps the cooldown once, and only if a worker was removed."""

from __future__ import annotations

from typing import Any

import pytest

from handlers import complete_scale_down
from tests.support.handlers.scale_down import NOW, B, C, Tools, event, instance, wired


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Tools:
    return wired(monkeypatch, complete_scale_down)


def call(payload: dict[str, Any]) -> dict[str, Any]:
    return complete_scale_down.handler(payload, None)


def test_a_completed_removal_stamps_the_cooldown_and_closes_the_operation(tools: Tools) -> None:
    tools.begun("forgotten")
    tools.ec2.fleet = (instance(B), instance(C))
    payload = event(tools)
    answered = call(payload)
    assert (tools.state.closed[0].last_action, tools.state.closed[0].last_action_at) == ("scale_down", NOW)
    assert (answered["outcome"]["kind"], answered["node_count"]) == ("scaled_down", 2)
    assert "3 -> 2 workers" in answered["outcome"]["text"]
    again = call(payload)
    assert (again["outcome"], len(tools.state.closed)) == (answered["outcome"], 1)


def test_when_all_were_left_out_no_cooldown_starts(tools: Tools) -> None:
    tools.begun("skipped")
    assert call(event(tools))["outcome"]["kind"] == "none"
    assert tools.state.closed[0].last_action == ""
