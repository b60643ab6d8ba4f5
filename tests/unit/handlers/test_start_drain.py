"""StartDrain: one drain, with all its limits, recorded."""

from __future__ import annotations

from typing import Any

import pytest

from handlers import start_drain
from node_fleet.domain.model.errors import LeaseLostError, PausedError
from node_fleet.payload import to_payload
from tests.support.handlers.scale_down import NOW, OPERATION_ID, A, Tools, event, wired


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Tools:
    return wired(monkeypatch, start_drain)


def call(payload: dict[str, Any]) -> dict[str, Any]:
    return start_drain.handler(payload, None)


def test_it_sends_one_drain_with_all_limits_and_records_its_command(tools: Tools) -> None:
    tools.begun("selected")
    answered = call(event(tools))
    document, parameters = tools.server.sent[0]
    assert document == "DrainNode"
    assert parameters == {
        "NodeName": A,
        "OperationId": OPERATION_ID,
        "NotAfter": str(NOW + 60),
        "DrainTimeoutSeconds": "300",
        "DrainMode": "voluntary",
        "ExecutionTimeoutSeconds": "360",
    }
    assert tools.state.calls == ["renew", "save draining"]
    assert answered["operation"] == to_payload(tools.state.item.operation)


def test_a_second_start_sends_nothing(tools: Tools) -> None:
    tools.begun("selected")
    payload = event(tools)
    call(payload)
    answered = call(payload)
    assert len(tools.server.sent) == 1
    assert answered["drain"]["status"] == "waiting"


def test_a_target_that_aws_takes_is_left_to_aws(tools: Tools) -> None:
    tools.begun("selected", "selected")
    tools.notice(A)
    call(event(tools))
    assert (tools.server.sent, tools.state.calls[-1]) == ([], "save skipped+selected")


def test_a_pause_or_a_lost_lease_comes_before_the_command(tools: Tools) -> None:
    tools.begun("selected")
    tools.pause()
    with pytest.raises(PausedError):
        call(event(tools))
    tools.state.lost = True
    with pytest.raises(LeaseLostError):
        call(event(tools))
    assert tools.server.sent == []


def test_a_dead_worker_is_drained_by_its_own_rules(tools: Tools) -> None:
    tools.begun("selected", not_ready=True)
    call(event(tools))
    assert tools.server.sent[0][1]["DrainMode"] == "not-ready"
