"""Bin packing: first-fit decreasing, and the size of a typical pod."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.fit.placement import Node
from node_fleet.domain.model.memory import PodSums
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import NewWorker, PodShape
from node_fleet.domain.scaling.signals.new_workers import pack
from node_fleet.domain.scaling.signals.type_mix import choose_new_workers
from node_fleet.domain.scaling.strategies.adaptive.typical_pod import (
    PodSize,
    free_capacity,
    learn_pods,
    slots,
    typical_pod,
    whole_capacity,
)
from tests.support.decisions import worker


def shape(count: int, cpu_milli: int = 250, memory_mib: int = 128, **changes: Any) -> PodShape:
    return PodShape(cpu_milli=cpu_milli, memory_mib=memory_mib, count=count, **changes)


ZONE, MARKET = "topology.kubernetes.io/zone", "node-fleet.io/market"
TYPE = "node.kubernetes.io/instance-type"


def listed(count: int, **demand: Any) -> PodShape:
    """Pods of 250m with a demand as the API shows it."""
    return shape(count, demand={"requests": {"cpu": 250, "pods": 1}, **demand})


def selecting(count: int, label: str, value: str) -> PodShape:
    expression = {"key": label, "operator": "In", "values": [value]}
    return listed(count, terms=[["affinity", [{"matchExpressions": [expression]}]]])


def capacity(
    cpu_milli: int = 1880,
    memory_mib: int = 1666,
    pods: int = 109,
    *,
    zone: str = "a",
    market: str = "spot",
    **kind: Any,
) -> Node:
    amounts = {"cpu": cpu_milli, "memory": memory_mib * 1024 * 1024, "pods": pods}
    return Node(f"{zone}-{market}", {ZONE: zone, MARKET: market, TYPE: "t3.small"}, amounts, **kind)


KINDS = [capacity(zone=zone, market=market) for zone in ("a", "b") for market in ("spot", "on-demand")]


def packed(waiting: list[PodShape], nodes: list[Node], kind: Node, most: int) -> tuple[int, int]:
    opened, left = pack(waiting, nodes, [kind], most)
    return len(opened), left


class TestFirstFitDecreasing:
    @pytest.mark.parametrize(("count", "workers"), [(0, 0), (1, 1), (7, 1), (8, 2), (42, 6)])
    def test_seven_pods_of_250m_fill_a_worker(self, count: int, workers: int) -> None:
        assert packed([shape(count)], [], capacity(), 10) == (workers, 0)

    def test_memory_and_pod_count_limit_as_cpu_does(self) -> None:
        assert packed([shape(8, 10, 800)], [], capacity(), 10) == (4, 0)
        assert packed([shape(8, 0, 0)], [], capacity(pods=4), 10) == (2, 0)

    def test_large_pods_go_first_so_that_small_ones_fill_the_gaps(self) -> None:
        assert packed([shape(3, 500, 100), shape(3, 1250, 100)], [], capacity(cpu_milli=1750), 10) == (3, 0)

    @pytest.mark.parametrize(("count", "opened"), [(9, 0), (10, 1)])
    def test_free_capacity_is_used_before_a_new_worker(self, count: int, opened: int) -> None:
        assert packed([shape(count)], [capacity(cpu_milli=500), capacity()], capacity(), 10) == (opened, 0)

    def test_what_fits_no_worker_is_left_and_opens_none(self) -> None:
        assert packed([shape(3, 2000), shape(2)], [], capacity(), 10) == (1, 3)

    def test_no_more_than_the_most_are_opened(self) -> None:
        assert packed([shape(30)], [], capacity(), 2) == (2, 16)

    def test_a_kind_that_holds_the_pod_alone_but_not_beside_the_running_workers_opens_none(self) -> None:
        one_each_zone = {"key": ZONE, "namespaces": ["shop"], "selector": {"matchLabels": {"app": "db"}}}
        opened, left = pack(
            [listed(3, namespace="shop", labels={"app": "db"}, anti=[one_each_zone])], [capacity()], [capacity()], 10
        )
        assert (opened, left) == ([], 2)

    def test_zones_keep_pods_apart_and_name_the_pools_that_may_serve(self) -> None:
        pods = [selecting(2, ZONE, "a"), selecting(2, ZONE, "b")]
        opened = choose_new_workers(pods, [capacity(zone="a")], KINDS, Policy())
        assert opened == (NewWorker(pools=("b/t3.small/spot", "b/t3.small/on-demand")),)

    def test_a_pod_for_any_pool_names_none(self) -> None:
        assert choose_new_workers([shape(1)], [], KINDS, Policy()) == (NewWorker(),)

    @pytest.mark.parametrize(("market", "opened"), [("spot", 1), ("on-demand", 0)])
    def test_a_selector_that_a_worker_does_not_meet_refuses_it(self, market: str, opened: int) -> None:
        new, left = pack([selecting(1, MARKET, "on-demand")], [capacity(market=market)], KINDS, 10)
        assert (len(new), left) == (opened, 0)

    @pytest.mark.parametrize(
        ("effect", "tolerations", "left"),
        [
            ("NoSchedule", [], 1),
            ("NoSchedule", [{"key": "team", "operator": "Exists"}], 0),
            ("PreferNoSchedule", [], 0),
        ],
    )
    def test_a_taint_refuses_pods_that_do_not_tolerate_it(self, effect: str, tolerations: list[Any], left: int) -> None:
        kind = capacity(taints=[{"key": "team", "value": "data", "effect": effect}])
        assert packed([listed(1, tolerations=tolerations)], [], kind, 10)[1] == left

    def test_pods_that_need_a_host_port_each_take_a_worker(self) -> None:
        assert packed([listed(3, ports=[[80, "TCP", ""]])], [], capacity(), 10) == (3, 0)

    @given(
        st.lists(st.builds(shape, st.integers(0, 20), st.integers(0, 2500), st.integers(0, 2000)), max_size=6),
        st.integers(0, 8),
    )
    def test_no_pod_is_lost_and_order_does_not_matter(self, waiting: list[PodShape], most: int) -> None:
        opened, left = packed(waiting, [], capacity(), most)
        pods = sum(one.count for one in waiting)
        too_large = sum(one.count for one in waiting if one.cpu_milli > 1880 or one.memory_mib > 1666)
        assert 0 <= opened <= most
        assert left == too_large if opened < most else too_large <= left <= pods - opened
        assert packed(list(reversed(waiting)), [], capacity(), most) == (opened, left)


class TestTypicalPod:
    def test_workers_with_different_counts_tell_pods_from_daemon_sets(self) -> None:
        sums = learn_pods(PodSums(), [filled(1), filled(4), filled(8)], 1.0)
        size = typical_pod(sums, ())
        assert size is not None
        assert size.cpu_milli == pytest.approx(250) and size.daemon_cpu_milli == pytest.approx(20)
        assert size.memory_mib == pytest.approx(128) and size.daemon_memory_mib == pytest.approx(32)

    def test_equal_workers_give_the_mean_and_are_not_taken_for_daemon_sets(self) -> None:
        size = typical_pod(learn_pods(PodSums(), [filled(8), filled(8)], 1.0), ())
        assert size is not None and size.cpu_milli == pytest.approx(1770 / 8)
        assert (size.daemon_pods, size.daemon_cpu_milli, size.daemon_memory_mib) == (0, 0, 0)

    def test_small_daemon_sets_show_in_the_line_although_no_worker_was_ever_empty(self) -> None:
        size = typical_pod(learn_pods(PodSums(), [filled(5), filled(8)], 1.0), ())
        assert size is not None and size.daemon_pods == 1 and size.daemon_cpu_milli == pytest.approx(20)

    def test_before_any_pod_ran_the_waiting_ones_are_typical(self) -> None:
        size = typical_pod(PodSums(), [shape(3, 100, 200), shape(1, 500, 600)])
        assert size == PodSize(cpu_milli=200, memory_mib=300)
        assert typical_pod(PodSums(), ()) is None

    def test_the_first_reading_gives_the_sums_of_its_workers(self) -> None:
        sums = learn_pods(PodSums(), [filled(2), filled(5)], 0.5)
        assert sums == PodSums(
            workers=2,
            pods=2 + 5,
            pods_squared=4 + 25,
            cpu=270 + 1020,
            pods_cpu=2 * 270 + 5 * 1020,
            memory=160 + 544,
            pods_memory=2 * 160 + 5 * 544,
            least=2,
        )

    def test_of_the_sums_of_earlier_readings_the_kept_share_is_added(self) -> None:
        crew = [filled(2), filled(5)]
        sums = learn_pods(PodSums(), crew, 1.0)
        share = {name: 1.25 * value for name, value in asdict(sums).items()}
        assert learn_pods(sums, crew, 0.25) == PodSums(**{**share, "least": 2})

    def test_workers_that_do_not_say_what_is_asked_teach_nothing(self) -> None:
        assert learn_pods(PodSums(), [worker(1, cpu_requested_milli=None)], 1.0) == PodSums()


SIZE = PodSize(cpu_milli=250, memory_mib=128, daemon_cpu_milli=20, daemon_memory_mib=32, daemon_pods=1)


@pytest.mark.parametrize(
    ("cpu", "memory", "pods", "expected"),
    [
        (1880, 1666, 109, 7),
        (1750, 1666, 109, 7),
        (1744, 1666, 109, 6),
        (1880, 256, 109, 2),
        (1880, 1666, 3, 3),
        (-5, 0, 9, 0),
    ],
)
def test_slots_are_what_the_scarcest_resource_allows(cpu: int, memory: int, pods: int, expected: int) -> None:
    assert slots((cpu, memory, pods), SIZE) == expected


def filled(count: int) -> Any:
    """A worker with one DaemonSet pod of 20m and 32 MiB, and otherwise pods of 250m and 128 MiB."""
    return worker(
        count,
        pods=count,
        cpu_requested_milli=20 + 250 * (count - 1),
        memory_requested_mib=32 + 128 * (count - 1),
    )


@pytest.mark.parametrize(
    ("least", "cpu", "pods_cpu", "size"),
    [
        (1, 7200, 46_800, (1000, 600, 1)),
        (2, 7200, 46_800, (1000, 600, 1)),
        (2, 8000, 50_000, (1000, 0, 0)),
        (2, 7999, 49_996, (1000, 0, 0)),
        (2, 9000, 54_000, (1125, 0, 0)),
        (2, 4000, 34_000, (1000, 0, 2)),
        (3, 3980, 33_920, (1000, 0, 2)),
        (3, 3900, 33_600, (1000, 950, 3)),
        (1, 1000, 22_000, (375, 0, 1)),
        (0, 7200, 46_800, (1000, 0, 0)),
    ],
)
def test_the_line_through_two_workers_gives_the_pod_and_the_daemon_sets(
    least: int, cpu: float, pods_cpu: float, size: tuple[float, float, int]
) -> None:
    """Workers with one and seven pods; a worker nearly empty has a third of the mean, 4/3 pods, or fewer."""
    sums = PodSums(
        workers=2, pods=8, pods_squared=50, cpu=cpu, pods_cpu=pods_cpu, memory=8, pods_memory=50, least=least
    )
    found = typical_pod(sums, ())
    assert found is not None
    assert (round(found.cpu_milli), round(found.daemon_cpu_milli), found.daemon_pods) == size


@pytest.mark.parametrize(("least", "daemons"), [(2, 2), (3, 0)])
def test_the_fewest_pods_of_a_worker_with_a_third_of_the_mean_are_daemon_sets(least: int, daemons: int) -> None:
    """Workers with two and ten pods, six on average, whose line begins at 0."""
    sums = PodSums(
        workers=2, pods=12, pods_squared=104, cpu=12_000, pods_cpu=104_000, memory=12, pods_memory=104, least=least
    )
    found = typical_pod(sums, ())
    assert found is not None and (found.cpu_milli, found.daemon_pods) == (1000, daemons)


@pytest.mark.parametrize(("pods_squared", "cpu", "daemons"), [(32.03, 1000, 0), (32.04, 2000, 2)])
def test_workers_whose_pods_hardly_differ_give_the_mean(pods_squared: float, cpu: float, daemons: int) -> None:
    """The spread counts from a thousandth of the square of all pods."""
    sums = PodSums(workers=2, pods=8, pods_squared=pods_squared, cpu=8000, pods_cpu=32_080, least=2)
    found = typical_pod(sums, ())
    assert found is not None and (found.cpu_milli, found.daemon_pods) == (pytest.approx(cpu), daemons)


@pytest.mark.parametrize(
    ("changes", "cpu", "memory", "count"),
    [
        ({}, 1000, 1100, 102),
        ({"cpu_requested_milli": None, "memory_requested_mib": None, "pods": None}, 2000, 1900, 110),
        ({"cpu_allocatable_milli": None, "memory_allocatable_mib": None}, -1000, -800, 102),
        ({"pods_allocatable": None}, 1000, 1100, 102),
        ({"pods_allocatable": 12}, 1000, 1100, 4),
    ],
    ids=str,
)
def test_free_capacity_is_what_is_allocatable_less_what_is_requested(
    changes: dict[str, Any], cpu: int, memory: int, count: int
) -> None:
    partly_used = worker(1, **changes)
    assert free_capacity(partly_used, whole_capacity(partly_used)) == (cpu, memory, count)


@pytest.mark.parametrize("least", [0, 3])
def test_the_fewest_pods_of_earlier_readings_are_kept(least: int) -> None:
    assert learn_pods(PodSums(workers=1, least=least), [filled(4)], 1.0).least == least


def test_the_fewest_pods_of_all_readings_are_kept() -> None:
    sums = learn_pods(PodSums(), [filled(4), filled(8)], 1.0)
    least = [learn_pods(sums, [filled(count)], 1.0).least - sums.least for count in (3, 4, 5)]
    assert least == [-1, 0, 0]


def test_a_typical_pod_of_one_unit_still_fills_a_worker() -> None:
    """The smallest request that is one: a thousandth of a core, and 1 MiB."""
    tiny = PodSize(cpu_milli=1, memory_mib=1)
    assert slots((5, 9, 110), tiny) == 5
    assert slots((9, 4, 110), tiny) == 4
    one = typical_pod(PodSums(workers=1, pods=1, pods_squared=1, cpu=70, pods_cpu=70, memory=30, pods_memory=30), ())
    assert one is not None and (one.cpu_milli, one.memory_mib) == (70, 30)
