"""The one list of kubectl commands that the double must answer as the real kubectl does, each on a world of its own."""

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
    """Commands run one after the other on a fresh world that `setup` has prepared."""

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
    cluster.instance_gone("i-w0", voluntary=False)
    clock.advance(45)
    for pod in cluster.pods():
        if pod.namespace == "shop":
            cluster.delete("pods", "shop", pod.name)
    clock.advance(20)


def annotated(_clock: VirtualClock, cluster: SimulatedCluster) -> None:
    cluster.update("nodes", "", "i-w0", lambda node: node["metadata"].update(annotations={"owner": "ann"}))


RAW_PODS = "/api/v1/pods?fieldSelector=spec.nodeName%3Di-w0"
STALE = '{"metadata":{"resourceVersion":"1"},"spec":{"unschedulable":true}}'
CORDON_MARK = '{"metadata":{"annotations":{"node-fleet.io/cordoned-by":"op-1"}},"spec":{"unschedulable":true}}'
UNDO_MARK = '{"metadata":{"annotations":{"node-fleet.io/cordoned-by":null}},"spec":{"unschedulable":null}}'
TEST_FAILS = (
    '[{"op":"test","path":"/spec/providerID","value":"other"},{"op":"add","path":"/spec/unschedulable","value":true}]'
)
TEST_HOLDS = (
    '[{"op":"test","path":"/spec/providerID","value":"aws:///eu-west-1a/i-w0"},'
    '{"op":"add","path":"/spec/unschedulable","value":true}]'
)
RANGE = '{range .items[*]}{.metadata.name}{"\\t"}{.spec.providerID}{"\\n"}{end}'
READY = '{.items[*].status.conditions[?(@.type=="Ready")].status}'

READING = (
    case("get nodes", ("get", "nodes")),
    case("get nodes wide", ("get", "nodes", "-o", "wide", "--no-headers")),
    case("get all pods wide", ("get", "pods", "-A", "-o", "wide"), setup=web),
    case("get one node as JSON", ("get", "node", "i-w0", "-o", "json")),
    case("get nodes as JSON", ("get", "nodes", "-o", "json")),
    case("get by short name and name", ("get", "no", "i-w0", "-o", "name"), ("get", "node/i-w1", "-o", "name")),
    case("get a missing node", ("get", "node", "nobody")),
    case("get a missing node and do not mind", ("get", "node", "nobody", "--ignore-not-found", "-o", "json")),
    case("get nothing", ("get", "pods", "-n", "empty")),
    case("get an unknown kind", ("get", "gadgets")),
    case("get by label", ("get", "nodes", "-l", "node-fleet.io/role=worker", "-o", "name")),
    case("get by a set of labels", ("get", "nodes", "-l", "node-fleet.io/role in (server, x)", "-o", "name")),
    case("get by field", ("get", "pods", "-A", "--field-selector", "spec.nodeName=i-w0", "-o", "name"), setup=web),
    case("get secrets by name", ("get", "secrets", "-n", "kube-system", "-o", "name")),
    case("jsonpath with a range", ("get", "nodes", "-o", f"jsonpath={RANGE}")),
    case("jsonpath with a filter", ("get", "nodes", "-o", f"jsonpath={READY}")),
    case("jsonpath of a missing field", ("get", "node", "i-w0", "-o", "jsonpath={.spec.nothing}")),
    case("jsonpath of a quoted key", ("get", "no", "i-w0", "-o", "jsonpath={.metadata.labels.node-fleet\\.io/market}")),
    case("custom columns", ("get", "nodes", "-o", "custom-columns=NAME:.metadata.name,OFF:.spec.unschedulable")),
    case("raw list", ("get", "--raw", RAW_PODS), setup=web),
    case("raw missing", ("get", "--raw", "/api/v1/nodes/nobody")),
    case("raw readiness", ("get", "--raw", "/readyz")),
    case("wait for a true condition", ("wait", "--for=condition=Ready", "node/i-w0", "--timeout=5s")),
    case("wait for what is gone", ("wait", "--for=delete", "node/nobody", "--timeout=5s")),
    case("wait in vain", ("wait", "--for=condition=Ready=false", "node/i-w0", "--timeout=1s")),
    case("an unknown verb", ("frobnicate",)),
    case("an unknown flag", ("get", "nodes", "--frob")),
    case("no server", ("get", "nodes"), unreachable=True),
)

