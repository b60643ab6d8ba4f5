"""The kubectl commands that the fake must answer as the real kubectl does, each on a cluster of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulator.clock import VirtualClock
from simulator.cluster.model import ApplicationSpec, SimulatedCluster
from simulator.cluster.objects import MIRROR_ANNOTATION, RUN_SECONDS
from simulator.cluster.workloads import pod_object

Setup = Callable[[VirtualClock, SimulatedCluster], None]
DRAIN = ("drain", "i-w0", "--ignore-daemonsets", "--delete-emptydir-data")
ON_W0 = {"kubernetes.io/hostname": "i-w0"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """Commands run one after the other on a fresh cluster that `setup` has prepared."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    setup: Setup | None = None
    unreachable: bool = False


def case(name: str, *commands: tuple[str, ...], setup: Setup | None = None, unreachable: bool = False) -> Case:
    return Case(name=name, commands=commands, setup=setup, unreachable=unreachable)


def app(cluster: SimulatedCluster, name: str, **fields: object) -> None:
    spec = {"cpu_request_milli": 50, "memory_request_mib": 16, "shutdown_seconds": 1.0, "start_seconds": 1.0}
    cluster.add_application(ApplicationSpec(name=name, **{**spec, **fields}))  # type: ignore[arg-type]


def web(_clock: VirtualClock, cluster: SimulatedCluster) -> None:
    app(cluster, "web", replicas=3)


def on_the_node(**fields: object) -> Setup:
    """An application whose pods all start on i-w0 and may be replaced on i-w1."""

    def setup(_clock: VirtualClock, cluster: SimulatedCluster) -> None:
        cluster.cordon("i-w1")
        app(cluster, "web", **fields)
        cluster.uncordon("i-w1")

    return setup


def bare_pod(_clock: VirtualClock, cluster: SimulatedCluster) -> None:
    cluster.create("pods", pod_object("bare", nodeSelector=ON_W0))


def mirror_pod(_clock: VirtualClock, cluster: SimulatedCluster) -> None:
    cluster.create("pods", pod_object("static-web", annotations={MIRROR_ANNOTATION: "abc"}, nodeSelector=ON_W0))


def finished_pod(clock: VirtualClock, cluster: SimulatedCluster) -> None:
    cluster.create("pods", pod_object("once", annotations={RUN_SECONDS: "1"}, nodeSelector=ON_W0))
    clock.advance(10)


def two_budgets(_clock: VirtualClock, cluster: SimulatedCluster) -> None:
    app(cluster, "web", replicas=1, min_available=0, node_selector=ON_W0)
    cluster.add_budget("second", namespace="shop", labels={"app": "web"}, min_available=0)


def ending_namespace(clock: VirtualClock, cluster: SimulatedCluster) -> None:
    app(cluster, "web", replicas=1, node_selector=ON_W0, shutdown_seconds=4.0)
    clock.advance(5)
    cluster.delete("namespaces", "", "shop")


def dead_node(clock: VirtualClock, cluster: SimulatedCluster) -> None:
    cluster.cordon("i-w1")
    app(cluster, "web", replicas=2, grace_seconds=1)
    cluster.uncordon("i-w1")
    clock.advance(5)
    cluster.instance_ended("i-w0", voluntary=False)
    clock.advance(45)
    for pod in cluster.pods():
        if pod.namespace == "shop":
            cluster.delete("pods", "shop", pod.name)
    clock.advance(20)


PATCH = ("patch", "node", "i-w0", "--type", "merge", "-p")
SECRET = "i-w0.node-password.k3s"
RAW_PODS = "/api/v1/pods?fieldSelector=spec.nodeName%3Di-w0"
STALE = '{"metadata":{"resourceVersion":"1"},"spec":{"unschedulable":true}}'
CORDON_MARK = '{"metadata":{"annotations":{"node-fleet.io/cordoned-by":"op-1"}},"spec":{"unschedulable":true}}'
UNCORDON_MARK = '{"metadata":{"annotations":{"node-fleet.io/cordoned-by":null}},"spec":{"unschedulable":null}}'

