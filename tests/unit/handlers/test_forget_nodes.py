"""ForgetNodes: node and password of a machine that is gone, without holding the fleet up for ever."""

from __future__ import annotations

from typing import Any

import pytest

from handlers import forget_nodes
from node_fleet.domain.errors import ServerUnreachableError
from tests.unit.handlers.fakes_scale_down import A, Tools, answer, event, wired


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Tools:
    return wired(monkeypatch, forget_nodes)


def call(payload: dict[str, Any]) -> dict[str, Any]:
    return forget_nodes.handler(payload, None)


def test_case_1_node_and_password_go_by_one_command(tools: Tools) -> None:
    tools.begun("terminated", "selected")
    tools.server.says["ForgetNode"] = answer(f"result: forgotten {A}")
    answered = call(event(tools))
    assert tools.server.sent == [("ForgetNode", {"NodeName": A, "InstanceId": A})]
    assert (tools.state.calls[-1], answered["next"]) == ("save forgotten+selected", "target")
    assert call(event(tools))["next"] == "target"
    assert len(tools.server.sent) == 1


@pytest.mark.parametrize("said", [answer("result: ready x", 71), answer("", 1), answer(status="InProgress")])
def test_a_node_that_cannot_be_forgotten_now_is_left_for_the_next_run(tools: Tools, said: Any) -> None:
    tools.begun("terminated")
    tools.server.says["ForgetNode"] = said
    with pytest.raises(ServerUnreachableError, match="is not forgotten"):
        call(event(tools))
    assert tools.state.calls == ["renew"]


def test_past_its_limit_it_is_told_to_a_person_and_holds_nothing_up(tools: Tools) -> None:
    tools.begun("terminated")
    tools.clock.time += 901
    tools.server.says["ForgetNode"] = ServerUnreachableError("away")
    answered = call(event(tools))
    assert f"kubectl delete node {A}" in answered["alerts"]["rows"][0][1]
    assert answered["next"] == "done"
