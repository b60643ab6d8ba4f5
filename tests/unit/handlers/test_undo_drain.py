"""UndoDrain: stop first, then give back our own cordon, whatever happened."""

from __future__ import annotations

from typing import Any

import pytest

from handlers import undo_drain
from node_fleet.domain.model.errors import ServerUnreachableError
from node_fleet.domain.model.memory import BackOff, Memory
from node_fleet.domain.model.operation import TargetPhase
from node_fleet.payload import from_payload
from tests.support.handlers.scale_down import NOW, OPERATION_ID, A, Tools, answer, event, wired


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Tools:
    return wired(monkeypatch, undo_drain)


def call(payload: dict[str, Any]) -> dict[str, Any]:
    return undo_drain.handler(payload, None)


@pytest.fixture(autouse=True)
def uncordoned(tools: Tools) -> None:
    tools.server.says["UncordonNode"] = answer(f"result: uncordoned {A}")


def test_it_cancels_and_waits_before_it_uncordons(tools: Tools) -> None:
    tools.begun("draining")
    call(event(tools, drain={"status": "withdrawn", "detail": "load"}))
    assert tools.server.log == ["result c-9", "cancel c-9", "wait c-9", "UncordonNode"]
    assert tools.server.sent == [("UncordonNode", {"NodeName": A, "OperationId": OPERATION_ID})]


def test_a_command_that_is_over_needs_no_cancelling(tools: Tools) -> None:
    tools.begun("draining")
    tools.server.drain_result = answer("", 1)
    call(event(tools, drain={"status": "failed", "detail": "x"}))
    assert tools.server.cancelled == []


@pytest.mark.parametrize(("status", "in_back_off"), [("failed", True), ("withdrawn", False), ("blocked", False)])
def test_only_a_failed_drain_puts_its_worker_in_back_off(tools: Tools, status: str, in_back_off: bool) -> None:
    tools.begun("draining")
    answered = call(event(tools, drain={"status": status, "detail": "x"}))
    memory: Memory = from_payload(Memory, answered["memory"])
    assert [entry.key for entry in memory.back_offs] == ([f"node:{A}"] if in_back_off else [])
    assert bool(answered["alerts"]) is in_back_off


@pytest.mark.parametrize(("failures", "seconds"), [(0, 600), (1, 1200), (2, 2400)])
def test_the_rest_doubles_with_each_failure(tools: Tools, failures: int, seconds: int) -> None:
    tools.begun("draining")
    past = (BackOff(key=f"node:{A}", failures=failures, until=NOW),) if failures else ()
    answered = call(event(tools, memory=Memory(back_offs=past), drain={"status": "failed", "detail": "x"}))
    columns, row = answered["memory"]["back_offs"]["columns"], answered["memory"]["back_offs"]["rows"][0]
    assert row[columns.index("until")] - NOW == seconds


@pytest.mark.parametrize(
    "case",
    [
        ("failed", ("draining", "selected"), ["undone", "selected"], "target"),
        ("blocked", ("draining", "selected"), ["skipped", "selected"], "target"),
        ("withdrawn", ("draining", "selected"), ["undone", "skipped"], "failed"),
        ("failed", ("forgotten", "draining"), ["forgotten", "undone"], "done"),
        ("failed", ("draining",), ["undone"], "failed"),
    ],
)
def test_a_target_that_cannot_go_does_not_stop_the_others_but_load_does(
    tools: Tools, case: tuple[str, tuple[TargetPhase, ...], list[str], str]
) -> None:
    status, phases, after, where = case
    tools.begun(*phases)
    answered = call(event(tools, drain={"status": status, "detail": "x"}))
    assert tools.state.item.operation is not None
    assert ([t.phase for t in tools.state.item.operation.targets], answered["next"]) == (after, where)


@pytest.mark.parametrize("phase", ["terminating", "terminated"])
def test_a_machine_being_terminated_is_never_undone(tools: Tools, phase: TargetPhase) -> None:
    tools.begun(phase)
    assert call(event(tools))["next"] == "failed"
    assert (tools.server.sent, tools.state.calls) == ([], ["renew"])


def test_without_an_operation_there_is_nothing_to_undo(tools: Tools) -> None:
    assert call(event(tools))["next"] == "failed"
    assert tools.server.sent == []


@pytest.mark.parametrize("word", ["uncordoned", "not-cordoned", "foreign-cordon", "no-node"])
def test_what_it_found_is_told_to_the_operator(tools: Tools, word: str) -> None:
    tools.begun("draining")
    tools.server.says["UncordonNode"] = answer(f"result: {word} x")
    answered = call(event(tools, drain={"status": "withdrawn", "detail": "load is back"}))
    assert answered["notes"][0].startswith(f"node {A} ")
    assert answered["notes"][0].endswith("load is back")


@pytest.mark.parametrize(
    "said", [answer("result: busy x", 75), answer("", 1), answer(status="InProgress"), answer(status="TimedOut")]
)
def test_a_cordon_that_may_still_stand_keeps_the_operation_open(tools: Tools, said: Any) -> None:
    tools.begun("draining")
    tools.server.says["UncordonNode"] = said
    with pytest.raises(ServerUnreachableError, match="may still be cordoned"):
        call(event(tools, drain={"status": "failed", "detail": "x"}))
    assert tools.state.calls == ["renew"]


def test_it_works_under_a_pause_and_twice(tools: Tools) -> None:
    tools.begun("draining")
    tools.pause()
    payload = event(tools, failure={"Error": "PausedError", "Cause": "paused by ana"})
    assert call(payload)["next"] == "failed"
    assert call(payload)["next"] == "failed"
    assert len(tools.server.sent) == 1


@pytest.mark.parametrize(("seconds", "alerts"), [(3599, 0), (3600, 1), (60, 0)])
def test_a_worker_is_alerted_at_most_once_in_the_quiet_time(tools: Tools, seconds: int, alerts: int) -> None:
    quiet = tools.settings.policy().alert_quiet_seconds
    tools.begun("draining")
    before = NOW - quiet * seconds // 3600
    memory = Memory(alerted={f"drain_failed:{A}": before})
    answered = call(event(tools, memory=memory, drain={"status": "failed", "detail": "x"}))
    assert len(answered["alerts"]["rows"] if answered["alerts"] else []) == alerts
