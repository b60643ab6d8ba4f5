"""Runs that launch workers or terminate instances that never became nodes."""

from __future__ import annotations

import itertools
import json
from unittest import mock

import pytest

from node_fleet.domain.model.errors import Ec2Error, LaunchError, StateStoreError
from simulator.aws.faults import REPLY_LOST, FaultRule
from simulator.aws.recorder import AwsCall
from simulator.fakes.scrapes import Scrapes
from tests.support.workflow_harness import BUSY, Stage, stage
from tests.support.workflow_paths import QUIET, a_slot, an_operation, nothing_left_behind

pytestmark = pytest.mark.sampled(7)  # with --all, every one


def test_unschedulable_pods_launch_workers_that_join_and_the_cooldown_holds_the_next_run(fleet: Stage) -> None:
    fleet.load(BUSY)
    run = fleet.tick_until(lambda e: "LaunchNodes" in e.path)
    assert run.path[:8] == [*QUIET[:5], "LaunchNodes", "LaunchStatus", "WaitForJoin"]
    assert {"CheckJoin", "JoinStatus", "CompleteScaleUp", "MoreDemand", "Notify"} <= set(run.path)
    assert run.status == "SUCCEEDED"
    state = fleet.state()
    assert state.memory.last_action == "scale_up"
    assert len(fleet.workers()) > 2
    nothing_left_behind(fleet)
    following = fleet.tick()
    assert "LaunchNodes" not in following.path
    assert following.status == "SUCCEEDED"


def large_pod(memory_mib: int) -> list[str]:
    return [
        "  - name: cache", "    replicas: 1", "    cpu_milli: 500", f"    memory_mib: {memory_mib}",
        "    load: {constant: 0}",
    ]  # fmt: skip


def launched_types(fleet: Stage) -> list[str]:
    return [
        part["InstanceType"]
        for call in fleet.cloud.recorder.of("CreateFleet")
        if call.result and "LaunchNodes" in (call.function or "")
        for part in call.result["Instances"]
        for _ in part["InstanceIds"]
    ]


def test_a_pod_that_the_smallest_type_does_not_fit_launches_the_type_that_it_fits() -> None:
    more = large_pod(3072)
    with stage(workers=2, warm_up=0, more=more, instance_types="t3.small,t3.medium") as fleet:
        run = fleet.tick_until(lambda e: "LaunchNodes" in e.path)
        assert run.status == "SUCCEEDED"
        assert launched_types(fleet) == ["t3.medium"]
        assert [p.phase for p in fleet.sim.cluster.pods() if p.name.startswith("cache")] == ["Running"]
        nothing_left_behind(fleet)


def test_a_pod_that_no_type_fits_is_listed_and_launches_nothing() -> None:
    with stage(workers=2, warm_up=0, more=large_pod(5000), instance_types="t3.small,t3.medium") as fleet:
        run = fleet.tick_until(lambda e: "pod_too_large" in json.dumps(e.output_of("Decide")))
        assert "requests 5000Mi memory, the largest worker offers" in json.dumps(run.output_of("Decide"))
        fleet.ticks(2)
        assert launched_types(fleet) == []
        nothing_left_behind(fleet)


TYPES = ("t3.small", "t3a.small", "t3.medium")


def planned(fleet: Stage, count: int) -> None:
    """A scale-up of so many Spot workers in the first zone, which the next run continues."""
    slots = tuple(a_slot(fleet, number=n, market="spot") for n in range(1, count + 1))
    fleet.leave(an_operation(fleet, slots=slots))


def fleet_requests(fleet: Stage) -> list[AwsCall]:
    return fleet.cloud.recorder.of("CreateFleet")


def test_of_three_spot_types_one_without_capacity_the_cheaper_of_the_others_is_launched() -> None:
    with stage(warm_up=0, instance_types=",".join(TYPES)) as fleet:
        fleet.cloud.fleets.prices.update({"t3.small": 0.001, "t3a.small": 0.01, "t3.medium": 0.02})
        fleet.cloud.ec2.dry_pool(instance_type="t3.small", market="spot")
        planned(fleet, 2)
        run = fleet.tick()
        assert (run.status, launched_types(fleet)) == ("SUCCEEDED", ["t3a.small"] * 2)
        assert [(d.instance_type, d.market) for d in fleet.state().memory.dry_pools] == [("t3.small", "spot")]
        nothing_left_behind(fleet)


