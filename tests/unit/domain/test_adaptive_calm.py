"""Going down: how long room must have been unneeded, learned from the pauses after which it was needed again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.adaptive_memory import Needed
from node_fleet.domain.calm import (
    FORGET_SECONDS,
    PAUSES,
    STEPS_KEPT,
    choose_rest,
    forgotten,
    learn,
    next_staircase,
    regained,
    still_needed,
    unlearned,
)

MINUTE = 60


def staircase(*steps: tuple[int, int]) -> tuple[Needed, ...]:
    return tuple(Needed(at=at, workers=workers) for at, workers in steps)


def after(pauses: int, *, minutes: int, workers: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """What is known after so many pauses of that length, each of that many workers."""
    counts, times = unlearned(), unlearned()
    for _ in range(pauses):
        counts, times = learn(counts, times, [(minutes * MINUTE, workers)], 0)
    return counts, times


class TestStaircase:
    def test_a_need_that_is_exceeded_says_nothing_any_more(self) -> None:
        assert next_staircase(staircase((0, 5), (60, 3)), 120, 4) == staircase((0, 5), (120, 4))

    def test_the_same_need_again_moves_its_time(self) -> None:
        assert next_staircase(staircase((0, 5), (60, 3)), 120, 3) == staircase((0, 5), (120, 3))

    def test_needs_are_forgotten_after_eight_hours(self) -> None:
        assert next_staircase(staircase((0, 5)), FORGET_SECONDS, 3) == staircase((0, 5), (FORGET_SECONDS, 3))
        assert next_staircase(staircase((0, 5)), FORGET_SECONDS + 1, 3) == staircase((FORGET_SECONDS + 1, 3))
        assert forgotten(staircase((0, 5), (60, 3)), FORGET_SECONDS + 1) == 2

    def test_each_worker_that_is_needed_again_has_its_own_pause(self) -> None:
        assert list(regained(staircase((0, 6), (600, 4), (900, 2)), 1200, 5)) == [(600, 2), (1200, 1)]

    def test_what_was_never_needed_before_is_no_pause(self) -> None:
        assert list(regained(staircase((0, 3), (900, 2)), 1200, 9)) == [(1200, 1)]
        assert list(regained((), 1200, 9)) == []

    @given(st.lists(st.tuples(st.integers(1, 4000), st.integers(0, 60)), max_size=80))
    def test_it_falls_stays_short_and_ends_at_the_present(self, moves: list[tuple[int, int]]) -> None:
        needs: tuple[Needed, ...] = ()
        now = 0
        for seconds, workers in moves:
            now += seconds
            needs = next_staircase(needs, now, workers)
            assert needs[-1] == Needed(at=now, workers=workers)
            assert [n.workers for n in needs] == sorted({n.workers for n in needs}, reverse=True)
            assert len(needs) <= STEPS_KEPT


class TestRest:
    def test_a_fleet_that_never_went_up_again_lets_go_at_once(self) -> None:
        assert choose_rest(unlearned(), unlearned(), change_cost=80).seconds == PAUSES[0] * MINUTE

    def test_one_worker_needed_again_after_half_an_hour_is_held(self) -> None:
        """Holding costs 30 worker-minutes each time, starting anew 80."""
        assert choose_rest(*after(20, minutes=30, workers=1), change_cost=80).seconds == 30 * MINUTE

    def test_four_workers_needed_again_after_half_an_hour_are_started_anew(self) -> None:
        """Holding costs 120 worker-minutes each time, starting anew 80."""
        assert choose_rest(*after(20, minutes=30, workers=4), change_cost=80).seconds == PAUSES[0] * MINUTE

    @pytest.mark.parametrize(("cost", "minutes"), [(55, PAUSES[0]), (58, 30)])
    def test_the_price_of_a_change_decides_between_them(self, cost: float, minutes: int) -> None:
        """Two workers over the 28 minutes beyond the shortest rest are 56 worker-minutes."""
        assert choose_rest(*after(20, minutes=30, workers=2), change_cost=cost).seconds == minutes * MINUTE

    def test_workers_that_were_never_needed_again_shorten_the_rest(self) -> None:
        workers, times = after(3, minutes=20, workers=1)
        assert choose_rest(workers, times, change_cost=80).seconds == 20 * MINUTE
        workers, times = learn(workers, times, [], 40)
        assert choose_rest(workers, times, change_cost=80).seconds == PAUSES[0] * MINUTE

    def test_a_pause_shorter_than_any_rest_teaches_nothing(self) -> None:
        assert learn(unlearned(), unlearned(), [(PAUSES[0] * MINUTE, 3)], 0) == (unlearned(), unlearned())

    def test_a_pause_longer_than_any_rest_teaches_nothing(self) -> None:
        assert learn(unlearned(), unlearned(), [(PAUSES[-1] * MINUTE + 1, 3)], 0) == (unlearned(), unlearned())

    def test_old_pauses_fade_as_new_ones_come(self) -> None:
        workers, times = after(200, minutes=30, workers=1)
        for _ in range(200):
            workers, times = learn(workers, times, [(30 * MINUTE, 4)], 0)
        assert choose_rest(workers, times, change_cost=80).seconds == PAUSES[0] * MINUTE

    @given(st.integers(1, 30), st.integers(1, 480), st.integers(1, 9), st.floats(0, 500), st.floats(1, 3))
    def test_a_dearer_change_never_shortens_the_rest(
        self, pauses: int, minutes: int, workers: int, cost: float, factor: float
    ) -> None:
        known = after(pauses, minutes=minutes, workers=workers)
        cheap, dear = choose_rest(*known, change_cost=cost), choose_rest(*known, change_cost=cost * factor)
        assert cheap.seconds <= dear.seconds


@pytest.mark.parametrize(("rest", "expected"), [(600, 2), (601, 4), (1201, 6)])
def test_what_was_needed_within_the_rest_is_still_needed(rest: int, expected: int) -> None:
    assert still_needed(staircase((0, 6), (600, 4), (1200, 2)), 1200, rest) == expected
