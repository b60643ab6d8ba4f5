"""The limits in money and vCPUs: what a worker weighs, what fits, what is reserved, and what a decision makes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.cost.limits import Limits
from node_fleet.domain.model.errors import InvalidSettingsError
from node_fleet.domain.model.fleet_state import FleetState, Notice, Reservation
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import NewWorker
from node_fleet.domain.model.weight import LimitUse, Weight, at_limits, fitting
from node_fleet.domain.scale_up.launch import fleet_weight
from node_fleet.domain.scale_up.placement import Placement
from node_fleet.domain.scale_up.requests import open_pools
from node_fleet.domain.scaling.decision import Decision, decide
from node_fleet.domain.scaling.tick import make_tick
from node_fleet.settings import Settings
from tests.support.decisions import START, pods, snapshot, workers
from tests.support.launches import NOW, instance, slot

TYPES = ("t3.small", "t3.large", "m5.large")
EXTRA = 20 * 0.096 / 730 + 0.005
"""An hour of the volume and of the address, ap-southeast-1."""


def limits(**settings: Any) -> Limits:
    found = Settings(**{"instance_types": TYPES, "max_usd_per_hour": 0.3, "max_vcpu": 8, **settings}).limits()
    assert found is not None
    return found


def micro(usd: float) -> int:
    return round((usd + EXTRA) * 1_000_000)


def test_a_worker_costs_its_instance_volume_and_address_in_its_market() -> None:
    assert limits().weight("t3.small", "on-demand") == Weight(micro_usd=micro(0.0264), vcpu=2)
    assert limits().weight("t3.small", "spot") == Weight(micro_usd=micro(0.0087), vcpu=2)
    bare = limits(worker_volume_gib=0, worker_public_address=False)
    assert bare.weight("m5.large", "on-demand") == Weight(micro_usd=120_000, vcpu=2)


def test_only_what_has_a_limit_is_weighed_and_without_any_no_price_is_loaded() -> None:
    assert limits(max_vcpu=0).weight("t3.small", "spot") == Weight(micro_usd=micro(0.0087))
    assert limits(max_usd_per_hour=0.0).weight("t3.small", "spot") == Weight(vcpu=2)
    assert limits(max_usd_per_hour=0.0, instance_types=("x1.16xlarge", "t3.small")).weight("t3.small", "spot").vcpu == 2
    assert Settings().limits() is None


def test_a_type_that_is_not_known_counts_as_the_heaviest_configured_one() -> None:
    assert limits().weight("z9.odd", "spot") == Weight(micro_usd=micro(0.12), vcpu=2)
    known_price = limits(instance_types=("t3.small", "m5.large"))
    assert known_price.weight("c5.large", "spot") == Weight(micro_usd=micro(0.0392), vcpu=2), "shipped, not configured"


@pytest.mark.parametrize(
    ("limit", "vcpu", "used", "types", "expected"),
    [
        # The dearest pool that fits is reserved: of t3.small and t3.large in both markets, On-Demand t3.large.
        (1.0, 0, 0, ("t3.small", "t3.large"), micro(0.1056)),
        (1.0, 0, 1_000_000 - micro(0.1056), ("t3.small", "t3.large"), micro(0.1056)),
        (1.0, 0, 1_000_001 - micro(0.1056), ("t3.small", "t3.large"), micro(0.0348)),
        (1.0, 0, 1_000_000 - micro(0.0264), ("t3.small", "t3.large"), micro(0.0264)),
        (1.0, 0, 1_000_001 - micro(0.0264), ("t3.small", "t3.large"), micro(0.0087)),
        (1.0, 0, 1_000_000 - micro(0.0087), ("t3.small", "t3.large"), micro(0.0087)),
        (1.0, 0, 1_000_001 - micro(0.0087), ("t3.small", "t3.large"), None),
        (1.0, 0, 2_000_000, ("t3.small",), None),
    ],
)
def test_the_dearest_pool_that_fits_is_reserved_to_the_millionth_of_a_dollar(
    limit: float, vcpu: int, used: int, types: tuple[str, ...], expected: int | None
) -> None:
    found = limits(max_usd_per_hour=limit, max_vcpu=vcpu)
    pools = [(kind, market) for kind in types for market in ("spot", "on-demand")]
    weight, against = found.ceiling(pools, Weight(micro_usd=used))
    assert (weight.micro_usd if weight else None) == expected
    assert [use.name for use in against] == ([] if expected else ["max_usd_per_hour"])


@pytest.mark.parametrize(("used", "expected"), [(4, 4), (5, 2), (6, 2), (7, None)])
def test_the_most_vcpus_that_fit_are_reserved(used: int, expected: int | None) -> None:
    found = limits(max_usd_per_hour=0.0, instance_types=("t3.small", "t3.xlarge"))
    weight, against = found.ceiling([("t3.small", "spot"), ("t3.xlarge", "spot")], Weight(vcpu=used))
    assert (weight.vcpu if weight else None, at_limits(against)) == (
        (expected, "the limit allows no further worker ()")
        if expected
        else (None, "the limit allows no further worker (max_vcpu: 7 of 8 vCPU)")
    )


def test_each_of_several_workers_keeps_to_its_share_while_a_pool_fits_into_it() -> None:
    found = limits(max_usd_per_hour=0.3, max_vcpu=0)
    pools = [("t3.small", "on-demand"), ("m5.large", "on-demand")]
    assert found.ceiling(pools, Weight(), 2)[0] == Weight(micro_usd=micro(0.12))
    assert found.ceiling(pools, Weight(), 3)[0] == Weight(micro_usd=micro(0.0264))
    assert found.ceiling(pools, Weight(), 99)[0] == Weight(micro_usd=micro(0.0264)), "as many as possible"
    assert found.ceiling(pools[1:], Weight(), 99)[0] == Weight(micro_usd=micro(0.12))


def test_when_only_both_limits_together_keep_a_worker_away_both_are_named() -> None:
    found = limits(max_usd_per_hour=0.05, max_vcpu=4, instance_types=("t3.small", "t2.small"))
    used = Weight(micro_usd=50_000 - micro(0.0292) + 1, vcpu=3)
    weight, against = found.ceiling([("t3.small", "on-demand"), ("t2.small", "on-demand")], used)
    assert weight is None and [use.name for use in against] == ["max_usd_per_hour", "max_vcpu"]
    assert at_limits(against).startswith("the limits allow no further worker (max_usd_per_hour: 0.0")


@given(
    used=st.integers(0, 400_000),
    vcpu=st.integers(0, 10),
    workers=st.integers(1, 6),
    pools=st.lists(st.tuples(st.sampled_from(TYPES), st.sampled_from(["spot", "on-demand"])), min_size=1, max_size=6),
)
def test_no_pool_within_what_is_reserved_exceeds_a_limit_and_one_that_fits_is_always_found(
    used: int, vcpu: int, workers: int, pools: list[tuple[str, str]]
) -> None:
    found, taken = LIMITS, Weight(micro_usd=used, vcpu=vcpu)
    weight, _ = found.ceiling(pools, taken, workers)
    fits = [pool for pool in pools if found.admits(taken, found.weight(*pool))]
    assert (weight is not None) is bool(fits)
    if weight:
        allowed = [pool for pool in pools if found.weight(*pool).is_within(weight)]
        assert allowed and all(pool in fits for pool in allowed)


LIMITS = limits()


def test_a_slot_asks_for_no_pool_that_is_heavier_than_its_reservation() -> None:
    placement = Placement(zones={"a": "s"}, instance_types=TYPES, limits=LIMITS)
    planned = replace(slot(1), zone="a", types=(), pools=())
    every = open_pools(planned, placement, ("a",), frozenset())
    assert len(every) == 6
    capped = replace(planned, weight=Weight(micro_usd=micro(0.0348), vcpu=2))
    found = open_pools(capped, placement, ("a",), frozenset())
    assert {(pool.instance_type, pool.market) for pool in found} == {
        ("t3.small", "spot"), ("t3.large", "spot"), ("t3.small", "on-demand"),
    }  # fmt: skip
    assert open_pools(capped, replace(placement, limits=None), ("a",), frozenset()) == every


def test_the_fleet_has_the_weight_of_its_instances_and_the_most_that_each_open_reservation_may_become() -> None:
    large, small = LIMITS.weight("t3.large", "on-demand"), LIMITS.weight("t3.small", "spot")
    listed = [replace(instance(n), instance_type="t3.large", market="on-demand") for n in (1, 2)]
    held = (
        Reservation(key="x:1", until=NOW + 60, pool="a/t3.small/spot", weight=Weight(micro_usd=9, vcpu=9)),
        Reservation(key="x:2", until=NOW + 60, pool="a/t3.small/spot", instance_id="i-later"),
        Reservation(key="x:3", until=NOW, pool="a/t3.small/spot"),
        Reservation(key="x:4", until=NOW + 60, pool="a/t3.small/spot", instance_id=listed[0].instance_id),
    )
    state = FleetState(cluster_id="c", reservations=held)
    expected = large.plus(large).plus(Weight(micro_usd=9, vcpu=9)).plus(small)
    assert fleet_weight(listed, state, LIMITS, NOW) == expected
    noticed = replace(state, notices=(Notice(instance_id=listed[1].instance_id, kind="spot", at=NOW),))
    assert fleet_weight(listed, noticed, LIMITS, NOW).vcpu == expected.vcpu - 2
    lone = replace(state, reservations=(Reservation(key="int", until=NOW + 60),))
    assert fleet_weight([], lone, LIMITS, NOW) == Weight(micro_usd=micro(0.12), vcpu=2), "of an unknown type"


# in a decision -------------------------------------------------------------------------------------------------------


def use(used: int, most: int = 8, name: str = "max_vcpu", **of_kind: int) -> LimitUse:
    return LimitUse(name=name, most=most, used=used, of_kind=of_kind or {"t3.small/spot": 2, "t3.xlarge/spot": 4})


@pytest.mark.parametrize(
    ("used", "wanted", "fits"),
    [
        (4, [(), ()], [True, True]),
        (5, [(), ()], [True, False]),
        (4, [("t3.xlarge/spot",), ()], [True, False]),
        (5, [("t3.xlarge/spot",), ()], [False, True]),
        (7, [()], [False]),
        (8, [()], [False]),
        (9, [()], [False]),
        (4, [("unknown.type/spot",)], [True]),
    ],
)
def test_workers_fit_one_after_the_other_each_with_the_lightest_of_its_types(
    used: int, wanted: list[tuple[str, ...]], fits: list[bool]
) -> None:
    found, against = fitting([use(used)], wanted)
    assert found == fits and bool(against) is not all(fits)


def test_a_worker_fits_only_with_a_type_that_fits_into_every_limit_and_the_reason_names_those_that_forbid_it() -> None:
    usd = use(9, 10, "max_usd_per_hour", cheap=1, dear=5)
    for vcpu, expected, names in (
        (use(4, 8, cheap=4, dear=1), True, []),
        (use(5, 8, cheap=4, dear=1), False, ["max_usd_per_hour", "max_vcpu"]),
        (use(8, 8, cheap=4, dear=1), False, ["max_vcpu"]),
    ):
        fits, against = fitting([usd, vcpu], [()])
        assert (fits, [one.name for one in against]) == ([expected], names)


POLICY = Policy(max_workers=10)


def decided(*uses: LimitUse, policy: Policy = POLICY, count: int = 4, pending: int = 3) -> Decision:
    seen = snapshot(START, workers=workers(count), pending=pods(pending, 1500), limits=uses)
    return decide(seen, Memory(), policy, START)


@pytest.mark.parametrize(("used", "added"), [(0, 3), (4, 2), (6, 1)])
def test_a_scale_up_adds_as_many_workers_as_the_limit_allows(used: int, added: int) -> None:
    decision = decided(use(used), policy=replace(POLICY, step_normal=3, step_urgent=3))
    assert (decision.action, decision.count) == ("scale_up", added)
    assert len(decision.new_workers) <= added and decision.sentence.endswith(f"max_vcpu: {used} of 8 vCPU")


def test_at_the_limit_the_alert_names_it_and_what_it_holds_back() -> None:
    decision = decided(use(290_000, 300_000, "max_usd_per_hour", **{"t3.small/spot": 16_330}))
    assert (decision.action, decision.blocked_by) == ("none", ("maximum",))
    (alert,) = decision.alerts
    assert alert.kind == "at_maximum:max_usd_per_hour"
    assert alert.text.startswith(
        "the limit allows no further worker (max_usd_per_hour: 0.2900 of 0.3 USD an hour): pending 3"
    )
    assert alert.text.endswith("not launched; raise max_usd_per_hour, or lower the requests of the pods")
    (check,) = (check for check in decision.evidence if check.verdict == "blocked")
    assert check.setting == "max_usd_per_hour"


def test_at_max_workers_the_alert_names_that_whatever_the_limits() -> None:
    decision = decided(use(8), count=10)
    assert [alert.kind for alert in decision.alerts] == ["at_maximum"]


def test_below_the_minimum_the_limit_holds_too() -> None:
    decision = decided(use(7), policy=replace(POLICY, min_workers=5), pending=0)
    assert decision.blocked_by == ("maximum",) and "1 worker more is not launched" in decision.alerts[0].text


def test_wanted_workers_that_do_not_fit_leave_their_place_to_those_that_do() -> None:
    seen = snapshot(START, workers=workers(4), limits=(use(5),))
    large, small = NewWorker(types=("t3.xlarge",)), NewWorker(smaller_types=("t3.small",))
    pooled = NewWorker(pools=("a/t3.xlarge/spot", "b/t3.xlarge/spot"))
    for wanted, kept in (((large, small), (small,)), ((pooled, small), (small,)), ((small, large), (small,))):
        found = make_tick(seen, Memory(), POLICY, START).launchable(wanted)
        assert (found.count, found.wanted) == (1, kept)


# settings ------------------------------------------------------------------------------------------------------------


def problems(**raw: Any) -> list[str]:
    try:
        Settings.from_mapping(raw)
    except InvalidSettingsError as error:
        return list(error.problems)
    return []


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        # Two t3.small On-Demand with volume and address: 2 x 34,030 millionths.
        ({"max_usd_per_hour": 0.06806}, []),
        (
            {"max_usd_per_hour": 0.068},
            [
                "max_usd_per_hour=0.068: min_workers=2 needs 0.0681 USD an hour (On-Demand, lightest type, with volume "
                "and address), expected 0.0681 or more"
            ],
        ),
        ({"max_vcpu": 4}, []),
        ({"max_vcpu": 3}, ["max_vcpu=3: min_workers=2 needs 4 vCPU, expected 4 or more"]),
        (
            {"max_vcpu": 6, "schedules": "Mon-Fri 09:00-17:00: 4"},
            ["max_vcpu=6: schedules 'Mon-Fri 09:00-17:00: 4' needs 8 vCPU, expected 8 or more"],
        ),
        ({"max_vcpu": 4, "instance_types": "t3.small,t3.xlarge"}, []),
        (
            {"max_usd_per_hour": 5, "instance_types": "t3.small,m7i.large"},
            ["max_usd_per_hour: no price is shipped for m7i.large, expected other instance_types, or no such limit"],
        ),
        (
            {"max_usd_per_hour": 5, "region": "sa-east-1"},
            ["max_usd_per_hour: no price is shipped for t3.small, expected other instance_types, or no such limit"],
        ),
        (
            {"max_vcpu": 8, "instance_types": "t3.small,x1e.odd"},
            ["max_vcpu: the vCPUs are not known of x1e.odd, expected other instance_types, or no such limit"],
        ),
        ({"max_vcpu": 8, "instance_types": "t3.small,m7i.large"}, []),
        (
            {"max_usd_per_hour": 5, "instance_types": ",".join(f"m{n}z.large" for n in range(1, 8))},
            [
                "max_usd_per_hour: no price is shipped for m1z.large, m2z.large, m3z.large, m4z.large, m5z.large and 2 "
                "more, expected other instance_types, or no such limit"
            ],
        ),
        ({"min_workers": 0, "max_usd_per_hour": 0.03403, "max_vcpu": 2}, []),
        ({"min_workers": 0, "max_vcpu": 1}, ["max_vcpu=1: a single worker needs 2 vCPU, expected 2 or more"]),
        ({"standby_workers": 2, "max_vcpu": 8}, []),
        (
            {"standby_workers": 2, "max_vcpu": 7},
            ["max_vcpu=7: min_workers=2 with standby_workers=2 needs 8 vCPU, expected 8 or more"],
        ),
    ],
)
def test_a_limit_below_a_minimum_or_without_a_price_is_refused(raw: dict[str, Any], expected: list[str]) -> None:
    assert problems(**raw) == expected