def test_without_spot_anywhere_the_same_execution_launches_on_demand() -> None:
    with stage(warm_up=0, instance_types=",".join(TYPES)) as fleet:
        fleet.cloud.ec2.dry_pool(market="spot")
        planned(fleet, 2)
        run = fleet.tick()
        assert run.status == "SUCCEEDED" and "no capacity" in json.dumps(run.output_of("LaunchNodes"))
        (asked,) = [part for call in fleet_requests(fleet) for part in (call.result or {})["Instances"]]
        assert (asked["Lifecycle"], asked["InstanceType"], len(asked["InstanceIds"])) == ("on-demand", "t3.small", 2)
        nothing_left_behind(fleet)


def test_of_five_workers_the_three_that_a_zone_has_are_kept_and_two_come_from_another() -> None:
    with stage(warm_up=0, instance_types=",".join(TYPES)) as fleet:
        first = next(iter(fleet.settings.zones))
        left = itertools.chain([False] * 3, itertools.repeat(True))
        fleet.cloud.ec2.dry_pool(az=first, when=lambda: next(left))
        planned(fleet, 5)
        before = set(fleet.workers())
        assert fleet.tick().status == "SUCCEEDED"
        new = [fleet.cloud.ec2.instance(one).placement.zone for one in set(fleet.workers()) - before]
        assert (new.count(first), len(new)) == (3, 5)
        assert [c.parameters["TargetCapacitySpecification"]["TotalTargetCapacity"] for c in fleet_requests(fleet)] == [
            5,
            2,
        ]
        nothing_left_behind(fleet)


def test_a_request_whose_answer_is_lost_is_sent_again_with_its_token_and_launches_one_batch() -> None:
    with stage(warm_up=0) as fleet:
        fleet.cloud.faults.inject(FaultRule(operation="CreateFleet", code=REPLY_LOST, count=1))
        planned(fleet, 3)
        assert fleet.tick().status == "SUCCEEDED"
        tokens = [call.parameters["ClientToken"] for call in fleet_requests(fleet)]
        assert (len(tokens), len(set(tokens)), len(fleet.workers())) == (2, 1, 5)
        nothing_left_behind(fleet)


def test_a_spot_warning_shortly_before_a_tick_launches_one_worker_although_ec2_lists_it_late() -> None:
    with stage(workers=4, market="spot", min_workers=4, max_workers=8, warm_up=2) as fleet:
        fleet.cloud.ec2.delays.invisible_seconds = 30
        asked = len(fleet.cloud.recorder.of("CreateFleet"))
        interval = fleet.settings.interval_seconds
        next_tick = max(run.started_at for run in fleet.sim.executions) + interval
        fleet.deployment.clock.advance(next_tick - 10 - fleet.now())
        fleet.cloud.ec2.warn_spot(fleet.workers()[0])
        fleet.deployment.clock.advance(3 * interval)
        assert len(fleet.cloud.recorder.of("CreateFleet")) == asked + 1
        fleet.deployment.clock.advance(2 * interval)
        assert len(fleet.workers()) == 4


def test_while_pods_still_wait_the_same_run_goes_round_again(fleet: Stage) -> None:
    fleet.load(900)
    run = fleet.tick_until(lambda e: e.path.count("LaunchNodes") > 1)
    assert "WaitForScheduling" in run.path
    assert run.path[-2:] == ["Notify", "ReleaseLock"], "the message must name the work of the earlier rounds"
    assert run.path.count("LaunchNodes") <= 3
    nothing_left_behind(fleet)


def test_at_the_maximum_a_message_is_sent_and_nothing_is_launched() -> None:
    with stage(workers=2, max_workers=2) as fleet:
        fleet.load(BUSY)
        run = fleet.tick_until(lambda e: "Notify" in e.path)
        assert run.path == [*QUIET[:5], "Notify", "ReleaseLock"]
        assert "maximum" in json.dumps(run.output_of("Decide")["decision"])
        assert len(fleet.workers()) == 2
        nothing_left_behind(fleet)


def test_a_dry_run_says_what_it_would_launch_and_launches_nothing(fleet: Stage) -> None:
    fleet.cloud.ec2.reclaim(fleet.workers()[0])
    run = fleet.dry_run_until("LaunchNodes")
    assert run.path[-4:] == ["LaunchNodes", "LaunchStatus", "Notify", "ReleaseLock"]
    assert run.output_of("LaunchNodes")["launch"]["status"] == "dry_run"
    assert len(fleet.workers()) == 1
    nothing_left_behind(fleet)


