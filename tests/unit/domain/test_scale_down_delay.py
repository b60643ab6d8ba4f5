"""The scale-down delay: the one that would have cost least on the needs that the fleet met."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.model.memory import WorkerNeed
from node_fleet.domain.scaling.strategies.adaptive.scale_down_delay import (
    DELAY_MINUTES,
    FORGET_SECONDS,
    STEPS_KEPT,
    advance_trials,
    choose_delay,
    initial_trials,
    recently_needed,
    update_needs,
)
from tests.support.scale_down_days import after, met

MINUTE = 60


def staircase(*steps: tuple[int, int]) -> tuple[WorkerNeed, ...]:
    return tuple(WorkerNeed(at=at, workers=workers) for at, workers in steps)


def test_the_state_item_holds_a_trial_for_each_of_these_delays() -> None:
    """Stored trials are read by place: another table would give them another meaning."""
    assert DELAY_MINUTES == (2, 4, 6, 8, 12, 16, 20, 30, 45, 60, 90, 120, 180, 240, 360, 480)
    nothing = initial_trials()
    assert (nothing.workers, nothing.moved, nothing.held, nothing.turns) == ((0,) * 16,) * 4


class TestStaircase:
    def test_a_need_that_is_exceeded_says_nothing_any_more(self) -> None:
        assert update_needs(staircase((0, 5), (60, 3)), 120, 4) == staircase((0, 5), (120, 4))

    def test_the_same_need_again_moves_its_time(self) -> None:
        assert update_needs(staircase((0, 5), (60, 3)), 120, 3) == staircase((0, 5), (120, 3))

    def test_needs_are_forgotten_after_eight_hours(self) -> None:
        assert update_needs(staircase((0, 5)), FORGET_SECONDS, 3) == staircase((0, 5), (FORGET_SECONDS, 3))
        assert update_needs(staircase((0, 5)), FORGET_SECONDS + 1, 3) == staircase((FORGET_SECONDS + 1, 3))

    @given(st.lists(st.tuples(st.integers(1, 4000), st.integers(0, 60)), max_size=80))
    def test_it_falls_stays_short_and_ends_at_the_present(self, moves: list[tuple[int, int]]) -> None:
        needs: tuple[WorkerNeed, ...] = ()
        now = 0
        for seconds, workers in moves:
            now += seconds
            needs = update_needs(needs, now, workers)
            assert needs[-1] == WorkerNeed(at=now, workers=workers)
            assert [n.workers for n in needs] == sorted({n.workers for n in needs}, reverse=True)
            assert len(needs) <= STEPS_KEPT

    def test_the_lowest_24_needs_are_kept(self) -> None:
        needs = update_needs(staircase(*((at, 60 - at) for at in range(30))), 30, 20)
        assert [n.workers for n in needs] == [*range(53, 30, -1), 20]


class TestRest:
    def test_a_fleet_that_never_went_up_again_removes_workers_at_once(self) -> None:
        assert choose_delay(initial_trials(), change_cost=100).seconds == DELAY_MINUTES[0] * MINUTE
        assert choose_delay(after(1, minutes=480, workers=1), change_cost=100).seconds == DELAY_MINUTES[0] * MINUTE

    def test_one_worker_needed_again_after_half_an_hour_is_held(self) -> None:
        """Holding costs 30 worker-minutes each time, going and coming back two changes."""
        assert choose_delay(after(20, minutes=30, workers=1), change_cost=100).seconds == 30 * MINUTE

    def test_eight_workers_needed_again_after_half_an_hour_are_started_anew(self) -> None:
        """Holding costs 240 worker-minutes each time, going and coming back two changes."""
        assert choose_delay(after(20, minutes=30, workers=8), change_cost=100).seconds == DELAY_MINUTES[0] * MINUTE

    @pytest.mark.parametrize(("cost", "minutes"), [(52, DELAY_MINUTES[0]), (60, 30)])
    def test_the_price_of_a_change_decides_between_them(self, cost: float, minutes: int) -> None:
        """Four workers held 26 minutes longer than by the shortest delay are 104 worker-minutes for two changes."""
        assert choose_delay(after(20, minutes=30, workers=4), change_cost=cost).seconds == minutes * MINUTE

    def test_the_cost_is_reported(self) -> None:
        """Four pauses are eight ways, of which the first is no change yet; a pause of 30 minutes has 14 readings."""
        delay = choose_delay(after(4, minutes=30, workers=1), change_cost=100)
        assert (delay.holding, delay.changing, delay.shortest) == (4 * 28, 0, 4 * 2 + 7 * 100)

    def test_old_pauses_fade_as_new_ones_come(self) -> None:
        known = after(100, minutes=30, workers=1, keep=0.99)
        assert choose_delay(known, change_cost=100).seconds == 30 * MINUTE
        known = after(100, minutes=30, workers=8, keep=0.99, tried=known)
        assert choose_delay(known, change_cost=100).seconds == DELAY_MINUTES[0] * MINUTE

    def test_a_gap_between_readings_counts_for_little(self) -> None:
        tried = advance_trials(initial_trials(), staircase((0, 3)), 0, start=3, hold=3, minutes=0, keep=1.0)
        tried = advance_trials(tried, staircase((0, 3), (120, 2)), 86400, start=2, hold=2, minutes=1440, keep=1.0)
        assert set(tried.held) == {10.0}

    def test_headroom_that_would_not_be_started_is_no_change_of_direction(self) -> None:
        """It is held while it is worth its price, and not started again after its removal."""
        tried, needs = initial_trials(), staircase()
        for at, hold in enumerate((3, 2, 3, 2, 3)):
            needs = update_needs(needs, at * 600, hold)
            tried = advance_trials(tried, needs, at * 600, start=2, hold=hold, minutes=10, keep=1.0)
        assert set(tried.turns) == {0.0} and set(tried.workers) == {2}

    @given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 9)), max_size=60), st.floats(0, 500), st.floats(1, 3))
    def test_a_dearer_change_never_shortens_the_rest(
        self, moves: list[tuple[int, int]], cost: float, factor: float
    ) -> None:
        known = met(moves)
        cheap, dear = choose_delay(known, change_cost=cost), choose_delay(known, change_cost=cost * factor)
        assert cheap.seconds <= dear.seconds

    @given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 9)), min_size=1, max_size=60))
    def test_a_longer_rest_holds_no_less_and_never_too_little(self, moves: list[tuple[int, int]]) -> None:
        known = met(moves)
        assert list(known.held) == sorted(known.held)
        assert list(known.workers) == sorted(known.workers)
        assert min(known.workers) >= moves[-1][1]


@pytest.mark.parametrize(("delay", "expected"), [(600, 2), (601, 4), (1201, 6)])
def test_what_was_needed_within_the_delay_is_still_needed(delay: int, expected: int) -> None:
    assert recently_needed(staircase((0, 6), (600, 4), (1200, 2)), 1200, delay) == expected


@pytest.mark.parametrize(("age", "after"), [(119, (5, 5)), (120, (2, 5)), (239, (2, 5)), (240, (2, 2))])
def test_a_trial_holds_what_was_needed_within_its_delay_and_not_at_its_end(age: int, after: tuple[int, int]) -> None:
    first = advance_trials(initial_trials(), staircase((0, 5)), 0, start=5, hold=5, minutes=0, keep=1.0)
    assert first.moved == (0,) * 16, "the first size is no change"
    tried = advance_trials(first, staircase((0, 5), (age, 2)), age, start=2, hold=2, minutes=2, keep=0.5)
    assert tried.workers[:2] == after
    assert tried.moved[:2] == tuple(0 if workers == 5 else -1 for workers in after)
    assert tried.held == (3 * 2,) * 16, "the reading before was held, whatever is removed at this one"
    again = advance_trials(tried, staircase((age, 5)), age, start=5, hold=5, minutes=0, keep=0.5)
    assert again.turns[:2] == tuple(0 if workers == 5 else 1 for workers in after)
    assert again.held == (3,) * 16
    assert again.moved[:2] == tuple(0 if workers == 5 else 1 for workers in after)
    more = advance_trials(again, staircase((age, 6)), age, start=6, hold=6, minutes=0, keep=0.5)
    assert more.turns[:2] == tuple(0 if workers == 5 else 0.5 for workers in after)
    assert set(more.moved) == {1} and set(more.workers) == {6}


@pytest.mark.parametrize(("hold", "workers"), [(3, 3), (4, 4), (5, 4)])
def test_a_trial_holds_at_most_what_it_had(hold: int, workers: int) -> None:
    had = advance_trials(initial_trials(), staircase((0, 4)), 0, start=4, hold=4, minutes=0, keep=1.0)
    tried = advance_trials(had, staircase((9999, 2)), 9999, start=2, hold=hold, minutes=0, keep=1.0)
    assert tried.workers == (workers,) * 16
