"""TerminateNodes removes only empty workers; ConfirmTermination and ForgetNodes end the instance and its node."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from handlers.confirm_termination import handler as confirm_termination
from handlers.forget_nodes import handler as forget_nodes
from handlers.terminate_nodes import handler as terminate_nodes
from handlers.undo_drain import handler as undo_drain
from node_fleet.domain.model.back_off import REMOVAL, node_key
from node_fleet.domain.model.errors import (
    DrainFailedError,
    Ec2Error,
    LeaseLostError,
    PausedError,
    ServerNotFoundError,
    ServerUnreachableError,
    TerminationRefusedError,
)
from node_fleet.domain.model.fleet_state import FleetState
from node_fleet.domain.model.memory import Memory, Replacement, RollOut
from node_fleet.domain.model.run import Alert, Run
from node_fleet.domain.model.timed_minimum import TimedMinimum
from node_fleet.payload import from_payload, take
from node_fleet.settings import Settings
from tests.support.handlers.fakes import (
    A_CORDONED,
    LOST_VOLUME,
    NOW,
    OPERATION_ID,
    RUNNING,
    A,
    B,
    C,
    FakeServices,
    answer,
    check_text,
    inspection_text,
    worker_line,
)

AWAY = ServerUnreachableError("server_not_managed: away")
NO_SERVER = ServerNotFoundError("no running instance carries the tag Role=k3s-master")


@pytest.fixture
def drained(services: FakeServices) -> FakeServices:
    """A is empty under our cordon and may be terminated."""
    services.begun("drained")
    services.server.says("CheckNode", check_text())
    services.server.says("InspectNodes", A_CORDONED)
    return services


def test_the_intent_is_recorded_before_the_call(drained: FakeServices) -> None:
    drained.ec2.error = Ec2Error("EC2: cannot terminate")
    with pytest.raises(Ec2Error):
        drained.run(terminate_nodes)
    assert drained.state.calls == ["renew", "renew", "save terminating"]


@pytest.mark.parametrize(("begins", "is_kept"), [(0, True), (1, False)])
def test_a_worker_stays_that_an_order_for_a_time_needs_although_it_was_drained_before(
    drained: FakeServices, begins: int, is_kept: bool
) -> None:
    sale = TimedMinimum(name="a", workers=3, since=NOW + begins, until=NOW + 900, by="ana", reason="a sale")
    drained.state.item = replace(drained.state.item, timed_minimums=(sale,))
    if is_kept:
        assert_refused(drained, "at_min: only 2 usable workers would remain, the minimum is 3")
    else:
        drained.run(terminate_nodes)
    assert drained.ec2.terminated == ([] if is_kept else [A])


def test_a_permanent_refusal_is_rolled_back_at_once_and_pauses_removals_with_one_alert(drained: FakeServices) -> None:
    drained.ec2.error = TerminationRefusedError("EC2: cannot terminate i-1: OperationNotPermitted: it is protected")
    with pytest.raises(TerminationRefusedError) as caught:
        drained.run(terminate_nodes)
    assert drained.state.phases == ["drained"], "a later run has nothing to confirm"
    drained.server.says("UncordonNode", f"result: uncordoned {A}")
    failure = {"Error": "TerminationRefusedError", "Cause": json.dumps({"errorMessage": str(caught.value)})}
    answered = drained.run(undo_drain, failure=failure)
    assert drained.state.phases == ["undone"]
    memory = from_payload(Memory, answered["memory"])
    assert {b.key: b.until - NOW for b in memory.back_offs} == {node_key(A): 600, REMOVAL: 3600}
    ((kind, text, *_),) = answered["alerts"]["rows"]
    assert kind == "termination_refused" and "OperationNotPermitted" in text and "for 60 min" in text


def test_it_terminates_the_one_drained_worker_and_is_harmless_twice(drained: FakeServices) -> None:
    payload = drained.payload()
    terminate_nodes(payload, None)
    checked = len(drained.server.commands)
    terminate_nodes(payload, None)
    assert (drained.ec2.terminated, len(drained.server.commands)) == ([A, A], checked)


def test_a_worker_that_is_protected_after_its_drain_is_not_terminated_and_gets_no_back_off(
    drained: FakeServices,
) -> None:
    drained.protect(A)
    with pytest.raises(PausedError, match=f"worker {A} was not terminated: it is protected by ana") as caught:
        drained.run(terminate_nodes)
    assert (drained.ec2.terminated, drained.state.phases) == ([], ["drained"])
    drained.server.says("UncordonNode", f"result: uncordoned {A}")
    answered = drained.run(undo_drain, failure={"Error": "PausedError", "Cause": str(caught.value)})
    assert drained.state.phases == ["undone"]
    assert from_payload(Memory, answered["memory"]).back_offs == ()


def test_a_worker_that_was_not_ready_for_long_is_terminated_although_it_is_protected(services: FakeServices) -> None:
    services.begun("drained", not_ready=True)
    services.server.says("CheckNode", check_text(ready="not-ready"))
    services.server.says("InspectNodes", A_CORDONED)
    services.protect(A)
    services.run(terminate_nodes)
    assert services.ec2.terminated == [A]
    assert (services.state.phases, services.state.calls[-1]) == (["terminating"], "save terminating")


def assert_refused(services: FakeServices, words: str) -> None:
    with pytest.raises(DrainFailedError, match=words):
        services.run(terminate_nodes)
    assert services.ec2.terminated == []


@pytest.mark.parametrize(
    "said",
    [
        answer(check_text(left=1)),
        answer(check_text(left=1, going=1)),
        answer(check_text(owner="")),
        answer(check_text(owner="down-1-1")),
        answer(check_text()[:-5]),
        answer("", 69),
        RUNNING,
    ],
)
def test_a_node_that_is_not_seen_empty_under_our_cordon_is_not_terminated(drained: FakeServices, said: Any) -> None:
    drained.server.answers["CheckNode"] = said
    assert_refused(drained, "was not terminated")


@pytest.mark.parametrize(
    "others",
    [
        (worker_line(B, "W"), worker_line(C)),
        (worker_line(B, "RCW", "?"), worker_line(C)),
        (worker_line(C),),
    ],
)
def test_the_minimum_is_checked_again_with_fresh_data(drained: FakeServices, others: tuple[str, ...]) -> None:
    drained.server.says("InspectNodes", inspection_text(worker_line(A, "RCW", OPERATION_ID), *others))
    assert_refused(drained, "at_min: only 1 usable workers would remain, the minimum is 2")


@pytest.mark.parametrize(("workers", "refused"), [(1, False), (2, True)])
def test_the_headroom_is_checked_again_with_fresh_data(drained: FakeServices, workers: int, refused: bool) -> None:
    drained.settings = Settings.from_mapping({"headroom_workers": workers})
    if refused:
        assert_refused(drained, f"worker {A} was not terminated: headroom would be 1.7 workers, under 2")
        return
    drained.run(terminate_nodes)
    assert drained.ec2.terminated == [A]


def test_no_headroom_keeps_a_worker_that_has_its_replacement(drained: FakeServices) -> None:
    drained.settings = Settings.from_mapping({"headroom_workers": 9})
    operation = drained.state.item.operation
    assert operation is not None
    drained.state.item = replace(drained.state.item, operation=replace(operation, replace_reason="drifted"))
    drained.run(terminate_nodes)
    assert drained.ec2.terminated == [A]


@pytest.mark.parametrize(
    ("reason", "lost", "refused"), [("drifted", True, True), ("drifted", False, False), ("", True, False)]
)
def test_a_worker_whose_replacement_is_lost_during_its_drain_is_not_terminated(
    drained: FakeServices, reason: Any, lost: bool, refused: bool
) -> None:
    drained.settings = Settings(min_workers=1)
    current = Replacement(worker=A, reason="drifted", replacement=B)
    item, operation = drained.state.item, drained.state.item.operation
    assert operation is not None
    operation = replace(operation, replaces=A if reason else "", replace_reason=reason)
    drained.state.item = replace(item, operation=operation, memory=Memory(roll_out=RollOut(current=current)))
    if lost:
        drained.notice(B)
    if refused:
        assert_refused(drained, f"its replacement {B} is not usable any more")
        return
    drained.run(terminate_nodes)
    assert drained.ec2.terminated == [A]


def test_no_headroom_keeps_a_worker_that_was_not_ready_for_long(services: FakeServices) -> None:
    services.settings = Settings.from_mapping({"headroom_workers": 9})
    services.begun("drained", not_ready=True)
    services.server.says("CheckNode", check_text(ready="not-ready"))
    services.server.says("InspectNodes", A_CORDONED)
    services.run(terminate_nodes)
    assert services.ec2.terminated == [A]


def test_an_instance_that_another_node_claims_meanwhile_is_not_terminated(drained: FakeServices) -> None:
    others = (worker_line(A, "RW", name="fake"), worker_line(B), worker_line(C))
    drained.server.says("InspectNodes", inspection_text(worker_line(A, "RCW", OPERATION_ID), *others))
    assert_refused(drained, f"2 Nodes claim it: fake, {A}")


@pytest.mark.parametrize("reclaimed", [B, C])
def test_a_worker_under_notice_does_not_hold_the_minimum(drained: FakeServices, reclaimed: str) -> None:
    drained.notice(reclaimed)
    assert_refused(drained, "at_min")


@pytest.mark.parametrize("document", ["CheckNode", "InspectNodes"])
def test_a_notice_that_comes_while_the_server_answers_counts(
    drained: FakeServices, monkeypatch: pytest.MonkeyPatch, document: str
) -> None:
    send = drained.server.send

    def send_slowly(sent: str, parameters: dict[str, str]) -> str:
        if sent == document:
            drained.notice(B)
        return send(sent, parameters)

    monkeypatch.setattr(drained.server, "send", send_slowly)
    assert_refused(drained, "at_min: only 1 usable workers would remain, the minimum is 2")


def test_a_run_that_lost_its_lease_while_the_server_answered_terminates_no_worker(
    drained: FakeServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    renew = drained.state.renew

    def lose(run: Run, *, even_paused: bool = False) -> FleetState:
        if "InspectNodes" in drained.server.documents():
            raise LeaseLostError("another execution holds the lock")
        return renew(run, even_paused=even_paused)

    monkeypatch.setattr(drained.state, "renew", lose)
    with pytest.raises(LeaseLostError):
        drained.run(terminate_nodes)
    assert (drained.ec2.terminated, drained.state.phases) == ([], ["drained"])


def test_no_target_of_the_operation_holds_the_minimum(drained: FakeServices) -> None:
    drained.begun("drained", "selected")
    assert_refused(drained, "at_min")


def test_a_worker_that_ec2_does_not_list_does_not_hold_the_minimum(drained: FakeServices) -> None:
    drained.ec2.fleet = drained.ec2.fleet[:2]
    assert_refused(drained, "at_min")


def test_no_worker_is_terminated_while_the_others_cannot_be_inspected(drained: FakeServices) -> None:
    drained.server.says("InspectNodes", A_CORDONED, status="TimedOut")
    assert_refused(drained, "could not be inspected")


def test_without_a_target_no_worker_is_terminated(drained: FakeServices) -> None:
    drained.begun("forgotten")
    assert_refused(drained, "no worker left to terminate")


def test_a_dead_worker_with_lost_pods_is_terminated(drained: FakeServices) -> None:
    drained.begun("drained", not_ready=True)
    drained.server.says("CheckNode", check_text(left=3, going=3, ready="not-ready"))
    drained.run(terminate_nodes)
    assert drained.ec2.terminated == [A]


@pytest.mark.parametrize(
    ("ec2", "check", "status"),
    [
        ("shutting-down", answer(check_text()), "waiting"),
        ("terminated", answer(check_text()), "waiting"),
        ("terminated", answer(check_text(ready="not-ready")), "terminated"),
        ("gone", answer(check_text(ready="not-ready")), "terminated"),
        ("terminated", answer(code=69), "terminated"),
        ("terminated", AWAY, "terminated"),
        ("terminated", NO_SERVER, "terminated"),
    ],
)
def test_a_termination_is_confirmed_when_the_instance_has_ended_and_its_agent_does_not_answer(
    services: FakeServices, ec2: str, check: Any, status: str
) -> None:
    services.begun("terminating")
    services.ec2.state[A] = ec2
    services.server.answers["CheckNode"] = check
    assert services.run(confirm_termination)["termination"]["status"] == status
    assert services.state.phases == ["terminated" if status == "terminated" else "terminating"]
    assert services.run(confirm_termination)["termination"]["status"] == status


def test_an_instance_that_still_runs_was_not_terminated_and_its_removal_is_rolled_back_with_a_back_off(
    services: FakeServices,
) -> None:
    services.begun("terminating")
    services.ec2.state[A] = "running"
    services.clock.time += 60
    assert services.run(confirm_termination)["termination"]["status"] == "waiting"
    services.clock.time += 1
    answered = services.run(confirm_termination)
    assert answered["termination"]["status"] == "not_terminated"
    assert services.state.calls[-1] == "save drained"
    services.server.says("UncordonNode", f"result: uncordoned {A}")
    answered = undo_drain({**answered, "drain": {"status": "drained"}}, None)
    assert services.state.phases == ["undone"]
    memory = from_payload(Memory, answered["memory"])
    assert [b.key for b in memory.back_offs] == [node_key(A)]
    assert "EC2 state running 61 s after TerminateInstances" in answered["alerts"]["rows"][0][1]


LIMIT = 300


@pytest.mark.parametrize(("waited", "status"), [(LIMIT, "waiting"), (LIMIT + 1, "set_aside")])
def test_a_termination_that_does_not_end_within_the_limit_is_set_aside(
    services: FakeServices, waited: int, status: str
) -> None:
    services.begun("terminating")
    services.ec2.state[A] = "shutting-down"
    services.clock.time += waited
    answered = services.run(confirm_termination)
    assert answered["termination"]["status"] == status
    assert [r.instance_id for r in services.state.item.set_aside] == ([A] if status == "set_aside" else [])
    assert services.state.phases == ["set_aside" if status == "set_aside" else "terminating"]


def test_a_removal_is_set_aside_once_with_one_alert_that_names_what_an_operator_can_do(services: FakeServices) -> None:
    services.begun("terminating")
    services.ec2.state[A] = "shutting-down"
    services.clock.time += LIMIT + 1
    answered = services.run(confirm_termination)
    assert services.state.calls[-2:] == ["save set_aside", "set aside termination"]
    ((kind, text, *_),) = answered["alerts"]["rows"]
    assert kind == f"set_aside:{A}" and f"terminate-instances --instance-ids {A} --force" in text
    assert from_payload(Memory, answered["memory"]).alerted == {kind: services.clock.time}
    assert answered["next"] == "done"
    repeated = confirm_termination(answered, None)
    assert (repeated["termination"]["status"], repeated["alerts"]) == ("terminated", answered["alerts"])


@pytest.mark.parametrize(("earlier", "phases", "following"), [(0, "selected", "target"), (1, "skipped", "done")])
def test_the_rest_of_the_operation_is_left_once_the_limit_of_removals_set_aside_is_reached(
    services: FakeServices, earlier: int, phases: str, following: str
) -> None:
    services.begun("terminating", "selected")
    services.ec2.state[A] = "shutting-down"
    services.clock.time += LIMIT + 1
    if earlier:
        services.set_aside(C)
    answered = services.run(confirm_termination)
    assert services.state.phases == ["set_aside", phases]
    assert answered["next"] == following


def test_node_and_password_are_deleted_by_one_command(services: FakeServices) -> None:
    services.begun("terminated", "selected")
    services.server.says("ForgetNode", f"result: forgotten {A}")
    assert services.run(forget_nodes)["next"] == "target"
    assert services.state.calls[-1] == "save forgotten+selected"
    assert services.run(forget_nodes)["next"] == "target"
    assert services.server.commands == [("ForgetNode", {"NodeName": A, "InstanceId": A})]


def test_volumes_that_ended_with_a_removed_worker_are_reported(services: FakeServices) -> None:
    services.begun("terminated")
    services.server.says("ForgetNode", f"{LOST_VOLUME}result: forgotten {A}")
    alerts = take(services.run(forget_nodes), "alerts", tuple[Alert, ...])
    assert [(alert.kind, alert.is_critical) for alert in alerts] == [(f"volumes_lost:{A}", True)]


@pytest.mark.parametrize("said", [answer("result: ready x", 71), answer("", 1), RUNNING, AWAY, NO_SERVER])
def test_a_node_that_cannot_be_deleted_is_reported_and_does_not_hold_up_the_fleet(
    services: FakeServices, said: Any
) -> None:
    services.begun("terminated")
    services.server.answers["ForgetNode"] = said
    answered = services.run(forget_nodes)
    assert answered["alerts"]["rows"][0][1].endswith(f"kubectl delete node {A}"), "the cause comes before the command"
    assert answered["next"] == "done"
    assert services.state.item.operation is not None
    assert "still to be deleted" in services.state.item.operation.targets[0].detail
