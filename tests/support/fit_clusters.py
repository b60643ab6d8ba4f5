"""Random clusters with mixed predicates, the fit of their workers, and two independent answers: eviction and search.

The simulator's scheduler is written apart from the rules that it checks here.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Protocol

from simulator.clock import VirtualClock
from simulator.cluster.control.relations import find_conflicts
from simulator.cluster.control.scheduler import capacity_of_node, find_refusals
from simulator.cluster.control.volumes import volume_node_terms
from simulator.cluster.model import SimulatedCluster
from simulator.cluster.objects import Obj, is_unschedulable
from simulator.cluster.workloads import deployment_object
from tests.support.shipped_scripts import load, rules

removal_fit = load("removal_fit")
ZONES = ("eu-west-1a", "eu-west-1b", "eu-west-1c")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
GPU = "example.com/gpu"
OVERHEAD = {"cpu": "150m", "memory": "32Mi"}
"""Of the runtime class `sandbox`."""
Verdicts = tuple[dict[str, Any], set[str]]
Search = dict[frozenset[tuple[str, str]], bool]


def worker_name(number: int) -> str:
    return f"i-{number + 1:017x}"


class Builder(Protocol):
    """What a random cluster is built on."""

    def add_worker(self, instance_id: str, *, instance_type: str, az: str) -> None: ...

    def update(self, resource: str, namespace: str, name: str, edit: Callable[[Obj], None]) -> Obj: ...

    def create(self, resource: str, obj: Obj) -> Obj: ...


def random_cluster(number: int) -> SimulatedCluster:
    """Every number its own small cluster, often nearly full; what does not fit into it is left out."""
    clock = VirtualClock()
    cluster = SimulatedCluster(clock, add_ons=False)
    cluster.add_server("i-0000000000000000f", ZONES[0])
    build(number, cluster)
    clock.advance(60)
    for name in waiting_applications(cluster.objects("pods", "shop")):
        cluster.delete("deployments", "shop", name)
        clock.advance(60)
    clock.close()
    return cluster


def build(number: int, cluster: Builder) -> None:
    """The workers and the applications of this number."""
    dice = random.Random(number)
    for n in range(dice.randint(2, 5)):
        cluster.add_worker(worker_name(n), az=ZONES[n % dice.randint(1, 3)], instance_type="t3.small")
        changes = node_changes(dice)
        cluster.update("nodes", "", worker_name(n), lambda node, changes=changes: change_node(node, **changes))
    for n in range(dice.randint(1, 4)):
        name = f"app-{n}"
        size = {"cpu_milli": dice.choice([100, 300, 600, 1000]), "memory_mib": dice.choice([64, 128, 900])}
        spec = random_spec(dice, name)
        obj = deployment_object(name, namespace="shop", replicas=dice.randint(2, 4), **size, **spec)
        container = obj["spec"]["template"]["spec"]["containers"][0]
        if dice.random() < 0.15:
            container["resources"]["requests"][GPU] = "1"
            container["resources"]["limits"] = {GPU: "1"}
        if dice.random() < 0.1:
            container["ports"] = [{"containerPort": 80, "hostPort": 8080}]
        cluster.create("deployments", obj)


def waiting_applications(pods: list[Obj]) -> list[str]:
    """The applications that have a pod without a node."""
    return sorted({pod["metadata"]["labels"]["app"] for pod in pods if not pod["spec"].get("nodeName")})


def node_changes(dice: random.Random) -> dict[str, Any]:
    disk = dice.choice(["ssd", "hdd"])
    tainted = [{"key": "team", "value": "data", "effect": dice.choice(["NoSchedule", "NoExecute"])}]
    taints = tainted if dice.random() < 0.2 else []
    return {"disk": disk, "taints": taints, "gpus": dice.randint(0, 3), "pods": dice.choice([6, 110, 110])}


def change_node(node: Obj, *, disk: str, taints: list[Obj], gpus: int, pods: int) -> None:
    node["metadata"]["labels"]["disk"] = disk
    known = node["spec"].get("taints", [])
    if taints and taints[0] not in known:
        node["spec"]["taints"] = [*known, *taints]
    node["status"]["allocatable"].update({GPU: str(gpus), "pods": str(pods)})
    node["status"]["capacity"].update({GPU: str(gpus)})


def random_spec(dice: random.Random, name: str) -> dict[str, Any]:
    key = dice.choice(["kubernetes.io/hostname", "topology.kubernetes.io/zone"])
    selector = {"matchLabels": {"app": dice.choice([name, "app-0"])}}
    term = [{"topologyKey": key, "labelSelector": selector}]
    on_disk = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    spread = {"maxSkew": dice.choice([1, 2]), "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
    return dice.choice(
        [
            {},
            {},
            {},
            {"nodeSelector": {"disk": "ssd"}},
            {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [on_disk]}}}},
            {"tolerations": [{"key": "team", "operator": "Exists"}]},
            {"affinity": {"podAffinity": {REQUIRED: term}}},
            {"affinity": {"podAntiAffinity": {REQUIRED: term}}},
            {"topologySpreadConstraints": [{**spread, "labelSelector": selector}]},
            {"topologySpreadConstraints": [{**spread, "whenUnsatisfiable": "ScheduleAnyway"}]},
            {"overhead": dict(OVERHEAD), "runtimeClassName": "sandbox"},
        ]
    )


KINDS = ("nodes", "pods", "persistentvolumes", "persistentvolumeclaims", "storageclasses", "replicasets")


def inspected_fit(cluster: SimulatedCluster) -> Verdicts:
    return judged_fit({kind: cluster.objects(kind) for kind in KINDS})


def judged_fit(lists: dict[str, list[Obj]], seconds: float = 1e6) -> Verdicts:
    """Worker -> why its pods fit nowhere else, None when they do; and a set of workers that fits as a whole.

    seconds: the limit of the judgement.
    """
    evicted = defaultdict(list)
    for pod in lists["pods"]:
        if rules.moves(pod):
            evicted[pod["spec"].get("nodeName")].append(pod)
    names = {n["metadata"]["name"]: n for n in lists["nodes"] if not removal_fit.is_server(n)}
    fit = removal_fit.RemovalFit(rules.Cluster(lists, 0), lists, {name: evicted[name] for name in names}, seconds)
    found: Verdicts = fit.judge(names)
    return found


def waiting_after_removal(cluster: SimulatedCluster, names: list[str]) -> list[str]:
    """Drain one worker after the other; the pods that the scheduler then cannot place."""
    for name in names:
        cluster.cordon(name)
        for pod in cluster.pods_on(name):
            cluster.evict("shop", pod["metadata"]["name"])
    return [pod["metadata"]["name"] for pod in cluster.objects("pods") if is_unschedulable(pod)]


def finds_placement(cluster: SimulatedCluster, name: str) -> bool:
    """Whether any order and choice places every pod of the worker on the other workers. The cluster is spent."""
    state = cluster.state
    state.reconcilers.clear()
    cluster.cordon(name)
    pods = list(cluster.pods_on(name))
    for pod in pods:
        state.store.update("pods", "shop", pod["metadata"]["name"], lambda fresh: fresh["spec"].pop("nodeName"))
    known: Search = {}
    return search(cluster, [pod["metadata"]["name"] for pod in pods], frozenset(), known)


def search(cluster: SimulatedCluster, waiting: list[str], placed: frozenset[tuple[str, str]], known: Search) -> bool:
    if not waiting or placed in known:
        return not waiting
    known[placed] = False
    state = cluster.state
    nodes = state.store.all("nodes")
    for name in waiting:
        pod = state.store.get("pods", "shop", name)
        facts, terms = state.pod_facts(pod), volume_node_terms(state.store, pod)
        conflicts = find_conflicts(state, pod, nodes)
        for node in nodes:
            where = node["metadata"]["name"]
            if where in conflicts or find_refusals(pod, facts, capacity_of_node(state, node), terms):
                continue
            bind(cluster, name, where)
            if search(cluster, [other for other in waiting if other != name], placed | {(name, where)}, known):
                return True
            bind(cluster, name, "")
    return False


def bind(cluster: SimulatedCluster, pod: str, node: str) -> None:
    def edit(fresh: Obj) -> None:
        fresh["spec"].pop("nodeName", None)
        fresh["spec"].update({"nodeName": node} if node else {})

    cluster.state.store.update("pods", "shop", pod, edit)
