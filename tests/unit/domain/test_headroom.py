"""Headroom as an economic choice: the rises that are learned, and the number of workers that are worth their price."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.model.memory import OpenRise
from node_fleet.domain.scaling.strategies.adaptive.headroom import (
    PACES,
    RISES,
    choose_workers,
    close_rises,
    initial_counts,
    pace,
    unit,
)

STEADY, LEAPING = 1, len(PACES)


def counts_of(row: int, **by_rise: float) -> tuple[float, ...]:
    """Counts of one pace: rises are named r0, r1 ... by their place in RISES."""
    counts = list(initial_counts())
    for name, count in by_rise.items():
        counts[row * len(RISES) + int(name[1:])] = count
    return tuple(counts)


def chosen(rises: tuple[float, ...], demand: float, *, pace_now: int = STEADY, wait_cost: float = 2.0) -> int:
    return choose_workers(rises, pace_now, demand, wait_cost=wait_cost, pods_per_worker=7, most=10).workers


@pytest.mark.parametrize(
    ("change", "seconds", "expected"),
    [
        (-0.31, 120, 0),
        (-0.3, 120, 0),
        (-0.29, 120, 1),
        (0.15, 120, 1),
        (0.16, 120, 2),
        (0.5, 120, 2),
        (0.51, 120, 3),
        (1.5, 120, 3),
        (1.51, 120, 4),
        (0.5, 60, 3),
    ],
)
def test_the_pace_is_the_change_in_two_minutes(change: float, seconds: int, expected: int) -> None:
    assert pace(change, seconds) == expected


def test_no_headroom_is_held_where_demand_never_rises() -> None:
    assert chosen(counts_of(STEADY, r0=1000), 3.0) == 3


def test_a_full_fleet_holds_one_more_where_a_tenth_of_the_readings_rise_by_a_worker() -> None:
    """0.1 workers of 7 pods are missing, at 2 worker-minutes each 1.4 a minute: more than the 1 it costs."""
    assert chosen(counts_of(STEADY, r0=900, r5=100), 3.0) == 4
    assert chosen(counts_of(STEADY, r0=950, r5=50), 3.0) == 3


def test_capacity_that_is_there_anyway_counts_as_headroom() -> None:
    assert chosen(counts_of(STEADY, r0=900, r3=100), 2.4) == 3


def test_a_start_must_save_three_times_its_price() -> None:
    choice = choose_workers(counts_of(STEADY, r0=900, r5=100), STEADY, 3.0, wait_cost=2.0, pods_per_worker=7, most=10)
    assert (choice.start, choice.workers) == (3, 4)


def test_a_free_wait_holds_nothing_and_a_dear_one_holds_the_highest_rise() -> None:
    rises = counts_of(STEADY, r0=995, r8=5)
    assert chosen(rises, 3.0, wait_cost=0.0) == 3
    assert chosen(rises, 3.0, wait_cost=1000.0) == 6


def test_never_more_than_the_most() -> None:
    assert chosen(counts_of(LEAPING, r13=1000), 9.5, pace_now=LEAPING, wait_cost=1000.0) == 10


def test_a_fleet_that_leaps_expects_more_before_anything_was_learned() -> None:
    assert chosen(initial_counts(), 3.0, pace_now=LEAPING) > chosen(initial_counts(), 3.0)


def test_a_rise_is_shared_between_the_sizes_it_lies_between() -> None:
    opened = (OpenRise(at=0, demand=2.0, highest=2.0, pace=STEADY),)
    rises, going = close_rises(initial_counts(), opened, 210, 2.4, horizon_seconds=210, keep=0.5)
    row = rises[STEADY * len(RISES) : (STEADY + 1) * len(RISES)]
    assert row[2] == pytest.approx(0.5) and row[3] == pytest.approx(0.5) and sum(row) == pytest.approx(1.0)
    assert going == ()


def test_a_rise_stays_open_until_the_horizon_and_remembers_its_highest() -> None:
    opened = (OpenRise(at=0, demand=2.0, highest=2.0, pace=STEADY),)
    rises, going = close_rises(initial_counts(), opened, 120, 3.0, horizon_seconds=210, keep=1.0)
    assert rises == initial_counts() and going[0].highest == 3.0
    rises, going = close_rises(rises, going, 240, 2.0, horizon_seconds=210, keep=1.0)
    assert rises[STEADY * len(RISES) + 5] == pytest.approx(1.0) and going == ()


def test_what_comes_after_a_long_silence_is_not_counted() -> None:
    opened = (OpenRise(at=0, demand=2.0, highest=2.0, pace=STEADY),)
    assert close_rises(initial_counts(), opened, 5000, 9.0, horizon_seconds=210, keep=1.0) == (initial_counts(), ())


def test_old_counts_fade() -> None:
    rises, _ = close_rises(counts_of(STEADY, r0=8), (), 0, 1.0, horizon_seconds=210, keep=0.5)
    assert rises[STEADY * len(RISES)] == 4


def test_rises_of_a_large_fleet_are_measured_against_its_size() -> None:
    assert [unit(demand) for demand in (0.5, 10, 200)] == [1.0, 1.0, 20.0]


@given(
    st.lists(st.floats(0, 500), min_size=len(initial_counts()), max_size=len(initial_counts())),
    st.floats(0, 12),
    st.integers(1, len(PACES)),
    st.floats(0, 50),
)
def test_the_choice_holds_demand_and_grows_with_pace_and_price(
    counts: list[float], demand: float, pace_now: int, price: float
) -> None:
    rises = tuple(counts)
    workers = chosen(rises, demand, pace_now=pace_now, wait_cost=price)
    assert workers >= demand - 1e-6
    assert workers >= chosen(rises, demand, pace_now=pace_now - 1, wait_cost=price) or pace_now == 1
    assert workers <= chosen(rises, demand, pace_now=pace_now, wait_cost=price * 2)
