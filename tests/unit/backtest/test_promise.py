"""The savings against five fixed workers on the load of the original design, as docs/cost.md states them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from backtest.compare import FIXED, FIXED_FLEET, Assumptions, Study, study
from backtest.model import Scaling
from backtest.trace import read_trace
from node_fleet.settings import Settings
from node_fleet.settings.presets import PRESETS
from tests.support.backtest_loads import WORKER

pytestmark = pytest.mark.sampled(5)  # with --all, every one

ROOT = Path(__file__).resolve().parents[3]
LOAD = ROOT / "tests" / "fixtures" / "day_and_night.csv"
COMPARED = (*PRESETS, FIXED_FLEET)


@pytest.fixture(scope="module")
def found() -> Study:
    return study(read_trace(LOAD), Settings(), Assumptions(scaling=Scaling(milli_per_unit=WORKER)), COMPARED)


def saved_hours(found: Study, policy: str) -> float:
    hours = {m.policy: m.worker_hours for m in (*found.results, found.bound)}
    return 100 * (1 - hours[policy] / hours[FIXED_FLEET])


def saved_usd(found: Study, policy: str) -> float:
    """With the configured share of Spot, volumes, addresses and CPU credits, against five On-Demand workers."""
    saved = found.saved_percent(next(m for m in (*found.results, found.bound) if m.policy == policy))
    assert saved is not None
    return saved


def saved_on_instances(found: Study, policy: str) -> float:
    """The same for the instances alone."""
    measures = {m.policy: m for m in (*found.results, found.bound)}
    instances = found.instances_usd(measures[policy])
    assert instances is not None
    return 100 * (1 - instances / (measures[FIXED_FLEET].worker_hours * 0.0264))


def test_the_load_needs_five_workers_by_day_and_two_at_night(found: Study) -> None:
    fixed = next(m for m in found.results if m.policy == FIXED_FLEET)
    assert fixed.pending_pod_minutes == 0
    assert found.load.workers_for(max(count for _, count in found.load.phases[0].changes)) == FIXED


def test_no_policy_can_save_40_percent_of_the_worker_hours_of_this_load(found: Study) -> None:
    assert saved_hours(found, "clairvoyant") < 40
    assert saved_hours(found, "node-fleet") < saved_hours(found, "adaptive") < saved_hours(found, "clairvoyant") + 1


def test_the_promise_holds_for_the_instances_alone_and_not_for_the_whole_bill(found: Study) -> None:
    for preset in PRESETS:
        assert saved_on_instances(found, preset) >= 40 > saved_usd(found, preset) > 0


@pytest.mark.parametrize("policy", [*PRESETS, "clairvoyant"])
def test_the_document_has_these_figures_to_the_percent(found: Study, policy: str) -> None:
    text = (ROOT / "docs" / "cost.md").read_text(encoding="utf-8")
    stated = re.search(rf"^\| {policy} \| (\d+) % \| (\d+) % \| (\d+) % \|$", text, re.MULTILINE)
    assert stated is not None
    assert float(stated[1]) == pytest.approx(saved_hours(found, policy), abs=1)
    assert float(stated[2]) == pytest.approx(saved_on_instances(found, policy), abs=1)
    assert float(stated[3]) == pytest.approx(saved_usd(found, policy), abs=1)
