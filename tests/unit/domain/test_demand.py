"""Waiting pods as demand: what joining workers will hold, by CPU, memory, pod slots and zone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.model.instance_types import offered
from node_fleet.domain.model.memory import Memory, ShapeLaunch
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import PodShape, Worker
from node_fleet.domain.scaling.signals.pending_pods import PendingPods, evaluate_pending_pods, shape_key
from node_fleet.domain.scaling.tick import make_tick
from tests.support.decisions import START, snapshot, worker, workers

POLICY = Policy()
FULL = {"cpu_requested_milli": 2000, "memory_requested_mib": 1900}


def demand(
    *shapes: PodShape, joining: tuple[Worker, ...] = (), memory: Memory | None = None, **seen: Any
) -> PendingPods:
    fleet = (*workers(2, **FULL), *joining)
    view = make_tick(snapshot(pending=shapes, workers=fleet, **seen), memory or Memory(), POLICY, START)
    found = evaluate_pending_pods(view, view.memory.fresh)
    assert found is not None
    return found


def shape(count: int, cpu: int = 500, memory: int = 256, **changes: Any) -> PodShape:
    return PodShape(cpu_milli=cpu, memory_mib=memory, count=count, **changes)


def booting(number: int = 1, **changes: Any) -> Worker:
    return worker(f"b{number}", "joining", launched_at=START - 60, **changes)


@pytest.mark.parametrize(
    ("cpu", "memory", "count", "left"),
    [(500, 1, 4, 0), (500, 1, 5, 1), (1, 475, 4, 0), (1, 475, 5, 1), (1, 1, 110, 0), (1, 1, 111, 1), (0, 0, 111, 1)],
)
def test_a_joining_worker_is_filled_by_cpu_memory_and_pod_slots(cpu: int, memory: int, count: int, left: int) -> None:
    assert demand(shape(count, cpu, memory), joining=(booting(),)).left == left


def test_a_pod_bound_to_a_zone_fits_only_there() -> None:
    here, there = booting(1, zone="zone-a"), booting(2, zone="zone-b")
    assert demand(shape(8, zone="zone-a"), joining=(here, there)).left == 4
    assert demand(shape(4, zone="zone-a"), shape(4, zone="zone-b"), joining=(here, there)).left == 0


def test_a_worker_whose_node_is_known_already_offers_what_is_free_on_it() -> None:
    known = booting(cpu_allocatable_milli=2000, cpu_requested_milli=1400, memory_allocatable_mib=1900, pods=3)
    assert demand(shape(2), joining=(known,)).left == 1


def test_of_an_unseen_type_the_size_is_taken_from_its_name() -> None:
    assert demand(shape(16, 500, 64), joining=(booting(instance_type="m5.2xlarge"),)).left == 0
    assert demand(shape(17, 500, 64), joining=(booting(instance_type="m5.2xlarge"),)).left == 1


def test_the_oldest_of_what_is_left_is_reported() -> None:
    found = demand(shape(4, oldest_seconds=900), shape(1, 1900, oldest_seconds=30), joining=(booting(),))
    assert (found.left, found.oldest_seconds) == (4, 900)


def test_one_shape_given_twice_is_one_shape() -> None:
    once = demand(shape(5, oldest_seconds=9, example="a/b"), joining=(booting(),))
    twice = demand(shape(2, example="a/c"), shape(3, oldest_seconds=9, example="a/b"), joining=(booting(),))
    assert once == twice


def test_pods_of_other_places_are_other_shapes() -> None:
    keys = {
        shape_key(s)
        for s in (
            shape(1),
            shape(1, zone="zone-a"),
            shape(1, node_selector=("disk=ssd",)),
            shape(1, tolerations=("gpu",)),
            shape(1, 501),
        )
    }
    assert len(keys) == 5


def test_what_is_not_pending_any_more_is_forgotten() -> None:
    memory = Memory(
        launched_for=(ShapeLaunch(shape="9m/9Mi", at=START - 60, count=3),), not_helped={"9m/9Mi": START + 9}
    )
    found = demand(shape(1), memory=memory)
    assert (found.launched_for, found.not_helped) == ((), ())


@given(
    counts=st.lists(st.integers(0, 30), min_size=1, max_size=4),
    sizes=st.lists(st.integers(1, 2000), min_size=4, max_size=4),
    number=st.integers(0, 4),
)
def test_what_is_left_and_what_is_held_are_all_pods_and_no_capacity_is_used_twice(
    counts: list[int], sizes: list[int], number: int
) -> None:
    shapes = [shape(count, size, 1) for count, size in zip(counts, sizes, strict=False)]
    found = demand(*shapes, joining=tuple(booting(n) for n in range(number)))
    waiting = sum(counts)
    assert found.waiting == waiting and 0 <= found.left <= waiting
    held = waiting - found.left
    smallest = min((s.cpu_milli for s in shapes if s.count), default=1)
    assert held * smallest <= number * 2000


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("t3.small", (2000, 1904)),
        ("t3.medium", (2000, 3809)),
        ("t2.small", (1000, 1904)),
        ("t4g.small", (2000, 1904)),
        ("c5.large", (2000, 3809)),
        ("m6i.xlarge", (4000, 15237)),
        ("r5.4xlarge", (16000, 121896)),
        ("m7g.medium", (1000, 3809)),
        ("u-6tb1.metal", None),
        ("odd", None),
        ("m5.metal", None),
        ("t3.9xlarge", None),
    ],
)
def test_the_size_of_a_type_by_its_name(name: str, size: tuple[int, int] | None) -> None:
    assert offered(name) == size
