"""Through the whole workflow: what kubectl shows of launches, removals and interruptions, and that a quiet tick writes
nothing."""

from __future__ import annotations

from typing import Any

import yaml

from simulator.cluster.load.applications import ApplicationSpec
from tests.support.workflow_harness import Stage, stage

IDLE: dict[str, Any] = {"idle_seconds": 240, "cooldown_down_seconds": 0}


def reasons(fleet: Stage, namespace: str = "default") -> dict[str, str]:
    """Reason -> one message, of all Events of the namespace."""
    return {event["reason"]: event["message"] for event in fleet.sim.cluster.objects("events", namespace)}


def status(fleet: Stage) -> dict[str, Any]:
    found = fleet.sim.cluster.find("configmaps", "kube-system", "node-fleet-status")
    assert found is not None
    read: dict[str, Any] = yaml.safe_load(found["data"]["status"])
    return read


def commands(fleet: Stage) -> list[str]:
    return [call.parameters["DocumentName"] for call in fleet.cloud.recorder.of("SendCommand")]


def test_pods_and_new_workers_show_a_scale_up_and_quiet_ticks_send_no_command() -> None:
    with stage(workers=2, warm_up=2) as fleet:
        assert (commands(fleet), reasons(fleet)) == ([], {})
        fleet.sim.cluster.add_application(ApplicationSpec(name="big", replicas=3, cpu_request_milli=1500))
        fleet.tick_until(lambda run: "CompleteScaleUp" in run.path)
        fleet.deployment.clock.advance(20)
        assert "ScaleUp" in reasons(fleet) and "ScaleUp" in reasons(fleet, "shop")
        assert reasons(fleet)["ScaleUp"].startswith("node-fleet launched this worker (t3")
        found = status(fleet)
        assert found["workersAfter"] > found["workersBefore"] == 2
        sent = len(commands(fleet))
        quiet = fleet.tick_until(lambda run: "Notify" not in run.path and "LaunchNodes" not in run.path)
        assert len(commands(fleet)) == sent and len(quiet.path) <= 7


def test_a_removal_is_shown_from_the_drain_to_the_end_of_the_node() -> None:
    with stage(workers=4, warm_up=1, **IDLE) as fleet:
        fleet.tick_until(lambda run: "CompleteScaleDown" in run.path)
        fleet.deployment.clock.advance(20)
        assert {"Draining", "Removed"} <= reasons(fleet).keys()
        assert "evicts the pods of this worker until" in reasons(fleet)["Draining"]


def test_workers_that_stay_show_why_and_the_next_ticks_do_not_repeat_it() -> None:
    with stage(workers=3, warm_up=1, **IDLE) as fleet:
        for name in fleet.workers():
            fleet.sim.cluster.update("nodes", "", name, keep)
        fleet.tick_until(lambda run: "SelectNodes" in run.path)
        fleet.deployment.clock.advance(20)
        assert (
            reasons(fleet)["NotEligible"]
            == "kept: it is annotated cluster-autoscaler.kubernetes.io/scale-down-disabled"
        )
        fleet.ticks(4)
        assert sum(name.endswith("RecordEvents") for name in commands(fleet)) == 1


def keep(node: dict[str, Any]) -> None:
    node["metadata"].setdefault("annotations", {})["cluster-autoscaler.kubernetes.io/scale-down-disabled"] = "true"


def test_a_spot_interruption_is_shown_on_its_worker() -> None:
    with stage(workers=3, warm_up=1, market="spot") as fleet:
        taken = fleet.workers()[0]
        fleet.cloud.ec2.warn_spot(taken)
        fleet.deployment.clock.advance(60)
        found = fleet.sim.cluster.objects("events", "default")
        assert [(e["involvedObject"]["name"], e["reason"]) for e in found] == [(taken, "SpotInterruption")]
