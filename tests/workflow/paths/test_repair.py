"""Runs that repair an unhealthy worker: the reboot before the replacement, and how it ends when that does not help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from simulator.aws.faults import FaultRule
from simulator.runner import Execution
from simulator.scenario.model import Event
from tests.support.workflow_harness import Stage, stage
from tests.support.workflow_paths import nothing_left_behind

pytestmark = pytest.mark.sampled(4)  # with --all, every one

QUICK: dict[str, Any] = {
    "bake_seconds": 60,
    "join_limit_seconds": 120,
    "max_workers": 5,
    "idle_seconds": 86_400,
    "not_ready_replace_seconds": 300,
    "unhealthy_seconds": 300,
    "repair_reboot": True,
    "reboot_wait_seconds": 300,
}
LOAD = 140
UNMOVABLE = ["  - {name: db, kind: StatefulSet, replicas: 12, cpu_milli: 50, memory_mib: 64}"]


@pytest.fixture
def fleet() -> Iterator[Stage]:
    """Three workers, one more than the minimum and than the load needs."""
    with stage(workers=3, load=LOAD, **QUICK) as made:
        yield made


def impair(fleet: Stage, **more: Any) -> str:
    """The status check of a worker fails; answers its id."""
    fleet.sim.events.inject(Event.model_validate({"at": 0, "do": "impair_worker", **more}))
    (ill,) = fleet.cloud.ec2.impaired
    return ill


def reboots(fleet: Stage) -> list[str]:
    return [i for call in fleet.cloud.recorder.of("RebootInstances") for i in call.parameters["InstanceIds"]]


def rebooted(run: Execution) -> bool:
    return "CompleteScaleDown" in run.path and outcome(run)["kind"] == "rebooted"


def outcome(run: Execution, state: str = "CompleteScaleDown") -> dict[str, Any]:
    return dict(run.output_of(state)["outcome"])


def terminated(fleet: Stage) -> list[str]:
    return [i for call in fleet.cloud.recorder.of("TerminateInstances") for i in call.parameters["InstanceIds"]]


def usable(fleet: Stage) -> int:
    return sum(n.ready and not n.unschedulable and n.role != "server" for n in fleet.sim.cluster.nodes())


def test_an_impaired_worker_is_drained_rebooted_and_uncordoned_and_stays_when_that_helps(fleet: Stage) -> None:
    ill = impair(fleet)
    run = fleet.tick_until(rebooted)
    drains, waits = run.path.count("CheckDrain"), run.path.count("ConfirmTermination")
    assert run.path[2:] == [
        *["CollectMetrics", "Decide", "Route", "InspectNodes", "SelectNodes", "SelectionStatus", "StartDrain"],
        *["WaitForDrain", "CheckDrain", "DrainStatus"] * drains,
        *["TerminateNodes", *["WaitForTermination", "ConfirmTermination", "TerminationStatus"] * waits],
        *["UndoDrain", "UndoStatus", "CompleteScaleDown", "Notify", "ReleaseLock"],
    ]
    assert (reboots(fleet), list(fleet.state().memory.rebooted)) == ([ill], [ill])
    (message,) = [m["Message"] for m in fleet.deployment.messages if "rebooted 1 worker" in m["Message"]]
    assert ill in message
    fleet.ticks(15)
    assert (reboots(fleet), terminated(fleet), usable(fleet)) == ([ill], [], 3)
    assert fleet.state().memory.last_action == "", "no cooldown starts, since the size does not change"
    nothing_left_behind(fleet)


def test_a_worker_that_its_reboot_does_not_help_is_replaced_and_rebooted_once(fleet: Stage) -> None:
    ill = impair(fleet, reboot="fails")
    fleet.tick_until(rebooted)
    before = len(fleet.workers())
    fleet.tick_until(lambda run: ill not in fleet.workers(), limit=30)
    assert (reboots(fleet), terminated(fleet), len(fleet.workers())) == ([ill], [ill], before)
    assert fleet.state().memory.rebooted.keys() <= {ill}
    fleet.ticks(2)
    assert fleet.state().memory.rebooted == {}
    nothing_left_behind(fleet)


def test_a_failed_check_of_the_host_is_repaired_by_a_replacement_because_a_reboot_keeps_the_host(fleet: Stage) -> None:
    ill = impair(fleet, check="system")
    fleet.tick_until(lambda run: ill not in fleet.workers(), limit=30)
    assert (reboots(fleet), terminated(fleet)) == ([], [ill])


def test_a_worker_that_is_not_ready_is_rebooted_before_it_is_removed(fleet: Stage) -> None:
    ill = impair(fleet, how="kubelet")
    run = fleet.tick_until(rebooted)
    assert run.output_of("Decide")["decision"]["rule"] == "not_ready"
    fleet.ticks(10)
    assert (reboots(fleet), terminated(fleet), usable(fleet)) == ([ill], [], 3)
    nothing_left_behind(fleet)


def test_a_worker_that_stays_not_ready_after_its_reboot_is_removed(fleet: Stage) -> None:
    ill = impair(fleet, how="kubelet", reboot="fails")
    fleet.tick_until(rebooted)
    waiting = fleet.tick()
    assert f"{ill} was rebooted and has " in waiting.output["sentence"]
    fleet.tick_until(lambda run: ill not in fleet.workers(), limit=30)
    assert (reboots(fleet), terminated(fleet)) == ([ill], [ill])
    nothing_left_behind(fleet)


def test_at_the_minimum_a_worker_that_serves_is_replaced_without_a_reboot() -> None:
    with stage(workers=2, load=LOAD, **QUICK) as fleet:
        ill = impair(fleet)
        least = [usable(fleet)]
        fleet.sim.deployment.clock.every(5, lambda: least.append(usable(fleet)))
        fleet.tick_until(lambda run: ill not in fleet.workers(), limit=30)
        assert (reboots(fleet), terminated(fleet), min(least)) == ([], [ill], 2)


def test_at_the_minimum_and_the_maximum_a_worker_that_is_not_ready_is_rebooted() -> None:
    with stage(workers=4, load=LOAD, **{**QUICK, "min_workers": 4, "max_workers": 4}) as fleet:
        ill = impair(fleet, how="kubelet")
        fleet.tick_until(rebooted, limit=20)
        fleet.ticks(10)
        assert (reboots(fleet), terminated(fleet), usable(fleet)) == ([ill], [], 4)
        nothing_left_behind(fleet)


def test_a_worker_whose_pods_may_not_move_is_not_rebooted() -> None:
    with stage(workers=3, load=LOAD, more=UNMOVABLE, **QUICK) as fleet:
        ill = impair(fleet)
        fleet.tick_until(lambda run: "SelectNodes" in run.path)
        fleet.ticks(5)
        assert (reboots(fleet), ill in fleet.workers(), fleet.cordoned()) == ([], True, [])


def test_a_dry_run_names_the_worker_and_reboots_none(fleet: Stage) -> None:
    ill = impair(fleet)
    run = fleet.dry_run_until("SelectNodes")
    assert f"would reboot {ill}" in outcome(run, "SelectNodes")["text"]
    assert reboots(fleet) == []


@pytest.mark.parametrize("after", [False, True], ids=["before the call", "after the call"])
def test_a_run_that_is_lost_at_the_reboot_never_reboots_twice(fleet: Stage, after: bool) -> None:
    ill = impair(fleet, reboot="fails")
    fleet.break_state("TerminateNodes", MemoryError("killed"), after=after, times=1)
    fleet.tick_until(lambda run: "TerminateNodes" in run.path)
    fleet.clear_faults()
    fleet.tick_until(lambda run: ill not in fleet.workers(), limit=40)
    assert reboots(fleet) == ([ill] if after else [])
    assert terminated(fleet) == [ill]
    nothing_left_behind(fleet)


def test_a_refusal_of_the_reboot_leads_to_the_replacement(fleet: Stage) -> None:
    fleet.cloud.faults.inject(FaultRule(operation="RebootInstances", code="UnauthorizedOperation"))
    ill = impair(fleet)
    run = fleet.tick_until(rebooted)
    assert "but not rebooted: EC2: cannot reboot" in outcome(run)["text"]
    fleet.tick_until(lambda run: ill not in fleet.workers(), limit=30)
    nothing_left_behind(fleet)
