"""Costs: prices by region, type and market, what is unknown, the currency, and the control plane's bill."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.cost.control_plane_cost import RATES, MonthlyUsage, RunUsage, monthly_bill, monthly_usage, totals
from node_fleet.domain.cost.fleet_cost import (
    DATED,
    BilledInstance,
    Currency,
    fixed_usd,
    fleet_cost,
    saved_percent,
    spent_usd,
    usd_per_hour,
)
from node_fleet.domain.cost.prices import USD_PER_HOUR

REGION = "ap-southeast-1"
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


def stay(seconds: float, kind: str = "t3.small", market: str = "spot") -> BilledInstance:
    return BilledInstance(instance_id="i-1", instance_type=kind, market=market, begun_at=1000, ended_at=1000 + seconds)


def test_the_table_is_dated_and_every_price_is_a_sane_number() -> None:
    assert re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", DATED)
    assert all(0.001 < price < 10 for price in USD_PER_HOUR.values())


@pytest.mark.parametrize(("region", "kind"), sorted({(region, kind) for region, kind, _ in USD_PER_HOUR}))
def test_every_type_has_both_markets_and_spot_is_the_cheaper(region: str, kind: str) -> None:
    dear, cheap = usd_per_hour(region, kind, "on-demand"), usd_per_hour(region, kind, "spot")
    assert dear is not None and cheap is not None and cheap < dear


def test_a_fleet_costs_the_sum_of_its_workers_and_what_has_no_price_is_listed_once() -> None:
    fleet = [Machine("t3.small", "spot"), Machine("t3.small", "on-demand"), *[Machine("x9.huge", "spot")] * 3]
    cost = fleet_cost(REGION, fleet)
    assert cost.usd_per_hour == pytest.approx(0.0264 + 0.0087)
    assert cost.unpriced == (f"x9.huge spot in {REGION}",)
    assert fleet_cost("mars-1", fleet[:1]).unpriced == ("t3.small spot in mars-1",)


@pytest.mark.parametrize(("seconds", "billed"), [(1, 60), (60, 60), (61, 61), (3600, 3600)])
def test_a_worker_is_billed_by_the_second_and_for_a_minute_at_least(seconds: float, billed: float) -> None:
    assert spent_usd(REGION, [stay(seconds)]) == pytest.approx(0.0087 * billed / 3600)


def test_one_life_without_a_price_makes_the_sum_unknown() -> None:
    assert spent_usd(REGION, [stay(60), stay(60, kind="x9.huge")]) is None
    assert fixed_usd(REGION, "x9.huge", "spot", workers=5, hours=1) is None


@pytest.mark.parametrize(("spent", "fixed", "saved"), [(50, 100, 50), (100, 100, 0), (150, 100, -50), (1, 0, 0)])
def test_saving_is_relative_to_the_fixed_fleet(spent: float, fixed: float, saved: float) -> None:
    assert saved_percent(spent, fixed) == pytest.approx(saved)


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
    assert totals(lines) == (pytest.approx(3.285 + 0.8), pytest.approx(3.185))


@pytest.mark.parametrize("key", sorted(RATES))
def test_the_free_tier_ends_exactly_at_its_limit(key: str) -> None:
    rate = RATES[key]
    if rate.free:
        (at_limit,) = monthly_bill(MonthlyUsage(**{key: rate.free}))
        assert at_limit.usd_after_free == 0
    (above,) = monthly_bill(MonthlyUsage(**{key: rate.free + rate.per}))
    assert above.usd_after_free == pytest.approx(rate.usd)


@given(st.lists(st.floats(min_value=0, max_value=1e9), min_size=len(RATES), max_size=len(RATES)))
def test_the_free_tier_never_makes_a_bill_larger_or_negative(amounts: list[float]) -> None:
    for line in monthly_bill(MonthlyUsage(**dict(zip(RATES, amounts, strict=True)))):
        assert 0 <= line.usd_after_free <= line.usd


def test_a_month_is_its_runs_on_top_of_what_stands_anyway() -> None:
    standing = MonthlyUsage(alarms=8, secrets=3, address_hours=730)
    use = monthly_usage({"quiet": QUIET}, {"quiet": 21_900}, standing, kept_items=0.25)
    assert use.transitions == 131_400
    assert use.log_gb == pytest.approx(0.03504)
    assert (use.alarms, use.secrets, use.address_hours, use.stored_gb) == (8, 3, 730, 0.25)


def test_the_control_plane_of_a_quiet_month_stays_small_without_a_nat_gateway() -> None:
    standing = MonthlyUsage(alarms=8, dashboards=1, secrets=3, metrics=14, address_hours=730)
    full, free = totals(monthly_bill(monthly_usage({"quiet": QUIET}, {"quiet": 21_900}, standing)))
    assert free < 12 and full < 20
    assert RATES["nat_hours"].usd * 730 > full, "one NAT gateway would cost more than all of it"
