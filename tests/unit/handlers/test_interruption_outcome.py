"""The end of an interruption: the node is forgotten, or the worker reinstated within the maximum, or reported."""

from __future__ import annotations

from typing import Any

import pytest

from handlers.check_outcome import handler as check_outcome
from handlers.close_notice import handler as close_notice
from handlers.forget_interrupted import handler as forget_interrupted
from handlers.reinstate_worker import handler as reinstate_worker
from node_fleet.domain.interruption.response import operation_of
from node_fleet.domain.model.errors import NotificationError, ServerUnreachableError
from node_fleet.domain.model.fleet_state import Notice
from node_fleet.domain.model.run import Alert
from node_fleet.payload import take
from tests.support.handlers.bench import Bench
from tests.support.handlers.fakes import check_text, scale_down

pytestmark = pytest.mark.settings(max_workers=2, spot_percent=100)
LEFT_BEHIND = "down-3-100"


def claimed_again(fleet: Bench, instance_id: str) -> Notice:
    """AWS announces the same worker again, and another execution answers it."""
    later = Notice(instance_id=instance_id, kind="spot", at=int(fleet.clock.now()), claimed_by="a later execution")
    fleet.tools.state.replace_notice(later)
    return later


def test_a_running_worker_is_not_reclaimed_and_a_terminated_one_is_gone(fleet: Bench) -> None:
    worker = fleet.running()
    payload = fleet.interrupted(worker)
    assert check_outcome(payload, None)["settle"]["status"] == "not_reclaimed"
    fleet.cloud.ec2.reclaim(worker.instance_id)
    assert check_outcome(payload, None)["settle"]["status"] == "gone"


def test_a_notice_that_another_execution_answers_is_not_settled_here(fleet: Bench) -> None:
    payload = fleet.interrupted()
    claimed_again(fleet, payload["interruption"]["instance_id"])
    assert check_outcome(payload, None)["settle"]["status"] == "superseded"


@pytest.mark.parametrize(("before", "tries"), [({}, 0), ({"settle": {"status": "waiting", "tries": 7}}, 7)])
def test_the_waits_for_capacity_are_counted_on(fleet: Bench, before: dict[str, Any], tries: int) -> None:
    assert check_outcome(fleet.interrupted(**before), None)["settle"]["tries"] == tries


@pytest.mark.parametrize("word", ["forgotten", "other-instance"])
def test_a_node_that_is_deleted_or_belongs_to_another_instance_is_done(fleet: Bench, word: str) -> None:
    payload = fleet.interrupted()
    instance_id = payload["interruption"]["instance_id"]
    fleet.server.says("ForgetNode", f"result: {word} x")
    assert forget_interrupted(payload, None)["settle"]["status"] == "gone"
    assert fleet.server.commands == [("ForgetNode", {"NodeName": instance_id, "InstanceId": instance_id})]


@pytest.mark.parametrize(("reported", "messages"), [(False, 1), (True, 0)])
def test_the_volumes_that_ended_with_a_worker_are_reported_once(fleet: Bench, reported: bool, messages: int) -> None:
    payload = fleet.interrupted()
    instance_id = payload["interruption"]["instance_id"]
    if reported:
        fleet.tools.state.record_lost_volumes(instance_id)
    fleet.server.says("ForgetNode", "volume shop/data pvc-1 shop/db-0\nresult: forgotten x")
    assert close_notice(forget_interrupted(payload, None), None)["status"] == "closed"
    sent = [(m["level"], take(m, "alerts", tuple[Alert, ...])) for _, m in fleet.publisher.messages]
    assert [(level, alert.kind) for level, alerts in sent for alert in alerts] == [
        ("error", f"volumes_lost:{instance_id}")
    ] * messages


def test_a_notice_that_is_lifted_is_not_recorded_again_for_its_volumes(fleet: Bench) -> None:
    fleet.tools.state.record_lost_volumes("i-0fedcba9876543210")
    assert fleet.state().notices == ()


def drained(fleet: Bench) -> tuple[str, dict[str, Any]]:
    """A drained worker that AWS did not reclaim: its id and the payload."""
    worker = fleet.running()
    response = {"drain": {"status": "drained", "node_name": ""}}
    return worker.instance_id, fleet.interrupted(worker, response=response)


@pytest.mark.parametrize("handler", [forget_interrupted, reinstate_worker])
def test_an_unreachable_server_is_asked_again_later_and_the_notice_stays(fleet: Bench, handler: Any) -> None:
    _, payload = drained(fleet)
    with pytest.raises(ServerUnreachableError):
        handler(payload, None)
    assert len(fleet.state().notices) == 1


def status_of(payload: dict[str, Any]) -> str:
    return str(reinstate_worker(payload, None)["settle"]["status"])


@pytest.mark.parametrize("word", ["uncordoned", "not-cordoned", "foreign-cordon", "no-node"])
def test_with_capacity_in_the_fleet_it_is_reinstated(fleet: Bench, word: str) -> None:
    _, payload = drained(fleet)
    fleet.server.says("UncordonNode", f"result: {word} x")
    assert status_of(payload) == "uncordoned"
    assert not fleet.state().notices and not fleet.state().reservations


