"""The types of the workers that pending pods need: the cheapest configured types that hold them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.cost.prices import PriceList
from node_fleet.domain.model.memory import Memory, Streak
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import Market, NewWorker, PodShape
from node_fleet.domain.scaling.decision import decide
from node_fleet.domain.scaling.signals.load import percent_once_joined
from node_fleet.domain.scaling.signals.new_workers import launched_markets, templates
from node_fleet.domain.scaling.signals.type_mix import choose_new_workers, type_prices
from node_fleet.domain.scaling.tick import make_tick
from tests.support.decisions import START, TICK, idle, pods, snapshot, worker

ZONES = ("ap-southeast-1a=subnet-1", "ap-southeast-1b=subnet-2")


def policy_of(*types: str, **changes: Any) -> Policy:
    return Policy(**{"instance_types": types, "subnets": ZONES, **changes})


def chosen(shapes: list[PodShape], policy: Policy) -> list[tuple[str, ...]]:
    """The types that each new worker may have, best first."""
    return [types_of(new, policy) for new in new_workers(shapes, policy)]


def new_workers(shapes: list[PodShape], policy: Policy) -> tuple[NewWorker, ...]:
    tick = make_tick(snapshot(workers=()), Memory(), policy, START)
    return choose_new_workers(shapes, [], templates(tick, launched_markets(policy)), policy)


def types_of(new: NewWorker, policy: Policy) -> tuple[str, ...]:
    allowed = [pool.split("/")[1] for pool in new.pools] or policy.instance_types
    return tuple(kind for kind in new.types or policy.instance_types if kind in allowed)


def shape(count: int, cpu_milli: int, memory_mib: int) -> PodShape:
    return PodShape(cpu_milli=cpu_milli, memory_mib=memory_mib, count=count, example="shop/web-1")


@pytest.mark.parametrize(
    ("memory_mib", "types"),
    [
        (1904, ("t3.small", "t3.medium", "m5.large")),
        (1905, ("t3.medium", "m5.large")),
        (3072, ("t3.medium", "m5.large")),
        (3810, ("m5.large",)),
    ],
)
def test_a_pod_gets_the_cheapest_type_that_it_fits(memory_mib: int, types: tuple[str, ...]) -> None:
    configured = policy_of("t3.small", "t3.medium", "m5.large")
    assert chosen([shape(1, 100, memory_mib)], configured) == [types]
    dearest_first = policy_of("m5.large", "t3.medium", "t3.small")
    assert chosen([shape(1, 100, memory_mib)], dearest_first) == [types]


@pytest.mark.parametrize("market", ["spot", "on-demand"])
def test_prices_are_compared_only_when_both_markets_of_every_type_have_one(
    market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, region = policy_of("t3.small", "t3.medium"), "ap-southeast-1"
    assert list(type_prices(policy, region)) == ["t3.small", "t3.medium"]
    shipped = PriceList.shipped(region)
    known = {key: usd for key, usd in shipped.instances.items() if key != ("t3.medium", market)}
    monkeypatch.setattr(PriceList, "shipped", lambda _: replace(shipped, instances=known))
    assert type_prices(policy, region) == {}


def test_pods_that_no_type_fits_open_no_worker() -> None:
    assert chosen([shape(3, 100, 4096), shape(1, 2001, 64)], policy_of("t3.small", "t3.medium")) == []


@pytest.mark.parametrize(
    ("shapes", "types"),
    [
        ([shape(1, 100, 3072), shape(1, 100, 1500)], ["t3.medium", "t3.small"]),
        ([shape(1, 100, 3072), shape(1, 100, 700)], ["t3.medium"]),
        ([shape(2, 100, 1500)], ["t3.medium"]),
        ([shape(3, 100, 1500)], ["t3.medium", "t3.small"]),
        ([shape(4, 1000, 64)], ["t3.small", "t3.small"]),
    ],
    ids=[
        "beside a large pod",
        "in the rest of a large worker",
        "one volume and one address less",
        "a smaller last worker",
        "CPU, of which the larger type has no more",
    ],
)
def test_several_pods_get_the_cheapest_mix(shapes: list[PodShape], types: list[str]) -> None:
    assert [order[0] for order in chosen(shapes, policy_of("t3.small", "t3.medium"))] == types


def test_types_that_hold_only_the_first_pod_of_a_worker_come_last() -> None:
    configured = policy_of("t3.small", "t3.medium", "m5.large")
    found = new_workers([shape(2, 100, 1500)], configured)
    assert [(w.types, w.smaller_types) for w in found] == [(("t3.medium", "m5.large"), ("t3.small",))]


def test_without_the_price_of_each_type_the_configured_order_decides() -> None:
    unpriced = policy_of("x9.large", "t3.small", "t3.medium")
    assert type_prices(unpriced, "ap-southeast-1") == {}
    assert type_prices(policy_of("t3.small"), "mars-1") == {}
    elsewhere = policy_of("t3.medium", "t3.small", subnets=("mars-1a=subnet-1",))
    assert chosen([shape(1, 100, 100)], elsewhere) == [("t3.medium", "t3.small")]
    assert chosen([shape(1, 100, 3000)], elsewhere) == [("t3.medium",)]


@pytest.mark.parametrize(("share", "usd"), [(0, 0.0264), (100, 0.0087), (70, 0.7 * 0.0087 + 0.3 * 0.0264)])
def test_the_price_of_a_type_is_that_of_the_wanted_share_of_spot(share: int, usd: float) -> None:
    beside = 20 * 0.096 / 730 + 0.005
    found = type_prices(policy_of("t3.small", spot_percent=share), "ap-southeast-1")
    assert found == {"t3.small": pytest.approx(usd + beside)}


@given(
    st.lists(st.builds(shape, st.integers(1, 9), st.integers(1, 2500), st.integers(1, 4500)), min_size=1, max_size=4),
    st.permutations(["t3.small", "t3.medium", "c5.large"]),
)
def test_a_mix_never_costs_more_than_workers_of_one_type(shapes: list[PodShape], types: list[str]) -> None:
    mixed = policy_of(*types, max_workers=100)
    prices = type_prices(mixed, "ap-southeast-1")
    found = chosen(shapes, mixed)
    largest = [s for s in shapes if s.cpu_milli <= 2000 and s.memory_mib <= 3809]
    assert bool(found) == bool(largest)
    for kind in types:
        if all(s.memory_mib <= 1904 for s in largest) or kind != "t3.small":
            alone = len(new_workers(largest, replace(mixed, instance_types=(kind,))))
            assert sum(prices[order[0]] for order in found) <= alone * prices[kind] + 1e-5


@given(st.lists(st.builds(shape, st.integers(1, 9), st.integers(1, 2500), st.integers(1, 2500)), max_size=4))
def test_with_one_type_no_type_is_named(shapes: list[PodShape]) -> None:
    assert set(new_workers(shapes, policy_of("t3.small"))) <= {NewWorker()}


@pytest.mark.parametrize("strategy", ["thresholds", "adaptive"])
def test_the_decision_names_the_type_of_a_pod_that_the_smallest_does_not_fit(strategy: Any) -> None:
    policy = policy_of("t3.small", "t3.medium", strategy=strategy)
    found = decide(snapshot(pending=pods(1, 500, 3072)), Memory(), policy, START)
    assert (found.action, found.count) == ("scale_up", 1)
    assert {pool.split("/")[1] for pool in found.new_workers[0].pools} == {"t3.medium"}
    refused = decide(snapshot(pending=pods(1, 500, 5000)), Memory(), policy, START)
    assert (refused.action, [a.kind for a in refused.alerts]) == ("none", ["pod_too_large:500m/5000Mi"])


class TestWorkersOfSeveralSizes:
    """Each worker counts with the size of its own type."""

    @pytest.mark.parametrize(
        ("joining", "resource", "after"),
        [
            ("t3.small", "cpu", 40.0),
            ("t3.small", "memory", 40.0),
            ("t3.medium", "cpu", 40.0),
            ("t3.medium", "memory", 80 / 3),
            ("t3.xlarge", "cpu", 80 / 3),
            ("x9.unknown", "cpu", 40.0),
        ],
    )
    def test_a_joining_worker_takes_its_share_of_the_load(self, joining: str, resource: Any, after: float) -> None:
        fleet = (worker(1), worker(2, "joining", instance_type=joining))
        tick = make_tick(snapshot(workers=fleet), Memory(), Policy(), START)
        assert percent_once_joined(tick, 80.0, resource) == pytest.approx(after)

    @pytest.mark.parametrize(
        ("changes", "action"),
        [({"cpu_percent": 80.0}, "scale_up"), ({"cpu_percent": 1.0, "memory_percent": 80.0}, "none")],
        ids=["CPU", "memory"],
    )
    def test_a_joining_worker_with_more_memory_only_spares_a_launch_for_memory_only(
        self, changes: dict[str, float], action: str
    ) -> None:
        """After the join the CPU is at 40 % and the memory at 26.7 %."""
        policy = Policy(cpu_up_percent=35.0, cpu_down_percent=20.0, memory_up_percent=35.0, memory_down_percent=20.0)
        fleet = (worker(1), worker(2, "joining", instance_type="t3.medium"))
        high = Streak(since=START - 600, last=START - TICK, readings=9)
        memory = Memory(since={"cpu": high, "memory": high})
        assert decide(snapshot(workers=fleet, **changes), memory, policy, START).action == action

    @pytest.mark.parametrize(("cpu", "action"), [(14.9, "scale_down"), (15.1, "none")])
    def test_a_removal_is_projected_without_the_largest_worker(self, cpu: float, action: str) -> None:
        fleet = (worker(1), worker(2), worker(3, instance_type="t3.2xlarge", cpu_allocatable_milli=8000))
        memory = Memory(since={"idle": Streak(since=START - 600, last=START - TICK, readings=6)})
        policy = Policy(cpu_up_percent=55.0, projection_margin_percent=10.0, use_memory=False)
        light = tuple(replace(w, cpu_requested_milli=100, memory_requested_mib=100) for w in fleet)
        assert decide(idle(workers=light, cpu_percent=cpu), memory, policy, START).action == action
