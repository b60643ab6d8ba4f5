"""Removals that cannot be finished: they are set aside, scaling continues, and a later run settles them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from simulator.aws.faults import FaultRule
from simulator.runner import Execution
from tests.support.workflow_harness import BUSY, Stage, stage
from tests.support.workflow_paths import QUIET, SOON_IDLE, nothing_left_behind

pytestmark = pytest.mark.sampled(3)  # with --all, every one

CHECKED = ["AcquireLock", "LockStatus", "CheckSetAside", "Resume", "CollectMetrics", "Decide", "Route"]
LATE_SECONDS = 900.0
STUCK: dict[str, Any] = {"terminate_limit_seconds": 60, **SOON_IDLE}
SLOW: dict[str, Any] = {"shutdown": 200, "drain_timeout_seconds": 280}


def kinds(fleet: Stage) -> list[str]:
    """The kinds of all alerts that were sent, in order."""
    messages = (json.loads(record["Message"]) for record in fleet.deployment.messages)
    return [row[0] for message in messages for row in (message["alerts"] or {"rows": []})["rows"]]


def notes(fleet: Stage) -> list[str]:
    return [note for record in fleet.deployment.messages for note in json.loads(record["Message"])["details"]]


def removed(execution: Execution) -> bool:
    return "ConfirmTermination" in execution.path


def nodes(fleet: Stage) -> set[str]:
    return {node.instance_id for node in fleet.sim.cluster.nodes() if node.role != "server"}


def test_an_instance_that_does_not_end_is_set_aside_and_load_is_answered_in_the_next_tick() -> None:
    with stage(workers=4, warm_up=1, **STUCK) as fleet:
        fleet.cloud.ec2.delays.shutting_down_seconds = LATE_SECONDS
        run = fleet.tick_until(removed)
        assert run.path[-5:] == ["TerminationStatus", "NextTarget", "CompleteScaleDown", "Notify", "ReleaseLock"]
        (removal,) = fleet.state().set_aside
        assert (run.status, kinds(fleet)) == ("SUCCEEDED", [f"set_aside:{removal.instance_id}"])
        assert removal.instance_id not in fleet.workers() and len(fleet.workers()) == 3
        struck = fleet.break_state(
            "CheckSetAside", RuntimeError("a check that fails keeps no run from scaling"), times=1
        )
        fleet.load(2 * BUSY)
        following = fleet.tick_until(lambda e: "LaunchNodes" in e.path, limit=2)
        assert following.path[:8] == [*CHECKED, "LaunchNodes"] and following.status == "SUCCEEDED"
        assert struck
        assert len(fleet.workers()) > 3
        later = fleet.tick_until(lambda e: fleet.state().set_aside == ())
        assert later.path == [*CHECKED, "Notify", "ReleaseLock"]
        assert f"worker {removal.instance_id} has ended" in notes(fleet)[-1]
        assert nodes(fleet) == set(fleet.workers())
        assert kinds(fleet) == [f"set_aside:{removal.instance_id}"]
        nothing_left_behind(fleet)


def test_workers_that_die_meanwhile_are_replaced_up_to_the_minimum() -> None:
    with stage(workers=3, warm_up=1, **STUCK) as fleet:
        fleet.cloud.ec2.delays.shutting_down_seconds = LATE_SECONDS
        fleet.tick_until(removed)
        for instance_id in fleet.workers():
            fleet.cloud.ec2.reclaim(instance_id)
        fleet.tick()
        assert len(fleet.workers()) == 2 and len(fleet.state().set_aside) == 1


def test_what_is_set_aside_needs_no_further_call_in_ticks_that_have_none(fleet: Stage) -> None:
    functions = {i.function.rpartition("-")[2] for i in fleet.cloud.lambdas.invocations}
    assert fleet.tick().path == QUIET
    assert "CheckSetAside" not in functions


def test_of_two_targets_the_second_follows_one_that_is_set_aside_and_the_limit_pauses_further_removals() -> None:
    with stage(workers=6, warm_up=1, max_targets=2, set_aside_limit=2, **STUCK) as fleet:
        fleet.cloud.ec2.delays.shutting_down_seconds = LATE_SECONDS
        run = fleet.tick_until(removed)
        at = run.path.index("NextTarget")
        assert run.path[at : at + 2] == ["NextTarget", "StartDrain"]
        assert len(fleet.state().set_aside) == 2 and len(fleet.workers()) == 4
        later = fleet.ticks(4)
        assert not any("InspectNodes" in e.path for e in later)
        assert kinds(fleet).count("removals_paused") == 1
        fleet.load(3 * BUSY)
        assert fleet.tick_until(lambda e: "LaunchNodes" in e.path, limit=3).status == "SUCCEEDED"


def test_an_instance_that_ec2_did_not_terminate_is_uncordoned_by_the_next_run(idle: Stage) -> None:
    rule = idle.cloud.faults.inject(FaultRule(operation="TerminateInstances", code="InternalError", status=500))
    run = idle.tick_until(lambda e: "TerminateNodes" in e.path)
    assert run.path[-5:] == ["UndoStatus", "FailScaleDown", "Notify", "ReleaseLock", "RunFailed"]
    idle.cloud.faults.remove(rule)
    following = idle.tick_until(lambda e: "Resume" in e.path, limit=1)
    at = following.path.index("TerminationStatus")
    assert following.path[at : at + 4] == ["TerminationStatus", "UndoDrain", "UndoStatus", "FailScaleDown"]
    assert (following.error, idle.cordoned(), len(idle.workers())) == ("Ec2Error", [], 4)
    assert [b.key.partition(":")[0] for b in idle.state().memory.back_offs] == ["node"]
    nothing_left_behind(idle)


def test_a_rollback_that_fails_is_set_aside_and_the_next_run_stops_the_drain_and_scales() -> None:
    with stage(workers=4, warm_up=1, **SLOW, **SOON_IDLE) as fleet:
        fleet.break_state("CheckDrain", RuntimeError("the first"), times=1)
        fleet.break_state("UndoDrain", RuntimeError("the second"))
        run = fleet.tick_until(lambda e: "UndoDrain" in e.path)
        assert run.path[-5:] == ["UndoDrain", "FailScaleDown", "Notify", "ReleaseLock", "RunFailed"]
        (removal,) = fleet.state().set_aside
        assert (removal.kind, fleet.cordoned()) == ("rollback", [removal.node_name])
        assert kinds(fleet) == [f"set_aside:{removal.instance_id}"]
        following = fleet.run()
        assert following.path[: len(CHECKED)] == CHECKED
        (stopped,) = fleet.cloud.recorder.of("CancelCommand")
        assert stopped.function.endswith("-CheckSetAside")
        assert stopped.parameters["CommandId"] == removal.command_id
        assert fleet.cordoned() == [] and fleet.state().set_aside == ()
        nothing_left_behind(fleet)


def test_an_unreachable_server_blocks_neither_launches_nor_the_ticks_and_is_asked_again_in_each() -> None:
    with stage(workers=4, warm_up=1, **SLOW, **SOON_IDLE) as fleet:
        assert fleet.deployment.run_until(lambda: fleet.cordoned() != [], limit_seconds=3600)
        fleet.cloud.commands.offline.add(fleet.deployment.server_id)
        fleet.cloud.commands.lost.add(fleet.deployment.server_id)
        fleet.deployment.run_until(lambda: fleet.state().set_aside != (), limit_seconds=1200)
        fleet.deployment.settle()
        fleet.load(2 * BUSY)
        run = fleet.tick_until(lambda e: "LaunchNodes" in e.path, limit=3)
        assert "CheckSetAside" in run.path and run.status == "SUCCEEDED"
        assert fleet.state().set_aside[0].tried_at > 0
        fleet.cloud.commands.offline.clear()
        fleet.cloud.commands.lost.clear()
        fleet.tick_until(lambda e: fleet.state().set_aside == (), limit=2)
        assert fleet.cordoned() == []
        nothing_left_behind(fleet)
