"""InspectNodes: passes on what the server said, or that nothing is known."""

from __future__ import annotations

from typing import Any

import pytest

from handlers import inspect_nodes
from node_fleet.domain.model.errors import ServerNotFoundError, ServerUnreachableError
from tests.support.handlers.scale_down import ALL_FREE, Tools, answer, event, inspected, wired


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Tools:
    return wired(monkeypatch, inspect_nodes)


def call(payload: dict[str, Any]) -> dict[str, Any]:
    return inspect_nodes.handler(payload, None)


def test_the_lines_of_the_server_are_passed_on(tools: Tools) -> None:
    tools.server.says["InspectNodes"] = answer(ALL_FREE)
    assert call(event(tools))["inspection"] == inspected(ALL_FREE)


@pytest.mark.parametrize(
    "said", [answer(ALL_FREE[:-9]), answer("", 1), answer(status="InProgress"), answer(ALL_FREE, status="TimedOut")]
)
def test_what_is_cut_late_or_failed_is_unknown(tools: Tools, said: Any) -> None:
    tools.server.says["InspectNodes"] = said
    found = call(event(tools))["inspection"]
    assert (found["known"], found["lines"]) == (False, [])
    assert found["detail"]


@pytest.mark.parametrize(
    "error",
    [
        ServerUnreachableError("server_not_managed: the K3s server i-1 runs"),
        ServerNotFoundError("no running instance carries the tag Role=k3s-master"),
    ],
)
def test_a_server_that_cannot_be_asked_is_an_answer_with_an_alert_not_a_failed_run(
    tools: Tools, error: Exception
) -> None:
    tools.server.says["InspectNodes"] = error
    answered = call(event(tools))
    assert str(error) in answered["inspection"]["detail"]
    assert answered["alerts"]["rows"][0][0] == "server_unreachable"


def test_an_unreachable_server_is_told_once_in_the_quiet_time(tools: Tools) -> None:
    tools.server.says["InspectNodes"] = ServerUnreachableError("server_not_managed: x")
    first = call(event(tools))
    tools.clock.time += 3599
    again = call({**event(tools), "memory": first["memory"]})
    tools.clock.time += 1
    later = call({**event(tools), "memory": again["memory"]})
    assert [bool(answered["alerts"]) for answered in (first, again, later)] == [True, False, True]
