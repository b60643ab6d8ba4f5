"""The scenario of images: no pod is on a worker before its images are there, and no launch is repeated meanwhile."""

from __future__ import annotations

import pytest

from simulator.cluster.api.store import Change
from simulator.cluster.objects import TAINT_STARTING, is_terminating
from simulator.scenario.files import load_scenario
from simulator.simulation import Simulation

DAEMON = "DaemonSet"


@pytest.mark.whole
@pytest.mark.parametrize(
    ("pull", "report", "least"), [(45, "4 of 4 in 45 s", 45), (500, "3 of 4 in 120 s", 120)], ids=["pulled", "too slow"]
)
def test_pods_start_on_a_new_worker_once_its_images_are_there_or_the_limit_is_over(
    pull: int, report: str, least: int
) -> None:
    scenario = load_scenario("images-ready")
    machines = scenario.cluster.model_copy(update={"image_pull_seconds": float(pull)})
    with Simulation(scenario.model_copy(update={"cluster": machines})) as simulation:
        early: list[str] = []

        def watch(change: Change) -> None:
            if change.resource != "pods" or change.after is None or is_terminating(change.after):
                return
            owner = change.after["metadata"].get("ownerReferences", [{}])[0].get("kind")
            node = simulation.cluster.find("nodes", "", change.after["spec"].get("nodeName", ""))
            taints = (node or {"spec": {}})["spec"].get("taints", ())
            if owner != DAEMON and any(taint["key"] == TAINT_STARTING for taint in taints):
                early.append(change.after["metadata"]["name"])

        simulation.cluster.on_change(watch)
        simulation.run()
        assert early == []
        runs = [e for e in simulation.executions if "CompleteScaleUp" in e.path]
        joins = [e.output_of("CheckJoin")["join"] for e in runs]
        assert joins and all(f"(images: {report})" in join["detail"] for join in joins)
        boot = simulation.cluster.settings.boot_seconds
        assert min(join["seconds"] for join in joins) >= boot + least
        assert {e.status for e in simulation.executions} == {"SUCCEEDED"}
        launched = {i.id for i in simulation.deployment.cloud.ec2.instances()} - set(simulation.starting_ids)
        usable = {node.instance_id for node in simulation.cluster.nodes() if node.usable}
        assert launched - {simulation.deployment.server_id} <= usable, "no launch is given up or repeated"
        assert simulation.points[-1].unschedulable_pods == 0
