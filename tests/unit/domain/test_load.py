"""The checks of CPU and memory: each verdict at its exact threshold, and what the check states beside it."""

from __future__ import annotations

from typing import Any

import pytest

from node_fleet.domain.model.memory import Memory, Streak
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.scaling.check import Check
from node_fleet.domain.scaling.decision import decide
from node_fleet.domain.scaling.signals.load import evaluate_load
from node_fleet.domain.scaling.tick import make_tick
from tests.support.decisions import START, TICK, snapshot, worker, workers

POLICY = Policy(
    cpu_up_percent=70, cpu_down_percent=30, cpu_readings=2, memory_up_percent=80, memory_down_percent=40,
    memory_readings=3,
)  # fmt: skip


def checks(*, before: int = 0, every: int = TICK, **seen: Any) -> list[Check]:
    """The checks after so many earlier readings over the high threshold, so many seconds apart."""
    streak = Streak(since=START - every * before, last=START - every, readings=before)
    memory = Memory(since={"cpu": streak, "memory": streak} if before else {})
    return evaluate_load(make_tick(snapshot(**seen), memory, POLICY, START), {})


@pytest.mark.parametrize(
    ("cpu", "before", "verdict", "text", "low", "readings"),
    [
        (None, 0, "missing", "CPU missing", False, 0),
        (float("nan"), 0, "missing", "CPU missing", False, 0),
        (29.9, 1, "down", "CPU 29.9 % under 30 %", True, 0),
        (30.0, 1, "ok", "CPU 30.0 % under 70 %", False, 0),
        (70.0, 1, "ok", "CPU 70.0 % at 70 %", False, 0),
        (70.1, 0, "waiting", "CPU 70.1 % over 70 %, reading 1 of 2", False, 1),
        (70.1, 1, "up", "CPU 70.1 % over 70 % for 2 readings", False, 2),
    ],
)
def test_cpu_is_compared_with_its_thresholds(
    *, cpu: float | None, before: int, verdict: Any, text: str, low: bool, readings: int
) -> None:
    found = checks(before=before, cpu_percent=cpu)[0]
    value = cpu if verdict != "missing" else None
    assert found == Check(
        name="cpu", verdict=verdict, text=text, value=value, threshold=30 if low else 70, readings=readings, needed=2,
        setting="cpu_down_percent" if low else "cpu_up_percent",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("memory", "before", "verdict", "threshold", "setting"),
    [
        (39.9, 0, "down", 40, "memory_down_percent"),
        (40.0, 0, "ok", 80, "memory_up_percent"),
        (80.1, 1, "waiting", 80, "memory_up_percent"),
        (80.1, 2, "up", 80, "memory_up_percent"),
    ],
)
def test_memory_has_thresholds_and_readings_of_its_own(
    memory: float, before: int, verdict: str, threshold: int, setting: str
) -> None:
    found = checks(before=before, memory_percent=memory)[1]
    assert (found.name, found.verdict, found.threshold, found.needed) == ("memory", verdict, threshold, 3)
    assert found.setting == setting


def test_readings_that_follow_each_other_too_quickly_wait() -> None:
    found = checks(before=1, every=60, cpu_percent=90.0)[0]
    assert (found.verdict, found.text) == ("waiting", "CPU 90.0 % over 70 % for 2 readings, not long enough yet")


@pytest.mark.parametrize(("joining", "verdict"), [(0, "up"), (1, "up"), (2, "hold")])
def test_the_share_that_joining_workers_will_take_is_counted(joining: int, verdict: str) -> None:
    """Of 93 % on four workers, five carry 74.4 % and six 62 %."""
    coming = tuple(worker(f"j{n}", "joining", launched_at=START - 60) for n in range(joining))
    found = checks(before=1, cpu_percent=93.0, workers=(*workers(4), *coming))[0]
    assert found.verdict == verdict
    assert (found.text == "CPU 93.0 % over 70 %, but 62.0 % with 2 joining workers") is (verdict == "hold")


@pytest.mark.parametrize(("cpu", "verdict"), [(87.5, "hold"), (87.6, "up")])
def test_a_load_that_will_be_at_the_threshold_once_workers_have_joined_asks_for_no_more(
    cpu: float, verdict: str
) -> None:
    """87.5 % of four workers are 70 % of five."""
    coming = worker("j1", "joining", launched_at=START - 60)
    assert checks(before=1, cpu_percent=cpu, workers=(*workers(4), coming))[0].verdict == verdict


def test_memory_is_not_looked_at_where_it_is_not_used() -> None:
    decision = decide(snapshot(memory_percent=99.0), Memory(), Policy(use_memory=False), START)
    assert [check.name for check in decision.evidence if check.name == "memory"] == []
