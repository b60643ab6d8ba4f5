"""Walks every edge of the autoscaler by executing the real definition with the shipped handlers.

Each story asserts the path, the outputs and what the state item says afterwards; the last test computes which edges
the stories walked and fails on one that none took.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cdk_app.workflow import definitions
from node_fleet.domain.model.errors import (
    DrainFailedError,
    Ec2Error,
    LaunchError,
    LeaseLostError,
    StateStoreError,
)
from node_fleet.domain.model.fleet_state import Pause
from node_fleet.domain.model.operation import LaunchSlot, Operation, Target
from simulator.aws.faults import FaultRule
from simulator.runner import Execution, all_edges
from tests.support.workflow_harness import BUSY, Stage, stage

DEFINITION = definitions()["autoscaler"]
WALKED: set[tuple[str, str]] = set()
SOON_IDLE: dict[str, Any] = {"idle_seconds": 240, "cooldown_down_seconds": 0}
QUIET = ["AcquireLock", "LockStatus", "CollectMetrics", "Decide", "Route", "ReleaseLock"]


@pytest.fixture
def fleet() -> Iterator[Stage]:
    with stage(workers=2) as made:
        yield made
        collect(made)


@pytest.fixture
def idle() -> Iterator[Stage]:
    """Four workers with next to no load: the next ticks remove one."""
    with stage(workers=4, warm_up=1, **SOON_IDLE) as made:
        yield made
        collect(made)


def collect(made: Stage) -> None:
    for execution in made.sim.executions:
        if execution.machine.endswith("autoscaler"):
            WALKED.update(execution.edges)


def visits(execution: Execution, name: str) -> list[Any]:
    return [visit.output for visit in execution.history if visit.name == name]


def nothing_left_behind(fleet: Stage) -> None:
    state = fleet.state()
    promised = [r for r in state.reservations if not r.instance_id]
    assert (state.lease, state.operation, promised, state.problems) == (None, None, [], ())


def scaled_down(execution: Execution) -> bool:
    return "InspectNodes" in execution.path


# quiet and early ends ---------------------------------------------------------------------------------------------


def test_a_quiet_tick_takes_six_transitions_and_four_invocations(fleet: Stage) -> None:
    before = len(fleet.cloud.lambdas.invocations)
    run = fleet.tick()
    assert run.path == QUIET
    assert len(fleet.cloud.lambdas.invocations) - before == 4
    assert run.status == "SUCCEEDED"
    assert run.output["released"] is True
    assert run.output["sentence"]
    nothing_left_behind(fleet)


def test_a_held_lock_ends_early_and_green(fleet: Stage) -> None:
    first, second = fleet.start(), fleet.start()
    fleet.deployment.settle()
    assert (first.path, second.path) == (QUIET, ["AcquireLock", "LockStatus", "AlreadyScaling"])
    assert second.status == "SUCCEEDED"
    assert first.arn in second.output["detail"]
    nothing_left_behind(fleet)


def test_a_pause_ends_a_run_before_it_takes_the_lock(fleet: Stage) -> None:
    fence = fleet.state().fence
    fleet.store.set_pause(Pause(reason="moving house", by="mira", since=fleet.now(), until=fleet.now() + 300))
    run = fleet.tick()
    assert run.path == ["AcquireLock", "LockStatus", "Paused"]
    assert "moving house" in run.output["detail"]
    assert (run.status, fleet.state().lease, fleet.state().fence) == ("SUCCEEDED", None, fence)


def test_the_same_tick_delivered_twice_does_its_work_once(fleet: Stage) -> None:
    fleet.tick()
    tick = fleet.deployment.ticks[-1]
    fleet.deployment.tick(scheduled_at=tick)
    fleet.deployment.settle()
    assert fleet.sim.executions[-1].path == ["AcquireLock", "LockStatus", "StaleTrigger"]
    assert fleet.sim.executions[-1].status == "SUCCEEDED"
    nothing_left_behind(fleet)


@pytest.mark.parametrize(
    ("given", "part"),
    [({}, "trigger is None"), ({"trigger": "cron"}, "'cron'"), ({"trigger": "manual", "x": 1}, "unknown field 'x'")],
)
def test_a_malformed_input_ends_in_one_sentence_and_leaves_the_state_item_alone(
    fleet: Stage, given: dict[str, Any], part: str
) -> None:
    before = fleet.state()
    run = fleet.deployment.start_workflow(given)
    fleet.deployment.settle()
    assert run.path == ["AcquireLock", "ReadFailure", "NotStarted"]
    assert (run.status, run.error) == ("FAILED", "InvalidInputError")
    assert run.cause is not None
    assert part in run.cause
    assert "stackTrace" not in run.cause
    assert fleet.state() == before


def test_an_unknown_fault_before_the_lock_ends_red_at_once(fleet: Stage) -> None:
    struck = fleet.break_state("AcquireLock", RuntimeError("out of memory"))
    run = fleet.run()
    assert struck
    assert run.path == ["AcquireLock", "RunFailed"]
    assert run.error == "RuntimeError"


# metrics ----------------------------------------------------------------------------------------------------------


def test_a_young_cached_reading_serves_when_prometheus_is_gone(fleet: Stage) -> None:
    fleet.deployment.transport.fault = "down"
    run = fleet.tick()
    assert run.path[:5] == QUIET[:5]
    assert run.output_of("CollectMetrics")["snapshot"]["source"] == "cached"
    assert run.status == "SUCCEEDED"
    nothing_left_behind(fleet)


def test_without_any_reading_the_minimum_is_still_enforced_and_the_run_ends_in_an_error(fleet: Stage) -> None:
    fleet.deployment.transport.fault = "down"
    fleet.ticks(3)
    fleet.cloud.ec2.reclaim(fleet.workers()[0])
    run = fleet.tick_until(lambda e: "LaunchNodes" in e.path)
    assert run.path[-6:] == [
        "CompleteScaleUp", "MoreDemand", "MetricsUnavailable", "Notify", "ReleaseLock", "RunFailed",
    ]  # fmt: skip
    assert run.error == "MetricsUnavailableError"
    assert "Prometheus" in (run.cause or "")
    assert len(fleet.workers()) == 2
    nothing_left_behind(fleet)
    quiet = fleet.tick()
    assert quiet.path == [*QUIET[:5], "MetricsUnavailable", "Notify", "ReleaseLock", "RunFailed"]
    nothing_left_behind(fleet)


@pytest.mark.parametrize(
    ("fault", "part"),
    [
        ("down", "30090"),
        ("unauthorized", "prometheus-auth"),
        ("html", "expected JSON"),
        ("query_error", "parse error"),
    ],
)
def test_each_way_prometheus_can_fail_is_one_clear_error_with_the_lock_released(
    fleet: Stage, fault: str, part: str
) -> None:
    fleet.deployment.transport.fault = fault  # type: ignore[assignment]
    run = fleet.tick_until(lambda e: e.status == "FAILED")
    assert run.error == "MetricsUnavailableError"
    assert part in (run.cause or "")
    assert "stackTrace" not in (run.cause or "")
    nothing_left_behind(fleet)


def test_an_empty_answer_is_missing_and_changes_nothing(fleet: Stage) -> None:
    fleet.deployment.transport.fault = "empty"
    run = fleet.tick()
    assert "LaunchNodes" not in run.path
    assert run.output_of("CollectMetrics")["snapshot"]["cpu_percent"] is None
    assert len(fleet.workers()) == 2
    nothing_left_behind(fleet)


# faults of single states ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["CollectMetrics", "Decide"])
def test_a_fault_before_any_change_is_told_and_releases_the_lock(fleet: Stage, state: str) -> None:
    struck = fleet.break_state(state, RuntimeError("it broke"))
    run = fleet.tick()
    assert struck
    assert run.path[-4:] == [state, "Notify", "ReleaseLock", "RunFailed"]
    assert (run.error, run.cause) == ("RuntimeError", "it broke")
    nothing_left_behind(fleet)


def test_a_message_that_cannot_be_sent_changes_nothing(fleet: Stage) -> None:
    fleet.break_state("Notify", RuntimeError("no topic"))
    run = fleet.run(dry_run=True)
    fleet.load(BUSY)
    grown = fleet.tick_until(lambda e: "LaunchNodes" in e.path)
    assert (run.status, grown.status) == ("SUCCEEDED", "SUCCEEDED")
    assert grown.path[-2:] == ["Notify", "ReleaseLock"]
    nothing_left_behind(fleet)


def test_a_lock_that_cannot_be_released_is_named_and_expires(fleet: Stage) -> None:
    struck = fleet.break_state("ReleaseLock", StateStoreError("table gone"))
    run = fleet.tick()
    assert struck
    assert run.path[-3:] == ["ReleaseLock", "FirstFailure", "ReleaseFailed"]
    assert run.error == "StateStoreError"
    fleet.clear_faults()
    assert fleet.tick_until(lambda e: e.path == QUIET)
    nothing_left_behind(fleet)


def test_when_both_the_work_and_the_release_fail_the_first_fault_is_shown(fleet: Stage) -> None:
    fleet.break_state("Decide", RuntimeError("the first"))
    fleet.break_state("ReleaseLock", StateStoreError("the second"))
    run = fleet.tick()
    assert run.path[-3:] == ["ReleaseLock", "FirstFailure", "RunFailed"]
    assert (run.error, run.cause) == ("RuntimeError", "the first")


# scale-up ---------------------------------------------------------------------------------------------------------


def test_unschedulable_pods_launch_workers_that_join_and_take_them(fleet: Stage) -> None:
    fleet.load(BUSY)
    run = fleet.tick_until(lambda e: "LaunchNodes" in e.path)
    assert run.path[:8] == [*QUIET[:5], "LaunchNodes", "LaunchStatus", "WaitForJoin"]
    assert {"CheckJoin", "JoinStatus", "CompleteScaleUp", "MoreDemand", "Notify"} <= set(run.path)
    assert run.status == "SUCCEEDED"
    state = fleet.state()
    assert state.memory.last_action == "scale_up"
    assert len(fleet.workers()) > 2
    nothing_left_behind(fleet)


def test_while_pods_still_wait_the_same_run_goes_round_again(fleet: Stage) -> None:
    fleet.load(900)
    run = fleet.tick_until(lambda e: e.path.count("LaunchNodes") > 1)
    assert "WaitForScheduling" in run.path
    assert run.path[-2:] == ["Notify", "ReleaseLock"], "the message must name the work of the earlier rounds"
    assert run.path.count("LaunchNodes") <= 3
    nothing_left_behind(fleet)


def test_the_cooldown_is_the_reason_when_the_load_alone_would_ask(fleet: Stage) -> None:
    fleet.load(BUSY)
    fleet.tick_until(lambda e: "LaunchNodes" in e.path)
    following = fleet.tick()
    assert "LaunchNodes" not in following.path
    assert following.status == "SUCCEEDED"


def test_at_the_maximum_people_are_told_and_nothing_is_launched() -> None:
    with stage(workers=2, max_workers=2) as fleet:
        fleet.load(BUSY)
        run = fleet.tick_until(lambda e: "Notify" in e.path)
        assert run.path == [*QUIET[:5], "Notify", "ReleaseLock"]
        assert "maximum" in json.dumps(run.output_of("Decide")["decision"])
        assert len(fleet.workers()) == 2
        nothing_left_behind(fleet)
        collect(fleet)


def test_a_dry_run_says_what_it_would_launch_and_launches_nothing(fleet: Stage) -> None:
    fleet.cloud.ec2.reclaim(fleet.workers()[0])
    run = fleet.dry_run_until("LaunchNodes")
    assert run.path[-4:] == ["LaunchNodes", "LaunchStatus", "Notify", "ReleaseLock"]
    assert run.output_of("LaunchNodes")["launch"]["status"] == "dry_run"
    assert len(fleet.workers()) == 1
    nothing_left_behind(fleet)


def test_a_dry_run_takes_up_nothing_and_leaves_what_the_next_run_starts_from(fleet: Stage) -> None:
    fleet.leave(an_operation(fleet, slots=(a_slot(fleet),)))
    before = fleet.state()
    run = fleet.run(dry_run=True)
    assert run.path == QUIET
    assert len(fleet.workers()) == 2
    after = fleet.state()
    assert (after.operation, after.memory, after.lease) == (before.operation, before.memory, None)


def test_room_that_another_workflow_took_meanwhile_is_not_taken_twice() -> None:
    with stage(workers=2, max_workers=3) as fleet:
        assert fleet.store.reserve("replacement", lambda state: 2, maximum=3, until=fleet.now() + 3600)
        fleet.load(BUSY)
        run = fleet.tick_until(lambda e: "LaunchNodes" in e.path)
        assert run.path[-5:] == ["LaunchNodes", "LaunchStatus", "FailScaleUp", "Notify", "ReleaseLock"]
        assert run.status == "SUCCEEDED"
        assert len(fleet.workers()) == 2
        fleet.store.unreserve(["replacement"])
        nothing_left_behind(fleet)
        collect(fleet)


def test_a_launch_that_finds_no_capacity_fails_and_says_so(fleet: Stage) -> None:
    fleet.cloud.ec2.dry_pool()
    fleet.load(BUSY)
    run = fleet.tick_until(lambda e: "LaunchNodes" in e.path)
    assert "FailScaleUp" in run.path
    assert run.path[-3:] == ["Notify", "ReleaseLock", "RunFailed"]
    assert "capacity" in (run.cause or "").lower()
    assert len(fleet.workers()) == 2
    nothing_left_behind(fleet)


def test_a_missing_launch_template_is_named(fleet: Stage) -> None:
    template_id = fleet.settings.launch_template_id
    text = f"The specified launch template, with template ID {template_id}, does not exist."
    fault = FaultRule(operation="RunInstances", code="InvalidLaunchTemplateId.NotFound", message=text)
    fleet.cloud.faults.inject(fault)
    fleet.load(BUSY)
    run = fleet.tick_until(lambda e: "LaunchNodes" in e.path)
    assert fault.hits > 0
    assert run.error == "LaunchConfigurationError"
    assert template_id in (run.cause or "")
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
        collect(fleet)


def test_a_scale_up_is_complete_with_what_joined() -> None:
    with stage(workers=2, step_normal=2, more=boot("{kind: never_joins, first: 2, count: 1}")) as fleet:
        fleet.load(BUSY)
        run = fleet.tick_until(lambda e: "LaunchNodes" in e.path)
        assert run.path[run.path.index("AbandonUnjoined") : run.path.index("AbandonUnjoined") + 3] == [
            "AbandonUnjoined",
            "AbandonStatus",
            "CompleteScaleUp",
        ]
        assert run.status == "SUCCEEDED"
        assert len(fleet.workers()) >= 3
        nothing_left_behind(fleet)
        collect(fleet)


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
        collect(fleet)


def test_a_second_fault_while_closing_a_failed_scale_up_does_not_hide_the_first(fleet: Stage) -> None:
    fleet.break_state("LaunchNodes", LaunchError("the first"))
    fleet.break_state("FailScaleUp", StateStoreError("the second"))
    fleet.load(BUSY)
    run = fleet.tick_until(lambda e: "LaunchNodes" in e.path)
    assert (run.error, run.cause) == ("LaunchError", "the first")
    assert run.path[-4:] == ["FailScaleUp", "Notify", "ReleaseLock", "RunFailed"]


# reaping ----------------------------------------------------------------------------------------------------------


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


def test_a_fault_while_reaping_is_told(fleet: Stage) -> None:
    lost = fleet.lost_instance()
    struck = fleet.break_state("ReapUnjoined", Ec2Error("it broke"))
    run = fleet.tick_until(lambda e: "ReapUnjoined" in e.path)
    assert struck
    assert run.path[-4:] == ["ReapUnjoined", "Notify", "ReleaseLock", "RunFailed"]
    assert lost in fleet.workers()
    nothing_left_behind(fleet)


# scale-down -------------------------------------------------------------------------------------------------------


def test_an_idle_worker_is_drained_terminated_and_forgotten(idle: Stage) -> None:
    run = idle.tick_until(scaled_down)
    assert [s for s in run.path if not s.startswith("WaitFor")][5:] == unfolded(run)
    assert run.status == "SUCCEEDED"
    assert len(idle.workers()) == 3
    assert idle.cordoned() == []
    gone = run.output_of("ForgetNodes")["operation"]["targets"]
    assert gone
    assert idle.state().memory.last_action == "scale_down"
    nothing_left_behind(idle)


def unfolded(run: Execution) -> list[str]:
    """The states of a scale-down in their order, polls as often as they came."""
    polls = run.path.count("CheckDrain"), run.path.count("ConfirmTermination")
    return [
        *["InspectNodes", "SelectNodes", "SelectionStatus", "StartDrain"],
        *["CheckDrain", "DrainStatus"] * polls[0],
        "TerminateNodes",
        *["ConfirmTermination", "TerminationStatus"] * polls[1],
        *["ForgetNodes", "NextTarget", "CompleteScaleDown", "Notify", "ReleaseLock"],
    ]


@pytest.fixture
def pair() -> Iterator[Stage]:
    """Five idle workers of which two can be removed in one operation."""
    with stage(workers=5, warm_up=1, max_targets=2, **SOON_IDLE) as made:
        yield made
        collect(made)


def test_two_targets_go_one_after_the_other(pair: Stage) -> None:
    run = pair.tick_until(scaled_down)
    assert run.path.count("StartDrain") == 2
    assert run.path[-3:] == ["CompleteScaleDown", "Notify", "ReleaseLock"]
    assert len(pair.workers()) == 3
    nothing_left_behind(pair)


def test_a_target_that_cannot_go_does_not_stop_the_other(pair: Stage) -> None:
    refused: list[str] = []

    def refuse_the_first(event: dict[str, Any]) -> dict[str, Any]:
        if refused:
            return event
        refused.append(event["drain"]["status"])
        return {**event, "drain": {**event["drain"], "status": "failed", "detail": "a budget allows no disruption"}}

    pair.answer_state("CheckDrain", refuse_the_first)
    run = pair.tick_until(scaled_down)
    assert refused
    at = run.path.index("UndoDrain")
    assert run.path[at : at + 3] == ["UndoDrain", "UndoStatus", "StartDrain"]
    assert len(pair.workers()) == 4
    assert pair.cordoned() == []
    nothing_left_behind(pair)


def test_what_went_before_a_target_that_could_not_go_counts(pair: Stage) -> None:
    def second(event: dict[str, Any]) -> bool:
        return "forgotten" in json.dumps(event["operation"]["targets"])

    struck = pair.break_state("CheckDrain", DrainFailedError("it broke"), when=second)
    run = pair.tick_until(scaled_down)
    assert struck
    at = run.path.index("UndoDrain")
    assert run.path[at : at + 3] == ["UndoDrain", "UndoStatus", "CompleteScaleDown"]
    assert len(pair.workers()) == 4
    assert pair.cordoned() == []
    nothing_left_behind(pair)


def test_a_target_that_is_lost_while_it_drains_is_skipped() -> None:
    with stage(workers=4, warm_up=1, shutdown=40, **SOON_IDLE) as fleet:
        fleet.deployment.clock.every(1.0, lambda: lose_target(fleet))
        run = fleet.tick_until(scaled_down)
        at = run.path.index("NextTarget")
        assert run.path[at - 1] == "DrainStatus"
        assert "TerminateNodes" not in run.path
        nothing_left_behind(fleet)
        collect(fleet)


def lose_target(fleet: Stage) -> None:
    operation = fleet.state().operation
    if operation is not None and operation.current is not None and operation.current.phase == "draining":
        fleet.cloud.ec2.reclaim(operation.current.instance_id)


def test_a_dry_run_says_who_would_go_and_drains_nobody(idle: Stage) -> None:
    idle.tick()
    run = idle.dry_run_until("InspectNodes")
    assert run.path[-4:] == ["SelectNodes", "SelectionStatus", "Notify", "ReleaseLock"]
    assert run.output_of("SelectNodes")["selection"]["status"] == "dry_run"
    assert len(idle.workers()) == 4
    assert idle.cordoned() == []
    nothing_left_behind(idle)


STATEFUL = [
    "  - name: orders-db",
    "    kind: StatefulSet",
    "    replicas: 4",
    "    cpu_milli: 50",
    "    memory_mib: 64",
    "    load: {constant: 0}",
]


def test_when_nobody_may_go_the_run_says_why_and_ends_quietly() -> None:
    more = [line.replace("replicas: 4", "replicas: 12") for line in STATEFUL]
    with stage(workers=3, warm_up=1, **SOON_IDLE, more=more) as fleet:
        run = fleet.tick_until(scaled_down)
        assert run.path[-3:] == ["SelectNodes", "SelectionStatus", "ReleaseLock"]
        assert run.status == "SUCCEEDED"
        assert "StatefulSet" in json.dumps(run.output_of("SelectNodes")["selection"])
        assert len(fleet.workers()) == 3
        nothing_left_behind(fleet)
        collect(fleet)


def test_a_server_that_cannot_be_asked_removes_nobody(idle: Stage) -> None:
    idle.cloud.commands.is_managed = lambda instance_id: False
    run = idle.tick_until(lambda e: "InspectNodes" in e.path)
    assert "StartDrain" not in run.path
    assert len(idle.workers()) == 4
    nothing_left_behind(idle)


def test_a_drain_is_withdrawn_when_pods_become_unschedulable() -> None:
    with stage(workers=3, warm_up=1, shutdown=200, drain_timeout_seconds=280, **SOON_IDLE) as fleet:
        fleet.deployment.clock.every(5.0, lambda: surge(fleet))
        run = fleet.tick_until(scaled_down)
        at = run.path.index("UndoDrain")
        assert run.path[at - 1 : at + 3] == ["DrainStatus", "UndoDrain", "UndoStatus", "FailScaleDown"]
        assert run.output_of("CheckDrain")["drain"]["status"] == "withdrawn"
        assert len(fleet.workers()) == 3
        assert fleet.cordoned() == []
        nothing_left_behind(fleet)
        collect(fleet)


def surge(fleet: Stage) -> None:
    if fleet.state().operation is not None:
        fleet.load(2500)


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ("SelectNodes", StateStoreError("it broke")),
        ("StartDrain", DrainFailedError("it broke")),
        ("CheckDrain", DrainFailedError("it broke")),
        ("TerminateNodes", DrainFailedError("it broke")),
    ],
)
def test_a_fault_before_the_end_of_a_machine_uncordons_and_terminates_nobody(
    idle: Stage, state: str, error: Exception
) -> None:
    struck = idle.break_state(state, error)
    run = idle.tick_until(scaled_down)
    assert struck
    assert [s for s in ("UndoDrain", "UndoStatus", "FailScaleDown") if s in run.path]
    assert run.path[-3:] == ["Notify", "ReleaseLock", "RunFailed"]
    assert (run.error, run.cause) == (type(error).__name__, "it broke")
    assert idle.cordoned() == []
    assert len(idle.workers()) == 4
    nothing_left_behind(idle)


def test_a_fault_of_the_inspection_changes_nothing(idle: Stage) -> None:
    idle.break_state("InspectNodes", RuntimeError("it broke"))
    run = idle.tick_until(scaled_down)
    assert run.path[-5:] == ["InspectNodes", "FailScaleDown", "Notify", "ReleaseLock", "RunFailed"]
    assert idle.cordoned() == []
    nothing_left_behind(idle)


@pytest.mark.parametrize("state", ["ConfirmTermination", "ForgetNodes"])
def test_a_machine_that_is_being_terminated_is_finished_by_the_next_run(idle: Stage, state: str) -> None:
    struck = idle.break_state(state, RuntimeError("it broke"), times=1)
    run = idle.tick_until(scaled_down)
    assert struck
    assert run.path[-4:] == ["FailScaleDown", "Notify", "ReleaseLock", "RunFailed"]
    assert idle.state().operation is not None, "the removal must be finished"
    following = idle.tick_until(lambda e: "Resume" in e.path)
    assert following.path[-3:] == ["CompleteScaleDown", "Notify", "ReleaseLock"]
    assert len(idle.workers()) == 3
    assert {n.instance_id for n in idle.sim.cluster.nodes()} - {idle.deployment.server_id} == set(idle.workers())
    nothing_left_behind(idle)


def test_a_machine_that_does_not_end_in_time_is_left_to_the_next_run() -> None:
    with stage(workers=4, warm_up=1, **SOON_IDLE, terminate_limit_seconds=60) as fleet:
        fleet.cloud.ec2.delays.shutting_down_seconds = 200.0
        run = fleet.tick_until(scaled_down)
        assert run.path[-5:] == ["TerminationStatus", "FailScaleDown", "Notify", "ReleaseLock", "RunFailed"]
        assert fleet.state().operation is not None
        fleet.tick_until(lambda e: e.path[-3:] == ["CompleteScaleDown", "Notify", "ReleaseLock"])
        assert len(fleet.workers()) == 3
        nothing_left_behind(fleet)
        collect(fleet)


@pytest.mark.parametrize("state", ["UndoDrain", "FailScaleDown"])
def test_a_second_fault_while_undoing_does_not_hide_the_first(idle: Stage, state: str) -> None:
    idle.break_state("CheckDrain", DrainFailedError("the first"))
    idle.break_state(state, StateStoreError("the second"))
    run = idle.tick_until(scaled_down)
    assert (run.error, run.cause) == ("DrainFailedError", "the first")
    assert run.path[-3:] == ["Notify", "ReleaseLock", "RunFailed"]
    idle.clear_faults()
    idle.ticks(12)
    assert idle.cordoned() == []


def test_a_fault_while_completing_a_removal_is_finished_by_the_next_run(idle: Stage) -> None:
    idle.break_state("CompleteScaleDown", StateStoreError("it broke"), times=3)
    run = idle.tick_until(scaled_down)
    assert run.path[-4:] == ["CompleteScaleDown", "Notify", "ReleaseLock", "RunFailed"]
    following = idle.tick_until(lambda e: "Resume" in e.path)
    assert following.path == [
        "AcquireLock", "LockStatus", "Resume", "CompleteScaleDown", "Notify", "ReleaseLock",
    ]  # fmt: skip
    nothing_left_behind(idle)


# resume -----------------------------------------------------------------------------------------------------------


def an_operation(fleet: Stage, *, kind: Any = "scale_up", age: int = 10, **fields: Any) -> Operation:
    return Operation(
        operation_id=fields.pop("operation_id", f"{kind.replace('_', '-')}-left-behind"),
        kind=kind,
        phase=fields.pop("phase", "begin" if kind == "scale_up" else "draining"),
        started_at=fleet.now() - age,
        requested=1,
        reason="left behind",
        execution_id="dead",
        workers_before=2,
        **fields,
    )


def a_slot(fleet: Stage, **fields: Any) -> LaunchSlot:
    zone, subnet = next(iter(fleet.settings.zones.items()))
    given = {"number": 0, "zone": zone, "subnet_id": subnet, "instance_type": "t3.small", "market": "on-demand"}
    return LaunchSlot(**{**given, **fields})


def launched(fleet: Stage, *, age: int) -> LaunchSlot:
    """A slot whose worker is there: one of those that started with the fleet."""
    return a_slot(fleet, outcome="launched", instance_id=fleet.workers()[0], launched_at=fleet.now() - age)


def resumed(run: Execution, state: str) -> None:
    assert run.path[:4] == ["AcquireLock", "LockStatus", "Resume", state]
    assert "CollectMetrics" not in run.path[:4]


def test_a_planned_launch_is_launched_by_the_next_run_even_without_prometheus(fleet: Stage) -> None:
    fleet.leave(an_operation(fleet, slots=(a_slot(fleet),)))
    fleet.deployment.transport.fault = "down"
    run = fleet.tick()
    resumed(run, "LaunchNodes")
    assert len(fleet.workers()) == 3
    assert fleet.state().operation is None


def test_a_launch_that_was_recorded_is_only_waited_for(fleet: Stage) -> None:
    fleet.leave(an_operation(fleet, phase="verify", slots=(launched(fleet, age=10),)))
    run = fleet.tick()
    resumed(run, "CheckJoin")
    assert run.status == "SUCCEEDED"
    assert len(fleet.workers()) == 2
    nothing_left_behind(fleet)


def test_an_old_scale_up_is_closed(fleet: Stage) -> None:
    fleet.leave(an_operation(fleet, age=901, phase="verify", slots=(launched(fleet, age=901),)))
    run = fleet.tick()
    resumed(run, "AbandonUnjoined")
    assert len(fleet.workers()) == 2
    nothing_left_behind(fleet)


@pytest.mark.parametrize(
    ("phase", "state"),
    [
        ("selected", "StartDrain"),
        ("draining", "CheckDrain"),
        ("drained", "TerminateNodes"),
        ("terminating", "ConfirmTermination"),
        ("terminated", "ForgetNodes"),
        ("forgotten", "CompleteScaleDown"),
    ],
)
def test_a_removal_is_taken_up_where_its_record_stands(phase: Any, state: str) -> None:
    with stage(workers=4) as fleet:
        instance_id = fleet.workers()[-1]
        if phase in ("terminating", "terminated", "forgotten"):
            fleet.cloud.client("ec2").terminate_instances(InstanceIds=[instance_id])
            fleet.deployment.clock.advance(60)
        target = Target(instance_id=instance_id, node_name=instance_id, phase=phase, started_at=fleet.now())
        fleet.leave(an_operation(fleet, kind="scale_down", targets=(target,)))
        run = fleet.tick()
        resumed(run, state)
        assert fleet.cordoned() == []
        assert fleet.state().operation is None
        collect(fleet)


def test_an_old_removal_is_undone() -> None:
    with stage(workers=3) as fleet:
        instance_id = fleet.workers()[-1]
        target = Target(instance_id=instance_id, node_name=instance_id, phase="draining", started_at=fleet.now() - 901)
        fleet.leave(an_operation(fleet, kind="scale_down", age=901, targets=(target,)))
        run = fleet.tick()
        resumed(run, "UndoDrain")
        assert "TerminateNodes" not in run.path
        assert len(fleet.workers()) == 3
        nothing_left_behind(fleet)
        collect(fleet)


def test_a_run_that_lost_its_lease_changes_nothing_more(fleet: Stage) -> None:
    fleet.load(BUSY)
    struck = fleet.break_state("LaunchNodes", LeaseLostError("another run has the lock"))
    run = fleet.tick_until(lambda e: "LaunchNodes" in e.path)
    assert struck
    assert run.error == "LeaseLostError"
    assert len(fleet.workers()) == 2


def test_every_edge_was_walked() -> None:
    """Runs last in this file, and in one process with it."""
    missing = sorted(all_edges(DEFINITION) - WALKED)
    assert missing == [], f"{len(missing)} edges never taken: {missing}"
