"""Runs that replace an outdated worker: the inspection, the launch, the removal, and how a broken image ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from node_fleet.domain.model.memory import Replacement, RollOut
from simulator.cluster.boot import BootRule
from simulator.runner import Execution
from simulator.scenario.model import Event
from tests.support.workflow_harness import Stage, stage
from tests.support.workflow_paths import nothing_left_behind

pytestmark = pytest.mark.sampled(3)  # with --all, every one

QUICK: dict[str, Any] = {
    "bake_seconds": 60,
    "join_limit_seconds": 120,
    "max_workers": 5,
    "idle_seconds": 86_400,
    "drain_back_off_seconds": 600,
}
LOAD = 140


STATEFUL = ["  - {name: db, kind: StatefulSet, replicas: 12, cpu_milli: 50, memory_mib: 64}"]


def deploy(fleet: Stage, image: str) -> None:
    fleet.sim.events.inject(Event.model_validate({"at": 0, "do": "new_image", "image": image}))


def launches(execution: Execution) -> bool:
    return "LaunchNodes" in execution.path


def removes(execution: Execution) -> bool:
    return "TerminateNodes" in execution.path


def images(fleet: Stage) -> list[str]:
    return sorted(str(fleet.cloud.ec2.instance(i).image_id) for i in fleet.workers())


@pytest.fixture
def outdated() -> Iterator[Stage]:
    """Three workers of an older image."""
    with stage(workers=3, load=LOAD, **QUICK) as fleet:
        deploy(fleet, "ami-good")
        yield fleet


def test_a_worker_is_inspected_then_its_replacement_launched_and_after_the_bake_it_is_removed(outdated: Stage) -> None:
    before = outdated.workers()
    run = outdated.tick_until(launches)
    polls = run.path.count("CheckJoin")
    assert run.path[2:] == [
        *["CollectMetrics", "Decide", "Route", "InspectNodes", "SelectNodes", "SelectionStatus"],
        *["LaunchNodes", "LaunchStatus", *["WaitForJoin", "CheckJoin", "JoinStatus"] * polls],
        *["CompleteScaleUp", "MoreDemand", "Notify", "ReleaseLock"],
    ]
    memory = outdated.state().memory
    current = memory.roll_out.current
    assert current is not None and current.worker in before and current.replacement in outdated.workers()
    assert (memory.last_action, len(outdated.workers())) == ("", 4)
    run = outdated.tick_until(removes)
    assert set(before) - set(outdated.workers()) == {current.worker}
    assert outdated.state().memory.last_action == ""
    nothing_left_behind(outdated)


def test_every_worker_is_replaced_in_turn(outdated: Stage) -> None:
    outdated.tick_until(lambda run: images(outdated) == ["ami-good"] * 3, limit=20)
    outdated.ticks(2)
    template_id = outdated.deployment.resources.setting("LAUNCH_TEMPLATE_ID")
    assert outdated.state().memory.roll_out == RollOut(
        template_id=template_id, good_version="2", server_version=outdated.sim.cluster.server_version
    )
    nothing_left_behind(outdated)


def test_a_dry_run_names_the_worker_and_launches_none(outdated: Stage) -> None:
    run = outdated.dry_run_until("SelectNodes")
    assert run.path[-4:] == ["SelectNodes", "SelectionStatus", "Notify", "ReleaseLock"]
    assert "would replace i-" in run.output["sentence"]
    assert images(outdated) == ["ami-12345678"] * 3
    nothing_left_behind(outdated)


def test_at_the_maximum_a_worker_is_removed_first_when_the_others_take_its_pods() -> None:
    with stage(workers=3, load=60, **{**QUICK, "max_workers": 3}) as fleet:
        deploy(fleet, "ami-good")
        run = fleet.tick_until(removes)
        assert run.output_of("Decide")["decision"]["action"] == "replace"
        current = fleet.state().memory.roll_out.current
        assert current is not None and current.replacement == "" and len(fleet.workers()) == 2
        run = fleet.tick_until(launches)
        assert "InspectNodes" not in run.path
        fleet.tick_until(lambda run: images(fleet) == ["ami-good"] * 3, limit=30)
        nothing_left_behind(fleet)


def test_an_image_whose_worker_never_joins_stops_the_roll_out_and_the_next_launch_uses_the_good_one() -> None:
    with stage(workers=3, load=LOAD, **QUICK) as fleet:
        fleet.ticks(3)
        fleet.sim.cluster.boot_rules.insert(0, BootRule(kind="never_joins", image="ami-bad"))
        deploy(fleet, "ami-bad")
        run = fleet.tick_until(launches)
        assert run.path[-5:] == ["AbandonStatus", "FailScaleUp", "Notify", "ReleaseLock", "RunFailed"]
        roll_out = fleet.state().memory.roll_out
        assert roll_out.is_stopped("2") and roll_out.good_version == "1"
        (alert,) = [m for m in fleet.deployment.messages if "the roll-out is stopped" in m["Message"]]
        assert "never joined" in alert["Message"] and "its console ends with" in alert["Message"]
        quiet = fleet.ticks(4)
        assert not any(launches(r) or removes(r) for r in quiet)
        assert len(fleet.workers()) == 3
        fleet.load(900)
        fleet.tick_until(launches)
        request = fleet.cloud.recorder.of("CreateFleet")[-1].parameters
        assert request["LaunchTemplateConfigs"][0]["LaunchTemplateSpecification"]["Version"] == "1"
        nothing_left_behind(fleet)


def test_a_run_that_is_lost_after_the_launch_is_resumed_and_the_replacement_is_remembered(outdated: Stage) -> None:
    outdated.break_state("CheckJoin", MemoryError("killed"), times=1)
    run = outdated.tick_until(launches)
    assert run.status == "FAILED"
    assert outdated.state().memory.roll_out.current is not None
    outdated.tick_until(lambda run: images(outdated) == ["ami-good"] * 3, limit=30)
    nothing_left_behind(outdated)


def test_a_worker_that_no_pod_may_leave_is_kept_and_inspected_again_later() -> None:
    with stage(workers=3, load=LOAD, more=STATEFUL, **QUICK) as fleet:
        deploy(fleet, "ami-good")
        run = fleet.tick_until(lambda r: "SelectNodes" in r.path)
        assert run.path[-2:] == ["SelectionStatus", "ReleaseLock"]
        assert "StatefulSet" in run.output["sentence"]
        retry_at = fleet.state().memory.roll_out.retry_at
        assert retry_at > fleet.now()
        assert not any("SelectNodes" in r.path for r in fleet.ticks(2))
        assert isinstance(fleet.state().memory.roll_out.current, Replacement | None)
        assert images(fleet) == ["ami-12345678"] * 3


def test_a_worker_whose_disk_is_full_for_long_is_replaced_and_its_pods_are_drained() -> None:
    with stage(workers=3, load=LOAD, **QUICK, unhealthy_seconds=300) as fleet:
        ill = fleet.workers()[0]
        fleet.sim.cluster.set_node_condition(ill, "DiskPressure", holds=True)
        run = fleet.tick_until(launches)
        decision = run.output_of("Decide")["decision"]
        assert (decision["rule"], decision["replace"]) == ("unhealthy", ill)
        run = fleet.tick_until(removes)
        assert "StartDrain" in run.path
        assert ill not in fleet.workers() and len(fleet.workers()) == 3
        nothing_left_behind(fleet)


def test_a_replacement_that_loses_ready_stops_the_roll_out_with_the_end_of_its_console() -> None:
    with stage(workers=3, load=LOAD, **{**QUICK, "bake_seconds": 600}) as fleet:
        fleet.ticks(3)
        before = fleet.workers()
        deploy(fleet, "ami-good")
        fleet.tick_until(launches)
        current = fleet.state().memory.roll_out.current
        assert current is not None
        fleet.sim.cluster.fail_node(current.replacement)
        fleet.tick_until(lambda run: fleet.state().memory.roll_out.is_stopped("2"))
        (alert,) = [m["Message"] for m in fleet.deployment.messages if "the roll-out is stopped" in m["Message"]]
        assert f"{current.replacement}, which replaces {current.worker}, lost Ready" in alert
        assert "its console ends with" in alert and "version 1 of the launch template" in alert
        assert not any(removes(run) for run in fleet.ticks(2))
        assert set(before) <= set(fleet.workers())
