"""What kubectl shows of the server's commands, run in the simulated cluster and on a real control plane alike."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.notify.cluster_report import ClusterEvent, ClusterReport
from simulator.cluster.kubectl.fake import CommandResult
from simulator.cluster.objects import condition_is_true
from simulator.cluster.workloads import pod_object
from tests.support.clusters import AnyCluster
from tests.support.shipped_scripts import script

WORKER, OTHER = "i-0a1b2c3d4e5f60718", "i-0bbbbbbbbbbbbbbbb"
OPERATION = "down-7-100"


def prepared(cluster: AnyCluster) -> None:
    """A server and two workers, and no Event of an earlier test."""
    cluster.add_server("i-0aaaaaaaaaaaaaaaa", "eu-west-1a")
    for name in (WORKER, OTHER):
        cluster.add_worker(name, az="eu-west-1a")
    cluster.settle()
    for namespace in ("default", "shop"):
        for event in cluster.objects("events", namespace):
            cluster.delete("events", namespace, event["metadata"]["name"])
    if cluster.find("configmaps", "kube-system", "node-fleet-status"):
        cluster.delete("configmaps", "kube-system", "node-fleet-status")


def with_bare_pod(cluster: AnyCluster) -> None:
    cluster.ensure_namespace("shop")
    cluster.create("pods", pod_object("cart", nodeSelector={"kubernetes.io/hostname": WORKER}))
    cluster.settle()


def drain(cluster: AnyCluster, **changed: str) -> CommandResult:
    now = int(cluster.now())
    given = {"NODE_NAME": WORKER, "OPERATION_ID": OPERATION, "NOT_AFTER": str(now + 60), "DRAIN_TIMEOUT_SECONDS": "30"}
    return cluster.script(script("drain_node"), {**given, **changed})


def uncordon(cluster: AnyCluster) -> CommandResult:
    return cluster.script(script("uncordon_node"), {"NODE_NAME": WORKER, "OPERATION_ID": OPERATION})


def forget(cluster: AnyCluster) -> CommandResult:
    return cluster.script(script("forget_node"), {"NODE_NAME": WORKER, "INSTANCE_ID": WORKER})


def record(cluster: AnyCluster, *events: ClusterEvent, at: int = 100, status: str = "what: x\n") -> CommandResult:
    packed = ClusterReport(at=at, status=status, events=events).packed
    return cluster.script(script("record_events"), {"REPORT": packed})


def status(cluster: AnyCluster) -> str:
    found = cluster.find("configmaps", "kube-system", "node-fleet-status")
    return str(found["data"]["status"]) if found else ""


def shown(cluster: AnyCluster, namespace: str = "default") -> list[tuple[Any, ...]]:
    """Kind, name, reason, type and count of each Event of node-fleet."""
    return sorted(
        (e["involvedObject"]["kind"], e["involvedObject"]["name"], e["reason"], e["type"], e["count"])
        for e in of_node_fleet(cluster, namespace)
    )


def messages(cluster: AnyCluster, namespace: str = "default") -> list[str]:
    return [event["message"] for event in of_node_fleet(cluster, namespace)]


def of_node_fleet(cluster: AnyCluster, namespace: str) -> list[dict[str, Any]]:
    found = cluster.objects("events", namespace)
    return [event for event in found if (event.get("source") or {}).get("component") == "node-fleet"]


def remove_a_worker(cluster: AnyCluster) -> None:
    """A worker is blocked, uncordoned, drained and removed: each step is one Event on the worker."""
    with_bare_pod(cluster)
    blocked = drain(cluster)
    assert blocked.stdout.splitlines()[-1] == "result: blocked shop/cart:c 0"
    assert shown(cluster) == [("Node", WORKER, "DrainFailed", "Warning", 1)]
    assert shown(cluster, "shop") == [("Pod", "cart", "DrainFailed", "Warning", 1)]
    why = "has no controller that would start it again"
    assert messages(cluster, "shop") == [f"it keeps worker {WORKER} from being removed: it {why}"]
    assert messages(cluster) == [f"the worker is not drained (operation {OPERATION}): shop/cart {why}"]
    assert drain(cluster).exit_code == 68
    assert shown(cluster) == [("Node", WORKER, "DrainFailed", "Warning", 2)], "a repetition counts up"
    assert uncordon(cluster).exit_code == 0
    cluster.delete("pods", "shop", "cart", grace_seconds=0)
    cluster.settle()
    assert drain(cluster, OPERATION_ID="down-8-200").exit_code == 0
    cluster.fail_node(WORKER)
    until = cluster.now() + 120
    while condition_is_true(cluster.find("nodes", "", WORKER) or {}, "Ready") and cluster.now() < until:
        cluster.wait(2)
    done = forget(cluster)
    assert done.exit_code == 0, done
    kinds = {(reason, kind) for _, _, reason, kind, _ in shown(cluster)}
    wanted = {("DrainFailed", "Warning"), ("Uncordoned", "Normal"), ("Draining", "Normal"), ("Removed", "Normal")}
    assert kinds == wanted


def interrupt_a_worker(cluster: AnyCluster, cause: str, reason: str) -> None:
    assert drain(cluster, DRAIN_MODE="deadline", CAUSE=cause).exit_code == 0
    assert shown(cluster) == [("Node", WORKER, reason, "Warning", 1)]


def report_a_run(cluster: AnyCluster) -> None:
    """A report writes the status and the Events of pods that exist; an earlier one does not replace a later status."""
    with_bare_pod(cluster)
    events = (
        ClusterEvent(name=WORKER, reason="ScaleUp", message="launched for 3 pods"),
        ClusterEvent(namespace="shop", name="cart", reason="ScaleUp", message="1 worker was added"),
        ClusterEvent(namespace="shop", name="ended", reason="ScaleUp", message="1 worker was added"),
    )
    done = record(cluster, *events, at=200, status='what: "added"\n')
    assert (done.exit_code, done.stdout) == (0, "result: recorded 3 events\n")
    assert shown(cluster) == [("Node", WORKER, "ScaleUp", "Normal", 1)]
    assert shown(cluster, "shop") == [("Pod", "cart", "ScaleUp", "Normal", 1)]
    assert record(cluster, at=100, status='what: "late"\n').exit_code == 0
    assert status(cluster) == 'what: "added"\n'
    assert record(cluster, at=300, status='what: "next"\n').exit_code == 0
    assert status(cluster) == 'what: "next"\n'


def report_a_thousand_reasons(cluster: AnyCluster) -> None:
    """However many reasons there are, a report writes at most twenty Events."""
    many = [ClusterEvent(name=f"i-{n:017x}", reason="NotEligible", message=f"kept: reason {n}") for n in range(1000)]
    assert record(cluster, *many).stdout == "result: recorded 20 events\n"
    assert len(shown(cluster)) == 20


def repeat_with_other_words(cluster: AnyCluster, times: int) -> None:
    """However many reasons a worker is kept for, it has one Event."""
    for number in range(times):
        event = ClusterEvent(name=WORKER, reason="NotEligible", message=f"kept: reason {number}")
        assert record(cluster, event, at=number).exit_code == 0
    assert shown(cluster) == [("Node", WORKER, "NotEligible", "Normal", times)]
    assert messages(cluster) == [f"kept: reason {times - 1}"]
