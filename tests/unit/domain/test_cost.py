"""Costs: prices by region, type and market, what is unknown, the currency, and the control plane's bill."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.cost.fleet_cost import (
    BilledInstance,
    fixed_fleet,
    fleet_hour,
    instances_usd,
    lines_total,
    lives_cost,
    monthly_lines,
    spread_cpu,
    standby_hour,
    standby_monthly_lines,
)
from node_fleet.domain.cost.prices import DATED, REGIONS, SERVICES, Price, PriceList
from node_fleet.domain.cost.run_cost import fleet_before, hourly_cost_after
from node_fleet.domain.cost.tariff import Cost, Currency, Tariff, saved_percent
from node_fleet.domain.model.operation import LaunchSlot, Operation, Target
from node_fleet.domain.model.snapshot import Snapshot, StandbyWorker
from simulator.report.control_plane_cost import MonthlyUsage, RunUsage, monthly_bill, monthly_usage

REGION = "ap-southeast-1"
SHIPPED = PriceList.shipped(REGION)
TARIFF = Tariff(prices=SHIPPED)
BESIDE = 20 * 0.096 / 730 + 0.005
"""An hour of the volume and the public address."""
QUIET = RunUsage(
    transitions=6,
    invocations=4,
    gb_seconds=0.31,
    write_units=11.4,
    read_units=1,
    log_kb=1.6,
    messages=0,
    secret_reads=0.05,
)


@dataclass(frozen=True)
class Machine:
    instance_type: str
    market: str
    zone: str = "ap-southeast-1a"


def stay(
    seconds: float, kind: str = "t3.small", market: str = "spot", cpu_percent: float | None = 20.0
) -> BilledInstance:
    return BilledInstance(
        instance_id="i-1",
        instance_type=kind,
        market=market,
        begun_at=1000,
        ended_at=1000 + seconds,
        cpu_percent=cpu_percent,
    )


def test_the_shipped_prices_are_dated_and_every_price_is_a_sane_number() -> None:
    assert re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", DATED)
    for region in REGIONS:
        shipped = PriceList.shipped(region)
        assert all(0.001 < price.usd < 10 for price in shipped.instances.values())
        assert shipped.gp3_gib_month is not None and 0.05 < shipped.gp3_gib_month.usd < 0.2


@pytest.mark.parametrize("region", REGIONS)
def test_every_type_has_both_markets_and_spot_is_the_cheaper(region: str) -> None:
    shipped = PriceList.shipped(region)
    assert {kind for kind, _ in shipped.instances} == set(shipped.types)
    for kind in shipped.types:
        assert shipped.instances[kind, "spot"].usd < shipped.instances[kind, "on-demand"].usd


@pytest.mark.parametrize(
    ("cpu", "credits"), [(0.0, 0.0), (20.0, 0.0), (21.0, 0.01 * 2 * 0.05), (50.0, 0.03), (100.0, 0.08)]
)
def test_an_hour_of_a_worker_has_four_lines_and_credits_above_the_baseline(cpu: float, credits: float) -> None:
    lines = TARIFF.lines("t3.small", "spot", cpu)
    assert [line.name for line in lines] == [
        "instance, spot",
        "volume, 20 GiB gp3",
        "public IPv4 address",
        "CPU credits",
    ]
    assert [line.usd for line in lines] == pytest.approx([0.0087, 20 * 0.096 / 730, 0.005, credits])
    assert {line.basis for line in lines[:3]} == {f"shipped {DATED}"}


@pytest.mark.parametrize(
    ("tariff", "kind", "names"),
    [
        (TARIFF, "m5.large", {"instance, spot", "volume, 20 GiB gp3", "public IPv4 address"}),
        (
            Tariff(prices=SHIPPED, cpu_credits="standard"),
            "t3.small",
            {"instance, spot", "volume, 20 GiB gp3", "public IPv4 address"},
        ),
        (Tariff(prices=SHIPPED, volume_gib=0, public_address=False), "m5.large", {"instance, spot"}),
    ],
    ids=["a type that is not burstable", "mode standard", "no volume and no address"],
)
def test_a_worker_has_no_line_for_what_it_does_not_have(tariff: Tariff, kind: str, names: set[str]) -> None:
    assert {line.name for line in tariff.lines(kind, "spot", 90.0)} == names


def test_a_stopped_standby_worker_costs_its_volume_and_changes_the_cost_of_a_run() -> None:
    tariff = Tariff(prices=PriceList.shipped("ap-southeast-1"), volume_gib=20)
    volume = 20 * 0.096 / 730
    assert standby_hour(tariff, 3).usd == pytest.approx(3 * volume)
    (line,) = standby_monthly_lines(tariff, 2)
    assert (line.name, line.usd) == ("standby worker, stopped: volume, 20 GiB gp3", pytest.approx(2 * 20 * 0.096))
    assert (
        standby_monthly_lines(tariff, 0) == standby_monthly_lines(Tariff(prices=tariff.prices, volume_gib=0), 1) == ()
    )

    stopped = tuple(
        StandbyWorker(instance_id=i, zone="a", instance_type="t3.small", launched_at=1) for i in ("i-1", "i-2")
    )
    snapshot = Snapshot(at=1, source="live", standby=stopped)
    before = fleet_before(snapshot, None, tariff)
    assert before is not None and before.hourly_cost.usd == pytest.approx(2 * volume)
    slot = LaunchSlot(number=1, zone="a", subnet_id="s", instance_type="t3.small", market="on-demand")
    started = replace(slot, outcome="joined", instance_id="i-1", standby="i-1")
    target = Target(instance_id="i-9", node_name="i-9", phase="forgotten", standby=True)
    for changes, count, running in (({"slots": (started,)}, 1, 1), ({"targets": (target,)}, 3, 0)):
        operation = Operation(
            operation_id="o", kind="scale_up", phase="verify", started_at=1, requested=1, reason="", execution_id="e"
        )
        after = hourly_cost_after(snapshot, replace(operation, **changes), tariff)
        worker = tariff.hour("t3.small", "on-demand", None).usd * running
        assert after is not None and after.usd == pytest.approx(count * volume + worker)


def test_t4g_credits_cost_four_fifths_of_those_of_t3() -> None:
    assert TARIFF.credit_usd_per_vcpu_hour("t4g.small") == 0.04
    assert {TARIFF.credit_usd_per_vcpu_hour(kind) for kind in ("t2.small", "t3.small", "t3a.small")} == {0.05}


def test_a_fleet_costs_at_least_what_is_known_of_it_and_what_is_missing_is_listed_once() -> None:
    fleet = [Machine("t3.small", "spot"), Machine("t3.small", "on-demand"), *[Machine("x9.huge", "spot")] * 3]
    cost = fleet_hour(TARIFF, fleet, 20.0)
    assert cost.usd == pytest.approx(0.0264 + 0.0087 + 5 * BESIDE)
    assert cost.missing == (f"the price of x9.huge spot in {REGION}",)
    assert cost.known_usd is None
    assert Currency().cost(cost) == "at least $0.07"


def test_a_region_without_prices_and_a_cpu_without_a_reading_are_missing_and_never_free() -> None:
    assert Tariff(prices=PriceList.shipped("mars-1")).hour("t3.small", "spot", None) == Cost(
        usd=0.005,
        missing=(
            "the price of t3.small spot in mars-1",
            "the price of a gp3 volume in mars-1",
            "the CPU credits of t3.small, whose CPU is not measured",
        ),
    )


def test_a_live_spot_price_counts_in_its_own_pool_only() -> None:
    pools = {("t3.small", "ap-southeast-1b"): Price(usd=0.02, source="live 2026-01-01")}
    tariff = Tariff(prices=dataclasses.replace(SHIPPED, spot_pools=pools), volume_gib=0, public_address=False)
    fleet = [Machine("t3.small", market, zone) for market in ("spot", "on-demand") for zone in ("a", "ap-southeast-1b")]
    assert fleet_hour(tariff, fleet, 0.0).usd == pytest.approx(0.0087 + 0.02 + 2 * 0.0264)
    assert [line.name for line in monthly_lines(tariff, fleet, 0.0) if line.usd] == [
        "t3.small: instance, on-demand",
        "t3.small in ap-southeast-1b: instance, on-demand",
        "t3.small: instance, spot",
        "t3.small in ap-southeast-1b: instance, spot",
    ]


@given(
    count=st.integers(min_value=1, max_value=50),
    kind=st.sampled_from((*SHIPPED.types, "x9.huge")),
    market=st.sampled_from(("spot", "on-demand")),
    cpu=st.none() | st.floats(min_value=0, max_value=100),
    volume_gib=st.integers(min_value=0, max_value=500),
    transitions=st.integers(min_value=1, max_value=10**6),
)
def test_the_bill_of_equal_workers_is_that_of_one_times_their_number_plus_the_fixed_lines(
    *, count: int, kind: str, market: str, cpu: float | None, volume_gib: int, transitions: int
) -> None:
    tariff = Tariff(prices=SHIPPED, volume_gib=volume_gib)
    fixed = monthly_bill(MonthlyUsage(transitions=transitions, alarms=9))
    one, many = (lines_total((*monthly_lines(tariff, [Machine(kind, market)] * n, cpu), *fixed)) for n in (1, count))
    standing = lines_total(fixed).usd
    assert many.usd - standing == pytest.approx(count * (one.usd - standing))
    assert many.missing == one.missing


@pytest.mark.parametrize(("seconds", "billed"), [(1, 60), (60, 60), (61, 61), (3600, 3600)])
def test_a_worker_is_billed_by_the_second_and_for_a_minute_at_least(seconds: float, billed: float) -> None:
    assert lives_cost(TARIFF, [stay(seconds)]).usd == pytest.approx((0.0087 + BESIDE) * billed / 3600)
    assert instances_usd(TARIFF, [stay(seconds)]) == pytest.approx(0.0087 * billed / 3600)


def test_one_life_without_a_price_makes_the_sum_at_least_the_others() -> None:
    found = lives_cost(TARIFF, [stay(3600), stay(3600, kind="x9.huge"), stay(3600, cpu_percent=None)])
    assert found.usd == pytest.approx(2 * 0.0087 + 3 * BESIDE) and len(found.missing) == 2
    assert instances_usd(TARIFF, [stay(60), stay(60, kind="x9.huge")]) is None
    assert not fixed_fleet(TARIFF, "x9.huge", 0.0, workers=5, hours=1).is_complete


@pytest.mark.parametrize(
    ("cpu", "workers", "count", "spread"),
    [(50.0, 4, 5, 40.0), (90.0, 8, 5, 100.0), (50.0, 0, 5, 0.0), (None, 4, 5, None), (50.0, 4, 0, None)],
)
def test_the_fixed_fleet_carries_the_same_work_up_to_all_of_its_cpu(
    cpu: float | None, workers: int, count: int, spread: float | None
) -> None:
    assert spread_cpu(cpu, [Machine("t3.small", "spot")] * workers, "t3.small", count) == spread


@pytest.mark.parametrize(("spent", "fixed", "saved"), [(50, 100, 50), (100, 100, 0), (150, 100, -50), (1, 0, 0)])
def test_saving_is_relative_to_the_fixed_fleet(spent: float, fixed: float, saved: float) -> None:
    assert saved_percent(Cost(usd=spent), Cost(usd=fixed)) == pytest.approx(saved)


@pytest.mark.parametrize("missing", [(("a price",), ()), ((), ("a price",))])
def test_without_a_price_on_either_side_the_saving_is_not_known(missing: tuple[tuple[str, ...], ...]) -> None:
    assert saved_percent(*(Cost(usd=1, missing=names) for names in missing)) is None


@pytest.mark.parametrize(
    ("money", "usd", "text"),
    [
        (Currency(), 1234.5, "$1,234.50"),
        (Currency(), -0.5, "-$0.50"),
        (Currency(currency="BDT", per_usd=120), 49.0, "5,880.00 BDT"),
        (Currency(currency="EUR", per_usd=0.9), 1, "0.90 EUR"),
    ],
)
def test_money_is_shown_in_the_configured_currency(money: Currency, usd: float, text: str) -> None:
    assert money.text(usd) == text


def test_the_bill_has_a_line_for_all_that_is_used_and_none_for_what_is_not() -> None:
    lines = monthly_bill(MonthlyUsage(transitions=131_400, alarms=8, nat_hours=0))
    assert [line.name for line in lines] == ["Step Functions", "CloudWatch alarms"]
    assert lines[0].usd == pytest.approx(131_400 / 1000 * 0.025)
    assert lines[0].usd_after_free == pytest.approx((131_400 - 4000) / 1000 * 0.025)
    assert lines[1].usd_after_free == 0
    assert lines_total(lines).usd == pytest.approx(3.285 + 0.8)
    assert lines_total(lines, after_free=True).usd == pytest.approx(3.185)


@pytest.mark.parametrize("key", sorted(SERVICES))
def test_the_free_tier_ends_exactly_at_its_limit(key: str) -> None:
    rate = SERVICES[key]
    if rate.free:
        (at_limit,) = monthly_bill(MonthlyUsage(**{key: rate.free}))
        assert at_limit.usd_after_free == 0
    (above,) = monthly_bill(MonthlyUsage(**{key: rate.free + rate.per}))
    assert above.usd_after_free == pytest.approx(rate.usd)


@given(st.lists(st.floats(min_value=0, max_value=1e9), min_size=len(SERVICES), max_size=len(SERVICES)))
def test_the_free_tier_never_makes_a_bill_larger_or_negative(amounts: list[float]) -> None:
    for line in monthly_bill(MonthlyUsage(**dict(zip(SERVICES, amounts, strict=True)))):
        assert line.usd is not None and line.usd_after_free is not None
        assert 0 <= line.usd_after_free <= line.usd


def test_a_month_is_its_runs_on_top_of_what_stands_anyway() -> None:
    standing = MonthlyUsage(alarms=8, secrets=3, metric_requests=730)
    use = monthly_usage({"quiet": QUIET}, {"quiet": 21_900}, standing, kept_items=0.25)
    assert use.transitions == 131_400
    assert use.log_gb == pytest.approx(0.03504)
    assert (use.alarms, use.secrets, use.metric_requests, use.stored_gb) == (8, 3, 730, 0.25)


@pytest.mark.parametrize(("keys", "requests"), [(0, 0), (1, 2 * 300)])
def test_the_key_of_the_topics_costs_a_dollar_and_two_requests_for_each_message(keys: int, requests: int) -> None:
    use = monthly_usage({"up": dataclasses.replace(QUIET, messages=3)}, {"up": 100}, MonthlyUsage(keys=keys))
    assert (use.messages, use.key_requests) == (300, requests)
    named = {line.name: line.usd_after_free for line in monthly_bill(use)}
    assert named.get("KMS key of the topics", 0) == keys and named.get("KMS requests", 0) == 0


def test_the_control_plane_of_a_quiet_month_stays_small_without_a_nat_gateway() -> None:
    standing = MonthlyUsage(alarms=8, dashboards=1, secrets=3, metrics=14)
    lines = monthly_bill(monthly_usage({"quiet": QUIET}, {"quiet": 21_900}, standing))
    full, free = lines_total(lines).usd, lines_total(lines, after_free=True).usd
    assert free < 8 and full < 16
    assert SERVICES["nat_hours"].usd * 730 > full, "one NAT gateway would cost more than all of it"