def test_a_cordon_that_may_remain_keeps_the_notice(fleet: Bench) -> None:
    _, payload = drained(fleet)
    fleet.server.says("UncordonNode", "result: unreadable x")
    with pytest.raises(ServerUnreachableError):
        reinstate_worker(payload, None)
    assert len(fleet.state().notices) == 1


def test_a_worker_that_is_announced_again_is_left_to_the_execution_that_answers_it(fleet: Bench) -> None:
    instance_id, payload = drained(fleet)
    later = claimed_again(fleet, instance_id)
    assert status_of(payload) == "superseded"
    assert (fleet.server.commands, fleet.state().notices, fleet.state().reservations) == ([], (later,), ())


def test_an_announcement_that_comes_while_the_node_is_uncordoned_stands(
    fleet: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance_id, payload = drained(fleet)
    fleet.server.says("UncordonNode", "result: uncordoned x")
    run, later = fleet.server.run, []

    def meanwhile(document: str, parameters: dict[str, str]) -> Any:
        later.append(claimed_again(fleet, instance_id))
        return run(document, parameters)

    monkeypatch.setattr(fleet.server, "run", meanwhile)
    assert status_of(payload) == "superseded"
    assert (list(fleet.state().notices), fleet.state().reservations) == (later, ())


@pytest.mark.parametrize(
    ("owner", "open_operation", "asked"),
    [
        (LEFT_BEHIND, "", 2),
        (LEFT_BEHIND, "down-4-200", 2),
        (LEFT_BEHIND, LEFT_BEHIND, 1),
        ("standby-3-100", "", 2),
        ("-", "", 1),
    ],
    ids=["an ended scale-down", "an ended one beside another", "an open scale-down", "an ended stop", "an operator"],
)
def test_only_a_cordon_that_an_ended_operation_left_is_removed_too(
    fleet: Bench, owner: str, open_operation: str, asked: int
) -> None:
    instance_id, payload = drained(fleet)
    if open_operation:
        fleet.tools.state.save_operation(fleet.begin(), scale_down(operation_id=open_operation))
    fleet.server.says("UncordonNode", f"result: foreign-cordon {owner}")
    assert status_of(payload) == "uncordoned"
    sent = [p["OperationId"] for document, p in fleet.server.commands if document == "UncordonNode"]
    assert sent == [operation_of(instance_id), owner][:asked]


def full(fleet: Bench, drain: str) -> tuple[str, dict[str, Any]]:
    """A worker that AWS did not reclaim, in a fleet that its replacement filled."""
    worker, *_ = [fleet.running(n) for n in (1, 2, 3)]
    response = {"drain": {"status": drain, "node_name": ""}}
    return worker.instance_id, fleet.interrupted(worker, response=response)


def test_in_a_full_fleet_one_that_was_not_drained_waits_for_capacity_and_is_then_reinstated(fleet: Bench) -> None:
    instance_id, payload = full(fleet, "failed")
    payload = reinstate_worker(payload, None)
    assert payload["settle"] | {"detail": ""} == {"status": "waiting", "detail": "", "tries": 1, "wait_seconds": 300}
    assert len(fleet.instances()) == 3 and len(fleet.state().notices) == 1
    fleet.cloud.ec2.reclaim(next(iter(fleet.ids() - {instance_id})))
    fleet.server.says("UncordonNode", "result: uncordoned x")
    assert status_of(payload) == "uncordoned"
    assert not fleet.state().notices


@pytest.mark.settings(max_workers=9, max_vcpu=6)
def test_a_worker_that_was_not_reclaimed_waits_also_at_a_limit_and_is_reinstated_below_it(fleet: Bench) -> None:
    instance_id, payload = full(fleet, "failed")
    fleet.running(4)
    payload = reinstate_worker(payload, None)
    assert payload["settle"]["status"] == "waiting" and "at a limit, and pods run" in payload["settle"]["detail"]
    fleet.cloud.ec2.reclaim(next(iter(fleet.ids() - {instance_id})))
    fleet.server.says("UncordonNode", "result: uncordoned x")
    assert status_of(payload) == "uncordoned"


@pytest.mark.parametrize(
    ("tries", "status", "wait_seconds"),
    [(10, "waiting", 300), (11, "waiting", 3600), (15, "waiting", 3600), (16, "kept", None), (99, "kept", None)],
)
def test_after_hours_without_capacity_an_operator_decides(
    fleet: Bench, tries: int, status: str, wait_seconds: int | None
) -> None:
    _, payload = full(fleet, "failed")
    settle = reinstate_worker({**payload, "settle": {"status": "not_reclaimed", "tries": tries}}, None)["settle"]
    assert (settle["status"], settle.get("wait_seconds"), settle["tries"]) == (status, wait_seconds, tries + 1)
    assert "the fleet is at its maximum" in settle["detail"]


def test_in_a_full_fleet_an_empty_one_under_our_cordon_is_removed_once(fleet: Bench) -> None:
    instance_id, payload = full(fleet, "drained")
    fleet.server.says("CheckNode", check_text(instance_id, owner=operation_of(instance_id)))
    assert status_of(payload) == "removed"
    assert instance_id not in fleet.ids()
    fleet.server.says("CheckNode", f"node {instance_id} absent\nend\n")
    assert status_of(payload) == "removed"
    assert len(fleet.cloud.recorder.of("TerminateInstances")) == 1


@pytest.mark.parametrize(
    "found",
    [
        pytest.param({"owner": ""}, id="an operator uncordoned it meanwhile"),
        pytest.param({"owner": "-"}, id="an operator cordoned it"),
        pytest.param({"owner": LEFT_BEHIND}, id="a scale-down cordoned it"),
        pytest.param({"left": 1}, id="a pod is left"),
        pytest.param({"left": 1, "going": 1}, id="a pod still shuts down"),
        pytest.param({"left": 1, "going": 1, "ready": "not-ready"}, id="a pod shuts down on a node that lost Ready"),
        pytest.param({"instance_id": "i-0fedcba9876543210"}, id="another node answered"),
    ],
)
def test_in_a_full_fleet_one_that_is_not_empty_or_not_under_our_cordon_is_kept(
    fleet: Bench, found: dict[str, Any]
) -> None:
    instance_id, payload = full(fleet, "drained")
    fleet.server.says(
        "CheckNode", check_text(**{"instance_id": instance_id, "owner": operation_of(instance_id)} | found)
    )
    settle = reinstate_worker(payload, None)["settle"]
    assert settle["status"] == "waiting" and "the fleet is at its maximum" in settle["detail"]
    assert len(fleet.instances()) == 3 and len(fleet.state().notices) == 1


def test_in_a_full_fleet_with_an_unreachable_server_no_worker_is_terminated(fleet: Bench) -> None:
    _, payload = full(fleet, "drained")
    with pytest.raises(ServerUnreachableError):
        reinstate_worker(payload, None)
    assert len(fleet.instances()) == 3


@pytest.mark.parametrize(
    ("more", "sentence", "lifted"),
    [
        ({"settle": {"status": "gone", "detail": "because"}}, "because", True),
        ({"settle": {"status": "uncordoned", "detail": "because"}}, "because", True),
        ({"settle": {"status": "kept", "detail": "because"}}, "because", False),
        (
            {"failure": {"Error": "ServerUnreachableError", "Cause": '{"errorMessage": "no agent"}'}},
            "no agent [ServerUnreachableError]",
            False,
        ),
    ],
    ids=["gone", "uncordoned", "kept", "a fault on the way"],
)
def test_the_notice_is_lifted_and_its_end_or_what_an_operator_must_settle_is_reported(
    fleet: Bench, more: dict[str, Any], sentence: str, lifted: bool
) -> None:
    answered = close_notice(fleet.interrupted(**more), None)
    assert sentence in answered["sentence"] and answered["status"] == ("closed" if lifted else "kept")
    assert (not fleet.state().notices) is lifted
    ((subject, message),) = fleet.publisher.messages
    assert subject.startswith("interruption:i-") and message["is_end"] is lifted


@pytest.mark.parametrize(("path", "lifted"), [("respond", False), ("notify", False), ("forget", True)])
def test_the_notice_that_another_execution_answers_is_lifted_only_when_the_instance_has_ended(
    fleet: Bench, path: str, lifted: bool
) -> None:
    payload = fleet.interrupted(settle={"status": "gone", "detail": "because"})
    payload["interruption"] |= {"path": path, "claimed_by": "an earlier execution"}
    close_notice(payload, None)
    assert (not fleet.state().notices) is lifted
    assert [message["is_end"] for _, message in fleet.publisher.messages] == [lifted], "it ends with its last notice"


def test_a_notice_stays_until_a_topic_accepts_the_message_of_its_end(fleet: Bench) -> None:
    payload = fleet.interrupted(settle={"status": "gone", "detail": "because"})
    payload["interruption"] |= {"path": "forget", "claimed_by": "an earlier execution"}
    fleet.publisher.error = NotificationError("cannot publish to t")
    with pytest.raises(NotificationError):
        close_notice(payload, None)
    assert len(fleet.state().notices) == 1 and fleet.records.stored == []
    fleet.publisher.error = None
    close_notice(payload, None)
    assert [message["is_end"] for _, message in fleet.publisher.messages] == [True]
    assert not fleet.state().notices


@pytest.mark.parametrize(("kind", "messages"), [("gone", 0), ("stopped", 1)])
def test_the_end_of_an_instance_without_a_notice_is_reported_only_when_an_operator_must_act(
    fleet: Bench, kind: str, messages: int
) -> None:
    payload = fleet.interrupted(settle={"status": "gone", "detail": "because"})
    payload["interruption"] |= {"path": "forget", "kind": kind}
    fleet.tools.state.drop_notice(payload["interruption"]["instance_id"])
    close_notice(payload, None)
    assert [message["is_end"] for _, message in fleet.publisher.messages] == [False] * messages
