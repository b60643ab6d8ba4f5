"""The interruption workflow in virtual time: what is done for each announcement, how fast, and how it ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from handlers.check_drain import handler as check_drain
from handlers.launch_nodes import handler as launch_nodes
from node_fleet.domain.model.errors import NotificationError, StateStoreError
from node_fleet.domain.model.fleet_state import Notice
from node_fleet.domain.model.run import Run
from node_fleet.domain.model.snapshot import Instance, Snapshot
from node_fleet.domain.notify.message import Message
from node_fleet.payload import to_payload
from simulator.aws.faults import FaultRule
from tests.support.handlers.bench import ZONES, Bench
from tests.support.handlers.fakes import scale_down, target
from tests.support.handlers.fakes import worker as shown_worker
from tests.support.interruptions import (
    REBALANCE,
    STATE_CHANGE,
    WARNING,
    commands,
    event,
    finish,
    messages,
    replacements,
    scheduled,
    start,
    worker,
)


def test_a_spot_warning_drains_and_replaces_side_by_side_and_in_time(fleet: Bench) -> None:
    taken = worker(fleet)
    fleet.server.drain_seconds = 60
    noticed_at = fleet.clock.now()
    fleet.cloud.ec2.warn_spot(taken.instance_id)
    finish(fleet, start(fleet, event(fleet, WARNING, taken.instance_id)))
    launch = fleet.cloud.recorder.of("CreateFleet")[-1]
    assert launch.at - noticed_at <= 5
    assert fleet.server.ends_at["DrainNode"] - noticed_at <= 105
    replacement = replacements(fleet, taken.instance_id)
    assert len(replacement) == 1 and replacement[0].zone != taken.zone
    assert commands(fleet) == ["DrainNode", "ForgetNode"]
    parameters = fleet.server.commands[0][1]
    assert parameters["DrainMode"] == "deadline" and int(parameters["NotAfter"]) <= noticed_at + 105
    assert not fleet.state().notices
    assert [event.kind for event in fleet.records.stored] == ["interruption", "interruption_end"]
    assert "drained after 60 s" in messages(fleet) and replacement[0].instance_id in messages(fleet)


def test_the_node_is_drained_under_the_name_that_the_cluster_shows_for_its_provider_id(fleet: Bench) -> None:
    taken = worker(fleet)
    shown = shown_worker(taken.instance_id, zone=taken.zone, node_name="renamed-node")
    fleet.records.snapshot = Snapshot(at=0, read_at=int(fleet.clock.now()), source="live", workers=(shown,))
    finish(fleet, start(fleet, event(fleet, WARNING, taken.instance_id)))
    assert fleet.server.commands[0][1]["NodeName"] == "renamed-node"


@pytest.mark.parametrize(
    ("kind", "instance_id", "detail"),
    [
        (WARNING, "i-0123456789abcdef0", {}),
        (REBALANCE, "", {}),
        *((STATE_CHANGE, "", {"state": state}) for state in ("running", "pending", "shutting-down", "stopping")),
    ],
)
def test_a_foreign_instance_and_an_event_that_asks_for_nothing_are_ignored(
    fleet: Bench, kind: str, instance_id: str, detail: dict[str, str]
) -> None:
    worker_id = worker(fleet).instance_id
    execution = finish(fleet, start(fleet, event(fleet, kind, instance_id or worker_id, **detail)))
    assert execution.path[-1] == "Ignored"
    assert not fleet.state().notices and not fleet.server.commands


@pytest.mark.parametrize("apart_seconds", [0, 1, 30, 100])
def test_a_duplicate_notice_drains_and_replaces_once(fleet: Bench, apart_seconds: float) -> None:
    taken = worker(fleet)
    fleet.cloud.ec2.warn_spot(taken.instance_id)
    what = event(fleet, WARNING, taken.instance_id)
    first = start(fleet, what, "first")
    fleet.clock.advance(apart_seconds)
    second = start(fleet, what, "second")
    finish(fleet, first, second)
    assert commands(fleet).count("DrainNode") == 1
    assert len(replacements(fleet, taken.instance_id)) == 1
    assert sorted(e.path[-1] for e in (first, second)).count("Ignored") == 1


def test_a_retried_claim_of_the_same_execution_is_no_duplicate(fleet: Bench) -> None:
    taken = worker(fleet)
    rule = FaultRule(service="dynamodb", operation="GetItem", code="InternalServerError", status=500, count=4)
    fleet.cloud.faults.inject(rule)
    finish(fleet, start(fleet, event(fleet, WARNING, taken.instance_id)))
    assert rule.hits >= 3
    assert commands(fleet).count("DrainNode") == 1


@pytest.mark.parametrize(("kind", "detail"), [(WARNING, {}), (STATE_CHANGE, {"state": "terminated"})])
def test_a_terminated_instance_is_only_forgotten_even_by_a_late_notice(
    fleet: Bench, kind: str, detail: dict[str, str]
) -> None:
    taken = worker(fleet)
    at = fleet.clock.now()
    fleet.cloud.ec2.reclaim(taken.instance_id)
    fleet.clock.advance(60)
    finish(fleet, start(fleet, event(fleet, kind, taken.instance_id, at=at, **detail)))
    assert commands(fleet) == ["ForgetNode"]
    assert not fleet.state().notices and not replacements(fleet, taken.instance_id)


@pytest.mark.parametrize(("late_seconds", "drained"), [(94, True), (95, True), (96, False), (119, False)])
def test_a_notice_that_leaves_under_ten_seconds_replaces_without_draining(
    fleet: Bench, late_seconds: int, drained: bool
) -> None:
    taken = worker(fleet)
    at = fleet.clock.now() - late_seconds
    finish(fleet, start(fleet, event(fleet, WARNING, taken.instance_id, at=at)))
    assert ("DrainNode" in commands(fleet)) is drained
    assert len(replacements(fleet, taken.instance_id)) == 1


def test_a_notice_does_not_wait_for_the_lock_of_a_scale_up(fleet: Bench) -> None:
    taken = worker(fleet)
    run = fleet.begin("scaling")
    launch_nodes(fleet.event(run, 2), None)
    noticed_at = fleet.clock.now()
    fleet.cloud.ec2.warn_spot(taken.instance_id)
    finish(fleet, start(fleet, event(fleet, WARNING, taken.instance_id)))
    assert fleet.cloud.recorder.of("CreateFleet")[-1].at - noticed_at <= 5
    assert len(fleet.instances()) == 3
    state = fleet.state()
    assert state.lease is not None and state.lease.owner == "scaling" and state.operation is not None


def test_a_notice_beside_a_drain_of_another_worker_is_answered_at_once(fleet: Bench) -> None:
    taken, other = worker(fleet, 1), worker(fleet, 2, zone=ZONES[1])
    begin_scale_down(fleet, other.instance_id)
    finish(fleet, start(fleet, event(fleet, WARNING, taken.instance_id)))
    assert "cancel" not in commands(fleet)
    assert len(replacements(fleet, taken.instance_id)) == 1


def test_a_notice_for_the_worker_being_drained_takes_over_its_drain_and_replaces_nothing(fleet: Bench) -> None:
    taken = worker(fleet)
    begin_scale_down(fleet, taken.instance_id)
    finish(fleet, start(fleet, event(fleet, WARNING, taken.instance_id)))
    assert commands(fleet)[:2] == ["cancel", "DrainNode"]
    assert not replacements(fleet, taken.instance_id)
    assert "already removes this worker" in messages(fleet)


def test_the_scale_down_leaves_a_worker_that_aws_takes_to_the_interruption(fleet: Bench) -> None:
    taken = worker(fleet)
    run = begin_scale_down(fleet, taken.instance_id)
    execution = start(fleet, event(fleet, WARNING, taken.instance_id))
    fleet.clock.advance(6)
    drain = check_drain({"run": to_payload(run), "operation": None}, None)["drain"]
    assert drain["status"] == "skipped" and "under interruption notice" in drain["detail"]
    assert "UncordonNode" not in commands(fleet)
    finish(fleet, execution)


def begin_scale_down(made: Bench, instance_id: str) -> Run:
    run = made.begin("scaling-down")
    made.tools.state.save_operation(run, replace(scale_down(), targets=(target(instance_id, "draining"),)))
    return run


def test_a_replacement_never_passes_the_maximum(fleet: Bench) -> None:
    fleet_of = [worker(fleet, n) for n in range(1, 5)]
    run = fleet.begin()
    fleet.tools.state.add_notice(Notice(instance_id=fleet_of[3].instance_id, kind="spot", at=0, claimed_by="other"))
    launch_nodes(fleet.event(run, 1), None)
    execution = start(fleet, event(fleet, WARNING, fleet_of[0].instance_id))
    fleet.clock.advance(20)
    noticed = {n.instance_id for n in fleet.state().notices}
    assert len([i for i in fleet.instances() if i.instance_id not in noticed]) == 4
    finish(fleet, execution)


def test_a_pause_withholds_drain_and_replacement_and_says_so(fleet: Bench) -> None:
    taken = worker(fleet)
    fleet.pause(seconds=100)
    finish(fleet, start(fleet, event(fleet, WARNING, taken.instance_id)))
    assert "DrainNode" not in commands(fleet) and not replacements(fleet, taken.instance_id)
    assert "sale" in messages(fleet)


def test_without_capacity_the_drain_goes_on_and_people_hear_of_it(fleet: Bench) -> None:
    taken = worker(fleet)
    fleet.cloud.ec2.dry_pool()
    finish(fleet, start(fleet, event(fleet, WARNING, taken.instance_id)))
    assert "DrainNode" in commands(fleet)
    assert "EC2 refused every pool" in messages(fleet)


def test_an_unreachable_server_does_not_stop_the_replacement(fleet: Bench) -> None:
    taken = worker(fleet)
    fleet.server.unreachable = True
    fleet.cloud.ec2.warn_spot(taken.instance_id)
    finish(fleet, start(fleet, event(fleet, WARNING, taken.instance_id)))
    assert len(replacements(fleet, taken.instance_id)) == 1
    assert "drain failed" in messages(fleet)


@pytest.mark.settings(max_workers=12)
def test_a_third_of_the_fleet_at_once_is_drained_and_replaced_within_the_maximum(fleet: Bench) -> None:
    every = [worker(fleet, n, zone=ZONES[n % 3]) for n in range(1, 13)]
    taken = every[:4]
    executions = []
    for number, one in enumerate(taken):
        fleet.cloud.ec2.warn_spot(one.instance_id)
        executions.append(start(fleet, event(fleet, WARNING, one.instance_id), f"storm-{number}"))
        fleet.clock.advance(15)
    finish(fleet, *executions)
    assert len(fleet.instances()) == 12
    assert all(len(replacements(fleet, one.instance_id)) == 1 for one in taken)


@pytest.mark.settings(handle_rebalance=True)
def test_a_followed_recommendation_replaces_first_and_its_cordon_expires(fleet: Bench) -> None:
    taken = worker(fleet)
    noticed_at = fleet.clock.now()
    execution = finish(fleet, start(fleet, event(fleet, REBALANCE, taken.instance_id)))
    assert fleet.cloud.recorder.of("CreateFleet")[-1].at - noticed_at <= 5
    assert fleet.server.sent_at[0] - noticed_at >= fleet.settings.join_limit_seconds
    assert fleet.server.commands[0][1]["DrainMode"] == "voluntary"
    assert commands(fleet) == ["DrainNode", "UncordonNode"]
    assert execution.ended_at is not None and execution.ended_at - noticed_at < 1900
    assert not fleet.state().notices


@pytest.mark.settings(handle_rebalance=True)
def test_an_interruption_after_a_recommendation_takes_over_and_replaces_nothing_twice(fleet: Bench) -> None:
    taken = worker(fleet)
    first = start(fleet, event(fleet, REBALANCE, taken.instance_id), "rebalance")
    fleet.clock.advance(17 * 60)
    fleet.cloud.ec2.warn_spot(taken.instance_id)
    what = event(fleet, WARNING, taken.instance_id)
    second, third = start(fleet, what, "warning"), start(fleet, what, "warning-again")
    foreign = start(fleet, event(fleet, WARNING, "i-0fedcba9876543210"), "foreign")
    finish(fleet, first, second, third, foreign)
    assert "Superseded" in first.path
    assert [third.path[-1], foreign.path[-1]] == ["Ignored", "Ignored"]
    assert len(replacements(fleet, taken.instance_id)) == 1
    modes = [p["DrainMode"] for d, p in fleet.server.commands if d == "DrainNode"]
    assert modes == ["voluntary", "deadline"]


def retirement(made: Bench, taken: Instance, days: float) -> float:
    """When AWS ends that worker."""
    when = made.clock.now() + days * 86_400
    made.clock.at(when, lambda: made.cloud.ec2.reclaim(taken.instance_id))
    return when


def test_a_scheduled_change_is_answered_when_its_drain_is_due_and_the_worker_counts_until_then(fleet: Bench) -> None:
    taken, other = worker(fleet, 1), worker(fleet, 2, zone=ZONES[1])
    when = retirement(fleet, taken, 14)
    execution = start(fleet, scheduled(fleet, when, taken.instance_id, "i-0123456789abcdef0"))
    begins = when - fleet.settings.scheduled_drain_lead_seconds - fleet.settings.join_limit_seconds
    fleet.clock.run_until(lambda: False, limit=begins - 1)
    assert (len(fleet.instances()), fleet.state().ids_under_notice, fleet.server.commands) == (2, frozenset(), [])
    assert "until then it counts as a worker" in messages(fleet)
    fleet.clock.run_until(lambda: False, limit=begins + 10)
    assert fleet.state().ids_under_notice == {taken.instance_id}
    assert 0 <= fleet.cloud.recorder.of("CreateFleet")[-1].at - begins <= 5
    finish(fleet, execution, seconds=15 * 86_400)
    assert when - fleet.settings.scheduled_drain_lead_seconds <= fleet.server.sent_at[0] < when
    assert len(replacements(fleet, taken.instance_id)) == 1 and not replacements(fleet, other.instance_id)
    assert commands(fleet) == ["DrainNode", "ForgetNode"] and not fleet.state().notices


@pytest.mark.settings(max_workers=24, spot_percent=100)
def test_each_of_many_workers_of_one_scheduled_change_is_drained_before_its_date(fleet: Bench) -> None:
    taken = [worker(fleet, number).instance_id for number in range(1, 12)]
    when = fleet.clock.now() + 7200
    execution = start(fleet, scheduled(fleet, when, *taken))
    fleet.clock.advance(when - fleet.clock.now())
    drained = {parameters["NodeName"] for document, parameters in fleet.server.commands if document == "DrainNode"}
    assert drained == set(taken)
    finish(fleet, execution, seconds=86_400)


def test_a_scheduled_change_that_is_near_is_answered_at_once(fleet: Bench) -> None:
    taken, noticed_at = worker(fleet), fleet.clock.now()
    when = retirement(fleet, taken, 1 / 24)
    finish(fleet, start(fleet, scheduled(fleet, when, taken.instance_id)), seconds=86_400)
    assert fleet.cloud.recorder.of("CreateFleet")[-1].at - noticed_at <= 5
    assert commands(fleet) == ["DrainNode", "ForgetNode"]


def test_a_worker_that_ends_before_its_date_is_forgotten_and_not_replaced(fleet: Bench) -> None:
    taken = worker(fleet)
    execution = start(fleet, scheduled(fleet, fleet.clock.now() + 4 * 86_400, taken.instance_id))
    fleet.clock.advance(3600)
    fleet.cloud.ec2.reclaim(taken.instance_id)
    finish(fleet, execution, seconds=5 * 86_400)
    assert commands(fleet) == ["ForgetNode"] and not replacements(fleet, taken.instance_id)
    assert not fleet.state().notices


@pytest.mark.parametrize("days", [2, 6])
def test_a_scheduled_change_whose_date_is_moved_is_drained_near_its_new_date_and_replaced_once(
    fleet: Bench, days: int
) -> None:
    taken = worker(fleet)
    begun = fleet.clock.now()
    first = start(fleet, scheduled(fleet, begun + 4 * 86_400, taken.instance_id))
    fleet.clock.advance(3600)
    moved_to = begun + days * 86_400
    moved = start(fleet, scheduled(fleet, moved_to, taken.instance_id), "moved")
    fleet.clock.run_until(lambda: "DrainNode" in commands(fleet), limit=moved_to)
    assert moved_to - fleet.settings.scheduled_drain_lead_seconds <= fleet.server.sent_at[0] < moved_to
    fleet.cloud.ec2.reclaim(taken.instance_id)
    finish(fleet, first, moved, seconds=8 * 86_400)
    assert commands(fleet) == ["DrainNode", "ForgetNode"] and not fleet.state().notices
    assert "Superseded" in first.path and len(replacements(fleet, taken.instance_id)) == 1


def test_a_worker_whose_replacement_runs_stays_under_notice_when_its_date_is_moved(fleet: Bench) -> None:
    taken, begun = worker(fleet), fleet.clock.now()
    first = start(fleet, scheduled(fleet, begun + 3600, taken.instance_id))
    fleet.clock.advance(60)
    when = begun + 4 * 86_400
    fleet.clock.at(when, lambda: fleet.cloud.ec2.reclaim(taken.instance_id))
    moved = start(fleet, scheduled(fleet, when, taken.instance_id), "moved")
    fleet.clock.advance(60)
    assert fleet.state().ids_under_notice == {taken.instance_id}
    finish(fleet, first, moved, seconds=5 * 86_400)
    assert len(replacements(fleet, taken.instance_id)) == 1 and not fleet.state().notices


@pytest.mark.parametrize("fault", ["the notice cannot be cleared", "the outcome is unknown"])
def test_a_notice_that_stays_open_fails_the_execution_only_after_every_other_worker_was_handled(
    fleet: Bench, fault: str
) -> None:
    broken, other = worker(fleet, 1), worker(fleet, 2, zone=ZONES[1])
    when = fleet.clock.now() + 14 * 86_400
    if fault == "the outcome is unknown":
        fail_for(fleet, "CheckOutcome", broken, {"settle": {"status": "unheard of"}})
    else:
        fleet.cloud.ec2.reclaim(broken.instance_id)
        fleet.clock.advance(60)
        fail_for(fleet, "CloseNotice", broken, StateStoreError("the state table does not respond"))
    fleet.clock.at(when, lambda: fleet.cloud.ec2.reclaim(other.instance_id))
    execution = start(fleet, scheduled(fleet, when, broken.instance_id, other.instance_id))
    fleet.clock.run_until(lambda: not execution.running, limit=when + 86_400)
    assert fleet.clock.now() > when and "DrainNode" in commands(fleet)
    assert other.instance_id not in {notice.instance_id for notice in fleet.state().notices}
    assert (execution.status, execution.error, execution.path[-1]) == ("FAILED", "NoticesOpen", "NoticesOpen")
    assert broken.instance_id in (execution.cause or "") and f"{other.instance_id} stays" not in execution.cause


def fail_for(made: Bench, function: str, broken: Instance, result: dict[str, Any] | Exception) -> None:
    """Let that function fail, or return this result, for one worker."""
    shipped = made.cloud.lambdas.functions[function]

    def faulty(payload: dict[str, Any], context: object) -> dict[str, Any]:
        if payload["interruption"]["instance_id"] != broken.instance_id:
            return shipped.handler(payload, context)
        if isinstance(result, Exception):
            raise result
        return {**payload, **result}

    made.cloud.lambdas.functions[function] = replace(shipped, handler=faulty)


@pytest.mark.parametrize(("state", "nth"), [("ClaimNotices", 1), ("NotifyResponse", 2), ("CloseNotice", 3)])
def test_a_message_that_no_topic_accepted_is_sent_by_the_next_try(
    fleet: Bench, monkeypatch: pytest.MonkeyPatch, state: str, nth: int
) -> None:
    """A scheduled change has three messages: of its notice, its response and its end."""
    publish, tries = fleet.publisher.publish, []

    def refuse_one(message: Message) -> None:
        tries.append(message)
        if len(tries) == nth:
            raise NotificationError(f"the topic refuses the message of {state}")
        publish(message)

    monkeypatch.setattr(fleet.publisher, "publish", refuse_one)
    taken = worker(fleet)
    when = retirement(fleet, taken, 14)
    finish(fleet, start(fleet, scheduled(fleet, when, taken.instance_id)), seconds=15 * 86_400)
    assert [message["is_end"] for _, message in fleet.publisher.messages] == [False, False, True]
    assert len(tries) == 4 and not fleet.state().notices


def test_a_stopped_worker_is_told_of_and_nothing_else(fleet: Bench) -> None:
    taken = worker(fleet)
    finish(fleet, start(fleet, event(fleet, STATE_CHANGE, taken.instance_id, state="stopped")))
    assert not fleet.server.commands and "stopped outside node-fleet" in messages(fleet)


def test_an_event_that_cannot_be_read_fails_with_one_clear_sentence(fleet: Bench) -> None:
    execution = start(fleet, {"detail-type": WARNING, "detail": {}})
    fleet.clock.run_until(lambda: not execution.running, limit=fleet.clock.now() + 300)
    assert (execution.status, execution.error) == ("FAILED", "InvalidInputError")
    assert "time" in (execution.cause or "")
