"""docs/adaptive.md: its worked numbers are run."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from node_fleet.domain.scaling.strategies.adaptive import headroom, trials
from node_fleet.settings import Settings
from node_fleet.settings.presets import PRESETS
from tests.support.doc_examples import BLOCK, answer_of, examples
from tests.support.plan_days import after

PAGE = Path(__file__).resolve().parents[3] / "docs" / "adaptive.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS: list[dict[str, Any]] = [yaml.safe_load(match.group(1)) for match in BLOCK.finditer(TEXT)]
POLICY = Settings.from_mapping({"preset": "adaptive"}).policy()
STEADY = 1


@pytest.mark.parametrize("example", examples(TEXT), ids=lambda e: str(e.data["answer"]))
def test_the_decision_is_what_the_rules_say(example: Any) -> None:
    decision = example.decided()
    assert answer_of(decision) == example.data["answer"]
    assert decision.sentence == example.data["says"]


def test_the_page_lists_what_the_preset_sets_beside_the_defaults() -> None:
    def text(value: object) -> str:
        return f"{value:g}" if isinstance(value, int | float) else str(value)

    rows = [
        f"| `{name}` | {text(value)} | {text(getattr(Settings(), name))} |"
        for name, value in PRESETS["adaptive"].items()
    ]
    section = TEXT.partition("## What the preset sets")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `.*$", section, re.MULTILINE) == rows


@pytest.mark.parametrize("block", [b for b in BLOCKS if "rises" in b], ids=lambda b: f"holds {b['holds']}")
def test_the_cost_of_headroom_is_as_written(block: dict[str, Any]) -> None:
    rises = list(headroom.initial_counts())
    for rise, count in block["rises"].items():
        rises[STEADY * len(headroom.RISES) + headroom.RISES.index(rise)] = count
    least = block["demand"]
    given = {"wait_cost": POLICY.wait_cost, "pods_per_worker": 7}
    assert headroom.choose_workers(rises, STEADY, least, most=10, **given).workers == block["holds"]
    held_at_demand = headroom.choose_workers(rises, STEADY, least, most=int(least), **given)
    assert held_at_demand.saved_by_next == pytest.approx(block["saves"], abs=0.01)


@pytest.mark.parametrize("block", [b for b in BLOCKS if "pauses" in b], ids=lambda b: f"{b['delay_minutes']} minutes")
def test_the_cost_of_the_delay_is_as_written(block: dict[str, Any]) -> None:
    tried = replace(after(**block["pauses"]), demand=block["mean_demand"], readings=1.0)
    plan = trials.choose_plan(tried, wait_cost=POLICY.wait_cost, change_cost=POLICY.change_cost).plan
    assert plan.delay_seconds == block["delay_minutes"] * 60


def test_the_prices_it_names_are_the_settings() -> None:
    for name, value in (
        ("wait_cost", POLICY.wait_cost),
        ("change_cost", POLICY.change_cost),
        ("learning_days", POLICY.learning_days),
    ):
        assert f"`{name}` ({value:g})" in TEXT
    *prices, never = trials.START_PRICES
    assert " or ".join(f"{price:g} times" for price in prices) in " ".join(TEXT.split()) and never == math.inf
    assert ", ".join(str(minutes) for minutes in trials.DELAY_MINUTES) in TEXT
