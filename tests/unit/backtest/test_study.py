"""A study: compared policies, the answer, prices, parts of a trace, the search, and the text of the page."""

from __future__ import annotations

import functools
import gzip
import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape

from backtest import compare
from backtest.compare import CONFIGURED, REFERENCES, Assumptions, left_out, policy_names, study
from backtest.load import Load
from backtest.measures import Measures
from backtest.model import Capacity, Scaling
from backtest.page import ALPHABET, UNITS, assumed, compressed, look_of, render
from backtest.references import FixedFleet
from backtest.replay import Sizer, replay
from backtest.summary import COLUMNS, answer, as_data, rows, tuned_data, tuned_sentence
from backtest.tune import tune
from node_fleet.settings import Settings
from node_fleet.settings.presets import PRESETS
from tests.support.backtest_loads import BY_WORKERS, START, trace_of

pytestmark = pytest.mark.sampled(10)  # with --all, every one

WAVES = [2.0, 5.0, 5.0, 1.0, 1.0, 1.0] * 6
ASSUMED = Assumptions(scaling=BY_WORKERS)


def test_a_configuration_is_compared_with_every_preset_and_every_reference() -> None:
    found = study(trace_of(WAVES), Settings(), ASSUMED, policy_names())
    assert [m.policy for m in found.results] == [CONFIGURED, *PRESETS, *REFERENCES]
    assert found.configured.worker_hours == found.results[1].worker_hours


