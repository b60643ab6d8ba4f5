"""Machines that join, die and come back, as the simulated cluster shows them."""

from __future__ import annotations

import pytest

from simulator.clock import VirtualClock
from simulator.cluster.machines import UnknownInstanceTypeError
from simulator.cluster.model import BootRule, ClusterSettings, SimulatedCluster
from simulator.cluster.workloads import deployment_object, pod_object


def a_world(*boot_rules: BootRule, **world_settings: object) -> tuple[VirtualClock, SimulatedCluster]:
    clock = VirtualClock()
    world = SimulatedCluster(clock, settings=ClusterSettings(**world_settings), boot_rules=boot_rules, add_ons=False)  # type: ignore[arg-type]
    world.add_server("i-server", "eu-west-1a")
    return clock, world


def start(world: SimulatedCluster, name: str, **more: str) -> None:
    world.instance_started(instance_id=name, instance_type="t3.small", az="eu-west-1a", market="spot", **more)


def names(world: SimulatedCluster) -> list[str]:
    return [node.name for node in world.nodes() if node.role == "worker"]


def test_a_worker_joins_exactly_after_its_boot_delay() -> None:
    clock, world = a_world()
    start(world, "i-1")
    clock.advance(59.9)
    assert names(world) == []
    clock.advance(0.1)
    node = world.nodes()[-1]
    assert node.usable
    assert (node.provider_id, node.market, node.az) == ("aws:///eu-west-1a/i-1", "spot", "eu-west-1a")
    assert (node.allocatable_cpu_milli, node.allocatable_memory_mib) == (1900, 1698)


def test_joining_leaves_the_node_password_secret() -> None:
    clock, world = a_world()
    start(world, "i-1")
    clock.advance(60)
    assert world.find("secrets", "kube-system", "i-1.node-password.k3s") is not None


def test_a_reused_name_is_refused_while_the_old_password_is_kept() -> None:
    clock, world = a_world()
    start(world, "i-1", node_name="ip-10-0-1-23")
    clock.advance(60)
    world.instance_gone("i-1")
    world.delete("nodes", "", "ip-10-0-1-23")
    start(world, "i-2", node_name="ip-10-0-1-23")
    clock.advance(300)
    assert names(world) == []
    assert world.kubelets.rejected_joins == ["i-2"]


def test_deleting_the_node_under_a_living_agent_brings_node_and_secret_back() -> None:
    clock, world = a_world()
    start(world, "i-1")
    clock.advance(60)
    world.delete("secrets", "kube-system", "i-1.node-password.k3s")
    world.delete("nodes", "", "i-1")
    clock.advance(9)
    assert names(world) == []
    clock.advance(1)
    assert names(world) == ["i-1"]
    assert world.find("secrets", "kube-system", "i-1.node-password.k3s") is not None


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
    clock, world = a_world(rule)
    start(world, "i-1")
    clock.advance(100)
    assert (names(world) == ["i-1"]) is present
    assert (world.truth().usable_workers == 1) is usable


def test_a_boot_rule_covers_only_as_many_launches_as_it_says() -> None:
    clock, world = a_world(BootRule(kind="never_joins", count=2))
    for number in range(3):
        start(world, f"i-{number}")
    clock.advance(60)
    assert names(world) == ["i-2"]


def test_an_instance_that_ends_before_it_joined_never_joins() -> None:
    clock, world = a_world()
    start(world, "i-1")
    clock.advance(30)
    world.instance_gone("i-1")
    clock.advance(100)
    assert names(world) == []


def test_a_dead_machine_is_not_ready_after_forty_seconds_and_its_pods_move_after_the_timeout() -> None:
    clock, world = a_world(pod_eviction_timeout_seconds=100)
    for name in ("i-1", "i-2"):
        world.add_worker(name)
    world.cordon("i-2")
    world.create("deployments", deployment_object("web", namespace="shop", replicas=1, cpu_milli=100, memory_mib=64))
    world.uncordon("i-2")
    clock.advance(10)
    world.instance_gone("i-1", voluntary=False)
    clock.advance(39)
    assert {node.name: node.ready_status for node in world.nodes()}["i-1"] == "True"
    clock.advance(1)
    node = next(node for node in world.nodes() if node.name == "i-1")
    assert (node.ready_status, node.ready_since) == ("Unknown", clock.now())
    assert not next(pod for pod in world.pods()).ready
    clock.advance(99)
    assert len(world.pods()) == 1
    clock.advance(7)
    assert [(pod.node, pod.terminating) for pod in world.pods()] == [("i-1", True), ("i-2", False)]


def test_deleting_the_node_of_a_dead_machine_frees_its_pods_at_once_for_their_controller() -> None:
    clock, world = a_world()
    world.add_worker("i-1")
    world.create("deployments", deployment_object("web", namespace="shop", replicas=1, cpu_milli=100, memory_mib=64))
    world.create("pods", pod_object("bare"))
    clock.advance(10)
    world.add_worker("i-2")
    world.instance_gone("i-1")
    clock.advance(50)
    world.delete("nodes", "", "i-1")
    clock.advance(30)
    assert [(pod.owner_kind, pod.node) for pod in world.pods()] == [("ReplicaSet", "i-2")]


def test_a_kubelet_that_comes_back_finishes_what_it_was_told() -> None:
    clock, world = a_world()
    world.add_worker("i-1")
    world.create("pods", pod_object("bare"))
    clock.advance(10)
    world.fail_node("i-1")
    clock.advance(60)
    world.delete("pods", "shop", "bare")
    clock.advance(60)
    assert [pod.terminating for pod in world.pods()] == [True]
    world.recover_node("i-1")
    assert world.truth().usable_workers == 1
    clock.advance(5)
    assert world.pods() == []


def test_an_unknown_instance_type_is_refused_with_the_nearest_name() -> None:
    _, world = a_world()
    with pytest.raises(UnknownInstanceTypeError, match=r"'t3.smal'; did you mean t3.small\?"):
        world.add_worker("i-1", instance_type="t3.smal")
