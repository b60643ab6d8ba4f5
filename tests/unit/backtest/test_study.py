"""A study: policies side by side, the answer first, prices, parts of a trace, the search, and the page's text."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from backtest.compare import MINE, REFERENCES, Assumptions, mixed_price, policy_names, study
from backtest.model import Scaling
from backtest.page import render
from backtest.summary import COLUMNS, answer, as_data, rows, tuned_data, tuned_sentence
from backtest.tune import tune
from node_fleet.settings import Settings
from node_fleet.settings.presets import PRESETS
from tests.support.backtest_loads import BY_WORKERS, START, trace_of

WAVES = [2.0, 5.0, 5.0, 1.0, 1.0, 1.0] * 6
ASSUMED = Assumptions(scaling=BY_WORKERS)


def test_every_preset_and_every_reference_can_be_put_beside() -> None:
    found = study(trace_of(WAVES), Settings(), ASSUMED, policy_names())
    assert [m.policy for m in found.results] == [MINE, *PRESETS, *REFERENCES]
    assert found.mine.worker_hours == found.results[1].worker_hours


def test_the_answer_says_hours_money_waiting_and_what_is_cheapest_without_more_waiting() -> None:
    found = study(trace_of(WAVES), Settings(), ASSUMED, ["fixed-5", "karpenter"])
    usd = found.usd(found.mine)
    assert usd is not None
    text = answer(found)
    hours, waiting = f"{found.mine.worker_hours:.0f} worker-hours", f"{found.mine.pending_pod_minutes:.0f} pending"
    assert text.startswith(f"{MINE}: {hours}, {usd:.2f} USD, {waiting}")
    assert "cheapest without more pending: " in text or "nothing compared is cheaper" in text
    assert found.cheapest_without_more_pending.pending_pod_minutes <= found.mine.pending_pod_minutes


def test_alone_it_is_set_beside_the_lower_bound() -> None:
    assert "the cheapest that knows the load beforehand" in answer(study(trace_of(WAVES), Settings(), ASSUMED))


def test_an_hour_costs_the_configured_mix_of_spot_and_on_demand() -> None:
    spot, on_demand = (
        mixed_price(Settings(spot_percent=100), "t3.small"),
        mixed_price(Settings(spot_percent=0), "t3.small"),
    )
    half = mixed_price(Settings(spot_percent=50), "t3.small")
    assert spot is not None
    assert on_demand is not None
    assert half == pytest.approx((spot + on_demand) / 2)
    assert mixed_price(Settings(region="nowhere-1"), "t3.small") is None


def test_without_a_price_the_hours_still_stand() -> None:
    found = study(trace_of(WAVES), Settings(region="nowhere-1"), ASSUMED)
    assert "USD" not in answer(found)
    assert rows(found)[0][2] == "unknown"
    assert as_data(found)["policies"][0]["usd"] is None


def test_rows_and_data_hold_the_same_policies_the_bound_last() -> None:
    found = study(trace_of(WAVES), Settings(), ASSUMED, ["fixed-5"])
    assert [row[0] for row in rows(found)] == [MINE, "fixed-5", "clairvoyant"]
    assert {len(row) for row in rows(found)} == {len(COLUMNS)}
    data = json.loads(json.dumps(as_data(found)))
    assert [p["policy"] for p in data["policies"]] == [MINE, "fixed-5", "clairvoyant"]
    assert data["policies"][-1]["times_bound"] == 1


def test_a_part_of_a_trace_keeps_the_whole_ones_scale() -> None:
    trace = trace_of([1.0, 1.0, 10.0, 10.0])
    stated = Assumptions(scaling=Scaling(interpolation="jump")).fixed_to(trace)
    whole = study(trace, Settings(), stated)
    part = study(trace.between(START, START + 1200), Settings(), stated)
    assert part.load.milli_per_unit == whole.load.milli_per_unit


def test_the_same_study_twice_is_the_same() -> None:
    first, second = (study(trace_of(WAVES), Settings(), ASSUMED, ["karpenter"]) for _ in range(2))
    assert first.results == second.results


def test_the_search_keeps_the_limit_on_its_part_and_reports_the_other() -> None:
    trace = trace_of(WAVES * 2, step=1200)
    before = study(trace, Settings(), ASSUMED).mine
    limit = 2 * before.pending_pod_minutes / before.days
    tuned = tune(trace, {}, ASSUMED, limit_per_day=limit, most_tries=25)
    assert tuned.searched.waiting_per_day <= limit
    assert tuned.after.worker_hours < tuned.before.worker_hours
    assert tuned.changes
    assert tuned.after.days == pytest.approx(before.days / 2, rel=0.1)
    assert tuned_data(tuned)["within_limit"] is tuned.within_limit
    assert ("limit" in tuned_sentence(tuned)) and (("NOT kept" in tuned_sentence(tuned)) is not tuned.within_limit)


def test_the_search_stops_after_its_tries_and_is_deterministic() -> None:
    trace = trace_of(WAVES)
    first, second = (tune(trace, {}, ASSUMED, limit_per_day=100, most_tries=7) for _ in range(2))
    assert first.tries == 7
    assert first.changes == second.changes


@pytest.mark.parametrize("preset", PRESETS)
def test_every_rule_set_has_settings_to_search(preset: str) -> None:
    tuned = tune(trace_of(WAVES), {"preset": preset}, ASSUMED, limit_per_day=100, most_tries=3)
    assert tuned.tries == 3
    assert set(tuned.changes) <= {f.name for f in fields(Settings)}


def test_while_the_limit_is_out_of_reach_less_waiting_wins() -> None:
    tuned = tune(trace_of(WAVES), {}, ASSUMED, limit_per_day=0, most_tries=20)
    start = tune(trace_of(WAVES), {}, ASSUMED, limit_per_day=0, most_tries=1)
    assert tuned.searched.waiting_per_day <= start.searched.waiting_per_day


def test_the_page_answers_first_holds_its_charts_and_asks_no_network() -> None:
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