CHANGING = (
    case(
        "cordon, again, uncordon, again",
        ("cordon", "i-w0"),
        ("cordon", "i-w0"),
        ("uncordon", "i-w0"),
        ("uncordon", "i-w0"),
    ),
    case("cordon a missing node", ("cordon", "nobody")),
    case("cordon two", ("cordon", "i-w0", "i-w1")),
    case("strategic patch", ("patch", "node", "i-w0", "-p", CORDON_MARK)),
    case(
        "patch without a change",
        ("patch", "node", "i-w0", "-p", CORDON_MARK),
        ("patch", "node", "i-w0", "-p", CORDON_MARK),
    ),
    case(
        "merge patch with null",
        ("patch", "node", "i-w0", "-p", CORDON_MARK),
        ("patch", "node", "i-w0", "--type", "merge", "-p", UNDO_MARK),
    ),
    case("patch of a stale version", ("patch", "node", "i-w0", "--type=merge", "-p", STALE)),
    case("JSON patch whose test holds", ("patch", "node", "i-w0", "--type", "json", "-p", TEST_HOLDS)),
    case("patch of a missing node", ("patch", "node", "nobody", "-p", CORDON_MARK)),
    case("annotate and remove", ("annotate", "node", "i-w0", "a=b"), ("annotate", "node", "i-w0", "a-")),
    case("annotate what is annotated", ("annotate", "node", "i-w0", "owner=bob"), setup=annotated),
    case("annotate over it", ("annotate", "node", "i-w0", "owner=bob", "--overwrite"), setup=annotated),
    case("label and remove", ("label", "node", "i-w0", "a=b"), ("label", "node", "i-w0", "a-")),
    case("taint and remove", ("taint", "nodes", "i-w0", "a=b:NoSchedule"), ("taint", "nodes", "i-w0", "a-")),
    case("delete a node", ("delete", "node", "i-w0", "--ignore-not-found", "--wait=false")),
    case("delete a missing node", ("delete", "node", "nobody")),
    case("delete a missing node and do not mind", ("delete", "node", "nobody", "--ignore-not-found")),
    case("delete a secret", ("delete", "secret", "i-w0.node-password.k3s", "-n", "kube-system", "--ignore-not-found")),
    case("delete a pod and wait", ("delete", "pod", "bare", "-n", "shop"), setup=bare_pod),
    case("delete pods by label", ("delete", "pod", "-n", "shop", "-l", "app=web", "--wait=false"), setup=web),
)

DRAINING = (
    case("drain", (*DRAIN, "--timeout=30s", "--skip-wait-for-delete-timeout=10"), setup=on_the_node(replicas=2)),
    case("drain what is cordoned", ("cordon", "i-w0"), DRAIN, setup=on_the_node(replicas=1)),
    case("drain a missing node", ("drain", "nobody", "--ignore-daemonsets")),
    case("drain refuses daemon pods", ("drain", "i-w0")),
    case("drain refuses a bare pod", DRAIN, setup=bare_pod),
    case("drain forces a bare pod", (*DRAIN, "--force"), setup=bare_pod),
    case("drain refuses local data", ("drain", "i-w0", "--ignore-daemonsets"), setup=on_the_node(volume="emptyDir")),
    case("drain deletes local data", DRAIN, setup=on_the_node(volume="emptyDir")),
    case("drain leaves a mirror pod", DRAIN, setup=mirror_pod),
    case("drain takes a finished pod", DRAIN, setup=finished_pod),
    case("drain waits for a budget", (*DRAIN, "--timeout=60s"), setup=on_the_node(replicas=2, max_unavailable=1)),
    case("drain gives up at a budget", (*DRAIN, "--timeout=3s"), setup=on_the_node(replicas=1, min_available=1)),
    case("drain meets two budgets", (*DRAIN, "--timeout=30s"), setup=two_budgets),
    case("drain gives up waiting", (*DRAIN, "--timeout=2s"), setup=on_the_node(replicas=1, shutdown_seconds=20.0)),
    case(
        "drain shortens the grace", (*DRAIN, "--grace-period=1"), setup=on_the_node(replicas=1, shutdown_seconds=20.0)
    ),
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
