"""Where workers go: zone, type and market, weighed over the whole fleet."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.model.memory import PoolBackOff
from node_fleet.domain.model.snapshot import NewWorker
from node_fleet.domain.scale_up.placement import (
    FleetDistribution,
    Pool,
    choose_market,
    distribution_of,
    plan_slots,
    pools_in_order,
    zone_order,
)
from tests.support.launches import NOW, ZONES, instance, placement


def markets(sequence: list[int], *, percent: int = 70, floor: int = 0) -> Counter[str]:
    spot = total = 0
    for count in sequence:
        for _ in range(count):
            spot += choose_market(spot=spot, total=total, spot_percent=percent, on_demand_minimum=floor) == "spot"
            total += 1
    return Counter({"spot": spot, "on-demand": total - spot})


@pytest.mark.parametrize(
    ("batches", "percent", "spot"),
    [
        *((batches, 70, 7) for batches in ([1] * 10, [10], [2] * 5, [3, 3, 4], [1, 9], [5, 5])),
        ([1] * 10, 0, 0),
        ([1] * 10, 100, 10),
    ],
)
def test_ten_launches_reach_the_share_in_batches_of_any_size(batches: list[int], percent: int, spot: int) -> None:
    assert markets(batches, percent=percent) == Counter({"spot": spot, "on-demand": 10 - spot})


@pytest.mark.parametrize(
    ("spot", "on_demand", "expected"),
    [(0, 1, "spot"), (7, 3, "spot"), (0, 0, "spot"), (1, 0, "on-demand"), (3, 1, "spot"), (4, 1, "on-demand")],
)
def test_each_next_worker_brings_the_whole_fleet_nearest_to_the_share(spot: int, on_demand: int, expected: str) -> None:
    assert choose_market(spot=spot, total=spot + on_demand, spot_percent=70) == expected


@given(percent=st.integers(0, 100), count=st.integers(1, 200), floor=st.integers(0, 5))
def test_a_fleet_grown_one_by_one_is_as_near_to_the_share_as_it_can_be(percent: int, count: int, floor: int) -> None:
    spot = markets([1] * count, percent=percent, floor=floor)["spot"]
    most = max(0, count - floor)
    best = min(abs(100 * s - percent * count) for s in range(most + 1))
    assert spot <= most
    assert abs(100 * spot - percent * count) <= best + 100


def test_the_on_demand_floor_comes_before_the_share() -> None:
    assert [choose_market(spot=0, total=n, spot_percent=100, on_demand_minimum=2) for n in (0, 1, 2)] == [
        "on-demand",
        "on-demand",
        "spot",
    ]


@pytest.mark.parametrize(
    ("spot", "on_demand", "settings", "count", "planned_spot"),
    [
        (0, 0, {"spot_percent": 70}, 10, 7),
        (7, 0, {"spot_percent": 70}, 3, 0),
        (0, 3, {"spot_percent": 70}, 7, 7),
        (4, 0, {"spot_percent": 100, "on_demand_minimum": 2}, 3, 1),
        (4, 2, {"spot_percent": 100, "on_demand_minimum": 2}, 3, 3),
    ],
    ids=["no fleet", "only Spot", "only On-Demand", "a minimum that is missing", "a minimum that is there"],
)
def test_a_plan_reaches_the_share_and_the_minimum_of_the_whole_fleet(
    spot: int, on_demand: int, settings: dict[str, int], count: int, planned_spot: int
) -> None:
    fleet = [instance(n, market="spot") for n in range(spot)]
    fleet += [instance(n, market="on-demand") for n in range(spot, spot + on_demand)]
    slots = plan_slots(count, fleet, placement(**settings), now=NOW)
    assert (len(slots), sum(slot.market == "spot" for slot in slots)) == (count, planned_spot)


@pytest.mark.parametrize(("percent", "allowed"), [(0, {"on-demand"}), (1, {"on-demand", "spot"})])
def test_a_pool_of_spot_is_used_unless_the_share_of_spot_is_0(percent: int, allowed: set[str]) -> None:
    pools = pools_in_order("on-demand", placement(spot_percent=percent), list(ZONES))
    assert {pool.market for pool in pools} == allowed


def test_the_emptiest_zone_comes_first_and_those_in_flight_count() -> None:
    fleet = [instance(1, zone="a"), instance(2, zone="b"), instance(3, zone="b", state="pending", launched_at=NOW)]
    assert [s.zone for s in plan_slots(3, fleet, placement(), now=NOW)] == ["c", "a", "c"]


def test_a_worker_under_notice_holds_no_place() -> None:
    fleet = [instance(1, zone="a", under_notice=True), instance(2, zone="b"), instance(3, zone="c")]
    assert plan_slots(1, fleet, placement(), now=NOW)[0].zone == "a"


@given(
    placed=st.lists(st.sampled_from("abc"), max_size=30),
    count=st.integers(1, 20),
)
def test_new_workers_never_widen_the_gap_between_zones(placed: list[str], count: int) -> None:
    fleet = [instance(n, zone=zone) for n, zone in enumerate(placed)]
    before = Counter({z: 0 for z in ZONES}) + Counter(placed)
    after = before + Counter(s.zone for s in plan_slots(count, fleet, placement(), now=NOW))
    gap = max(before[z] for z in ZONES) - min(before[z] for z in ZONES)
    assert max(after[z] for z in ZONES) - min(after[z] for z in ZONES) <= max(1, gap)


def test_round_robin_goes_on_after_the_zone_used_last() -> None:
    fleet = [instance(1, zone="a", launched_at=NOW - 10), instance(2, zone="b", launched_at=NOW - 5)]
    slots = plan_slots(4, fleet, placement(order="round-robin"), now=NOW)
    assert [s.zone for s in slots] == ["c", "a", "b", "c"]


@pytest.mark.parametrize(("batch", "following"), [("ab", "c"), ("bc", "a"), ("ca", "b"), ("abc", "a"), ("b", "c")])
def test_round_robin_goes_on_after_a_batch_of_one_second(batch: str, following: str) -> None:
    fleet = [instance(n, zone=zone, launched_at=NOW - 5) for n, zone in enumerate(batch)]
    assert plan_slots(1, fleet, placement(order="round-robin"), now=NOW)[0].zone == following


def test_round_robin_begins_with_the_first_zone_when_the_last_one_is_not_configured() -> None:
    nowhere = FleetDistribution(last_zone="z")
    assert zone_order(nowhere, placement(order="round-robin")) == tuple(ZONES)


def test_without_workers_or_without_zones_no_zone_was_used_last() -> None:
    assert distribution_of([], list(ZONES)).last_zone == ""
    assert distribution_of([instance(1, under_notice=True)], list(ZONES)).last_zone == ""
    assert distribution_of([instance(1)], []).last_zone == ""


def closed(*pools: tuple[str, str, str], until: int = NOW + 1) -> list[PoolBackOff]:
    return [PoolBackOff(zone=z, instance_type=t, market=m, until=until) for z, t, m in pools]  # type: ignore[arg-type]


def test_the_next_type_of_a_zone_is_planned_before_another_zone() -> None:
    dry = closed(("a", "t3.small", "spot"))
    (planned,) = plan_slots(1, [], placement(), back_offs=dry, now=NOW)
    assert (planned.zone, planned.instance_type) == ("a", "t3a.small")
    dry += closed(("a", "t3a.small", "spot"))
    (planned,) = plan_slots(1, [], placement(), back_offs=dry, now=NOW)
    assert (planned.zone, planned.instance_type) == ("b", "t3.small")


def test_on_demand_is_taken_when_every_spot_pool_is_in_back_off() -> None:
    dry = closed(*((z, t, "spot") for z in ZONES for t in ("t3.small", "t3a.small")))
    assert plan_slots(1, [], placement(), back_offs=dry, now=NOW)[0].market == "on-demand"


@pytest.mark.parametrize(("until", "kind"), [(NOW + 1, "t3a.small"), (NOW, "t3.small"), (NOW - 1, "t3.small")])
def test_a_dry_pool_rests_until_its_time_and_not_a_second_longer(until: int, kind: str) -> None:
    dry = closed(("a", "t3.small", "spot"), until=until)
    assert plan_slots(1, [], placement(), back_offs=dry, now=NOW)[0].instance_type == kind


def test_with_every_pool_resting_nothing_is_planned() -> None:
    dry = closed(*((z, t, m) for z in ZONES for t in ("t3.small", "t3a.small") for m in ("spot", "on-demand")))
    assert plan_slots(2, [], placement(), back_offs=dry, now=NOW) == ()


def test_a_replacement_avoids_the_pool_that_is_being_taken_but_not_at_any_price() -> None:
    avoid = [Pool("a", "t3.small", "spot")]
    (planned,) = plan_slots(1, [], placement(), now=NOW, avoid=avoid)
    assert (planned.zone, planned.instance_type, planned.avoid) == ("a", "t3a.small", ("a/t3.small/spot",))
    assert plan_slots(1, [], placement(instance_types=("t3.small",)), now=NOW, avoid=avoid)[0].zone == "b"
    only = placement(zones={"a": "subnet-a"}, instance_types=("t3.small",), spot_percent=100)
    assert plan_slots(1, [], only, now=NOW, avoid=avoid)[0].zone == "a"


@pytest.mark.parametrize(
    ("pools", "placed"),
    [
        ((), ("a", "spot")),
        (("b/t3.small/spot", "b/t3.small/on-demand"), ("b", "spot")),
        (("a/t3.small/on-demand",), ("a", "on-demand")),
        (("z/t3.small/spot",), None),
    ],
)
def test_a_worker_that_pending_pods_need_is_planned_only_in_their_pools(
    pools: tuple[str, ...], placed: tuple[str, str] | None
) -> None:
    setup = placement(zones={"a": "subnet-a", "b": "subnet-b"}, instance_types=("t3.small",))
    slots = plan_slots(1, (), setup, now=NOW, wanted=(NewWorker(pools=pools),))
    assert [(s.zone, s.market, s.pools) for s in slots] == ([(*placed, pools)] if placed else [])


def test_the_workers_beyond_those_that_pending_pods_need_may_be_of_any_pool() -> None:
    setup = placement(zones={"a": "subnet-a", "b": "subnet-b"}, instance_types=("t3.small",))
    slots = plan_slots(2, (), setup, now=NOW, wanted=(NewWorker(pools=("b/t3.small/spot",)),))
    assert [(s.zone, s.pools) for s in slots] == [("b", ("b/t3.small/spot",)), ("a", ())]


def test_a_worker_without_a_pool_that_is_open_does_not_keep_the_next_one_from_its_own() -> None:
    wanted = (NewWorker(pools=("b/t3.small/spot",)), NewWorker(pools=("c/t3.small/spot",)))
    closed = (PoolBackOff(zone="b", instance_type="t3.small", market="spot", until=NOW + 60),)
    slots = plan_slots(2, (), placement(), back_offs=closed, now=NOW, wanted=wanted)
    assert [(slot.number, slot.zone) for slot in slots] == [(2, "c")]


def test_the_types_of_a_wanted_worker_are_tried_in_their_order_in_each_market() -> None:
    wanted = (NewWorker(types=("t3a.small", "t3.small")),)
    assert [(s.instance_type, s.types) for s in plan_slots(2, (), placement(), now=NOW, wanted=wanted)] == [
        ("t3a.small", ("t3a.small", "t3.small")),
        ("t3.small", ()),
    ]
    dry = closed(*((z, "t3a.small", "spot") for z in ZONES))
    refused = plan_slots(1, (), placement(), back_offs=dry, now=NOW, wanted=wanted)[0]
    assert (refused.instance_type, refused.market) == ("t3.small", "spot")
