"""Machines that join, fail and recover, as the simulated cluster shows them."""

from __future__ import annotations

import pytest

from simulator.clock import VirtualClock
from simulator.cluster.boot import BootRule
from simulator.cluster.machines import UnknownInstanceTypeError
from simulator.cluster.model import SimulatedCluster
from simulator.cluster.state import ClusterSettings
from simulator.cluster.workloads import deployment_object, pod_object


def a_cluster(*boot_rules: BootRule, **changed: object) -> tuple[VirtualClock, SimulatedCluster]:
    clock = VirtualClock()
    settings = ClusterSettings(**changed)  # type: ignore[arg-type]
    cluster = SimulatedCluster(clock, settings=settings, boot_rules=boot_rules, add_ons=False)
    cluster.add_server("i-server", "eu-west-1a")
    return clock, cluster


def start(cluster: SimulatedCluster, name: str, **more: str) -> None:
    cluster.instance_started(instance_id=name, instance_type="t3.small", az="eu-west-1a", market="spot", **more)


def names(cluster: SimulatedCluster) -> list[str]:
    return [node.name for node in cluster.nodes() if node.role == "worker"]


def test_a_worker_joins_exactly_after_its_boot_delay() -> None:
    clock, cluster = a_cluster()
    start(cluster, "i-1")
    clock.advance(59.9)
    assert names(cluster) == []
    clock.advance(0.1)
    node = cluster.nodes()[-1]
    assert node.usable
    assert (node.provider_id, node.market, node.az) == ("aws:///eu-west-1a/i-1", "spot", "eu-west-1a")
    assert (node.allocatable_cpu_milli, node.allocatable_memory_mib) == (1900, 1698)
    assert cluster.find("secrets", "kube-system", "i-1.node-password.k3s") is not None


def test_a_reused_name_is_refused_while_the_old_password_is_kept() -> None:
    clock, cluster = a_cluster()
    start(cluster, "i-1", node_name="ip-10-0-1-23")
    clock.advance(60)
    cluster.instance_ended("i-1")
    cluster.delete("nodes", "", "ip-10-0-1-23")
    start(cluster, "i-2", node_name="ip-10-0-1-23")
    clock.advance(300)
    assert names(cluster) == []
    assert cluster.kubelets.rejected_joins == ["i-2"]


def test_deleting_the_node_under_a_living_agent_brings_node_and_secret_back() -> None:
    clock, cluster = a_cluster()
    start(cluster, "i-1")
    clock.advance(60)
    cluster.delete("secrets", "kube-system", "i-1.node-password.k3s")
    cluster.delete("nodes", "", "i-1")
    clock.advance(9)
    assert names(cluster) == []
    clock.advance(1)
    assert names(cluster) == ["i-1"]
    assert cluster.find("secrets", "kube-system", "i-1.node-password.k3s") is not None


@pytest.mark.parametrize(
    ("rule", "present", "usable"),
    [
        (BootRule(kind="slow", seconds=240), False, False),
        (BootRule(kind="never_joins"), False, False),
        (BootRule(kind="not_ready"), True, False),
        (BootRule(kind="uninitialized"), True, False),
        (BootRule(kind="not_ready", ready_after_seconds=30), True, True),
        (BootRule(kind="never_joins", market="on-demand"), True, True),
        (BootRule(kind="never_joins", first=2), True, True),
    ],
)
def test_boot_rules_decide_how_a_worker_joins(rule: BootRule, present: bool, usable: bool) -> None:
    clock, cluster = a_cluster(rule)
    start(cluster, "i-1")
    clock.advance(100)
    assert (names(cluster) == ["i-1"]) is present
    assert (cluster.truth().usable_workers == 1) is usable


def test_a_boot_rule_covers_only_its_count_of_launches() -> None:
    clock, cluster = a_cluster(BootRule(kind="never_joins", count=2))
    for number in range(3):
        start(cluster, f"i-{number}")
    clock.advance(60)
    assert names(cluster) == ["i-2"]


def test_an_instance_that_ends_before_it_joined_never_joins() -> None:
    clock, cluster = a_cluster()
    start(cluster, "i-1")
    clock.advance(30)
    cluster.instance_ended("i-1")
    clock.advance(100)
    assert names(cluster) == []


