"""The weekly report: what the week cost, and recommendations that name the money and the setting."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from node_fleet.domain.cost.fleet_cost import Currency, usd_per_hour
from node_fleet.domain.cost.weekly_report import (
    LEAST_SAVING_USD,
    FleetSample,
    Recommendation,
    ReportInputs,
    Volume,
    headline,
    lines,
    summarise,
)
from node_fleet.domain.model.policy import Policy

START = 1_780_272_000
WEEK = 7 * 86400
STEP = 120
REGION = "ap-southeast-1"
FACTS = ReportInputs(
    since=START,
    until=START + WEEK,
    policy=Policy(interval_seconds=STEP),
    region=REGION,
    spot_percent=70,
    baseline_workers=5,
)
BUSY_HOURS = range(9, 21)
DEAR, CHEAP = usd_per_hour(REGION, "t3.small", "on-demand"), usd_per_hour(REGION, "t3.small", "spot")
assert DEAR is not None and CHEAP is not None


def week(
    *, day: int = 5, night: int = 2, spot: bool = True, cpu: float = 55.0, night_cpu: float = 45.0
) -> list[FleetSample]:
    """A sample for every tick: so many workers by day and by night, UTC."""
    found = []
    for at in range(START, START + WEEK, STEP):
        hour = at % 86400 // 3600
        busy = hour in BUSY_HOURS
        kinds = (("t3.small", "spot" if spot else "on-demand"),) * (day if busy else night)
        found.append(FleetSample(at=at, hour=hour, kinds=kinds, cpu_percent=cpu if busy else night_cpu))
    return found


def facts(**changes: Any) -> ReportInputs:
    return dataclasses.replace(FACTS, **changes)


def recommended(samples: list[FleetSample], subject: ReportInputs, word: str) -> Recommendation | None:
    return next((r for r in summarise(samples, subject).recommendations if word in r.setting), None)


def test_the_week_is_the_sum_of_every_workers_hours_at_its_price() -> None:
    found = summarise(week(spot=False), FACTS)
    assert found.worker_hours == pytest.approx(7 * (12 * 5 + 12 * 2))
    assert found.spent_usd == pytest.approx(7 * 84 * DEAR)
    assert found.fixed_usd == pytest.approx(7 * 24 * 5 * DEAR)
    assert found.saved_percent == pytest.approx(30.0)
    assert found.known_hours == pytest.approx(168)


def test_spot_by_day_and_night_saves_against_five_fixed_workers_more_than_the_seeds_promise() -> None:
    found = summarise(week(), FACTS)
    assert found.saved_percent is not None and found.saved_percent > 50
    assert found.spot_hours == found.worker_hours


def test_a_gap_in_the_records_is_not_made_up() -> None:
    samples = [s for s in week() if not START + 86400 <= s.at < START + 3 * 86400]
    assert summarise(samples, FACTS).known_hours == pytest.approx(5 * 24 + STEP / 3600)


def test_no_records_are_no_report_and_no_division_by_zero() -> None:
    found = summarise([], FACTS)
    assert (found.worker_hours, found.spent_usd, found.recommendations) == (0, 0, ())
    assert "only 0 hours of the week were recorded" in " ".join(lines(found, FACTS, Currency()))


def test_a_type_without_a_price_is_said_and_never_counts_as_free() -> None:
    samples = [dataclasses.replace(s, kinds=(("x9.huge", "spot"),)) for s in week()]
    found = summarise(samples, FACTS)
    assert found.unpriced == (f"x9.huge spot in {REGION}",)
    assert any("the price table has no price for x9.huge" in line for line in lines(found, FACTS, Currency()))


def test_more_spot_is_recommended_with_the_money_that_the_on_demand_hours_would_save() -> None:
    found = recommended(week(spot=False), FACTS, "SPOT_PERCENTAGE")
    assert found is not None and found.setting == "SPOT_PERCENTAGE=90"
    hours = 7 * 84
    assert found.usd_per_month == pytest.approx((hours - hours * 0.1) * (DEAR - CHEAP) * 730 / 168)


@pytest.mark.parametrize(
    ("samples", "subject"),
    [
        (week(spot=True), FACTS),
        (week(spot=False), facts(spot_percent=90)),
        (week(spot=False), facts(interruptions=8)),
    ],
)
def test_more_spot_is_not_recommended_when_it_is_there_set_or_interrupted_daily(
    samples: list[FleetSample], subject: ReportInputs
) -> None:
    assert recommended(samples, subject, "SPOT_PERCENTAGE") is None


def test_hours_that_never_needed_the_minimum_get_a_window_and_the_old_minimum_as_a_floor() -> None:
    found = recommended(week(night=4, night_cpu=10), facts(policy=Policy(min_workers=4)), "MIN_NODES")
    assert found is not None
    assert found.setting == "MIN_NODES=1, SCHEDULES=Mon-Sun 09:00-21:00: 4"
    assert found.text == "from 21:00 to 09:00 1 workers are enough instead of 4"
    assert found.usd_per_month == pytest.approx(7 * 12 * 3 * CHEAP * 730 / 168)


def test_a_minimum_that_no_hour_needed_is_simply_lowered() -> None:
    found = recommended(week(day=6, night=6, cpu=20, night_cpu=20), facts(policy=Policy(min_workers=6)), "MIN_NODES")
    assert found is not None and found.setting == "MIN_NODES=2"


def test_a_minimum_that_every_hour_needs_stays() -> None:
    assert recommended(week(night=4, night_cpu=60), facts(policy=Policy(min_workers=4)), "MIN_NODES") is None


def test_a_cheaper_type_that_offers_as_much_is_named_and_no_arm_type_is() -> None:
    found = recommended(week(spot=False), FACTS, "INSTANCE_TYPES")
    assert found is not None and found.setting == "INSTANCE_TYPES=t3a.small,t3.small"
    assert found.usd_per_month == pytest.approx(7 * 84 * (DEAR - 0.0236) * 730 / 168)


def test_idle_hours_above_the_minimum_name_the_clocks_that_shorten_them() -> None:
    found = recommended(week(night=6, night_cpu=10), FACTS, "IDLE_SECONDS")
    assert found is not None
    assert found.usd_per_month == pytest.approx(7 * 12 * 4 / 2 * CHEAP * 730 / 168)


def test_unattached_volumes_are_named_with_their_cost() -> None:
    volumes = tuple(Volume(volume_id=f"vol-{n}", gib=20) for n in range(7))
    found = recommended(week(), facts(volumes=volumes), "delete-volume")
    assert found is not None
    assert found.text == "unattached volumes: 7 with 140 GiB: vol-0, vol-1, vol-2, vol-3, vol-4 and 2 more"
    assert found.usd_per_month == pytest.approx(140 * 0.096)


def test_what_saves_less_than_a_dollar_is_left_out_and_the_largest_comes_first() -> None:
    found = summarise(week(night=6, night_cpu=10, spot=False), facts(volumes=(Volume(volume_id="vol-1", gib=9),)))
    amounts = [r.usd_per_month for r in found.recommendations]
    assert amounts == sorted(amounts, reverse=True)
    assert all(amount >= LEAST_SAVING_USD for amount in amounts)
    assert not any("delete-volume" in r.setting for r in found.recommendations)


def test_the_headline_and_the_lines_speak_the_configured_currency() -> None:
    money = Currency(currency="BDT", per_usd=122.0)
    found = summarise(week(spot=False), facts(scale_ups=14, scale_downs=13, failures=1))
    assert (
        headline(found, FACTS, money)
        == "workers cost 1,893.83 BDT this week, 30 % less than 5 fixed workers (2,705.47 BDT)"
    )
    shown = lines(found, facts(scale_ups=14, scale_downs=13, failures=1), money)
    assert shown[1] == "scale-ups: 14, scale-downs: 13, failed runs: 1, interruptions: 0"
    assert any("BDT a month [SPOT_PERCENTAGE=90]" in line for line in shown)
