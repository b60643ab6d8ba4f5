"""Runs that drain, terminate and forget workers, or roll that back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from moto.ec2.models.instances import Instance as MotoInstance

from node_fleet.domain.model.errors import DrainFailedError, StateStoreError
from node_fleet.domain.model.fleet_state import Protection
from simulator.aws.faults import FaultRule
from simulator.runner import Execution
from tests.support.workflow_harness import BUSY, Stage, stage
from tests.support.workflow_paths import SOON_IDLE, nothing_left_behind, scaled_down

pytestmark = pytest.mark.sampled(7)  # with --all, every one


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


def lose_target(fleet: Stage) -> None:
    operation = fleet.state().operation
    if operation is not None and operation.current is not None and operation.current.phase == "draining":
        fleet.cloud.ec2.reclaim(operation.current.instance_id)


def test_a_worker_that_is_protected_while_it_drains_is_uncordoned_and_stays() -> None:
    with stage(workers=4, warm_up=1, shutdown=40, **SOON_IDLE) as fleet:
        protected: list[str] = []
        fleet.deployment.clock.every(1.0, lambda: protect_target(fleet, protected))
        run = fleet.tick_until(scaled_down)
        at = run.path.index("UndoDrain")
        assert run.path[at - 1] == "DrainStatus" and run.status == "SUCCEEDED"
        assert "TerminateNodes" not in run.path
        assert protected[0] in fleet.workers() and fleet.cordoned() == []
        assert fleet.state().memory.back_offs == (), "an order is no failure of the drain"
        again = fleet.tick_until(scaled_down)
        assert protected[0] in fleet.workers() and len(fleet.workers()) == 3, "another worker is removed in its place"
        assert "TerminateNodes" in again.path
        nothing_left_behind(fleet)


def test_a_worker_that_is_protected_between_drain_and_termination_is_uncordoned_and_stays(idle: Stage) -> None:
    idle.break_state("TerminateNodes", StateStoreError("DynamoDB is throttled"), times=1)
    idle.deployment.clock.every(0.5, lambda: protect_target(idle, [], phase="drained"))
    run = idle.tick_until(scaled_down)
    assert run.path[run.path.index("TerminateNodes") + 1] == "UndoDrain"
    assert run.status == "FAILED" and run.error == "PausedError"
    assert "was not terminated: it is protected by ana until" in str(run.cause)
    assert len(idle.workers()) == 4 and idle.cordoned() == []
    assert idle.state().operation is None and idle.state().memory.back_offs == ()
    nothing_left_behind(idle)


@pytest.mark.whole
def test_a_worker_that_ec2_does_not_stop_is_a_usual_worker_again_and_is_stopped_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = {"standby_workers": 1, "spot_percent": 50, "drain_back_off_seconds": 60}
    with stage(workers=2, market="spot", warm_up=0, **few) as fleet:
        with monkeypatch.context() as patched:
            patched.setattr(MotoInstance, "stop", lambda self: self._state)
            run = fleet.tick_until(lambda run: "UndoDrain" in run.path)
            at = run.path.index("UndoDrain")
            assert run.path[at - 2 : at] == ["ConfirmTermination", "TerminationStatus"]
            assert standby_tags(fleet) == [("running", "kept")]
        fleet.tick_until(lambda run: "TerminateNodes" in run.path)
        assert standby_tags(fleet) == [("stopped", "ready")]
        nothing_left_behind(fleet)


def standby_tags(fleet: Stage) -> list[tuple[str, str]]:
    """State and tag of each worker that has the tag Standby."""
    found = ((i.state, {t["key"]: t["value"] for t in i.get_tags()}) for i in fleet.cloud.ec2.instances())
    return [(state, tags["Standby"]) for state, tags in found if "Standby" in tags]


def protect_target(fleet: Stage, protected: list[str], phase: str = "draining") -> None:
    operation = fleet.state().operation
    target = operation.current if operation else None
    if target is not None and target.phase == phase and not protected:
        protected.append(target.instance_id)
        now = fleet.now()
        fleet.store.protect(Protection(instance_id=target.instance_id, by="ana", since=now, until=now + 7200))


def test_idle_workers_stay_while_a_budget_holds_them_and_the_tick_is_a_quiet_one() -> None:
    with stage(workers=4, warm_up=1, **SOON_IDLE, disruption_budgets=[{"nodes": "0"}]) as fleet:
        run = fleet.tick_until(lambda e: "budget" in e.output_of("Decide")["decision"]["blocked_by"])
        assert run.path[-2:] == ["Route", "ReleaseLock"], "neither an inspection nor a message"
        assert len(fleet.workers()) == 4
        nothing_left_behind(fleet)


def test_a_dry_run_names_the_targets_and_drains_no_worker(idle: Stage) -> None:
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
    "    replicas: 12",
    "    cpu_milli: 50",
    "    memory_mib: 64",
    "    load: {constant: 0}",
]


def test_when_no_worker_is_eligible_the_run_says_why_and_ends_quietly() -> None:
    with stage(workers=3, warm_up=1, **SOON_IDLE, more=STATEFUL) as fleet:
        run = fleet.tick_until(scaled_down)
        assert run.path[-3:] == ["SelectNodes", "SelectionStatus", "ReleaseLock"]
        assert run.status == "SUCCEEDED"
        assert "StatefulSet" in json.dumps(run.output_of("SelectNodes")["selection"])
        assert len(fleet.workers()) == 3
        nothing_left_behind(fleet)


def test_a_server_that_cannot_be_asked_removes_no_worker(idle: Stage) -> None:
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
def test_a_fault_before_the_end_of_a_machine_uncordons_and_terminates_no_worker(
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


def test_a_termination_that_ec2_refuses_for_good_is_rolled_back_at_once_and_launches_go_on() -> None:
    with stage(workers=4, warm_up=1, **SOON_IDLE) as fleet:
        rule = FaultRule(operation="TerminateInstances", code="OperationNotPermitted", status=400)
        fleet.cloud.faults.inject(rule)
        run = fleet.tick_until(lambda e: "TerminateNodes" in e.path)
        assert run.path[-6:] == ["UndoDrain", "UndoStatus", "FailScaleDown", "Notify", "ReleaseLock", "RunFailed"]
        assert run.error == "TerminationRefusedError" and "OperationNotPermitted" in run.cause
        assert fleet.cordoned() == [] and fleet.state().operation is None
        later = fleet.ticks(12)
        assert {e.status for e in later} == {"SUCCEEDED"} and rule.hits == 1
        assert not any("StartDrain" in e.path for e in later)
        fleet.load(2 * BUSY)
        assert fleet.tick_until(lambda e: "LaunchNodes" in e.path).status == "SUCCEEDED"
