"""Capacity for a time: when an order holds, what overlaps, and the rule that it becomes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from node_fleet.domain.model.memory import Memory, Streak
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.timed_minimum import TimedMinimum, minimum_in_force, not_ended
from node_fleet.domain.scaling.decision import Decision, decide
from node_fleet.domain.scaling.schedule import parse_schedules
from tests.support.decisions import START, TICK, idle, snapshot, workers

UNTIL = START + 600
SALE = TimedMinimum(name="a1", workers=6, since=START, until=UNTIL, by="ana", reason="a sale")
POLICY = Policy(min_workers=2, max_workers=10)
JUST_SCALED = Memory(last_action="scale_down", last_action_at=START - 60)


def order(name: str, workers: int, since: int, until: int) -> TimedMinimum:
    return replace(SALE, name=name, workers=workers, since=START + since, until=START + until)


@pytest.mark.parametrize(("now", "holds"), [(-1, False), (0, True), (599, True), (600, False)])
def test_an_order_holds_from_its_first_second_to_the_last_before_its_end(now: int, holds: bool) -> None:
    assert (minimum_in_force([SALE], START + now) == SALE) is holds


def test_of_orders_at_the_same_time_the_highest_holds_and_of_equals_the_one_that_ends_last() -> None:
    orders = [order("low", 3, 0, 900), order("high", 8, 100, 200), order("same", 3, 0, 1000)]
    held = [minimum_in_force(orders, START + at) for at in (0, 99, 100, 199, 200, 899, 900, 999, 1000)]
    assert [one.name if one else "" for one in held] == [
        "same", "same", "high", "high", "same", "same", "same", "same", "",
    ]  # fmt: skip


def test_orders_that_have_ended_are_left_out_and_the_others_stand_in_the_order_of_their_begin() -> None:
    later, ended = order("later", 3, 700, 900), order("ended", 3, -900, 0)
    assert not_ended([later, ended, SALE], START) == (SALE, later)
    assert not_ended([later, ended, SALE], START - 1) == (ended, SALE, later)


def decided(
    count: int, timed: TimedMinimum | None = SALE, policy: Policy = POLICY, memory: Memory | None = None
) -> Decision:
    seen = snapshot(START, workers=workers(count), timed_minimum=timed)
    return decide(seen, memory or Memory(), policy, START)


@pytest.mark.parametrize(("have", "added"), [(5, 1), (4, 2), (6, 0)])
def test_the_workers_that_are_missing_are_launched_at_once_whatever_the_cooldown(have: int, added: int) -> None:
    decision = decided(have, memory=JUST_SCALED)
    assert (decision.action, decision.count) == (("scale_up", added) if added else ("none", 0))
    if added:
        assert decision.rule == "timed"
        assert decision.sentence.startswith(
            f"{have} workers, under the minimum of 6 until 2026-09-21 14:24:00 UTC (ordered by ana: a sale) -> +{added}"
        )


def test_without_metrics_the_order_is_enforced_from_the_instances_alone() -> None:
    seen = replace(snapshot(START, workers=workers(4), timed_minimum=SALE), source="none", read_at=0)
    assert (decide(seen, Memory(), POLICY, START).rule, decide(seen, Memory(), POLICY, START).count) == ("timed", 2)


def test_the_order_never_exceeds_the_maximum_of_a_later_deployment() -> None:
    decision = decided(4, policy=replace(POLICY, max_workers=5))
    assert (decision.rule, decision.count) == ("timed", 1)


@pytest.mark.parametrize(
    ("least", "scheduled", "rule"), [(6, 2, "minimum"), (5, 6, "schedule"), (5, 5, "timed"), (5, 7, "schedule")]
)
def test_of_equal_minimums_the_setting_comes_first_then_the_schedule_then_the_order(
    least: int, scheduled: int, rule: str
) -> None:
    windows = parse_schedules(f"Mon-Sun 00:00-24:00: {scheduled}")
    assert decided(3, policy=replace(POLICY, min_workers=least, schedules=windows)).rule == rule


def test_an_order_keeps_idle_workers_and_its_end_lets_them_leave() -> None:
    memory = Memory(since={"idle": Streak(since=START - 3600, last=START - TICK, readings=30)})
    kept = decide(idle(workers=workers(6), timed_minimum=SALE), memory, POLICY, START)
    assert kept.action == "none"
    held = next(check for check in kept.evidence if check.name == "minimum_size")
    assert (held.text, held.setting) == (
        "6 usable workers, not above the effective minimum of 6", "node-fleet scale",
    )  # fmt: skip
    assert decide(idle(workers=workers(6)), memory, POLICY, START).action == "scale_down"
    assert decide(idle(workers=workers(7), timed_minimum=SALE), memory, POLICY, START).action == "scale_down"


def test_the_evidence_names_an_order_also_when_nothing_is_missing() -> None:
    (check,) = (c for c in decided(6).evidence if c.name == "timed")
    assert check.text == "at least 6 workers until 2026-09-21 14:24:00 UTC (ordered by ana: a sale)"
    assert (check.value, check.threshold, check.setting) == (6, 6, "node-fleet scale")
    assert [c.verdict for c in decided(5).evidence if c.name == "timed"] == ["up"]
    assert not any(c.name == "timed" for c in decided(6, None).evidence)
