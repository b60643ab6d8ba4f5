"""Many small clusters at once on one control plane: each has nodes of its own, and its pods run only there.

Pods of all of them are in one namespace; the name of the cluster is part of every name and label, so no rule about
other pods reaches into another cluster.
"""

from __future__ import annotations

from collections.abc import Callable

from simulator.cluster.api.errors import ApiError
from simulator.cluster.api.store import copy_of
from simulator.cluster.objects import Obj, is_unschedulable, node_of
from tests.support.fit_clusters import KINDS, OVERHEAD, Verdicts, build, judged_fit, waiting_applications
from tests.support.real_plane.cluster import RealCluster

LABEL = "node-fleet.io/test-cluster"


class SmallCluster:
    """One of the clusters. It builds with prefixed names."""

    def __init__(self, number: int, cluster: RealCluster) -> None:
        self.name = f"c{number}"
        self._number = number
        self._shared = cluster

    def build(self) -> None:
        build(self._number, self)

    def add_worker(self, instance_id: str, *, instance_type: str, az: str) -> None:
        self._shared.add_worker(self._full(instance_id), instance_type=instance_type, az=az)

    def update(self, resource: str, namespace: str, name: str, edit: Callable[[Obj], None]) -> Obj:
        def edit_and_mark(node: Obj) -> None:
            edit(node)
            node["metadata"]["labels"][LABEL] = self.name

        return self._shared.update(resource, namespace, self._full(name), edit_and_mark)

    def create(self, resource: str, obj: Obj) -> Obj:
        return self._shared.create(resource, self._moved(copy_of(obj)))

    def _full(self, name: str) -> str:
        return f"{self.name}-{name}"

    def _moved(self, deployment: Obj) -> Obj:
        template = deployment["spec"]["template"]
        spec = template["spec"]
        deployment["metadata"]["name"] = self._full(deployment["metadata"]["name"])
        selectors = [deployment["spec"]["selector"], *_selectors(spec)]
        for labels in (deployment["metadata"]["labels"], template["metadata"]["labels"]):
            labels["app"] = self._full(labels["app"])
        for selector in selectors:
            selector["matchLabels"] = {"app": self._full(selector["matchLabels"]["app"])}
        spec["nodeSelector"] = {**spec.get("nodeSelector", {}), LABEL: self.name}
        template["metadata"]["labels"][LABEL] = self.name
        return deployment


def _selectors(spec: Obj) -> list[Obj]:
    """Every label selector in a pod spec."""
    terms: list[Obj] = list(spec.get("topologySpreadConstraints", ()))
    for kind in ("podAffinity", "podAntiAffinity"):
        for required in spec.get("affinity", {}).get(kind, {}).values():
            terms += required
    return [term["labelSelector"] for term in terms if "labelSelector" in term]


def add_runtime_class(cluster: RealCluster) -> None:
    """A pod may have an overhead only as its runtime class says."""
    metadata = {"name": "sandbox"}
    obj = {"metadata": metadata, "handler": "sandbox", "overhead": {"podFixed": dict(OVERHEAD)}}
    try:
        cluster.api.request("POST", "/apis/node.k8s.io/v1/runtimeclasses", obj)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise


def build_all(cluster: RealCluster, numbers: range) -> list[SmallCluster]:
    """The clusters of these numbers, without the applications that do not fit."""
    add_runtime_class(cluster)
    clusters = [SmallCluster(number, cluster) for number in numbers]
    for one in clusters:
        one.build()
    cluster.settle()
    while waiting := waiting_applications(cluster.objects("pods", "shop")):
        for name in waiting:
            cluster.delete("deployments", "shop", name)
        cluster.settle()
    return clusters


def verdicts(cluster: RealCluster, clusters: list[SmallCluster]) -> dict[str, Verdicts]:
    """Cluster -> what the fit check says about its workers."""
    lists = {kind: cluster.objects(kind) for kind in KINDS}

    def of(cluster: SmallCluster, kind: str) -> list[Obj]:
        return [o for o in lists[kind] if o["metadata"].get("labels", {}).get(LABEL) == cluster.name]

    return {one.name: judged_fit({**lists, "nodes": of(one, "nodes"), "pods": of(one, "pods")}) for one in clusters}


def drain(cluster: RealCluster, node: str) -> None:
    """Cordon the node and evict its pods."""
    cluster.cordon(node)
    for pod in cluster.pods_on(node):
        cluster.evict(pod["metadata"]["namespace"], pod["metadata"]["name"])


def waiting_pods(cluster: RealCluster) -> dict[str, list[str]]:
    """Cluster -> its pods that the scheduler could not place."""
    found: dict[str, list[str]] = {}
    for pod in cluster.objects("pods", "shop"):
        if not node_of(pod) and is_unschedulable(pod):
            found.setdefault(pod["metadata"]["labels"][LABEL], []).append(pod["metadata"]["name"])
    return found
