"""Runs that continue the operation of an earlier run."""

from __future__ import annotations

from typing import Any

import pytest

from node_fleet.domain.model.errors import LeaseLostError
from node_fleet.domain.model.operation import LaunchSlot, Target
from simulator.runner import Execution
from tests.support.workflow_harness import BUSY, Stage, stage
from tests.support.workflow_paths import a_slot, an_operation, nothing_left_behind


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
def test_a_removal_continues_where_its_record_stands(phase: Any, state: str) -> None:
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


def test_a_run_that_lost_its_lease_changes_nothing_more(fleet: Stage) -> None:
    fleet.load(BUSY)
    struck = fleet.break_state("LaunchNodes", LeaseLostError("another run has the lock"))
    run = fleet.tick_until(lambda e: "LaunchNodes" in e.path)
    assert struck
    assert run.error == "LeaseLostError"
    assert len(fleet.workers()) == 2
