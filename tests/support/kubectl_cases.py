"""The kubectl commands that are compared between the simulated cluster and a real one, each on a cluster of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simulator.cluster.load.applications import ApplicationSpec
from simulator.cluster.objects import MIRROR_ANNOTATION, RUN_SECONDS, is_terminating
from simulator.cluster.workloads import pod_object
from tests.support.clusters import AnyCluster

Setup = Callable[[AnyCluster], None]
DRAIN = ("drain", "i-w0", "--ignore-daemonsets", "--delete-emptydir-data")
ON_W0 = {"kubernetes.io/hostname": "i-w0"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """Commands run one after the other on a fresh cluster.

    `setup` prepares it and the cluster settles; then `before` does what must not settle, within `lead` seconds.
    """

    name: str
    commands: tuple[tuple[str, ...], ...]
    setup: Setup | None = None
    before: Setup | None = None
    lead: float = 0.0
    reachable: bool = True


def case(name: str, *commands: tuple[str, ...], setup: Setup | None = None, **more: Any) -> Case:
    return Case(name=name, commands=commands, setup=setup, **more)


def prepare(case: Case, cluster: AnyCluster) -> None:
    """A server and two workers, what the case needs, and rest."""
    cluster.add_server("i-server", "eu-west-1a")
    for number in range(2):
        cluster.add_worker(f"i-w{number}", az="eu-west-1a")
    if case.setup:
        case.setup(cluster)
    cluster.settle()


def app(cluster: AnyCluster, name: str, **fields: object) -> None:
    spec = {"cpu_request_milli": 50, "memory_request_mib": 16, "shutdown_seconds": 1.0, "start_seconds": 1.0}
    cluster.add_application(ApplicationSpec(name=name, **{**spec, **fields}))  # type: ignore[arg-type]


def web(cluster: AnyCluster) -> None:
    app(cluster, "web", replicas=3, node_selector=ON_W0)


def on_the_node(**fields: object) -> Setup:
    """An application whose pods all start on i-w0 and may be replaced on i-w1."""

    def setup(cluster: AnyCluster) -> None:
        cluster.cordon("i-w1")
        app(cluster, "web", **fields)
        cluster.settle()
        cluster.uncordon("i-w1")

    return setup


def bare_pod(cluster: AnyCluster) -> None:
    cluster.create("pods", pod_object("bare", nodeSelector=ON_W0))


def mirror_pod(cluster: AnyCluster) -> None:
    cluster.create("pods", pod_object("static-web", annotations={MIRROR_ANNOTATION: "abc"}, nodeName="i-w0"))


def finished_pod(cluster: AnyCluster) -> None:
    cluster.create("pods", pod_object("once", annotations={RUN_SECONDS: "1"}, nodeSelector=ON_W0))
    cluster.settle()
    cluster.wait(3)


def two_budgets(cluster: AnyCluster) -> None:
    app(cluster, "web", replicas=1, min_available=0, node_selector=ON_W0)
    cluster.add_budget("second", namespace="shop", labels={"app": "web"}, min_available=0)


def end_namespace(cluster: AnyCluster) -> None:
    """Its pods begin to stop, and take some seconds."""
    cluster.delete("namespaces", "", "shop")
    while not all(is_terminating(pod) for pod in cluster.objects("pods", "shop")):
        cluster.wait(0.2)


def lose_node(cluster: AnyCluster) -> None:
    """The machine ends, and nothing stops the pods that were deleted since."""
    cluster.cordon("i-w0")
    cluster.instance_ended("i-w0", voluntary=False)
    for pod in cluster.objects("pods", "shop"):
        cluster.delete("pods", "shop", pod["metadata"]["name"])
    cluster.wait(15)


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
    case("no server", ("get", "nodes", "-o", "name"), reachable=False),
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
    case(
        "drain in an ending namespace",
        (*DRAIN, "--timeout=30s"),
        setup=on_the_node(replicas=1, shutdown_seconds=14.0),
        before=end_namespace,
        lead=1,
    ),
    case(
        "drain of a dead node",
        (*DRAIN, "--timeout=30s", "--skip-wait-for-delete-timeout=10"),
        setup=on_the_node(replicas=2, grace_seconds=1),
        before=lose_node,
        lead=15,
    ),
)

CASES = (*READING, *CHANGING, *DRAINING)
