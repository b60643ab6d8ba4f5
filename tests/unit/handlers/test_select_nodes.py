"""SelectNodes: records the plan before anything happens, and says why everybody else stays."""

from __future__ import annotations

from typing import Any

import pytest

from handlers import select_nodes
from node_fleet.domain.model.memory import BackOff, Memory
from node_fleet.domain.model.run import Alert
from node_fleet.payload import to_payload
from node_fleet.settings import Settings
from tests.support.handlers.scale_down import (
    ALL_FREE,
    NOW,
    A,
    B,
    C,
    Tools,
    event,
    inspected,
    inspection_text,
    wired,
    worker_line,
)


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Tools:
    return wired(monkeypatch, select_nodes)


def call(payload: dict[str, Any]) -> dict[str, Any]:
    return select_nodes.handler(payload, None)


def select(tools: Tools, text: str = ALL_FREE, **more: Any) -> dict[str, Any]:
    return call(event(tools, inspection=inspected(text), **more))


def test_the_plan_is_in_the_state_item_before_anything_happens(tools: Tools) -> None:
    answered = select(tools)
    assert answered["selection"]["status"] == "selected"
    assert tools.state.calls == ["renew", "save selected"]
    assert to_payload(tools.state.item.operation) == answered["operation"]
    assert tools.server.sent == []
    assert "inspection" not in answered


def test_every_worker_that_stays_has_its_sentence(tools: Tools) -> None:
    text = inspection_text(worker_line(A, blockers="shop/orders-db-0:s"), worker_line(B, "RCW", "?"), worker_line(C))
    tools.settings = Settings(min_workers=1)
    kept = select(tools, text)["selection"]["kept"]
    assert kept == [
        f"worker {A}: kept, shop/orders-db-0 is a StatefulSet pod",
        f"worker {B}: kept, another user cordoned it",
    ]


@pytest.mark.parametrize("minimum", [3, 4, 9])
def test_at_the_minimum_nothing_is_disturbed(tools: Tools, minimum: int) -> None:
    tools.settings = Settings(min_workers=minimum)
    answered = select(tools)
    assert answered["selection"]["detail"].startswith("at_min")
    assert (tools.server.sent, tools.state.item.operation) == ([], None)


@pytest.mark.parametrize("gone", [A, B, C])
def test_a_worker_under_notice_does_not_hold_the_minimum(tools: Tools, gone: str) -> None:
    tools.notice(gone)
    assert select(tools)["selection"]["status"] == "none"


def test_an_unknown_inspection_removes_nobody_and_is_told_when_it_is_news(tools: Tools) -> None:
    unknown = {"known": False, "detail": "server_not_managed: x", "lines": []}
    answered = call(event(tools, inspection=unknown))
    assert (answered["selection"]["status"], answered["selection"]["notify"]) == ("none", False)
    alerted = event(tools, inspection=unknown, alerts=(Alert(kind="server_unreachable", text="x"),))
    assert call(alerted)["selection"]["notify"] is True
    assert tools.state.calls == []


def test_a_dry_run_says_who_would_go_and_changes_nothing(tools: Tools) -> None:
    payload = event(tools, inspection=inspected(ALL_FREE))
    payload["run"]["dry_run"] = True
    answered = call(payload)
    assert answered["selection"]["status"] == "dry_run"
    assert A in answered["outcome"]["text"]
    assert (tools.server.sent, tools.state.calls) == ([], ["renew"])


@pytest.mark.parametrize(("count", "most", "chosen"), [(1, 1, 1), (3, 2, 2), (2, 10, 2), (9, 9, 3)])
def test_several_targets_are_planned_up_to_the_setting(tools: Tools, count: int, most: int, chosen: int) -> None:
    tools.settings = Settings(min_workers=0, max_targets=most)
    payload = event(tools, inspection=inspected(ALL_FREE))
    payload["decision"]["count"] = count
    call(payload)
    assert tools.state.item.operation is not None
    assert len(tools.state.item.operation.targets) == chosen


def test_the_dead_worker_is_the_one_that_goes(tools: Tools) -> None:
    text = inspection_text(worker_line(A), worker_line(B, "TW", blockers="shop/db-0:s"), worker_line(C))
    payload = event(tools, inspection=inspected(text))
    payload["decision"]["replace"] = B
    call(payload)
    assert tools.state.item.operation is not None
    assert [(t.instance_id, t.not_ready) for t in tools.state.item.operation.targets] == [(B, True)]


def test_a_worker_in_back_off_is_passed_over(tools: Tools) -> None:
    resting = Memory(back_offs=(BackOff(key=f"node:{A}", failures=1, until=NOW + 1),))
    answered = select(tools, memory=resting)
    assert answered["operation"]["targets"]["rows"][0][0] == B


@pytest.mark.parametrize("operation_id", ["down-3-1", "down-1-9", "x"])
def test_a_cordon_left_by_a_dead_run_is_given_back(tools: Tools, operation_id: str) -> None:
    select(tools, inspection_text(worker_line(A, "RCW", operation_id), worker_line(B), worker_line(C)))
    assert tools.server.sent == [("UncordonNode", {"NodeName": A, "OperationId": operation_id})]


@pytest.mark.parametrize(
    ("state", "forgotten"), [("terminated", True), ("gone", True), ("shutting-down", False), ("stopped", False)]
)
def test_what_a_dead_worker_left_is_swept_when_ec2_says_it_is_gone(tools: Tools, state: str, forgotten: bool) -> None:
    dead = "i-0dead00000000000"
    tools.ec2.state[dead] = state
    select(tools, inspection_text(*(worker_line(i) for i in (A, B, C)), worker_line(dead, "TW")))
    expected = [("ForgetNode", {"NodeName": dead, "InstanceId": dead})] if forgotten else []
    assert tools.server.sent == expected
