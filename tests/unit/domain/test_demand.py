"""Waiting pods as demand: what joining workers will hold, by CPU, memory, pod slots and zone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.model.instance_types import offered
from node_fleet.domain.model.memory import Memory, ShapeLaunch
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import PodShape, Worker
from node_fleet.domain.scaling.decision import decide
from node_fleet.domain.scaling.signals.pending_pods import (
    PendingPods,
    evaluate_pending_pods,
    new_workers_for,
    plain_owners,
    shape_key,
)
from node_fleet.domain.scaling.tick import Tick, make_tick
from tests.support.decisions import START, snapshot, worker, workers

POLICY = Policy(subnets=("zone-a=subnet-a", "zone-b=subnet-b"))
FULL = {"cpu_requested_milli": 2000, "memory_requested_mib": 1900}


def demand(
    *shapes: PodShape,
    joining: tuple[Worker, ...] = (),
    memory: Memory | None = None,
    policy: Policy = POLICY,
    **seen: Any,
) -> PendingPods:
    view = view_of(*shapes, joining=joining, memory=memory, policy=policy, **seen)
    found = evaluate_pending_pods(view, view.memory.fresh)
    assert found is not None
    return found


def view_of(
    *shapes: PodShape,
    joining: tuple[Worker, ...] = (),
    memory: Memory | None = None,
    policy: Policy = POLICY,
    **seen: Any,
) -> Tick:
    fleet = (*workers(2, **FULL), *joining)
    return make_tick(snapshot(pending=shapes, workers=fleet, **seen), memory or Memory(), policy, START)


def shape(count: int, cpu: int = 500, memory: int = 256, **changes: Any) -> PodShape:
    return PodShape(cpu_milli=cpu, memory_mib=memory, count=count, **changes)


ZONE = "topology.kubernetes.io/zone"


def in_zone(count: int, zone: str) -> PodShape:
    terms = [["volume", [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]]]
    return shape(count, demand={"requests": {"cpu": 500, "memory": 2**28, "pods": 1}, "terms": terms})


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
    assert demand(in_zone(8, "zone-a"), joining=(here, there)).left == 4
    assert demand(in_zone(4, "zone-a"), in_zone(4, "zone-b"), joining=(here, there)).left == 0


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
            in_zone(1, "zone-a"),
            in_zone(1, "zone-b"),
            shape(1, problem="its claim is not bound"),
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


def test_pods_that_no_new_worker_could_run_are_listed_with_the_reason_and_not_counted() -> None:
    def refused(predicate: str, key: str, **more: Any) -> PodShape:
        terms = [[predicate, [{"matchExpressions": [{"key": key, "operator": "In", "values": ["none"]}]}]]]
        return shape(1, demand={"requests": {"cpu": 500, "pods": 1}, "terms": terms, **more}, example=predicate)

    shapes = (
        refused("affinity", "disk"),
        refused("volume", ZONE),
        refused("anti-affinity", ZONE),
        shape(1, demand={"requests": {"cpu": 1, "example.com/gpu": 1, "pods": 1}}, example="gpu"),
        shape(1, 8000, example="large"),
        shape(1, problem="its claim data is not bound", example="claim"),
        shape(1, problem="its node does not exist", lasting=True, example="lost"),
    )
    found = demand(*shapes)
    assert (found.waiting, found.left, found.listed) == (0, 0, 7)
    assert {s.example: reason for s, reason in found.unfit} == {
        "affinity": "no new worker matches its node selector or required node affinity",
        "volume": "its volume is in a zone, or on a node, that no new worker has",
        "anti-affinity": "a required pod anti-affinity refuses every new worker",
        "gpu": "requests 1 example.com/gpu, the largest worker offers 0",
        "large": "requests 8000m CPU, the largest worker offers 2000m",
        "claim": "waits: its claim data is not bound",
        "lost": "no new worker helps: its node does not exist",
    }


@pytest.mark.parametrize(
    ("market", "spot_percent", "reason"),
    [
        ("spot", 0, "it runs on Spot instances only, and spot_percent is 0"),
        ("spot", 1, ""),
        ("on-demand", 0, ""),
        ("on-demand", 100, ""),
    ],
)
def test_a_pod_for_a_market_without_launches_brings_no_launch(market: str, spot_percent: int, reason: str) -> None:
    expression = {"key": "node-fleet.io/market", "operator": "In", "values": [market]}
    terms = [["affinity", [{"matchExpressions": [expression]}]]]
    pod = shape(1, demand={"requests": {"cpu": 500, "pods": 1}, "terms": terms})
    policy = replace(POLICY, spot_percent=spot_percent)
    found = demand(pod, policy=policy)
    assert [why for _, why in found.unfit] == ([reason] if reason else [])
    assert len(new_workers_for(view_of(pod, policy=policy), found)) == (not reason)


def test_a_taint_of_the_workers_refuses_pods_that_do_not_tolerate_it() -> None:
    taints = ({"key": "team", "value": "data", "effect": "NoSchedule"},)
    tolerant = shape(1, demand={"requests": {"cpu": 9, "pods": 1}, "tolerations": [{"operator": "Exists"}]})
    found = demand(shape(1), tolerant, worker_taints=taints)
    assert (found.left, [reason for _, reason in found.unfit]) == (
        1,
        ["it does not tolerate the taints of the workers"],
    )


def test_without_an_answer_of_the_api_only_pods_that_are_known_to_be_plain_count() -> None:
    waiting = (shape(2, example="shop/web-7d9-abcde"), shape(1, 400, example="shop/gpu-5f6-fghij"))
    found = demand(*waiting, memory=Memory(plain_owners=("shop/web-7d9",)), unlisted="SSM status TimedOut")
    assert (found.left, found.listed) == (2, 1)
    assert found.unfit[0][1] == "not counted, because what it demands of a worker is not known: SSM status TimedOut"


def test_owners_of_plain_pods_are_remembered_until_they_are_seen_to_demand_more() -> None:
    plain, picky = shape(1, example="shop/web-1-a"), replace(in_zone(1, "zone-a"), example="shop/db-1-a")
    memory = Memory(plain_owners=("shop/db-1", "shop/old-1"))
    tick = make_tick(snapshot(pending=(plain, picky)), memory, POLICY, START)
    assert plain_owners(tick) == ("shop/web-1", "shop/old-1")
    assert plain_owners(replace(tick, snapshot=snapshot(pending=()))) == memory.plain_owners


@pytest.mark.parametrize("maximum", [2, 3])
def test_a_decision_passes_on_the_pools_of_the_workers_that_it_adds(maximum: int) -> None:
    waiting = snapshot(pending=(in_zone(4, "zone-b"),), workers=workers(2, **FULL))
    decision = decide(waiting, Memory(), replace(POLICY, max_workers=maximum), START)
    pools = ("zone-b/t3.small/spot", "zone-b/t3.small/on-demand")
    assert [new.pools for new in decision.new_workers] == [pools] * (maximum - 2)
    assert decision.count == maximum - 2


def test_what_is_left_names_the_pools_that_its_new_workers_must_be_of() -> None:
    waiting = in_zone(4, "zone-b")
    found = new_workers_for(view_of(waiting), demand(waiting))
    assert [new.pools for new in found] == [("zone-b/t3.small/spot", "zone-b/t3.small/on-demand")]


LAUNCHED = ShapeLaunch(shape="500m/256Mi", at=START - 600, count=3, unhelped=1)


@pytest.mark.parametrize(
    ("launch", "action", "ended", "waiting", "expected"),
    [
        ({}, "scale_up", 300, shape(3, oldest_seconds=600), (0, 2)),
        ({}, "scale_up", 600, shape(3, oldest_seconds=600), (0, 2)),
        ({}, "scale_up", 601, shape(3, oldest_seconds=601), (START - 600, 1)),
        ({}, "scale_down", 300, shape(3, oldest_seconds=600), (START - 600, 1)),
        ({"at": 0}, "scale_up", 300, shape(3, oldest_seconds=600), (0, 1)),
        ({}, "scale_up", POLICY.scheduling_grace_seconds, shape(3, oldest_seconds=600), (0, 2)),
        ({}, "scale_up", POLICY.scheduling_grace_seconds - 1, shape(3, oldest_seconds=600), (START - 600, 1)),
        ({}, "scale_up", 300, shape(2, oldest_seconds=600), (0, 0)),
        ({}, "scale_up", 300, shape(4, oldest_seconds=600), (0, 2)),
        ({}, "scale_up", 300, shape(3, oldest_seconds=599), (0, 0)),
    ],
    ids=[
        "the same pods still wait",
        "the launch ended in the second in which it began",
        "the launch has not ended",
        "only a removal has ended",
        "no launch waits for its judgement",
        "the scheduler had its time",
        "the scheduler has not had its time",
        "some pods run",
        "more pods wait",
        "other pods wait",
    ],
)
def test_a_launch_is_judged_once_by_whether_the_same_pods_wait_beside_free_capacity(
    launch: dict[str, Any], action: Any, ended: int, waiting: PodShape, expected: tuple[int, int]
) -> None:
    memory = Memory(launched_for=(replace(LAUNCHED, **launch),), last_action=action, last_action_at=START - ended)
    policy = replace(POLICY, not_helped_launches=9)
    tick = make_tick(snapshot(pending=(waiting,), workers=workers(2)), memory, policy, START)
    found = evaluate_pending_pods(tick, {})
    assert found is not None
    assert [(one.at, one.unhelped, one.count) for one in found.launched_for] == [(*expected, 3)]


@pytest.mark.parametrize(
    ("crew", "unhelped"),
    [
        (workers(2, **FULL), 0),
        ((worker(1, **FULL), worker(2)), 2),
        (workers(1, cpu_requested_milli=None), 2),
        (workers(1, memory_requested_mib=None), 2),
        (workers(1, cpu_allocatable_milli=None), 2),
        (workers(1, cpu_requested_milli=1501), 0),
        (workers(1, cpu_requested_milli=1500), 2),
    ],
)
def test_a_launch_has_not_helped_when_a_worker_could_hold_a_pod_or_has_unknown_requests(
    crew: tuple[Worker, ...], unhelped: int
) -> None:
    memory = Memory(launched_for=(LAUNCHED,), last_action="scale_up", last_action_at=START - 300)
    waiting = (shape(3, oldest_seconds=600),)
    policy = replace(POLICY, not_helped_launches=9)
    found = evaluate_pending_pods(make_tick(snapshot(pending=waiting, workers=crew), memory, policy, START), {})
    assert found is not None and [one.unhelped for one in found.launched_for] == [unhelped]


@pytest.mark.parametrize(("joining", "oldest"), [(0, 300), (1, 100), (2, 300)])
def test_the_longest_wait_is_that_of_the_pods_that_are_left_or_else_of_all(joining: int, oldest: int) -> None:
    """A joining worker of 2000m holds the large pods, two of them hold all."""
    large, small = shape(1, 1800, oldest_seconds=300), shape(1, 400, oldest_seconds=100)
    coming = tuple(booting(number) for number in range(joining))
    assert demand(large, small, joining=coming).oldest_seconds == oldest


@pytest.mark.parametrize(("until", "launches", "listed"), [(1, 2, True), (0, 1, False), (-1, 1, False)])
def test_a_listed_shape_gets_one_more_launch_when_its_time_is_over(until: int, launches: int, listed: bool) -> None:
    """Listed pods that wait beside one that was there before do not count, and the new one does."""
    memory = Memory(launched_for=(replace(LAUNCHED, at=0, unhelped=2),), not_helped={LAUNCHED.shape: START + until})
    found = demand(shape(4, oldest_seconds=900), memory=memory, policy=replace(POLICY, not_helped_launches=2))
    assert [one.unhelped for one in found.launched_for] == [launches]
    assert found.not_helped == (((LAUNCHED.shape, START + until),) if listed else ())
    assert (found.waiting, found.listed) == ((1, 4) if listed else (4, 0))


def test_a_shape_is_listed_for_its_time_from_the_last_launch_that_did_not_help() -> None:
    memory = Memory(launched_for=(LAUNCHED,), last_action="scale_up", last_action_at=START - 300)
    policy = replace(POLICY, not_helped_launches=2)
    tick = make_tick(snapshot(pending=(shape(3, oldest_seconds=600),), workers=workers(2)), memory, policy, START)
    found = evaluate_pending_pods(tick, {})
    assert found is not None
    assert found.not_helped == ((LAUNCHED.shape, START + policy.not_helped_seconds),)


@pytest.mark.parametrize(
    ("age", "left"), [(POLICY.scheduling_grace_seconds - 1, 1), (POLICY.scheduling_grace_seconds, 3)]
)
def test_free_capacity_of_a_usable_worker_counts_only_until_the_scheduler_had_its_time(age: int, left: int) -> None:
    crew = (worker(1), worker(2, cpu_requested_milli=2000))
    tick = make_tick(snapshot(pending=(shape(3),), workers=crew), Memory(), POLICY, START)
    found = evaluate_pending_pods(tick, {"i-0001": START - age})
    assert found is not None and (found.waiting, found.left) == (3, left)


def test_the_order_in_which_a_demand_is_stated_gives_a_shape_no_other_name() -> None:
    first, second = ("ports", [[80, "TCP", ""]]), ("tolerations", [{"key": "a", "operator": "Exists"}])
    names = {
        shape_key(PodShape(cpu_milli=1, memory_mib=1, count=1, demand=dict(each)))
        for each in ((first, second), (second, first))
    }
    assert len(names) == 1


@pytest.mark.parametrize(
    ("demand", "is_named"),
    [
        ({}, False),
        ({"requests": {"cpu": 500, "memory": 2**28, "pods": 1}, "namespace": "shop", "labels": {"app": "web"}}, False),
        ({"requests": {"cpu": 500, "memory": 2**28, "pods": 1, "nvidia.com/gpu": 1}}, True),
        ({"tolerations": [{"key": "a", "operator": "Exists"}]}, True),
    ],
)
def test_the_name_of_a_shape_shows_whether_it_asks_for_more_than_cpu_and_memory(
    demand: dict[str, Any], is_named: bool
) -> None:
    name = shape_key(shape(3, demand=demand))
    assert (name == "500m/256Mi") is not is_named and name.startswith("500m/256Mi")
    more = {**demand, "requests": {**demand.get("requests", {}), "nvidia.com/gpu": 2}}
    assert shape_key(shape(3, demand=more)) not in (name, "500m/256Mi")
    assert "@" in shape_key(shape(3, problem="its volume is unknown"))
