"""StartDrain sends one drain, CheckDrain believes only an empty node, UndoDrain removes node-fleet's own cordon."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from handlers.check_drain import handler as check_drain
from handlers.start_drain import handler as start_drain
from handlers.undo_drain import handler as undo_drain
from node_fleet.domain.model.back_off import node_key
from node_fleet.domain.model.errors import ServerUnreachableError
from node_fleet.domain.model.memory import BackOff, Memory
from node_fleet.domain.model.operation import TargetPhase
from node_fleet.domain.model.snapshot import PodShape, Snapshot
from node_fleet.payload import from_payload, put, to_payload
from node_fleet.settings import Settings
from tests.support.handlers.fakes import (
    DRAINED,
    NOW,
    OPERATION_ID,
    RUNNING,
    TIMED_OUT,
    A,
    FakeServices,
    answer,
    check_text,
)


def test_it_sends_one_drain_with_all_limits_and_records_its_command(services: FakeServices) -> None:
    services.begun("selected")
    payload = services.payload()
    answered = start_drain(payload, None)
    parameters = {
        "NodeName": A,
        "OperationId": OPERATION_ID,
        "NotAfter": str(NOW + 60),
        "DrainTimeoutSeconds": "300",
        "DrainMode": "voluntary",
        "ExecutionTimeoutSeconds": "360",
    }
    assert services.server.commands == [("DrainNode", parameters)]
    assert services.state.calls == ["renew", "save draining"]
    assert answered["operation"] == to_payload(services.state.item.operation)
    assert start_drain(payload, None)["drain"]["status"] == "waiting"
    assert len(services.server.commands) == 1, "a second start sends nothing"


def test_a_target_under_notice_is_left_to_the_interruption_workflow(services: FakeServices) -> None:
    services.begun("selected", "selected")
    services.notice(A)
    services.run(start_drain)
    assert (services.server.commands, services.state.calls[-1]) == ([], "save skipped+selected")


NEVER_NOW = Settings.from_mapping({"removal_windows": "never: Mon-Sun 00:00-24:00"})


def test_a_drain_does_not_begin_after_its_window_has_closed(services: FakeServices) -> None:
    services.begun("selected", "selected")
    services.settings = NEVER_NOW
    detail = services.run(start_drain)["drain"]["detail"]
    assert (services.server.commands, services.state.calls[-1]) == ([], "save skipped+selected")
    window = "removal windows 'never: Mon-Sun 00:00-24:00' (UTC)"
    assert detail == f"its drain had not begun, and no worker is removed now: {window}"


def test_no_budget_keeps_a_worker_that_was_not_ready_for_long(services: FakeServices) -> None:
    services.begun("selected", not_ready=True)
    services.settings = NEVER_NOW
    services.run(start_drain)
    assert [name for name, _ in services.server.commands] == ["DrainNode"]


def test_the_drain_of_a_protected_worker_does_not_begin(services: FakeServices) -> None:
    services.begun("selected", "selected")
    services.protect(A)
    assert "it is protected by ana until" in services.run(start_drain)["drain"]["detail"]
    assert (services.server.commands, services.state.calls[-1]) == ([], "save skipped+selected")


def test_the_drain_of_a_worker_that_is_protected_meanwhile_is_withdrawn(services: FakeServices) -> None:
    services.begun("draining")
    services.protect(A)
    drain = services.run(check_drain)["drain"]
    until = f"{datetime.fromtimestamp(NOW + 7200, UTC):%Y-%m-%d %H:%M} UTC"
    assert drain == {
        "status": "withdrawn",
        "detail": f"it is protected by ana until {until}: a long job",
        "alert": "",
    }
    services.clock.time += 7200
    assert services.run(check_drain)["drain"]["status"] != "withdrawn", "it ends by itself"


def test_a_protection_does_not_keep_a_worker_that_was_not_ready_for_long(services: FakeServices) -> None:
    services.begun("selected", not_ready=True)
    services.protect(A)
    services.run(start_drain)
    assert [name for name, _ in services.server.commands] == ["DrainNode"]
    services.server.says("DrainNode", DRAINED)
    services.server.says("CheckNode", check_text(ready="not-ready"))
    assert services.run(check_drain)["drain"]["status"] == "drained"


def test_a_drain_that_has_begun_is_finished_after_its_window_has_closed(services: FakeServices) -> None:
    services.begun("draining")
    services.settings = NEVER_NOW
    services.server.says("DrainNode", DRAINED)
    services.server.says("CheckNode", check_text())
    assert services.run(check_drain)["drain"]["status"] == "drained"


def test_a_drain_whose_operation_is_closed_is_not_started(services: FakeServices) -> None:
    assert services.run(start_drain)["operation"] is None
    assert services.server.commands == []


@pytest.mark.parametrize("phase", ["drained", "draining", "skipped"])
def test_a_drain_starts_only_for_a_selected_worker(services: FakeServices, phase: TargetPhase) -> None:
    services.begun(phase)
    assert services.run(start_drain)["drain"] == {"status": "waiting", "detail": "it was started before"}
    assert services.server.commands == []


def test_a_dead_worker_is_drained_by_its_own_rules(services: FakeServices) -> None:
    services.begun("selected", not_ready=True)
    services.run(start_drain)
    assert services.server.commands[0][1]["DrainMode"] == "not-ready"


@pytest.mark.parametrize(
    ("waited", "status"), [(10, "waiting"), (421, "failed")], ids=["within its limit", "beyond its limit"]
)
@pytest.mark.parametrize("result", [RUNNING, ServerUnreachableError("SSM: cannot ask: ThrottlingException")])
def test_a_drain_that_still_runs_or_cannot_be_queried_is_waited_for_until_its_limit(
    services: FakeServices, result: Any, waited: int, status: str
) -> None:
    services.begun("draining")
    services.clock.time += waited
    services.server.answers["DrainNode"] = result
    answered = check_drain(put(services.payload(), marker="kept"), None)
    assert (answered["drain"]["status"], services.server.documents()) == (status, [])
    assert answered["marker"] == "kept"


@pytest.mark.parametrize("seconds", [10, 60, 300])
def test_a_good_drain_is_checked_before_it_counts(services: FakeServices, seconds: int) -> None:
    services.begun("draining")
    services.clock.time += seconds
    services.server.says("DrainNode", DRAINED)
    services.server.says("CheckNode", check_text())
    answered = services.run(check_drain)
    assert (answered["drain"]["status"], answered["drain"]["seconds"]) == ("drained", seconds)
    assert services.state.calls[-1] == "save drained"


@pytest.mark.parametrize(("left", "waited", "status"), [(1, 10, "waiting"), (3, 420, "waiting"), (1, 421, "failed")])
def test_pods_that_still_shut_down_are_waited_for(services: FakeServices, left: int, waited: int, status: str) -> None:
    services.begun("draining")
    services.clock.time += waited
    services.server.says("DrainNode", DRAINED)
    services.server.says("CheckNode", check_text(left=left, going=left))
    assert services.run(check_drain)["drain"]["status"] == status
    assert services.ec2.terminated == []


@pytest.mark.parametrize(("check", "status"), [(answer(check_text()), "drained"), (TIMED_OUT, "waiting")])
def test_a_drained_worker_is_checked_again_without_asking_for_its_command(
    services: FakeServices, check: Any, status: str
) -> None:
    services.begun("drained")
    services.server.answers["CheckNode"] = check
    assert services.run(check_drain)["drain"]["status"] == status
    assert services.server.log == ["CheckNode"]


@pytest.mark.parametrize(
    ("before", "pods", "status"),
    [(0, 0, "waiting"), (0, 1, "withdrawn"), (2, 2, "waiting"), (2, 3, "withdrawn"), (None, 9, "withdrawn")],
    ids=["none", "one more", "as many as before", "one more than before", "resumed: unknown before"],
)
def test_it_is_withdrawn_when_more_pods_are_unschedulable_than_at_the_decision(
    services: FakeServices, before: int | None, pods: int, status: str
) -> None:
    services.begun("draining")
    shape = PodShape(cpu_milli=100, memory_mib=64, count=pods)
    services.prometheus.shapes = (shape,)
    decided_on = Snapshot(at=NOW, source="live", pending=(replace(shape, count=before or 0),), workers=())
    drain = services.run(check_drain, snapshot=None if before is None else decided_on)["drain"]
    assert drain["status"] == status
    subject = "1 pod was" if pods == 1 else f"{pods} pods were"
    assert status == "waiting" or drain["detail"] == f"{subject} unschedulable during the drain"


@pytest.mark.parametrize(("pods", "status"), [(1, "waiting"), (2, "withdrawn")])
def test_a_pod_of_a_daemon_set_that_waited_before_the_drain_withdraws_nothing(
    services: FakeServices, pods: int, status: str
) -> None:
    services.begun("draining")
    services.prometheus.shapes = (PodShape(cpu_milli=100, memory_mib=64, count=pods),)
    decided_on = Snapshot(at=NOW, source="live", pending=(), unschedulable=1, workers=())
    assert services.run(check_drain, snapshot=decided_on)["drain"]["status"] == status


@pytest.mark.parametrize("down", [False, True])
def test_missing_metrics_withdraw_nothing(services: FakeServices, down: bool) -> None:
    services.begun("draining")
    services.prometheus.shapes = None
    services.prometheus.down = down
    assert services.run(check_drain)["drain"]["status"] == "waiting"


def test_the_drain_of_a_worker_under_interruption_notice_is_left_to_the_interruption_workflow(
    services: FakeServices,
) -> None:
    services.begun("draining", "selected")
    services.notice(A)
    answered = services.run(check_drain)
    assert (answered["drain"]["status"], answered["next"]) == ("skipped", "target")
    assert "the interruption workflow drains it" in answered["drain"]["detail"]


def test_a_pause_withdraws_it(services: FakeServices) -> None:
    services.begun("draining")
    services.pause()
    expected = {"status": "withdrawn", "detail": "paused by ana: a sale", "alert": ""}
    assert services.run(check_drain)["drain"] == expected


def test_a_target_without_a_drain_is_skipped(services: FakeServices) -> None:
    services.begun("selected")
    assert services.run(check_drain)["drain"]["status"] == "skipped"
    assert services.server.commands == []


def test_a_lost_node_is_skipped_and_the_next_target_follows(services: FakeServices) -> None:
    services.begun("draining", "selected")
    services.server.says("DrainNode", f"result: no-node {A}", 66)
    answered = services.run(check_drain)
    assert (answered["drain"]["status"], answered["next"]) == ("skipped", "target")
    assert services.state.calls[-1] == "save skipped+selected"


def undo(services: FakeServices, status: str = "failed", word: str = "uncordoned", **more: Any) -> dict[str, Any]:
    """UndoDrain after CheckDrain left this status, with a server that answers this word."""
    if "UncordonNode" not in services.server.answers:
        services.server.says("UncordonNode", f"result: {word} {A}")
    return services.run(undo_drain, drain={"status": status, "detail": "load is back"}, **more)


def test_it_cancels_and_waits_before_it_uncordons(services: FakeServices) -> None:
    services.begun("draining")
    undo(services, "withdrawn")
    assert services.server.log == ["result DrainNode", "cancel DrainNode", "wait DrainNode", "UncordonNode"]
    assert services.server.commands[-1] == ("UncordonNode", {"NodeName": A, "OperationId": OPERATION_ID})


def test_a_command_that_is_over_needs_no_cancelling(services: FakeServices) -> None:
    services.begun("draining")
    services.server.says("DrainNode", code=1)
    undo(services)
    assert services.server.documents() == ["UncordonNode"]


@pytest.mark.parametrize(("status", "in_back_off"), [("failed", True), ("withdrawn", False), ("blocked", False)])
def test_only_a_failed_drain_puts_its_worker_in_back_off(
    services: FakeServices, status: str, in_back_off: bool
) -> None:
    services.begun("draining")
    answered = undo(services, status)
    memory: Memory = from_payload(Memory, answered["memory"])
    assert [entry.key for entry in memory.back_offs] == ([f"node:{A}"] if in_back_off else [])
    assert bool(answered["alerts"]) is in_back_off


@pytest.mark.parametrize(("failures", "seconds"), [(0, 600), (1, 1200), (2, 2400)])
def test_the_back_off_doubles_with_each_failure(services: FakeServices, failures: int, seconds: int) -> None:
    services.begun("draining")
    past = (BackOff(key=f"node:{A}", failures=failures, until=NOW),) if failures else ()
    memory: Memory = from_payload(Memory, undo(services, memory=Memory(back_offs=past))["memory"])
    assert memory.back_offs[0].until - NOW == seconds


@pytest.mark.parametrize(
    ("status", "phases", "after", "following"),
    [
        ("failed", ("draining", "selected"), ["undone", "selected"], "target"),
        ("blocked", ("draining", "selected"), ["skipped", "selected"], "target"),
        ("withdrawn", ("draining", "selected"), ["undone", "skipped"], "failed"),
        ("failed", ("forgotten", "draining"), ["forgotten", "undone"], "done"),
        ("failed", ("draining",), ["undone"], "failed"),
    ],
)
def test_a_target_that_cannot_be_drained_does_not_stop_the_others_but_load_does(
    services: FakeServices, status: str, phases: tuple[TargetPhase, ...], after: list[str], following: str
) -> None:
    services.begun(*phases)
    answered = undo(services, status)
    assert (services.state.phases, answered["next"]) == (after, following)


@pytest.mark.parametrize(
    ("phase", "beyond_limit", "following"),
    [("draining", 0, "target"), ("draining", 1, "failed"), ("fail", 0, "failed")],
    ids=["at its limit", "beyond its limit", "given up"],
)
def test_no_further_worker_is_drained_once_the_operation_is_given_up_or_over_its_time(
    services: FakeServices, phase: Any, beyond_limit: int, following: str
) -> None:
    services.begun("draining", "selected")
    begun = services.clock.now() - services.settings.operation_limit_seconds - beyond_limit
    assert services.state.item.operation is not None
    changed = replace(services.state.item.operation, phase=phase, started_at=begun)
    services.state.item = replace(services.state.item, operation=changed)
    assert undo(services)["next"] == following
    assert services.state.phases[1] == ("selected" if following == "target" else "skipped")


@pytest.mark.parametrize("phase", ["", "terminating", "terminated"])
def test_without_an_operation_or_with_an_instance_being_terminated_there_is_nothing_to_undo(
    services: FakeServices, phase: Any
) -> None:
    if phase:
        services.begun(phase)
    assert services.run(undo_drain)["next"] == "failed"
    assert (services.server.commands, services.state.calls) == ([], ["renew"])


@pytest.mark.parametrize("word", ["uncordoned", "not-cordoned", "foreign-cordon", "no-node"])
def test_the_state_of_the_node_is_reported_to_the_operator(services: FakeServices, word: str) -> None:
    services.begun("draining")
    (note,) = undo(services, "withdrawn", word)["notes"]
    assert note.startswith(f"node {A} ") and note.endswith("load is back")


@pytest.mark.parametrize("said", [answer("result: busy x", 75), answer("", 1), RUNNING, TIMED_OUT])
def test_a_cordon_that_may_remain_keeps_the_operation_open(services: FakeServices, said: Any) -> None:
    services.begun("draining")
    services.server.answers["UncordonNode"] = said
    with pytest.raises(ServerUnreachableError, match="may still be cordoned"):
        undo(services)
    assert services.state.calls == ["renew"]


def test_it_works_under_a_pause_and_twice(services: FakeServices) -> None:
    services.begun("draining")
    services.pause()
    services.server.says("UncordonNode", f"result: uncordoned {A}")
    payload = services.payload(failure={"Error": "DrainFailedError", "Cause": "it broke"})
    answered = undo_drain(payload, None)
    assert answered["next"] == undo_drain(payload, None)["next"] == "failed"
    assert "it broke" in str(answered["notes"])
    assert services.server.documents().count("UncordonNode") == 1


@pytest.mark.parametrize(("seconds", "alerts"), [(3599, 0), (3600, 1), (60, 0)])
def test_a_worker_is_alerted_at_most_once_in_the_quiet_time(services: FakeServices, seconds: int, alerts: int) -> None:
    before = NOW - services.settings.policy().alert_quiet_seconds * seconds // 3600
    services.begun("draining")
    answered = undo(services, memory=Memory(alerted={f"drain_failed:{A}": before}))
    assert len(answered["alerts"]["rows"] if answered["alerts"] else []) == alerts


WITHDRAWN = {"status": "withdrawn", "detail": "1 pod was unschedulable during the drain"}
OWN_PODS = f"own-pods: 2 shop/web-1\nresult: uncordoned {A}\n"


def test_a_drain_that_pods_of_the_worker_withdraw_puts_it_into_a_long_back_off_with_one_alert(
    services: FakeServices,
) -> None:
    services.begun("draining", "selected")
    services.server.says("UncordonNode", OWN_PODS)
    answered = services.run(undo_drain, drain=WITHDRAWN)
    (back_off,) = from_payload(Memory, answered["memory"]).back_offs
    assert (back_off.key, back_off.failures, back_off.until - NOW) == (node_key(A), 5, 600 * 2**4)
    ((kind, text, *_),) = answered["alerts"]["rows"]
    assert kind == f"own_pods_waiting:{A}"
    assert "2 pods of this worker found no place on another one, such as shop/web-1" in text
    assert services.state.phases == ["undone", "skipped"]


@pytest.mark.parametrize(
    ("drain", "said"),
    [(WITHDRAWN, f"result: uncordoned {A}"), ({"status": "blocked", "detail": "a pod"}, OWN_PODS)],
)
def test_a_drain_that_other_pods_withdraw_or_a_pod_blocks_brings_no_back_off(
    services: FakeServices, drain: dict[str, str], said: str
) -> None:
    services.begun("draining")
    services.server.says("UncordonNode", said)
    assert from_payload(Memory, services.run(undo_drain, drain=drain)["memory"]).back_offs == ()


def test_a_drain_that_failed_counts_as_one_failure_although_its_own_pods_wait(services: FakeServices) -> None:
    services.begun("draining")
    services.server.says("UncordonNode", OWN_PODS)
    answered = services.run(undo_drain, drain={"status": "failed", "detail": "a budget"})
    assert [b.failures for b in from_payload(Memory, answered["memory"]).back_offs] == [1]