READING = (
    case("get one node as JSON", ("get", "node", "i-w0", "-o", "json")),
    case("get nodes by name", ("get", "nodes", "-o", "name")),
    case("get a missing node", ("get", "node", "missing", "-o", "json")),
    case("get a missing node and ignore it", ("get", "node", "missing", "--ignore-not-found", "-o", "json")),
    case("get an unknown kind", ("get", "gadgets", "-o", "name")),
    case("get secrets by name", ("get", "secrets", "-n", "kube-system", "-o", "name")),
    case("raw list", ("get", "--raw", RAW_PODS), setup=web),
    case("raw missing", ("get", "--raw", "/api/v1/nodes/missing")),
    case("no server", ("get", "nodes", "-o", "name"), unreachable=True),
)

CHANGING = (
    case(
        "merge patch, again, and back with null",
        (*PATCH, CORDON_MARK),
        (*PATCH, CORDON_MARK),
        (*PATCH, UNCORDON_MARK),
    ),
    case("patch of a stale version", (*PATCH, STALE)),
    case("patch of a missing node", ("patch", "node", "missing", "--type", "merge", "-p", CORDON_MARK)),
    case("delete a node", ("delete", "node", "i-w0", "--ignore-not-found", "--wait=false")),
    case("delete a missing node", ("delete", "node", "missing", "--wait=false")),
    case("delete a missing node and ignore it", ("delete", "node", "missing", "--ignore-not-found", "--wait=false")),
    case("delete a secret", ("delete", "secret", SECRET, "-n", "kube-system", "--ignore-not-found", "--wait=false")),
)

DRAINING = (
    case("drain", (*DRAIN, "--timeout=30s", "--skip-wait-for-delete-timeout=10"), setup=on_the_node(replicas=2)),
    case("drain what is cordoned", (*PATCH, CORDON_MARK), (*DRAIN, "--timeout=30s"), setup=on_the_node(replicas=1)),
    case("drain a missing node", ("drain", "missing", *DRAIN[2:], "--timeout=30s")),
    case("drain refuses a bare pod", (*DRAIN, "--timeout=30s"), setup=bare_pod),
    case("drain forces a bare pod", (*DRAIN, "--timeout=30s", "--force"), setup=bare_pod),
    case("drain deletes local data", (*DRAIN, "--timeout=30s"), setup=on_the_node(volume="emptyDir")),
    case("drain leaves a mirror pod", (*DRAIN, "--timeout=30s"), setup=mirror_pod),
    case("drain takes a finished pod", (*DRAIN, "--timeout=30s"), setup=finished_pod),
    case("drain waits for a budget", (*DRAIN, "--timeout=60s"), setup=on_the_node(replicas=2, max_unavailable=1)),
    case("drain gives up at a budget", (*DRAIN, "--timeout=3s"), setup=on_the_node(replicas=1, min_available=1)),
    case("drain meets two budgets", (*DRAIN, "--timeout=30s"), setup=two_budgets),
    case("drain gives up waiting", (*DRAIN, "--timeout=2s"), setup=on_the_node(replicas=1, shutdown_seconds=20.0)),
    case(
        "drain that deletes passes a budget",
        (*DRAIN, "--disable-eviction", "--timeout=30s"),
        setup=on_the_node(replicas=1, min_available=1),
    ),
    case(
        "drain that deletes gives up waiting",
        (*DRAIN, "--disable-eviction", "--timeout=2s"),
        setup=on_the_node(replicas=1, shutdown_seconds=20.0),
    ),
    case("drain in an ending namespace", (*DRAIN, "--timeout=30s"), setup=ending_namespace),
    case("drain of a dead node", (*DRAIN, "--timeout=30s", "--skip-wait-for-delete-timeout=10"), setup=dead_node),
)

CASES = (*READING, *CHANGING, *DRAINING)
