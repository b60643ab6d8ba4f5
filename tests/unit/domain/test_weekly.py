"""The weekly report: what the week cost, and recommendations that name the money and the setting."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest

from node_fleet.domain.cost.prices import PriceList
from node_fleet.domain.cost.recommendations import LEAST_SAVING_USD, Recommendation
from node_fleet.domain.cost.tariff import Currency, Tariff
from node_fleet.domain.cost.week import FleetSample, ReportInputs, SampledWorker, Volume
from node_fleet.domain.cost.weekly_report import headline, lines, summarise
from node_fleet.domain.model.hibernation import parse_windows
from node_fleet.domain.model.policy import Policy
from node_fleet.settings import Settings

START = 1_780_272_000
WEEK = 7 * 86400
STEP = 120
REGION = "ap-southeast-1"
FACTS = ReportInputs(
    since=START,
    until=START + WEEK,
    policy=Policy(interval_seconds=STEP),
    tariff=Tariff(prices=PriceList.shipped(REGION)),
    spot_percent=70,
    baseline_workers=5,
)
BUSY_HOURS = range(9, 21)
BESIDE = 20 * 0.096 / 730 + 0.005
"""An hour of the volume and the public address."""
DEAR, CHEAP = 0.0264 + BESIDE, 0.0087 + BESIDE
CREDITS = 2 * 0.05 / 100
"""An hour of one percent of CPU above the baseline."""


@functools.cache
def crew(count: int, *, kind: str = "t3.small", market: str = "spot") -> tuple[SampledWorker, ...]:
    """So many workers at the CPU of the fleet."""
    return tuple(SampledWorker(instance_id=f"i-{n}", instance_type=kind, market=market) for n in range(count))


def week(
    *, day: int = 5, night: int = 2, spot: bool = True, cpu: float = 55.0, night_cpu: float = 45.0
) -> list[FleetSample]:
    """A sample for every tick: so many workers by day and by night, UTC."""
    found = []
    for at in range(START, START + WEEK, STEP):
        hour = at % 86400 // 3600
        busy = hour in BUSY_HOURS
        workers = crew(day if busy else night, market="spot" if spot else "on-demand")
        found.append(FleetSample(at=at, hour=hour, workers=workers, cpu_percent=cpu if busy else night_cpu))
    return found


def facts(**changes: Any) -> ReportInputs:
    return dataclasses.replace(FACTS, **changes)


def recommended(samples: list[FleetSample], subject: ReportInputs, word: str) -> Recommendation | None:
    return next((r for r in summarise(samples, subject).recommendations if word in r.setting), None)


def test_the_week_is_the_sum_of_every_workers_hours_at_its_price() -> None:
    found = summarise(week(spot=False), FACTS)
    assert found.worker_hours == pytest.approx(7 * (12 * 5 + 12 * 2))
    credits = 7 * 12 * (5 * (55 - 20) + 2 * (45 - 20)) * CREDITS
    assert found.spent.usd == pytest.approx(7 * 84 * DEAR + credits)
    fixed_credits = 7 * 12 * 5 * (55 + 45 * 2 / 5 - 2 * 20) * CREDITS
    assert found.fixed.usd == pytest.approx(7 * 24 * 5 * DEAR + fixed_credits)
    assert found.spent.is_complete and found.fixed.is_complete
    assert found.saved_percent == pytest.approx(100 * (1 - found.spent.usd / found.fixed.usd))
    assert found.known_hours == pytest.approx(168)


def test_workers_under_notice_and_the_volumes_of_standby_workers_are_on_the_bill_and_not_in_the_size() -> None:
    plain = week(spot=False, cpu=20, night_cpu=20)
    (leaving,) = crew(1)
    more = [dataclasses.replace(one, leaving=(leaving,), standby=3) for one in plain]
    usual, found = summarise(plain, FACTS), summarise(more, FACTS)
    assert found.spent.usd - usual.spent.usd == pytest.approx(168 * (CHEAP + 3 * 20 * 0.096 / 730))
    assert (found.worker_hours - usual.worker_hours, found.spot_hours) == (pytest.approx(168), pytest.approx(168))
    assert (found.idle_hours, found.fixed) == (usual.idle_hours, usual.fixed)


def test_without_a_standby_worker_an_unknown_price_of_its_volume_is_not_missing() -> None:
    assert summarise([], facts(tariff=Tariff(prices=PriceList.shipped("mars-1")))).spent.is_complete


def test_spot_by_day_and_night_saves_against_five_fixed_workers() -> None:
    found = summarise(week(cpu=20, night_cpu=20), FACTS)
    assert found.saved_percent == pytest.approx(100 * (1 - 0.7 * CHEAP / DEAR))
    assert found.spot_hours == found.worker_hours


def test_a_gap_in_the_records_is_not_made_up() -> None:
    samples = [s for s in week() if not START + 86400 <= s.at < START + 3 * 86400]
    assert summarise(samples, FACTS).known_hours == pytest.approx(5 * 24 + STEP / 3600)


def test_the_hours_in_which_a_fleet_is_off_are_neither_missing_nor_counted_as_on() -> None:
    nights = dataclasses.replace(FACTS.policy, hibernate=parse_windows("Mon-Sun 21:00-09:00"))
    samples = [s for s in week(spot=False) if s.hour in BUSY_HOURS]
    always, off = facts(spot_percent=0), facts(spot_percent=0, policy=nights)
    half = [s for s in samples if s.at < START + WEEK // 2 - 86400]
    for given, hours in ((samples, 84), (half, 27)):
        text = " ".join(lines(summarise(given, off), off, Currency()))
        assert (f"only {hours} hours of the week were recorded" in text) is (given is half)
    saved, at_night = (recommended(samples, one, "spot_percent") for one in (always, off))
    assert saved is not None and at_night is not None
    assert at_night.usd_per_month == pytest.approx(saved.usd_per_month / 2, rel=0.01)


def test_no_records_are_no_report_and_no_division_by_zero() -> None:
    found = summarise([], FACTS)
    assert (found.worker_hours, found.spent.usd, found.recommendations) == (0, 0, ())
    assert "only 0 hours of the week were recorded" in " ".join(lines(found, FACTS, Currency()))


def test_a_type_without_a_price_is_said_and_never_counts_as_free() -> None:
    samples = [dataclasses.replace(s, workers=crew(1, kind="x9.huge")) for s in week()]
    found = summarise(samples, FACTS)
    assert found.spent.missing == (f"the price of x9.huge spot in {REGION}",)
    assert headline(found, FACTS, Currency()) == f"workers cost at least ${168 * BESIDE:.2f} this week"
    assert any("not known is the price of x9.huge" in line for line in lines(found, FACTS, Currency()))


@pytest.mark.parametrize(
    ("measured", "text"),
    [
        (lambda at: at % 86400 >= 3600, "CPU was not measured in 14 worker hours; their CPU credits are estimated"),
        (lambda at: False, "not known is the CPU credits of t3.small, whose CPU was not measured"),
    ],
    ids=["some hours", "no hour"],
)
def test_hours_without_measured_cpu_are_stated_and_never_free(measured: Callable[[int], bool], text: str) -> None:
    samples = [s if measured(s.at) else dataclasses.replace(s, cpu_percent=None) for s in week(night_cpu=55)]
    found, whole = summarise(samples, FACTS), summarise(week(night_cpu=55), FACTS)
    assert any(text in line for line in lines(found, FACTS, Currency()))
    assert found.spent.usd == pytest.approx(whole.spent.usd) or not found.spent.is_complete


def test_each_worker_is_charged_for_its_own_cpu_and_pays_a_burst_back_with_idle_time() -> None:
    def sample(at: int, *cpus: float) -> FleetSample:
        workers = (dataclasses.replace(one, cpu_percent=cpu) for one, cpu in zip(crew(2), cpus, strict=True))
        return FleetSample(at=at, hour=0, workers=tuple(workers), cpu_percent=20.0)

    half = START + WEEK // 2
    samples = [sample(at, *((0.0, 70.0) if at < half else (40.0, 20.0))) for at in range(START, START + WEEK, STEP)]
    found = summarise(samples, FACTS)
    first, second = 2 * 0.2 * (84 - 24), 2 * 0.5 * 84
    assert found.credits_usd == pytest.approx((first + second) * 0.05)


def test_costly_credits_are_a_line_with_their_share_and_name_a_type_that_saves() -> None:
    found = summarise(week(cpu=85, night_cpu=85), FACTS)
    shown = lines(found, FACTS, Currency())
    share = round(100 * 65 * CREDITS / 0.0087)
    assert f"CPU credits: CPU above the baseline of the instances cost ${7 * 84 * 65 * CREDITS:.2f}, " in " ".join(
        shown
    )
    assert any(f"{share} % of the price of the instances" in line for line in shown)
    best = recommended(week(cpu=85, night_cpu=85), FACTS, "instance_types")
    assert best is not None and best.setting == "instance_types=c6i.large,t3.small"
    assert best.usd_per_month == pytest.approx(7 * 84 * (0.0087 + 65 * CREDITS - 0.0382) * 730 / 168)


def test_credits_below_a_tenth_of_the_instances_are_no_line() -> None:
    found = summarise(week(cpu=20.5, night_cpu=20.5), FACTS)
    assert found.credits_usd > 0
    assert not any("CPU credits" in line for line in lines(found, FACTS, Currency()))


def test_more_spot_is_recommended_with_the_money_that_the_on_demand_hours_would_save() -> None:
    found = recommended(week(spot=False), FACTS, "spot_percent")
    assert found is not None and found.setting == "spot_percent=90"
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
    assert recommended(samples, subject, "spot_percent") is None


def test_hours_that_never_needed_the_minimum_get_a_window_and_the_old_minimum_as_a_floor() -> None:
    found = recommended(week(night=4, night_cpu=10), facts(policy=Policy(min_workers=4)), "min_workers")
    assert found is not None
    assert found.setting == "min_workers=1, schedules=Mon-Sun 09:00-21:00: 4"
    assert found.text == (
        "from 21:00 to 09:00 1 worker is enough instead of 4 (by CPU, memory; some requests are unknown; "
        "check anti-affinity and topology spread, which are not recorded)"
    )
    assert found.usd_per_month == pytest.approx(7 * 12 * 3 * CHEAP * 730 / 168)


def test_a_minimum_that_no_hour_needed_is_simply_lowered() -> None:
    found = recommended(week(day=6, night=6, cpu=20, night_cpu=20), facts(policy=Policy(min_workers=6)), "min_workers")
    assert found is not None and found.setting == "min_workers=2"


@pytest.mark.parametrize(
    ("seen", "minimum"),
    [
        ({"requested_workers": 2.7}, "3"),
        ({"requested_workers": 2.71}, "4"),
        ({"requested_workers": 2.7, "memory_percent": 39.0}, "4"),
        ({"requested_workers": 5.4}, None),
    ],
)
def test_a_minimum_holds_the_requests_and_the_memory_of_the_pods(seen: dict[str, Any], minimum: str | None) -> None:
    """At most 90 % are requested, and 65 % of the memory are used, ten points under its threshold."""
    samples = [dataclasses.replace(one, **seen) for one in week(day=6, night=6, cpu=5, night_cpu=5)]
    found = recommended(samples, facts(policy=Policy(min_workers=6)), "min_workers")
    assert (found and found.setting) == (minimum and f"min_workers={minimum}")
    assert found is None or "(by CPU, memory, requests of the pods; check" in found.text


def test_a_minimum_names_no_memory_where_the_settings_ignore_it() -> None:
    samples = [dataclasses.replace(one, memory_percent=99.0) for one in week(day=6, night=6, cpu=20, night_cpu=20)]
    found = recommended(samples, facts(policy=Policy(min_workers=6, use_memory=False)), "min_workers")
    assert found is not None and (found.setting, "(by CPU;" in found.text) == ("min_workers=2", True)


def test_a_minimum_that_every_hour_needs_stays() -> None:
    assert recommended(week(night=4, night_cpu=60), facts(policy=Policy(min_workers=4)), "min_workers") is None


def test_a_cheaper_type_that_offers_as_much_is_named_and_no_arm_type_is() -> None:
    found = recommended(week(spot=False), FACTS, "instance_types")
    assert found is not None and found.setting == "instance_types=t3a.small,t3.small"
    assert found.usd_per_month == pytest.approx(7 * 84 * (0.0264 - 0.0236) * 730 / 168)


def test_idle_hours_above_the_minimum_name_the_clocks_that_shorten_them() -> None:
    found = recommended(week(night=6, night_cpu=10), FACTS, "idle_seconds")
    assert found is not None
    assert found.usd_per_month == pytest.approx(7 * 12 * 4 / 2 * CHEAP * 730 / 168)


def test_only_clocks_that_are_long_are_shortened_and_none_where_the_delay_is_learned() -> None:
    idle = week(night=6, night_cpu=10)
    cooldown = recommended(idle, facts(policy=Policy(idle_seconds=300)), "=300")
    assert cooldown is not None and cooldown.setting == "cooldown_down_seconds=300"
    adaptive = Settings.from_mapping({"preset": "adaptive"}).policy()
    assert recommended(idle, facts(policy=adaptive), "_seconds=") is None


@pytest.mark.parametrize(("cpu", "idle"), [(29.0, 7 * 12 * 4), (31.0, 0)])
def test_with_adaptive_a_fleet_is_idle_under_the_default_threshold(cpu: float, idle: float) -> None:
    adaptive = Settings.from_mapping({"preset": "adaptive"}).policy()
    assert summarise(week(night=6, night_cpu=cpu), facts(policy=adaptive)).idle_hours == pytest.approx(idle)


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
    found = summarise(week(spot=False, cpu=20, night_cpu=20), facts(scale_ups=14, scale_downs=13, failures=1))
    assert (
        headline(found, FACTS, money)
        == "workers cost 2,441.19 BDT this week, 30 % less than 5 fixed workers (3,487.41 BDT)"
    )
    shown = lines(found, facts(scale_ups=14, scale_downs=13, failures=1), money)
    assert shown[1] == "scale-ups: 14, scale-downs: 13, failed runs: 1, interruptions: 0"
    assert any("BDT a month [spot_percent=90]" in line for line in shown)