def test_a_dry_run_resumes_nothing_and_leaves_the_operation_to_the_next_run(fleet: Stage) -> None:
    fleet.leave(an_operation(fleet, slots=(a_slot(fleet),)))
    before = fleet.state()
    run = fleet.run(dry_run=True)
    assert run.path == QUIET
    assert len(fleet.workers()) == 2
    after = fleet.state()
    assert (after.operation, after.memory, after.lease) == (before.operation, before.memory, None)


def test_capacity_that_another_workflow_reserved_meanwhile_is_not_used_twice() -> None:
    with stage(workers=2, max_workers=3) as fleet:
        assert fleet.store.reserve("replacement", lambda state: 2, maximum=3, until=fleet.now() + 3600)
        fleet.load(BUSY)
        run = fleet.tick_until(lambda e: "LaunchNodes" in e.path)
        assert run.path[-5:] == ["LaunchNodes", "LaunchStatus", "FailScaleUp", "Notify", "ReleaseLock"]
        assert run.status == "SUCCEEDED"
        assert len(fleet.workers()) == 2
        fleet.store.unreserve(["replacement"])
        nothing_left_behind(fleet)


def test_a_launch_that_finds_no_capacity_fails_and_says_so(fleet: Stage) -> None:
    fleet.cloud.ec2.dry_pool()
    fleet.load(BUSY)
    run = fleet.tick_until(lambda e: "LaunchNodes" in e.path)
    assert "FailScaleUp" in run.path
    assert run.path[-3:] == ["Notify", "ReleaseLock", "RunFailed"]
    assert "capacity" in (run.cause or "").lower()
    assert len(fleet.workers()) == 2
    nothing_left_behind(fleet)


def boot(*rules: str) -> list[str]:
    return ["boot:", *(f"  - {rule}" for rule in rules)]


def test_workers_that_never_join_are_terminated_and_the_run_fails() -> None:
    with stage(workers=2, more=boot("{kind: never_joins}")) as fleet:
        fleet.load(BUSY)
        run = fleet.tick_until(lambda e: "LaunchNodes" in e.path)
        assert run.path.count("CheckJoin") >= 29
        assert run.path[-6:] == [
            "AbandonUnjoined", "AbandonStatus", "FailScaleUp", "Notify", "ReleaseLock", "RunFailed",
        ]  # fmt: skip
        assert run.error == "NothingJoinedError"
        assert len(fleet.workers()) == 2
        assert fleet.state().memory.last_action != "scale_up"
        nothing_left_behind(fleet)


def test_a_scale_up_is_complete_with_what_joined() -> None:
    with stage(workers=2, step_normal=2, more=boot("{kind: never_joins, first: 2, count: 1}")) as fleet:
        fleet.load(BUSY)
        run = fleet.tick_until(lambda e: "LaunchNodes" in e.path)
        at = run.path.index("AbandonUnjoined")
        assert run.path[at : at + 3] == ["AbandonUnjoined", "AbandonStatus", "CompleteScaleUp"]
        assert run.status == "SUCCEEDED"
        assert len(fleet.workers()) >= 3
        nothing_left_behind(fleet)


@pytest.mark.parametrize("state", ["LaunchNodes", "CheckJoin", "CompleteScaleUp"])
def test_a_fault_in_a_scale_up_keeps_the_instances_and_frees_the_lock(fleet: Stage, state: str) -> None:
    struck = fleet.break_state(state, LaunchError("it broke"), after=True)
    fleet.load(BUSY)
    run = fleet.tick_until(lambda e: "LaunchNodes" in e.path)
    assert struck
    assert run.path[-3:] == ["Notify", "ReleaseLock", "RunFailed"]
    assert ("FailScaleUp" in run.path) is (state != "CompleteScaleUp")
    assert (run.error, run.cause) == ("LaunchError", "it broke")
    fleet.clear_faults()
    fleet.ticks(4)
    assert len(fleet.workers()) > 2
    nothing_left_behind(fleet)


def test_a_fault_while_giving_up_is_told_and_the_next_run_goes_on() -> None:
    with stage(workers=2, more=boot("{kind: never_joins, count: 1}")) as fleet:
        struck = fleet.break_state("AbandonUnjoined", Ec2Error("it broke"))
        fleet.load(BUSY)
        run = fleet.tick_until(lambda e: "LaunchNodes" in e.path)
        assert struck
        assert run.path[-5:] == ["AbandonUnjoined", "FailScaleUp", "Notify", "ReleaseLock", "RunFailed"]
        assert run.error == "Ec2Error"
        fleet.clear_faults()
        nothing_left_behind(fleet)


