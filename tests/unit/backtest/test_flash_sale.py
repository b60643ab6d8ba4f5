"""The cost of every policy on the load of the flash sale, for the instances alone and for the whole bill."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from backtest.compare import CONFIGURED, Assumptions, Study, policy_names, study
from backtest.model import Scaling
from backtest.trace import read_trace
from node_fleet.settings import Settings
from simulator.scenario.files import load_scenario
from tests.support.backtest_check import load_trace

ROOT = Path(__file__).resolve().parents[3]
LOAD = ROOT / "tests" / "fixtures" / "flash_sale.csv"
SCALING = Scaling(milli_per_unit=10, stabilization_seconds=300)


@pytest.fixture(scope="module")
def found() -> Study:
    return study(read_trace(LOAD), Settings(), Assumptions(scaling=SCALING), policy_names())


def test_the_file_is_the_load_of_the_scenario() -> None:
    (sale,), (kept,) = load_trace(load_scenario("flash-sale")).stretches, read_trace(LOAD).stretches
    assert kept.times == sale.times
    assert kept.values == pytest.approx(sale.values, rel=1e-5)


def test_the_document_has_both_costs_of_every_policy(found: Study) -> None:
    text = (ROOT / "docs" / "cost.md").read_text(encoding="utf-8")
    stated = {
        policy: (float(instances), float(usd))
        for policy, instances, usd in re.findall(r"^\| ([\w-]+) \| (0\.\d{3}) \| (0\.\d{3}) \|$", text, re.MULTILINE)
    }
    measured = {one.policy: one for one in (*found.results, found.bound) if one.policy != CONFIGURED}
    assert list(stated) == list(measured)
    for policy, (instances, usd) in stated.items():
        assert instances == pytest.approx(found.instances_usd(measured[policy]), abs=0.0006)
        assert usd == pytest.approx(found.cost(measured[policy]).usd, abs=0.0006)
