"""The interruption workflow in virtual time: what is done for each announcement, how fast, and how it ends."""

from __future__ import annotations

import pytest

from handlers.check_drain import handler as check_drain
from handlers.launch_nodes import handler as launch_nodes
from node_fleet.domain.model.fleet_state import Notice, Pause
from node_fleet.domain.model.operation import Operation, Target
from node_fleet.domain.model.run import Run
from node_fleet.domain.model.snapshot import Snapshot, Worker
from node_fleet.payload import to_payload
from tests.support.handlers.bench import ZONES, Bench, bench
from tests.support.interruptions import (
    REBALANCE,
    STATE_CHANGE,
    WARNING,
    commands,
    event,
    finish,
    messages,
    prepare,
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
    launch = fleet.cloud.recorder.of("RunInstances")[-1]
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
    shown = Worker(
        instance_id=taken.instance_id,
        zone=taken.zone,
        market="spot",
        instance_type="t3.small",
        phase="usable",
        launched_at=0,
        node_name="renamed-node",
    )
    fleet.records.snapshot = Snapshot(at=0, source="live", workers=(shown,))
    finish(fleet, start(fleet, event(fleet, WARNING, taken.instance_id)))
    assert fleet.server.commands[0][1]["NodeName"] == "renamed-node"


def test_a_foreign_instance_is_ignored(fleet: Bench) -> None:
    execution = finish(fleet, start(fleet, event(fleet, WARNING, "i-0123456789abcdef0")))
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
    rule = fleet.cloud.faults.dynamodb_unavailable("GetItem", count=4)
    finish(fleet, start(fleet, event(fleet, WARNING, taken.instance_id)))
    assert rule.hits >= 3
    assert commands(fleet).count("DrainNode") == 1


def test_a_late_notice_of_a_terminated_machine_only_forgets_its_node(fleet: Bench) -> None:
    taken = worker(fleet)
    at = fleet.clock.now()
    fleet.cloud.ec2.reclaim(taken.instance_id)
    fleet.clock.advance(60)
    finish(fleet, start(fleet, event(fleet, WARNING, taken.instance_id, at=at)))
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
    assert fleet.cloud.recorder.of("RunInstances")[-1].at - noticed_at <= 5
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
    target = Target(instance_id=instance_id, node_name=instance_id, phase="draining", command_id="DrainNode")
    operation = Operation(
        operation_id="down-1",
        kind="scale_down",
        phase="draining",
        started_at=int(made.clock.now()),
        requested=1,
        reason="idle",
        execution_id="scaling-down",
        targets=(target,),
    )
    made.tools.state.save_operation(run, operation)
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
    now = int(fleet.clock.now())
    fleet.tools.state.set_pause(Pause(reason="maintenance", by="ann", since=now, until=now + 100))
    finish(fleet, start(fleet, event(fleet, WARNING, taken.instance_id)))
    assert "DrainNode" not in commands(fleet) and not replacements(fleet, taken.instance_id)
    assert "maintenance" in messages(fleet)


def test_without_capacity_the_drain_goes_on_and_people_hear_of_it(fleet: Bench) -> None:
    taken = worker(fleet)
    fleet.cloud.ec2.dry_pool()
    finish(fleet, start(fleet, event(fleet, WARNING, taken.instance_id)))
    assert "DrainNode" in commands(fleet)
    assert "every pool is out of capacity" in messages(fleet)


def test_an_unreachable_server_does_not_stop_the_replacement(fleet: Bench) -> None:
    taken = worker(fleet)
    fleet.server.unreachable = True
    fleet.cloud.ec2.warn_spot(taken.instance_id)
    finish(fleet, start(fleet, event(fleet, WARNING, taken.instance_id)))
    assert len(replacements(fleet, taken.instance_id)) == 1
    assert "drain failed" in messages(fleet)


def test_a_third_of_the_fleet_at_once_is_drained_and_replaced_within_the_maximum() -> None:
    with bench(max_workers=12, spot_percent=100) as made:
        prepare(made)
        every = [worker(made, n, zone=ZONES[n % 3]) for n in range(1, 13)]
        taken = every[:4]
        executions = []
        for number, one in enumerate(taken):
            made.cloud.ec2.warn_spot(one.instance_id)
            executions.append(start(made, event(made, WARNING, one.instance_id), f"storm-{number}"))
            made.clock.advance(15)
        finish(made, *executions)
        assert len(made.instances()) == 12
        assert all(len(replacements(made, one.instance_id)) == 1 for one in taken)


def test_a_recommendation_is_ignored_unless_asked_for(fleet: Bench) -> None:
    taken = worker(fleet)
    execution = finish(fleet, start(fleet, event(fleet, REBALANCE, taken.instance_id)))
    assert execution.path[-1] == "Ignored" and not fleet.state().notices


def test_a_followed_recommendation_replaces_first_and_its_cordon_expires() -> None:
    with bench(max_workers=4, handle_rebalance=True, spot_percent=100) as made:
        prepare(made)
        taken = worker(made)
        noticed_at = made.clock.now()
        execution = finish(made, start(made, event(made, REBALANCE, taken.instance_id)))
        assert made.cloud.recorder.of("RunInstances")[-1].at - noticed_at <= 5
        assert made.server.sent_at[0] - noticed_at >= made.settings.join_limit_seconds
        assert made.server.commands[0][1]["DrainMode"] == "voluntary"
        assert commands(made) == ["DrainNode", "UncordonNode"]
        assert execution.ended_at is not None and execution.ended_at - noticed_at < 1900
        assert not made.state().notices


def test_60_an_interruption_after_a_recommendation_takes_over_and_replaces_nothing_twice() -> None:
    with bench(max_workers=4, handle_rebalance=True, spot_percent=100) as made:
        prepare(made)
        taken = worker(made)
        first = start(made, event(made, REBALANCE, taken.instance_id), "rebalance")
        made.clock.advance(17 * 60)
        made.cloud.ec2.warn_spot(taken.instance_id)
        what = event(made, WARNING, taken.instance_id)
        second, third = start(made, what, "warning"), start(made, what, "warning-again")
        foreign = start(made, event(made, WARNING, "i-0fedcba9876543210"), "foreign")
        finish(made, first, second, third, foreign)
        assert first.path[-1] == "Superseded"
        assert [third.path[-1], foreign.path[-1]] == ["Ignored", "Ignored"]
        assert len(replacements(made, taken.instance_id)) == 1
        modes = [p["DrainMode"] for d, p in made.server.commands if d == "DrainNode"]
        assert modes == ["voluntary", "deadline"]


def test_a_scheduled_change_replaces_at_once_and_drains_near_its_date(fleet: Bench) -> None:
    taken, other = worker(fleet, 1), worker(fleet, 2, zone=ZONES[1])
    noticed_at, when = fleet.clock.now(), fleet.clock.now() + 14 * 86_400
    fleet.clock.at(when, lambda: fleet.cloud.ec2.reclaim(taken.instance_id))
    what = scheduled(fleet, when, taken.instance_id, "i-0123456789abcdef0")
    finish(fleet, start(fleet, what), seconds=15 * 86_400)
    assert fleet.cloud.recorder.of("RunInstances")[-1].at - noticed_at <= 5
    assert when - fleet.settings.scheduled_drain_lead_seconds <= fleet.server.sent_at[0] < when
    assert len(replacements(fleet, taken.instance_id)) == 1
    assert not replacements(fleet, other.instance_id)


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
    assert first.path[-1] == "Superseded" and len(replacements(fleet, taken.instance_id)) == 1


def test_news_that_a_scheduled_change_is_over_replaces_nothing(fleet: Bench) -> None:
    taken = worker(fleet)
    finish(fleet, start(fleet, scheduled(fleet, fleet.clock.now() - 60, taken.instance_id, status="closed")))
    assert not replacements(fleet, taken.instance_id) and not fleet.state().notices


def test_a_terminated_instance_is_forgotten_in_the_cluster(fleet: Bench) -> None:
    taken = worker(fleet)
    fleet.cloud.ec2.reclaim(taken.instance_id)
    fleet.clock.advance(30)
    finish(fleet, start(fleet, event(fleet, STATE_CHANGE, taken.instance_id, state="terminated")))
    assert commands(fleet) == ["ForgetNode"]


def test_a_stopped_worker_is_told_of_and_nothing_else(fleet: Bench) -> None:
    taken = worker(fleet)
    finish(fleet, start(fleet, event(fleet, STATE_CHANGE, taken.instance_id, state="stopped")))
    assert not fleet.server.commands and "stopped outside node-fleet" in messages(fleet)


@pytest.mark.parametrize("state", ["running", "pending", "shutting-down", "stopping"])
def test_other_state_changes_ask_for_nothing(fleet: Bench, state: str) -> None:
    taken = worker(fleet)
    execution = finish(fleet, start(fleet, event(fleet, STATE_CHANGE, taken.instance_id, state=state)))
    assert execution.path[-1] == "Ignored"


def test_an_event_that_cannot_be_read_fails_with_one_clear_sentence(fleet: Bench) -> None:
    execution = start(fleet, {"detail-type": WARNING, "detail": {}})
    fleet.clock.run_until(lambda: not execution.running, limit=fleet.clock.now() + 300)
    assert (execution.status, execution.error) == ("FAILED", "InvalidInputError")
    assert "time" in (execution.cause or "")
