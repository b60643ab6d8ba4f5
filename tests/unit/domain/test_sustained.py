"""Runs of readings: so many readings and so many seconds, broken by a gap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.model.memory import Streak
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.scaling.signals.sustained import advance, is_sustained, needed_seconds

POLICY = Policy()
GAP = POLICY.reading_gap_seconds


def run(times: list[int], holds: list[bool | None]) -> Streak | None:
    streak = None
    for at, one in zip(times, holds, strict=True):
        streak = advance(streak, holds=one, at=at, gap_seconds=GAP)
    return streak


@pytest.mark.parametrize(("readings", "seconds"), [(1, 0), (2, 90), (3, 210), (10, 1050)])
def test_so_many_readings_must_span_their_ticks_but_for_the_jitter(readings: int, seconds: int) -> None:
    assert needed_seconds(readings, POLICY) == seconds


def test_a_reading_that_cannot_say_changes_nothing() -> None:
    assert run([0, 120, 240], [True, None, True]) == Streak(since=0, last=240, readings=2)


def test_a_gap_ends_a_run_even_if_the_next_reading_cannot_say() -> None:
    assert run([0, GAP + 1], [True, None]) is None


@given(st.lists(st.tuples(st.integers(1, 700), st.sampled_from([True, True, False, None])), max_size=30))
def test_a_run_counts_exactly_the_readings_since_it_was_last_broken(steps: list[tuple[int, bool | None]]) -> None:
    at, expected = 0, []
    times, holds = [], []
    for wait, one in steps:
        at += wait
        times.append(at)
        holds.append(one)
        if expected and at - expected[-1] > GAP:
            expected = []
        if one:
            expected.append(at)
        elif one is False:
            expected = []
    streak = run(times, holds)
    assert (streak.readings if streak else 0) == len(expected)
    if streak and expected:
        assert (streak.since, streak.last) == (expected[0], expected[-1])
        assert is_sustained(streak, 2, POLICY) == (len(expected) >= 2 and expected[-1] - expected[0] >= 90)
