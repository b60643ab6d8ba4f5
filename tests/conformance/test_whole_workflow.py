"""The whole workflow in real time: two workers, a third for pods that wait, and two again.

State machine, handlers, scripts, kubectl, Prometheus, kube-state-metrics and the control plane are real. AWS is moto;
kubelets and node exporters are stand-ins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from node_fleet.adapters.prometheus.queries import PENDING_AGE, WORKER_CPU
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.payload import from_payload
from simulator.cluster.load.applications import ApplicationSpec
from simulator.cluster.objects import Obj, condition_is_true, node_of
from simulator.local_deployment import LocalDeployment
from simulator.runner import Execution
from simulator.simulation import launch_worker
from tests.support.budget_checker import BudgetChecker
from tests.support.real_plane.cluster import RealCluster
from tests.support.real_plane.fleet import real_fleet
from tests.support.real_plane.monitoring import monitoring
from tests.support.real_plane.observation import Observation
from tests.support.recorded_calls import LEDGER
from tests.support.workflow_harness import template

pytestmark = pytest.mark.whole
LIMIT_SECONDS = 600
SETTINGS = {
    "preset": "node-fleet",
    "min_workers": 2,
    "max_workers": 3,
    "spot_percent": 0,
    "idle_seconds": 5,
    "cooldown_up_seconds": 0,
    "cooldown_down_seconds": 0,
    "scheduling_grace_seconds": 2,
    "join_poll_seconds": 2,
    "drain_poll_seconds": 2,
    "terminate_poll_seconds": 2,
}
FULL, MORE, FEW = 12, 14, 6
"""Six pods fill a worker: two of 14 wait for a third worker. Six at last, two on each worker, fit on two workers."""
WEB = ApplicationSpec(
    name="web", cpu_request_milli=300, replicas=FULL, max_unavailable=1, start_seconds=3, shutdown_seconds=1
)
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
TICK_SECONDS = 2


class Fleet:
    """The deployment and its cluster, as a person sees them."""

    def __init__(self, deployment: LocalDeployment, cluster: RealCluster) -> None:
        self.deployment = deployment
        self.cluster = cluster
        self.ticked_at = 0.0

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        assert self.deployment.run_until(condition, limit_seconds=LIMIT_SECONDS), f"waited in vain for {what}"

    def tick_until(self, state: str) -> Execution:
        """Scheduled runs, one after the other, until one enters the state; that run, at its end."""

        def runs() -> list[Execution]:
            return [run for run in self.deployment.executions if run.machine.endswith("autoscaler")]

        def has_entered() -> bool:
            if any(run.running for run in runs()):
                return False
            if any(state in run.path for run in runs()):
                return True
            if self.deployment.clock.now() - self.ticked_at >= TICK_SECONDS:
                self.ticked_at = self.deployment.clock.now()
                self.deployment.tick()
            return False

        assert self.deployment.run_until(has_entered, limit_seconds=LIMIT_SECONDS), [run.path for run in runs()[-5:]]
        return next(run for run in runs() if state in run.path)

    def scale(self, replicas: int) -> None:
        """Change the application, and let it delete the newer pods of each worker first."""
        kept: Counter[str] = Counter()
        for pod in self.cluster.objects("pods", WEB.namespace):
            kept[node_of(pod)] += 1
            cost = {DELETION_COST: str(-kept[node_of(pod)])}
            self.cluster.update("pods", WEB.namespace, pod["metadata"]["name"], partial(_annotate, annotations=cost))
        self.cluster.update("deployments", WEB.namespace, WEB.name, lambda obj: obj["spec"].update(replicas=replicas))

    def running_pods(self) -> list[str]:
        """The node of each pod of the application that is Ready."""
        pods = self.cluster.objects("pods", WEB.namespace)
        return sorted(node_of(pod) for pod in pods if condition_is_true(pod, "Ready"))

    def workers(self) -> set[str]:
        """Instances that EC2 counts as running."""
        cloud, server = self.deployment.cloud, self.deployment.server_id
        return {one.id for one in cloud.ec2.instances() if one.state == "running" and one.id != server}

    def nodes(self) -> set[str]:
        """Nodes of workers that are Ready and not cordoned."""
        return {
            node["metadata"]["name"]
            for node in self.cluster.objects("nodes")
            if condition_is_true(node, "Ready")
            and not node["spec"].get("unschedulable")
            and node["metadata"]["name"] != self.deployment.server_id
        }


def _annotate(obj: Obj, annotations: dict[str, str]) -> None:
    obj["metadata"].setdefault("annotations", {}).update(annotations)


@pytest.fixture
def fleet(cluster: RealCluster, tmp_path: Path) -> Iterator[Fleet]:
    """Two workers with an application that fills them, and a Prometheus that knows their figures."""
    with (
        monitoring(cluster, tmp_path) as prometheus,
        real_fleet(cluster, prometheus, template(), tmp_path, **SETTINGS) as deployment,
    ):
        made = Fleet(deployment, cluster)
        for subnet in list(deployment.subnets().values())[:2]:
            launch_worker(deployment, instance_type="t3.small", market="on-demand", subnet_id=subnet)
        made.wait_for(lambda: len(made.nodes()) == 2, "two nodes")
        cluster.add_application(WEB)
        made.wait_for(lambda: len(made.running_pods()) == FULL, "the pods of the application")
        made.wait_for(lambda: len(prometheus.vector(WORKER_CPU)) == 2, "the figures of both workers")
        made.wait_for(lambda: all(map(node_of, cluster.objects("pods"))), "the placement of every pod")
        made.wait_for(
            lambda: len(prometheus.vector("kube_pod_info")) == len(cluster.objects("pods")), "the figures of every pod"
        )
        made.wait_for(lambda: not prometheus.vector(PENDING_AGE), "figures without pods that wait")
        yield made
        LEDGER.edges.update(edge for run in deployment.executions if "autoscaler" in run.machine for edge in run.edges)


def test_a_fleet_grows_for_waiting_pods_and_shrinks_without_breaking_a_budget(fleet: Fleet) -> None:
    cluster, before = fleet.cluster, fleet.workers()
    fleet.scale(MORE)
    grown = fleet.tick_until("CompleteScaleUp")
    assert grown.status == "SUCCEEDED"
    first = next(visit.output for visit in grown.history if visit.name == "CollectMetrics")
    reading = from_payload(Snapshot, first["snapshot"])
    assert (reading.source, reading.missing, reading.pending_count) == ("live", (), MORE - FULL)
    fleet.wait_for(lambda: len(fleet.running_pods()) == MORE, "the pods that waited")
    (added,) = fleet.workers() - before
    assert fleet.nodes() == before | {added}
    assert fleet.running_pods().count(added) == MORE - FULL

    fleet.scale(FEW)
    fleet.wait_for(
        lambda: Counter(fleet.running_pods()) == dict.fromkeys({*before, added}, 2), "two pods on each worker"
    )
    observation = Observation(cluster)
    checker = BudgetChecker(observation)
    shrunk = fleet.tick_until("CompleteScaleDown")
    observation.close()
    assert shrunk.status == "SUCCEEDED"
    (removed,) = (before | {added}) - fleet.workers()
    assert checker.violations == []
    assert len(checker.removals) == 2
    assert cluster.find("nodes", "", removed) is None
    assert removed not in str(cluster.objects("secrets", "kube-system"))
    assert fleet.nodes() == fleet.workers()

    fleet.wait_for(lambda: len(fleet.running_pods()) == FEW, "the pods that moved")
    assert removed not in fleet.running_pods()
    fleet.deployment.settle()
    quiet = fleet.deployment.start_workflow({"trigger": "manual"})
    fleet.deployment.settle()
    assert quiet.status == "SUCCEEDED"
    assert quiet.output_of("Decide")["decision"]["action"] == "none"
    assert len(fleet.workers()) == 2