@pytest.mark.parametrize(
    ("changed", "replays"),
    [({}, 3), ({"change_cost": 20.0}, 4), ({"spot_percent": 10}, 3), ({"instance_types": "t3.small,t3.medium"}, 4)],
    ids=["as its preset", "another price", "of which the presets have it too", "of two types, the presets of one"],
)
def test_a_configuration_that_decides_as_its_preset_is_replayed_with_it(
    changed: dict[str, Any], replays: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def counted(load: Load, capacity: Capacity, sizer: Sizer, **options: Any) -> Measures:
        calls.append(sizer.name)
        return replay(load, capacity, sizer, **options)

    monkeypatch.setattr(compare, "replay", counted)
    settings = Settings.from_mapping({"preset": "adaptive", **changed})
    assumed = replace(ASSUMED, further=(replace(ASSUMED.capacity, instance_type="t3.medium"),) * ("," in str(changed)))
    found = study(trace_of(WAVES), settings, assumed, ["node-fleet", "adaptive", "fixed-5"])
    configured, other, preset, _ = found.results
    assert len(calls) == replays and calls[0] == CONFIGURED
    assert configured == replace(preset, policy=CONFIGURED) or replays == 4
    assert [m.policy for m in found.results] == [CONFIGURED, "node-fleet", "adaptive", "fixed-5"]
    assert other.actions != configured.actions


def test_the_answer_has_hours_money_waiting_and_the_cheapest_policy_without_more_waiting() -> None:
    found = study(trace_of(WAVES), Settings(), ASSUMED, ["fixed-5", "karpenter"])
    usd = found.cost(found.configured).usd
    text = answer(found)
    hours, waiting = (
        f"{found.configured.worker_hours:.0f} worker-hours",
        f"{found.configured.pending_pod_minutes:.0f} pending",
    )
    assert text.startswith(f"{CONFIGURED}: {hours}, {usd:.2f} USD, {waiting}")
    assert "cheapest without more pending pod-minutes: " in text or "no compared policy is cheaper" in text
    assert found.cheapest_without_more_pending.pending_pod_minutes <= found.configured.pending_pod_minutes


def test_without_other_policies_it_is_compared_with_the_lower_bound() -> None:
    assert "lower bound, with the load known beforehand" in answer(study(trace_of(WAVES), Settings(), ASSUMED))


def test_an_hour_costs_the_configured_mix_of_spot_and_on_demand_with_volume_and_address() -> None:
    spot, on_demand, half = (
        study(trace_of(WAVES), Settings(spot_percent=share), ASSUMED).hourly_cost.usd for share in (100, 0, 50)
    )
    assert spot == pytest.approx(0.0087 + 20 * 0.096 / 730 + 0.005)
    assert half == pytest.approx((spot + on_demand) / 2)


def test_the_cost_of_every_policy_is_its_machines_and_the_cpu_above_their_baseline() -> None:
    found = study(trace_of(WAVES), Settings(), ASSUMED, policy_names())
    fixed = next(m for m in found.results if m.policy == "fixed-5")
    on_demand = Settings(spot_percent=0)
    assert found.fixed_cost == study(trace_of(WAVES), on_demand, ASSUMED, ["fixed-5"]).cost(fixed)
    for measures in (*found.results, found.bound):
        credits = measures.charged_vcpu_hours * 0.05
        assert measures.charged_vcpu_hours > 0
        assert found.cost(measures).usd == pytest.approx(measures.worker_hours * found.hourly_cost.usd + credits)
        instances = found.instances_usd(measures)
        assert instances == pytest.approx(measures.worker_hours * (0.7 * 0.0087 + 0.3 * 0.0264))


def test_more_workers_for_the_same_load_are_charged_for_less_cpu() -> None:
    load = study(trace_of(WAVES), Settings(), ASSUMED).load
    few, many = (replay(load, ASSUMED.capacity, FixedFleet(count)) for count in (5, 9))
    assert 0 < many.charged_vcpu_hours < few.charged_vcpu_hours


def test_in_mode_standard_no_cpu_is_charged_and_what_the_workers_do_not_give_is_counted() -> None:
    found = study(trace_of(WAVES), Settings(cpu_credits="standard"), ASSUMED, ["fixed-5"])
    for measures in (*found.results, found.bound):
        assert measures.charged_vcpu_hours == 0
    assert found.configured.missing_vcpu_hours > 0
    assert found.cost(found.configured).usd == found.configured.worker_hours * found.hourly_cost.usd


def test_a_type_that_is_not_burstable_has_no_credits() -> None:
    assumed = replace(ASSUMED, capacity=replace(ASSUMED.capacity, instance_type="m5.large"))
    found = study(trace_of(WAVES), Settings(), assumed, ["fixed-5"])
    assert {m.charged_vcpu_hours for m in (*found.results, found.bound)} == {0.0}


def test_without_a_price_the_study_still_has_hours_and_the_least_that_they_cost() -> None:
    found = study(trace_of(WAVES), Settings(region="nowhere-1"), ASSUMED)
    assert "at least" in answer(found)
    assert rows(found)[0][2].startswith("at least ") and rows(found)[0][3] == "unknown"
    data = as_data(found)["policies"][0]
    assert data["instances_usd"] is None
    assert data["usd_missing"][0] == "the price of t3.small spot in nowhere-1"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, ""),
        ({"max_vcpu": 20}, ""),
        (
            {"max_vcpu": 19},
            ": max_vcpu, with which the fleet has at most 9 On-Demand or 9 Spot workers of type t3.small;",
        ),
        (
            {"max_usd_per_hour": 0.2},
            ": max_usd_per_hour, with which the fleet has at most 5 On-Demand or 12 Spot workers",
        ),
        ({"hibernate": "Sun-Fri 19:00-07:00; Sat-Sun"}, "hibernate switches the fleet off for 108 of 168 h a week"),
    ],
)
def test_what_no_replay_applies_is_said_where_it_matters(settings: dict[str, Any], said: str) -> None:
    text = left_out(Settings.from_mapping({"max_workers": 10, **settings}), "t3.small")
    assert said in text and bool(text) is bool(said)


def test_the_page_says_what_was_left_out() -> None:
    found = study(trace_of(WAVES), Settings(max_vcpu=8), ASSUMED)
    assert found.left_out in assumed(found) and as_data(found)["left_out"] == found.left_out != ""


def test_rows_and_data_have_the_same_policies_and_the_bound_last() -> None:
    found = study(trace_of(WAVES), Settings(), ASSUMED, ["fixed-5"])
    assert [row[0] for row in rows(found)] == [CONFIGURED, "fixed-5", "clairvoyant"]
    assert {len(row) for row in rows(found)} == {len(COLUMNS)}
    data = json.loads(json.dumps(as_data(found)))
    assert [p["policy"] for p in data["policies"]] == [CONFIGURED, "fixed-5", "clairvoyant"]
    assert data["policies"][-1]["times_bound"] == 1


def test_a_part_of_a_trace_keeps_the_scale_of_the_whole() -> None:
    trace = trace_of([1.0, 1.0, 10.0, 10.0])
    stated = Assumptions(scaling=Scaling(interpolation="jump")).with_unit_of(trace)
    whole = study(trace, Settings(), stated)
    part = study(trace.between(START, START + 1200), Settings(), stated)
    assert part.load.milli_per_unit == whole.load.milli_per_unit