def test_a_dead_machine_is_not_ready_after_fifty_seconds_and_its_pods_move_after_the_timeout() -> None:
    clock, cluster = a_cluster(pod_eviction_timeout_seconds=100)
    for name in ("i-1", "i-2"):
        cluster.add_worker(name)
    cluster.cordon("i-2")
    cluster.create("deployments", deployment_object("web", namespace="shop", replicas=1, cpu_milli=100, memory_mib=64))
    cluster.uncordon("i-2")
    clock.advance(10)
    cluster.instance_ended("i-1", voluntary=False)
    clock.advance(49)
    assert {node.name: node.ready_status for node in cluster.nodes()}["i-1"] == "True"
    clock.advance(1)
    node = next(node for node in cluster.nodes() if node.name == "i-1")
    assert (node.ready_status, node.ready_since) == ("Unknown", clock.now())
    assert not next(pod for pod in cluster.pods()).ready
    clock.advance(99)
    assert len(cluster.pods()) == 1
    clock.advance(7)
    assert [(pod.node, pod.terminating) for pod in cluster.pods()] == [("i-1", True), ("i-2", False)]


def test_the_pods_of_a_deleted_node_are_collected_between_forty_and_sixty_seconds_later() -> None:
    clock, cluster = a_cluster()
    cluster.add_worker("i-1")
    cluster.create("deployments", deployment_object("web", namespace="shop", replicas=1, cpu_milli=100, memory_mib=64))
    cluster.create("pods", pod_object("bare"))
    clock.advance(10)
    cluster.add_worker("i-2")
    cluster.instance_ended("i-1")
    clock.advance(50)
    cluster.delete("nodes", "", "i-1")
    clock.advance(40)
    assert {pod.node for pod in cluster.pods()} == {"i-1"}
    clock.advance(20)
    assert [(pod.owner_kind, pod.node) for pod in cluster.pods()] == [("ReplicaSet", "i-2")]


def test_a_recovered_kubelet_stops_the_pods_deleted_meanwhile() -> None:
    clock, cluster = a_cluster()
    cluster.add_worker("i-1")
    cluster.create("pods", pod_object("bare"))
    clock.advance(10)
    cluster.fail_node("i-1")
    clock.advance(60)
    cluster.delete("pods", "shop", "bare")
    clock.advance(60)
    assert [pod.terminating for pod in cluster.pods()] == [True]
    cluster.recover_node("i-1")
    assert cluster.truth().usable_workers == 1
    clock.advance(5)
    assert cluster.pods() == []


def test_an_unknown_instance_type_is_refused_with_the_nearest_name() -> None:
    _, cluster = a_cluster()
    with pytest.raises(UnknownInstanceTypeError, match=r"'t3.smal'; did you mean t3.small\?"):
        cluster.add_worker("i-1", instance_type="t3.smal")


@pytest.mark.parametrize(
    ("silent", "heals", "returns"), [(True, True, True), (True, False, False), (False, False, True)]
)
def test_a_rebooted_machine_is_away_for_its_boot_and_returns_unless_the_reboot_does_not_help(
    silent: bool, heals: bool, returns: bool
) -> None:
    clock, cluster = a_cluster(boot_seconds=90)
    start(cluster, "i-1")
    clock.advance(90)
    cluster.set_node_condition("i-1", "DiskPressure", holds=True)
    if silent:
        cluster.fail_node("i-1")
        clock.advance(60)
    cluster.instance_rebooted("i-1", heals=heals)
    clock.advance(60)
    assert not cluster.nodes()[-1].ready
    clock.advance(30)
    assert cluster.nodes()[-1].ready is returns
    node = cluster.find("nodes", "", "i-1")
    assert node is not None
    held = {c["type"] for c in node["status"]["conditions"] if c["status"] == "True"}
    assert ("DiskPressure" in held) is not heals


def test_a_reboot_of_a_machine_that_is_unknown_or_off_changes_nothing() -> None:
    clock, cluster = a_cluster()
    cluster.instance_rebooted("i-9", heals=True)
    start(cluster, "i-1")
    clock.advance(60)
    cluster.instance_rebooted("i-1", heals=True)
    cluster.instance_ended("i-1")
    clock.advance(300)
    assert not cluster.nodes()[-1].ready
    cluster.instance_rebooted("i-1", heals=True)
    clock.advance(300)
    assert not cluster.nodes()[-1].ready
