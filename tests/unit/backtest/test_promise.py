"""The savings against five fixed workers on the load of the original design, as docs/backtest.md states them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from backtest.compare import FIXED, Assumptions, Study, study
from backtest.model import Scaling
from backtest.trace import read_csv
from node_fleet.domain.cost.fleet_cost import usd_per_hour
from node_fleet.settings import Settings
from tests.support.backtest_loads import WORKER

ROOT = Path(__file__).resolve().parents[3]
LOAD = ROOT / "tests" / "fixtures" / "day_and_night.csv"
COMPARED = ("node-fleet", "adaptive", f"fixed-{FIXED}")


@pytest.fixture(scope="module")
def found() -> Study:
    return study(read_csv(LOAD), Settings(), Assumptions(scaling=Scaling(milli_per_unit=WORKER)), COMPARED)


def saved_hours(found: Study, policy: str) -> float:
    hours = {m.policy: m.worker_hours for m in (*found.results, found.bound)}
    return 100 * (1 - hours[policy] / hours[f"fixed-{FIXED}"])


def saved_usd(found: Study, policy: str) -> float:
    """Against five on-demand workers, with the configured share of Spot."""
    on_demand = usd_per_hour(Settings().region, "t3.small", "on-demand")
    assert on_demand is not None
    assert found.usd_per_hour is not None
    return 100 - (100 - saved_hours(found, policy)) * found.usd_per_hour / on_demand


def test_the_load_needs_five_workers_by_day_and_two_at_night(found: Study) -> None:
    fixed = next(m for m in found.results if m.policy == f"fixed-{FIXED}")
    assert fixed.pending_pod_minutes == 0
    assert found.load.workers_for(max(count for _, count in found.load.phases[0].changes)) == FIXED


def test_savings_in_money_are_at_least_40_percent(found: Study) -> None:
    assert saved_usd(found, "node-fleet") >= 40
    assert saved_usd(found, "adaptive") >= 40


def test_no_policy_can_save_40_percent_of_the_worker_hours_of_this_load(found: Study) -> None:
    assert saved_hours(found, "clairvoyant") < 40
    assert saved_hours(found, "node-fleet") < saved_hours(found, "adaptive") < saved_hours(found, "clairvoyant") + 1


@pytest.mark.parametrize("policy", ["node-fleet", "adaptive", "clairvoyant"])
def test_the_document_has_these_figures_to_the_percent(found: Study, policy: str) -> None:
    text = (ROOT / "docs" / "backtest.md").read_text(encoding="utf-8")
    stated = re.search(rf"^\| {policy} \| (\d+) % \| (\d+) % \|$", text, re.MULTILINE)
    assert stated is not None
    assert float(stated[1]) == pytest.approx(saved_hours(found, policy), abs=1)
    assert float(stated[2]) == pytest.approx(saved_usd(found, policy), abs=1)
