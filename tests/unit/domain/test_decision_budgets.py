"""Budgets and removal windows in a decision: how many idle workers leave, and what says why none does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.model.memory import Memory, Streak
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.scaling.check import Check, Decision
from node_fleet.domain.scaling.decision import decide
from node_fleet.domain.scaling.disruption import disrupted_workers
from node_fleet.domain.scaling.tick import make_tick
from node_fleet.settings import Settings
from tests.support.decisions import START, TICK, idle, worker, workers

WAITED = Memory(since={"idle": Streak(since=START - 1200, last=START - TICK, readings=10)})
"""Idle long enough. START is a Monday, 14:14 UTC."""


EIGHT = workers(8, cpu_requested_milli=200, memory_requested_mib=100)


def policy(**settings: Any) -> Policy:
    return Settings.from_mapping({"max_targets": 4, "max_workers": 20, **settings}).policy()


def decided(seen: Any = None, **settings: Any) -> Decision:
    return decide(idle(workers=seen or EIGHT), WAITED, policy(**settings), START)


def budget_check(decision: Decision) -> Check | None:
    return next((c for c in decision.evidence if c.name == "budget"), None)


@pytest.mark.parametrize(
    ("budgets", "count"),
    [
        ([], 4),
        ([{"nodes": "4"}], 4),
        ([{"nodes": "3"}], 3),
        ([{"nodes": 1}], 1),
        ([{"nodes": "13%"}], 2),
        ([{"nodes": "12%"}], 1),
        ([{"nodes": "50%"}, {"nodes": "2", "reasons": ["idle", "drifted"]}], 2),
        ([{"nodes": "0", "reasons": ["drifted", "expired", "unhealthy"]}], 4),
        ([{"nodes": "0", "schedule": "0 15 * * mon", "duration": "2h"}], 4),
        ([{"nodes": "2", "schedule": "0 14 * * mon", "duration": "15m"}], 2),
    ],
)
def test_as_many_idle_workers_leave_as_the_strictest_budget_allows(budgets: list[Any], count: int) -> None:
    decision = decided(disruption_budgets=budgets)
    assert (decision.action, decision.count, decision.workers_after) == ("scale_down", count, 8 - count)


def test_a_smaller_number_is_explained() -> None:
    check = budget_check(decided(disruption_budgets=[{"nodes": "3"}]))
    assert check is not None
    assert (check.verdict, check.text) == ("ok", "3 of 4 idle workers removed: at most 3 workers")
    assert check.setting == "disruption_budgets"


@pytest.mark.parametrize(
    ("settings", "text", "setting"),
    [
        (
            {"removal_windows": "only: Mon-Fri 21:00-23:00", "timezone": "Asia/Dhaka"},
            "no idle worker is removed: removal windows 'only: Mon-Fri 21:00-23:00' (Asia/Dhaka), "
            "next opening Mon 2026-09-21 21:00 Asia/Dhaka",
            "removal_windows",
        ),
        (
            {"removal_windows": "never: 2026-09-21 00:00-24:00"},
            "no idle worker is removed: removal windows 'never: 2026-09-21 00:00-24:00' (UTC), "
            "next opening Tue 2026-09-22 00:00 UTC",
            "removal_windows",
        ),
        (
            {
                "disruption_budgets": [
                    {"nodes": "0", "schedule": "0 9 * * mon-fri", "duration": "8h", "timezone": "Europe/Berlin"}
                ]
            },
            "no idle worker is removed: at most 0 workers ('0 9 * * mon-fri' for 8h, Europe/Berlin), "
            "next opening Mon 2026-09-21 15:00 UTC",
            "disruption_budgets",
        ),
        (
            {"disruption_budgets": [{"nodes": "0"}]},
            "no idle worker is removed: at most 0 workers",
            "disruption_budgets",
        ),
    ],
)
def test_a_budget_that_holds_every_worker_is_named_with_its_next_opening(
    settings: dict[str, Any], text: str, setting: str
) -> None:
    decision = decided(**settings)
    check = budget_check(decision)
    assert check is not None
    assert (decision.action, decision.blocked_by) == ("none", ("budget",))
    assert (check.verdict, check.text, check.setting) == ("blocked", text, setting)
    assert text in decision.sentence and f"{text} [{setting}]" in decision.reasons


def test_workers_that_are_not_ready_or_under_notice_count_against_the_budget() -> None:
    seen = (*workers(6), worker(7, "not_ready", not_ready_seconds=60), worker(8, under_notice=True))
    counts = {n: decided(seen, disruption_budgets=[{"nodes": n}]).count for n in ("2", "3", "4")}
    assert counts == {"2": 0, "3": 1, "4": 2}
    held = budget_check(decided(seen, disruption_budgets=[{"nodes": "2"}]))
    assert held is not None and held.text == "no idle worker is removed: at most 2 workers, 2 disrupted"
    tick = make_tick(idle(workers=(*seen, worker(9, "joining"), worker(10, "cordoned"))), Memory(), Policy(), START)
    assert disrupted_workers(tick) == (9, 3), "a joining worker does not count, a cordoned one does"


def test_a_worker_that_is_not_ready_for_long_is_removed_whatever_the_budgets_say() -> None:
    seen = (*workers(6), worker(7, "not_ready", not_ready_seconds=5000))
    decision = decided(seen, disruption_budgets=[{"nodes": "0"}], removal_windows="never: Mon-Sun 00:00-24:00")
    assert (decision.action, decision.rule, decision.replace) == ("scale_down", "not_ready", "i-0007")


def test_budgets_delay_no_launch() -> None:
    decision = decided(workers(1), disruption_budgets=[{"nodes": "0"}])
    assert (decision.action, decision.rule) == ("scale_up", "minimum")


@given(
    st.lists(st.sampled_from(["0", "1", "2", "3", "25%", "100%"]), max_size=3),
    st.integers(1, 12),
    st.integers(0, 4),
)
def test_no_more_idle_workers_leave_than_without_budgets_or_than_one_of_them_allows(
    nodes: list[str], usable: int, lost: int
) -> None:
    seen = (*workers(usable), *(worker(f"n{k}", "not_ready", not_ready_seconds=60) for k in range(lost)))
    free, decision = decided(seen), decided(seen, disruption_budgets=[{"nodes": n} for n in nodes])
    assert decision.count <= free.count or free.action != "scale_down"
    if decision.action == "scale_down":
        total = usable + lost
        limits = [-(-total * int(n[:-1]) // 100) if n.endswith("%") else int(n) for n in nodes]
        assert all(decision.count + lost <= limit for limit in limits)
