"""The invariant about disruption budgets in random schedules: it judges drains, and a broken rule would be seen."""

from __future__ import annotations

from datetime import UTC, datetime
from unittest import mock

import pytest

from node_fleet.domain.disruption.budgets import allowed
from node_fleet.domain.model.budget import REASONS
from node_fleet.domain.model.policy import Policy
from node_fleet.settings import Settings
from tests.support.chaos.budgets import DrawnBudget, DrawnRules
from tests.support.chaos.invariants import BUDGETS_KEPT
from tests.support.chaos.schedule import IDLE, Play, PreparedFleet, Ran, Step

pytestmark = pytest.mark.sampled(4)  # with --all, every one

START = datetime(2026, 6, 1, 23, 40, tzinfo=UTC).timestamp()
TICKS = 4
RULES = [
    DrawnRules(),
    DrawnRules(budgets=(DrawnBudget(nodes="0", reasons=("idle",)),)),
    DrawnRules(budgets=(DrawnBudget(nodes="34%"), DrawnBudget(nodes="1", begins=-10, minutes=30))),
    DrawnRules(budgets=(DrawnBudget(nodes="0", begins=5, minutes=60),)),
    DrawnRules(only=(10, 30)),
    DrawnRules(never=(-5, 40), budgets=(DrawnBudget(nodes="2"),)),
    DrawnRules(only=(-20, 60), never=(15, 10)),
]


@pytest.mark.parametrize("rules", RULES, ids=[str(number) for number in range(len(RULES))])
def test_its_arithmetic_agrees_with_the_rule_in_every_minute_of_two_hours(rules: DrawnRules) -> None:
    environment = {name: value for name, value in rules.environment(START).items() if value}
    policy: Policy = Settings.from_env(environment).policy()
    for minute in range(-60, 120):
        for second in (0, 59):
            at = int(START) + 60 * minute + second
            for reason in REASONS:
                found = allowed(policy.budgets, reason, now=at, workers=7, disrupted=0).number
                assert rules.allowed(reason, at, 7, START) == found, (minute, second, reason)


def shrinking(rules: DrawnRules) -> list[Step]:
    """Three idle workers above a minimum of two, for long enough to remove one."""
    return [
        lambda play: play.budgets_are_deployed(rules),
        lambda play: play.load_changes(IDLE),
        *[Play.tick] * TICKS,
    ]


def removes(ran: list[Ran]) -> bool:
    return any("StartDrain" in each.path for each in ran[:TICKS])


@pytest.mark.parametrize(
    ("rules", "removed"),
    [
        (DrawnRules(), True),
        (DrawnRules(budgets=(DrawnBudget(nodes="1"),)), True),
        (DrawnRules(budgets=(DrawnBudget(nodes="0", reasons=("drifted",)),)), True),
        (DrawnRules(budgets=(DrawnBudget(nodes="0", reasons=("idle",)),)), False),
        (DrawnRules(budgets=(DrawnBudget(nodes="0", begins=-5, minutes=60),)), False),
        (DrawnRules(only=(30, 20)), False),
        (DrawnRules(never=(-5, 60)), False),
    ],
)
def test_a_schedule_removes_a_worker_only_where_its_rules_allow_it(
    prepared: PreparedFleet, rules: DrawnRules, removed: bool
) -> None:
    assert removes(prepared.perform(shrinking(rules))) is removed


def test_a_rule_that_forgets_the_budgets_breaks_the_invariant(prepared: PreparedFleet) -> None:
    closed = DrawnRules(budgets=(DrawnBudget(nodes="0"),))

    def forget(play: Play) -> None:
        """From here on the rules allow every disruption."""
        mock.patch(
            "node_fleet.domain.scaling.decision.evaluate_budget", lambda tick, reason, wanted: (wanted, None)
        ).start()
        mock.patch("handlers.start_drain.closing_budget", lambda *given: "").start()

    with pytest.raises(AssertionError, match=BUDGETS_KEPT):
        prepared.perform([forget, *shrinking(closed)])


@pytest.mark.parametrize("heals", [True, False])
def test_a_silent_worker_is_rebooted_once_in_a_schedule(prepared: PreparedFleet, heals: bool) -> None:
    ran = prepared.perform([lambda play: play.worker_falls_silent(0, heals), *[Play.tick] * 8])
    assert any("ConfirmTermination" in each.path and "UndoDrain" in each.path for each in ran[:8])
