"""Headroom as an economic choice: the rises that are learned, and the number of workers that are worth their price."""

from __future__ import annotations

from dataclasses import replace

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

FALLING, STEADY, RISING, FAST, LEAPING = range(len(PACES) + 1)

RISES_OF_THE_STATE_ITEM = (0.0, 0.15, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)


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
        (0.6, 30, 3),
        (0.6, 80, 3),
    ],
)
def test_the_pace_is_the_change_in_two_minutes(change: float, seconds: int, expected: int) -> None:
    assert pace(change, seconds) == expected


def test_a_reading_has_one_row_of_counts_for_each_pace() -> None:
    assert initial_counts() == (0.0,) * 14 * 5


def test_no_headroom_is_held_where_demand_never_rises() -> None:
    assert chosen(counts_of(STEADY, r0=1000), 3.0) == 3


def test_a_full_fleet_holds_one_more_where_a_tenth_of_the_readings_rise_by_a_worker() -> None:
    """0.1 workers of 7 pods are missing, at 2 worker-minutes each 1.4 a minute: more than the 1 it costs."""
    assert chosen(counts_of(STEADY, r0=900, r5=100), 3.0) == 4
    assert chosen(counts_of(STEADY, r0=950, r5=50), 3.0) == 3


def test_capacity_that_is_there_anyway_counts_as_headroom() -> None:
    assert chosen(counts_of(STEADY, r0=900, r3=100), 2.4) == 3


def test_a_start_must_save_more_than_its_price_times_the_start_price() -> None:
    choice = choose_workers(counts_of(STEADY, r0=900, r5=100), STEADY, 3.0, wait_cost=2.0, pods_per_worker=7, most=10)
    assert (choice.start(4.5), choice.start(1.2), choice.workers) == (3, 4, 4)


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


@pytest.mark.parametrize(
    ("pace_now", "rise"), [(FALLING, 0.1), (STEADY, 0.1), (RISING, 0.4), (FAST, 1.2), (LEAPING, 2.4)]
)
def test_before_anything_was_learned_each_pace_expects_its_mean_rise(pace_now: int, rise: float) -> None:
    """A fleet of the largest size holds no headroom, so the whole rise waits."""
    choice = choose_workers(initial_counts(), pace_now, 3.0, wait_cost=2.0, pods_per_worker=7, most=3)
    assert choice.waiting == pytest.approx(2.0 * 7 * rise)


@pytest.mark.parametrize(("place", "rise"), list(enumerate(RISES_OF_THE_STATE_ITEM)))
def test_a_stored_count_keeps_its_size_of_rise(place: int, rise: float) -> None:
    """The state item holds counts by place: another table would give them another meaning."""
    counts = counts_of(FALLING, **{f"r{place}": 1e9})
    choice = choose_workers(counts, FALLING, 3.0, wait_cost=1.0, pods_per_worker=1, most=3)
    assert choice.waiting == pytest.approx(rise, abs=1e-6)
    assert len(RISES) == len(RISES_OF_THE_STATE_ITEM)


def test_falling_demand_is_judged_by_its_own_rises_and_a_faster_pace_by_the_slower_ones_too() -> None:
    falling, steady = counts_of(FALLING, r6=1e9), counts_of(STEADY, r6=1e9)
    waiting = [
        choose_workers(rises, pace_now, 3.0, wait_cost=1.0, pods_per_worker=1, most=3).waiting
        for rises in (falling, steady)
        for pace_now in (FALLING, STEADY, RISING)
    ]
    assert waiting == pytest.approx([1.5, 0.1, 0.4, 0.1, 1.5, 1.5], abs=1e-6)


@pytest.mark.parametrize(
    ("price", "start", "workers"), [(4.0, 3, 3), (4.01, 3, 4), (18.0, 3, 4), (18.01, 4, 4)], ids=str
)
def test_a_worker_is_held_from_above_its_price_and_started_from_above_its_start_price(
    price: float, start: int, workers: int
) -> None:
    """Half of the readings rise by half a worker, and a quarter of a worker is missing on average."""
    rises = tuple(a + b for a, b in zip(counts_of(STEADY, r3=3), counts_of(RISING, r0=9), strict=True))
    choice = choose_workers(rises, STEADY, 3.0, wait_cost=price, pods_per_worker=1, most=10)
    assert (choice.start(4.5), choice.workers, choice.headroom) == (start, workers, workers - 3.0)
    saved = price * 0.25 if workers == 3 else 0.0
    assert (choice.waiting, choice.saved_by_next, choice.samples) == (saved, saved, 3)


@pytest.mark.parametrize(("demand", "workers"), [(3.0, 3), (3.0000001, 3), (3.1, 4), (0.0, 0), (-0.5, 0)])
def test_the_demand_is_held_in_whole_workers_and_an_error_of_rounding_is_none(demand: float, workers: int) -> None:
    choice = choose_workers(initial_counts(), STEADY, demand, wait_cost=0.0, pods_per_worker=7, most=10)
    assert (choice.start(4.5), choice.workers) == (workers, workers)


def test_the_rises_of_a_large_fleet_are_tenths_of_it() -> None:
    choice = choose_workers(counts_of(STEADY, r5=5), STEADY, 40.0, wait_cost=1.0, pods_per_worker=1, most=40)
    assert choice.waiting == pytest.approx(0.5 * 4 + 0.1 * 2)
    assert choice.saved_by_next == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("age", "counted", "is_open"),
    [(179, None, True), (180, 5, False), (270, 5, False), (271, 3, False), (630, 3, False), (631, None, False)],
)
def test_a_rise_is_counted_at_its_horizon_with_the_demand_until_then(
    age: int, counted: int | None, is_open: bool
) -> None:
    """The demand rises from 2.0 to 2.5, and to 3.0 at the reading; one that comes late is not of this horizon."""
    opened = (OpenRise(at=1000, demand=2.0, highest=2.5, pace=FAST),)
    counts, still_open = close_rises(initial_counts(), opened, 1000 + age, 3.0, horizon_seconds=210, keep=1.0)
    expected = initial_counts() if counted is None else counts_of(FAST, **{f"r{counted}": 1})
    assert counts == pytest.approx(expected)
    assert still_open == ((replace(opened[0], highest=3.0),) if is_open else ())


@pytest.mark.parametrize(
    ("rise", "shares"),
    [
        (-1.0, {"r0": 1}),
        (0.0, {"r0": 1}),
        (0.15, {"r1": 1}),
        (2.5, {"r7": 0.5, "r8": 0.5}),
        (15.0, {"r12": 0.25, "r13": 0.75}),
        (16.0, {"r13": 1}),
        (99.0, {"r13": 1}),
    ],
)
def test_a_rise_is_counted_at_the_sizes_around_it(rise: float, shares: dict[str, float]) -> None:
    opened = (OpenRise(at=0, demand=2.0, highest=1.0, pace=RISING),)
    counts, _ = close_rises(counts_of(RISING), opened, 210, 2.0 + rise, horizon_seconds=210, keep=1.0)
    assert counts == pytest.approx(counts_of(RISING, **shares))


def test_a_rise_of_a_large_fleet_is_counted_in_tenths_of_it() -> None:
    opened = (OpenRise(at=0, demand=40.0, highest=40.0, pace=RISING),)
    counts, _ = close_rises(initial_counts(), opened, 210, 46.0, horizon_seconds=210, keep=1.0)
    assert counts == pytest.approx(counts_of(RISING, r6=1))
