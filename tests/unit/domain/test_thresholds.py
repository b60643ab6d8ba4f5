"""The strategy `thresholds`: the check of the pending pods, the size of a step, and what bypasses the cooldown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from node_fleet.domain.model.memory import Memory, Streak
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import NewWorker, PodShape
from node_fleet.domain.scaling.check import Check, DesiredChange
from node_fleet.domain.scaling.signals.pending_pods import LeftPods, PendingPods
from node_fleet.domain.scaling.strategies.thresholds import apply_thresholds
from node_fleet.domain.scaling.tick import make_tick
from tests.support.decisions import START, TICK, snapshot, worker, workers

POLICY = Policy(pending_readings=2)
UNFIT = ((PodShape(cpu_milli=9, memory_mib=9, count=3), "why"),)
SHAPE = PodShape(cpu_milli=1000, memory_mib=9, count=3)


def changed(pending: PendingPods | None, policy: Policy = POLICY, *, readings: int = 0, **seen: Any) -> DesiredChange:
    """After so many earlier readings over every threshold."""
    streak = Streak(since=START - TICK * readings, last=START - TICK, readings=readings)
    memory = Memory(since=dict.fromkeys(("pending", "cpu", "memory"), streak) if readings else {})
    tick = make_tick(snapshot(**seen), memory, policy, START)
    return apply_thresholds(tick, pending, 2)


@pytest.mark.parametrize(
    ("pending", "readings", "expected"),
    [
        (None, 1, {"verdict": "missing", "text": "pending pods missing"}),
        (
            PendingPods(),
            1,
            {"verdict": "down", "text": "pending 0", "value": 0, "threshold": 0, "readings": 0, "needed": 2},
        ),
        (
            PendingPods(waiting=4, left=4, oldest_seconds=95),
            0,
            {
                "verdict": "waiting",
                "text": "pending 4 (unschedulable, oldest 95 s), reading 1 of 2",
                "value": 4,
                "threshold": 0,
                "readings": 1,
                "needed": 2,
            },
        ),
        (
            PendingPods(waiting=4, left=1, oldest_seconds=95, unfit=UNFIT),
            1,
            {
                "verdict": "up",
                "text": "pending 1 (unschedulable, oldest 95 s), 3 more will fit on joining workers"
                " (3 listed, not counted)",
                "value": 1,
                "threshold": 0,
                "readings": 2,
                "needed": 2,
            },
        ),
        (
            PendingPods(waiting=4),
            1,
            {
                "verdict": "hold",
                "text": "pending 4, all will fit on 1 joining worker",
                "value": 0,
                "threshold": 0,
                "readings": 0,
                "needed": 2,
            },
        ),
    ],
    ids=["unknown", "none", "the first reading", "some will fit", "all will fit"],
)
def test_the_check_of_the_pending_pods(pending: PendingPods | None, readings: int, expected: dict[str, Any]) -> None:
    crew = (*workers(3), worker(9, "joining", launched_at=START - 60))
    change = changed(pending, readings=readings, workers=crew)
    assert change.checks[0] == Check(name="pending", setting="pending_readings", **expected)


@pytest.mark.parametrize(
    ("left", "cpu", "step"),
    [(5, 85.0, 1), (6, 50.0, 2), (0, 85.1, 2), (6, None, 2), (1, None, 1), (1, float("nan"), 1)],
)
def test_many_pods_or_a_very_high_cpu_take_the_urgent_step(left: int, cpu: float | None, step: int) -> None:
    assert changed(PendingPods(waiting=left, left=left), readings=1, cpu_percent=cpu).add == step


def test_whatever_adds_workers_they_are_chosen_for_the_pods_that_are_left() -> None:
    left = (LeftPods(key="x", shape=SHAPE, count=3),)
    pending = PendingPods(waiting=5, left=3, left_shapes=left)
    assert changed(pending, readings=1, cpu_percent=50.0).new_workers == (NewWorker(), NewWorker())
    assert changed(pending, readings=0, cpu_percent=50.0).new_workers == ()
    assert changed(PendingPods(), readings=1, cpu_percent=90.0).new_workers == ()


def test_joining_workers_take_their_share_before_the_cpu_is_called_very_high() -> None:
    """Four workers at 90 % are at 72 % with the joining one: over the threshold, and not urgent."""
    crew = (*workers(4), worker(9, "joining", launched_at=START - 60))
    assert changed(PendingPods(), readings=1, cpu_percent=90.0, workers=crew).add == 1
    assert changed(PendingPods(), readings=1, cpu_percent=90.0).add == 2


@pytest.mark.parametrize(
    ("pending_bypasses", "left", "cpu", "rule", "bypasses"),
    [
        (True, 1, 50.0, "pending", True),
        (False, 1, 50.0, "pending", False),
        (True, 0, 75.0, "cpu", False),
        (True, 1, 75.0, "pending", True),
    ],
)
def test_only_pending_pods_bypass_the_cooldown_and_only_when_the_setting_says_so(
    pending_bypasses: bool, left: int, cpu: float, rule: str, bypasses: bool
) -> None:
    policy = replace(POLICY, pending_bypasses_cooldown=pending_bypasses)
    change = changed(PendingPods(waiting=left, left=left), policy, readings=1, cpu_percent=cpu)
    assert (change.rule, change.bypasses_cooldown) == (rule, bypasses)


def test_without_a_signal_the_rule_is_none_and_unknown_pods_ask_for_no_worker() -> None:
    quiet = changed(PendingPods())
    assert (quiet.rule, quiet.add, quiet.remove, quiet.new_workers) == ("none", 0, 0, ())
    by_cpu = changed(None, readings=1, cpu_percent=75.0)
    assert (by_cpu.rule, by_cpu.add, by_cpu.new_workers) == ("cpu", 1, ())