def test_a_second_fault_while_closing_a_failed_scale_up_does_not_hide_the_first(fleet: Stage) -> None:
    fleet.break_state("LaunchNodes", LaunchError("the first"))
    fleet.break_state("FailScaleUp", StateStoreError("the second"))
    fleet.load(BUSY)
    run = fleet.tick_until(lambda e: "LaunchNodes" in e.path)
    assert (run.error, run.cause) == ("LaunchError", "the first")
    assert run.path[-4:] == ["FailScaleUp", "Notify", "ReleaseLock", "RunFailed"]


def test_an_instance_that_never_became_a_node_is_reaped_when_kubectl_missed_it_twice(fleet: Stage) -> None:
    lost = fleet.lost_instance()
    first = fleet.tick_until(lambda e: "ReapUnjoined" in e.path)
    assert first.path[-3:] == ["ReapUnjoined", "ReapStatus", "ReleaseLock"]
    assert lost in fleet.workers()
    second = fleet.tick_until(lambda e: e.path[-3:] == ["ReapStatus", "Notify", "ReleaseLock"])
    assert second.status == "SUCCEEDED"
    assert lost not in fleet.workers()
    assert len(fleet.workers()) == 2
    nothing_left_behind(fleet)


def test_the_node_of_an_ended_instance_is_deleted_in_a_quiet_tick() -> None:
    with stage(workers=3) as fleet:
        ended = fleet.workers()[0]
        fleet.break_state("ForgetInterrupted", Ec2Error("the server cannot be reached"))
        fleet.cloud.ec2.reclaim(ended)
        run = fleet.tick_until(lambda e: "ReapUnjoined" in e.path)
        assert run.path == [*QUIET[:5], "ReapUnjoined", "ReapStatus", "ReleaseLock"]
        assert ended not in [node.name for node in fleet.sim.cluster.nodes()]
        assert fleet.tick().path == QUIET, "a tick without a dead node makes no further call"


@pytest.mark.parametrize(("operation_id", "stays"), [("down-3-1", False), ("", True)], ids=["node-fleet", "a person"])
def test_a_cordon_of_an_ended_operation_is_removed_in_a_fleet_at_its_maximum_and_that_of_a_person_stays(
    operation_id: str, stays: bool
) -> None:
    with stage(workers=3, min_workers=3, max_workers=3) as fleet:
        worker, cluster = fleet.workers()[0], fleet.sim.cluster
        annotations = {"node-fleet.io/cordoned-by": operation_id} if operation_id else {}
        cluster.update("nodes", "", worker, lambda node: node["metadata"]["annotations"].update(annotations))
        cluster.cordon(worker)
        run = fleet.tick_until(lambda e: "ReapUnjoined" in e.path)
        assert (run.status, fleet.cordoned()) == ("SUCCEEDED", [worker] if stays else [])
        if not stays:
            fleet.tick_until(lambda e: e.path == QUIET)


def test_with_a_frozen_kube_state_metrics_a_lost_worker_is_replaced_once_and_one_alert_names_the_cause() -> None:
    frozen = mock.patch.object(Scrapes, "_scrape_state", lambda *_: None)
    with stage(workers=4, min_workers=4, max_workers=10) as fleet, frozen:
        fleet.cloud.ec2.reclaim(fleet.workers()[0])
        launched = fleet.tick_until(lambda e: "LaunchNodes" in e.path)
        assert "AbandonUnjoined" in launched.path, "the join is seen by the server alone"
        later = fleet.ticks(10)
        assert len(fleet.workers()) == 4
        assert all("LaunchNodes" not in run.path for run in later)
        alerts = [json.dumps(run.output_of("Decide")["decision"]["alerts"]) for run in later]
        assert sum("exporter_stale" in text and "kube-state-metrics is stale" in text for text in alerts) == 1
        assert sum("Notify" in run.path for run in later) == 1
    assert {run.status for run in later} == {"SUCCEEDED"}


def test_a_fault_while_reaping_is_reported(fleet: Stage) -> None:
    lost = fleet.lost_instance()
    struck = fleet.break_state("ReapUnjoined", Ec2Error("it broke"))
    run = fleet.tick_until(lambda e: "ReapUnjoined" in e.path)
    assert struck
    assert run.path[-4:] == ["ReapUnjoined", "Notify", "ReleaseLock", "RunFailed"]
    assert lost in fleet.workers()
    nothing_left_behind(fleet)
