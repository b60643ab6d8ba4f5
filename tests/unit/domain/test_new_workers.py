"""The nodes that stand for new and joining workers: their labels, taints, sizes and free amounts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from node_fleet.domain.fit.placement import Node
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import PodShape, Worker
from node_fleet.domain.scaling.signals.new_workers import launched_markets, node_of, pod_of, pool_name, templates
from node_fleet.domain.scaling.tick import Tick, make_tick
from tests.support.decisions import START, snapshot, worker

MIB = 1024 * 1024


def tick(*crew: Worker, types: tuple[str, ...] = ("t3.small",), **more: Any) -> Tick:
    policy = Policy(instance_types=types, subnets=more.pop("subnets", ("eu-west-1a=subnet-1",)))
    return make_tick(snapshot(workers=crew, **more), Memory(), policy, START)


def new(*crew: Worker, kind: str = "t3.small", **more: Any) -> Node:
    return templates(tick(*crew, types=(kind,), **more), ["spot"])[0]


@pytest.mark.parametrize(
    ("kind", "arch"), [("t3.small", "amd64"), ("t4g.small", "arm64"), ("m7gd.large", "arm64"), ("g4dn.xlarge", "amd64")]
)
def test_a_new_worker_has_the_labels_of_its_pool_and_those_that_all_workers_share(kind: str, arch: str) -> None:
    node = new(kind=kind, worker_labels={"team": "data", "node-fleet.io/market": "of a worker"})
    assert node.labels == {
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": arch,
        "team": "data",
        "kubernetes.io/hostname": "a new worker",
        "topology.kubernetes.io/zone": "eu-west-1a",
        "topology.kubernetes.io/region": "eu-west-1",
        "node.kubernetes.io/instance-type": kind,
        "node-fleet.io/market": "spot",
        "node-fleet.io/role": "worker",
    }
    assert pool_name(node) == f"eu-west-1a/{kind}/spot"


def test_the_pools_are_in_the_order_of_types_then_zones_then_markets() -> None:
    found = templates(tick(types=("t3.small", "t3.medium"), subnets=("a=1", "b=2")), ["spot", "on-demand"])
    kinds = [
        f"{zone}/{kind}/{market}"
        for kind in ("t3.small", "t3.medium")
        for zone in "ab"
        for market in ("spot", "on-demand")
    ]
    assert [pool_name(node) for node in found] == kinds


def test_without_configured_zones_the_zones_of_the_workers_count() -> None:
    crew = (worker(1, zone="b"), worker(2, zone="a"), worker(3, zone="b"))
    assert [pool_name(n) for n in templates(tick(*crew, subnets=()), ["spot"])] == [
        "a/t3.small/spot",
        "b/t3.small/spot",
    ]
    assert [pool_name(n) for n in templates(tick(subnets=()), ["spot"])] == ["/t3.small/spot"]


@pytest.mark.parametrize(("share", "markets"), [(0, ("on-demand",)), (1, ("spot", "on-demand"))])
def test_workers_are_launched_in_both_markets_unless_no_spot_is_wanted(share: int, markets: tuple[str, ...]) -> None:
    assert launched_markets(Policy(spot_percent=share)) == markets


@pytest.mark.parametrize(
    ("crew", "kind", "size"),
    [
        ((), "t3.small", (2000, 1904, 110)),
        ((worker(1, cpu_allocatable_milli=1900),), "t3.small", (1900, 1900, 110)),
        ((worker(1, pods_allocatable=None),), "t3.small", (2000, 1900, 110)),
        ((worker(1, pods_allocatable=17),), "t3.small", (2000, 1900, 17)),
        ((worker(1, cpu_allocatable_milli=1900), worker(2, cpu_allocatable_milli=1950)), "t3.small", (1950, 1900, 110)),
        ((worker(1, memory_allocatable_mib=None),), "t3.small", (2000, 1904, 110)),
        ((worker(1, cpu_allocatable_milli=0),), "t3.small", (2000, 1904, 110)),
        ((worker(1, memory_allocatable_mib=0),), "t3.small", (2000, 1904, 110)),
        ((worker(1, cpu_allocatable_milli=None),), "t3.small", (2000, 1904, 110)),
        ((worker(1),), "t3.medium", (2000, 3809, 110)),
        ((worker(1), worker(2, instance_type="x8.odd", cpu_allocatable_milli=9000)), "x9.odd", (9000, 1900, 110)),
        ((), "x9.odd", (2**60, 2**60 // MIB, 110)),
    ],
)
def test_a_new_worker_is_as_large_as_a_worker_of_its_type_or_as_its_name_says(
    crew: tuple[Worker, ...], kind: str, size: tuple[int, int, int]
) -> None:
    cpu, memory, pods = size
    amounts = {"cpu": cpu, "memory": memory * MIB, "pods": pods, "ephemeral-storage": 2**60}
    assert new(*crew, kind=kind).allocatable == amounts


@pytest.mark.parametrize(
    ("changes", "free"),
    [
        ({}, (1000, 1100, 102)),
        ({"cpu_requested_milli": None, "memory_requested_mib": None, "pods": None}, (2000, 1900, 110)),
        ({"pods_allocatable": 12}, (1000, 1100, 4)),
        ({"pods_allocatable": None}, (1000, 1100, 102)),
        ({"cpu_allocatable_milli": None}, (1000, 1104, 102)),
        ({"memory_allocatable_mib": None}, (1000, 1104, 102)),
    ],
    ids=str,
)
def test_a_worker_offers_what_its_pods_leave(changes: dict[str, Any], free: tuple[int, int, int]) -> None:
    one = worker(1, **changes)
    found = node_of(tick(one), one).free
    assert (found["cpu"], found["memory"], found["pods"]) == (free[0], free[1] * MIB, free[2])


@pytest.mark.parametrize(
    ("text", "taint"),
    [
        ("team=data:NoSchedule", {"key": "team", "value": "data", "effect": "NoSchedule"}),
        ("team:NoExecute", {"key": "team", "value": "", "effect": "NoExecute"}),
        ("team=data:PreferNoSchedule", None),
        ("node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule", None),
        ("node-fleet.io/starting=180:NoSchedule", None),
    ],
)
def test_the_taints_of_a_worker_repel_pods_unless_they_end_when_it_is_ready(
    text: str, taint: dict[str, str] | None
) -> None:
    one = replace(worker(1), taints=(text,))
    assert node_of(tick(one), one).taints == ([taint] if taint else [])


@pytest.mark.parametrize(
    ("cpu", "memory", "requests"),
    [(500, 256, {"cpu": 500, "memory": 256 * MIB, "pods": 1}), (0, 256, {"memory": 256 * MIB, "pods": 1})],
)
def test_a_pod_without_a_listed_demand_asks_for_its_cpu_and_memory(
    cpu: int, memory: int, requests: dict[str, int]
) -> None:
    assert pod_of(PodShape(cpu_milli=cpu, memory_mib=memory, count=1)).demand == {"requests": requests}
    listed = {"requests": {"pods": 1}, "namespace": "shop"}
    assert pod_of(PodShape(cpu_milli=cpu, memory_mib=memory, count=1, demand=listed)).demand == listed


@pytest.mark.parametrize(
    ("changes", "free"),
    [
        ({}, (1000, 1100, 102)),
        ({"cpu_requested_milli": None, "memory_requested_mib": None, "pods": None}, (2000, 1900, 110)),
        ({"pods_allocatable": None}, (1000, 1100, 102)),
        ({"pods_allocatable": 12}, (1000, 1100, 4)),
    ],
)
def test_a_worker_has_free_what_its_pods_are_known_to_leave(
    changes: dict[str, Any], free: tuple[int, int, int]
) -> None:
    one = worker(1, **changes)
    found = node_of(tick(one), one).free
    assert (found["cpu"], found["memory"], found["pods"]) == (free[0], free[1] * MIB, free[2])