def test_the_same_study_twice_gives_the_same_results() -> None:
    first, second = (study(trace_of(WAVES), Settings(), ASSUMED, ["karpenter"]) for _ in range(2))
    assert first.results == second.results


def test_the_search_keeps_the_limit_on_its_part_and_reports_the_other() -> None:
    trace = trace_of(WAVES * 2, step=1200)
    before = study(trace, Settings(), ASSUMED).configured
    limit = 2 * before.pending_pod_minutes / before.days
    tuned = tune(trace, {}, ASSUMED, limit_per_day=limit, max_tries=25)
    assert tuned.searched.waiting_per_day <= limit
    assert tuned.after.worker_hours < tuned.before.worker_hours
    assert tuned.changes
    assert tuned.after.days == pytest.approx(before.days / 2, rel=0.1)
    assert tuned_data(tuned)["within_limit"] is tuned.within_limit
    assert ("limit" in tuned_sentence(tuned)) and (("NOT kept" in tuned_sentence(tuned)) is not tuned.within_limit)


def test_the_search_stops_after_its_tries_and_is_deterministic() -> None:
    trace = trace_of(WAVES)
    first, second = (tune(trace, {}, ASSUMED, limit_per_day=100, max_tries=7) for _ in range(2))
    assert first.tries == 7
    assert first.changes == second.changes


@pytest.mark.parametrize("preset", PRESETS)
def test_every_strategy_has_settings_to_search(preset: str) -> None:
    tuned = tune(trace_of(WAVES), {"preset": preset}, ASSUMED, limit_per_day=100, max_tries=3)
    assert tuned.tries == 3
    assert set(tuned.changes) <= {f.name for f in fields(Settings)}


def test_while_no_trial_is_within_the_limit_the_search_prefers_less_waiting() -> None:
    tuned = tune(trace_of(WAVES), {}, ASSUMED, limit_per_day=0, max_tries=20)
    start = tune(trace_of(WAVES), {}, ASSUMED, limit_per_day=0, max_tries=1)
    assert tuned.searched.waiting_per_day <= start.searched.waiting_per_day


def test_the_page_starts_with_the_answer_contains_its_charts_and_loads_nothing_from_the_network() -> None:
    hostile = replace(trace_of(WAVES), name="</script><b>x")
    page = render(study(hostile, Settings(), ASSUMED, ["karpenter"], chart_seconds=600))
    assert page.index('class="lead"') < page.index("<table>") < page.index('id="time"')
    assert "on five scenarios the same actions, and worker-hours within 3 %" in page
    assert "</script><b>x" not in page
    assert "&lt;/script&gt;&lt;b&gt;x" in page
    head = page[: page.index("<script>")]
    assert "http://" not in head
    assert "https://" not in head
    assert "<script src" not in page


def test_a_page_of_fifteen_policies_with_the_most_points_stays_under_two_megabytes() -> None:
    found = study(trace_of(WAVES * 9), Settings(), ASSUMED, ["karpenter", "cluster-autoscaler"], chart_seconds=60)
    points = len(found.configured.points)
    many = replace(found, results=found.results * 5)
    assert points > 1500, "no page has more: cli.backtest.POINTS_SHOWN"
    assert len(render(many).encode()) < 2_000_000


def test_every_policy_has_a_look_of_its_own_and_every_column_a_unit() -> None:
    looks = [look_of(number) for number in range(21)]
    assert (
        len({(colour, dash) for colour, dash, _ in looks}) == len({(colour, sign) for colour, _, sign in looks}) == 21
    )
    assert [name for name, _ in UNITS] == list(COLUMNS[1:])


@given(st.text(max_size=300))
def test_what_a_page_carries_compressed_is_the_text_and_needs_no_escape(text: str) -> None:
    packed, size = compressed(text)
    assert packed == str(escape(packed)) and len(packed) % 5 == 0
    values = [ALPHABET.index(digit) for digit in packed]
    groups = (values[place : place + 5] for place in range(0, len(values), 5))
    data = b"".join(
        functools.reduce(lambda sum_, value: sum_ * 85 + value, group).to_bytes(4, "big") for group in groups
    )
    assert gzip.decompress(data[:size]).decode() == text
