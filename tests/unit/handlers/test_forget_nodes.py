"""ForgetNodes: node and password of a machine that is gone, without holding the fleet up for ever."""

from __future__ import annotations

from typing import Any

import pytest

from handlers import forget_nodes
from node_fleet.domain.model.errors import ServerNotFoundError, ServerUnreachableError
from tests.support.handlers.scale_down import A, Tools, answer, event, wired


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Tools:
    return wired(monkeypatch, forget_nodes)


def call(payload: dict[str, Any]) -> dict[str, Any]:
    return forget_nodes.handler(payload, None)


def test_node_and_password_go_by_one_command(tools: Tools) -> None:
    tools.begun("terminated", "selected")
    tools.server.says["ForgetNode"] = answer(f"result: forgotten {A}")
    answered = call(event(tools))
    assert tools.server.sent == [("ForgetNode", {"NodeName": A, "InstanceId": A})]
    assert (tools.state.calls[-1], answered["next"]) == ("save forgotten+selected", "target")
    assert call(event(tools))["next"] == "target"
    assert len(tools.server.sent) == 1


AWAY = ServerUnreachableError("server_not_managed: away")
NONE = ServerNotFoundError("no running instance carries the tag Role=k3s-master")
UNSURE = [answer("result: ready x", 71), answer("", 1), answer(status="InProgress")]


@pytest.mark.parametrize("said", [*UNSURE, AWAY, NONE])
def test_a_server_that_is_away_does_not_hold_up_the_fleet_and_is_told(tools: Tools, said: Any) -> None:
    tools.begun("terminated")
    tools.server.says["ForgetNode"] = said
    answered = call(event(tools))
    assert f"kubectl delete node {A}" in answered["alerts"]["rows"][0][1]
    assert answered["next"] == "done"
    assert tools.state.item.operation is not None
    assert "still to be deleted" in tools.state.item.operation.targets[0].detail
