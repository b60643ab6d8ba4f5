"""The plan in force: the one that would have cost least on the needs that the fleet met."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.model.memory import PlanTrials, WorkerNeed
from node_fleet.domain.scaling.strategies.adaptive.trials import (
    DELAY_MINUTES,
    FORGET_SECONDS,
    GAP_MINUTES,
    HIGHEST_WEIGHT,
    PLANS,
    STEPS_KEPT,
    Plan,
    PlanChoice,
    advance_trials,
    choose_plan,
    initial_trials,
    update_needs,
)
from tests.support.plan_days import WAIT_POD_MINUTES, after, met, seen

MINUTE = 60
ONE_PRICE = range(len(DELAY_MINUTES) * 2)
"""The places of the plans with the first start price."""


def staircase(*steps: tuple[int, int]) -> tuple[WorkerNeed, ...]:
    return tuple(WorkerNeed(at=at, workers=workers) for at, workers in steps)


def chosen(tried: PlanTrials, *, change: float = 100.0, wait: float = 0.0) -> PlanChoice:
    """The plan where a change of direction costs so many worker-minutes."""
    mean = tried.demand / tried.readings if tried.readings else 1.0
    return choose_plan(tried, wait_cost=wait, change_cost=change / mean)


def test_the_state_item_holds_a_trial_for_each_of_these_plans() -> None:
    """Stored trials are read by place: another table would give them another meaning."""
    assert [(p.start_price, p.delay_seconds // 60, p.share) for p in PLANS] == [
        (price, minutes, share)
        for price in (4.5, 1.2, math.inf)
        for minutes in (2, 6, 12, 20, 45, 90, 180, 360)
        for share in (1.0, 0.5)
    ]
    nothing = initial_trials()
    rows = (nothing.workers, nothing.moved, nothing.held, nothing.waited, nothing.turns)
    assert rows == ((0,) * 48,) * 5 and nothing.before == ()


def test_a_fleet_that_may_be_empty_is_tried_like_one_with_a_worker_more() -> None:
    """Its trials keep what they hold while the first one has no worker, and pods that find none have waited."""
    empty, one_more = (met([(2, least + 2), (22, least)] * 20) for least in (0, 1))
    assert empty.workers == tuple(workers - 1 for workers in one_more.workers)
    assert (empty.held, empty.waited, empty.turns) == (one_more.held, one_more.waited, one_more.turns)
    assert chosen(empty, wait=4).plan.delay_seconds == 45 * MINUTE


def test_after_the_maximum_is_lowered_no_trial_holds_more_and_no_change_of_direction_is_counted() -> None:
    needs = staircase((0, 9))
    nine = advance_trials(initial_trials(), needs, 0, seen(9), keep=1.0)
    four = advance_trials(nine, needs, 120, replace(seen(4), most=4), keep=1.0)
    assert {*nine.workers} == {9} and {*four.workers} == {4}
    assert {*four.held} == {*four.turns} == {0}


@pytest.mark.parametrize(("demand", "waited"), [(0.4, 0), (0.5, 0), (0.75, round(25 * WAIT_POD_MINUTES))])
def test_the_workers_of_the_minimum_serve_also_where_they_are_no_whole_one(demand: float, waited: int) -> None:
    """Their capacity is half a worker of the type that a launch creates."""
    half = replace(seen(0, demand=demand), least=0.5)
    empty = advance_trials(initial_trials(), staircase((0, 0)), 0, replace(half, demand=0.0), keep=1.0)
    found = advance_trials(empty, staircase((0, 0)), 120, half, keep=1.0)
    assert {*empty.workers} == {0} and {*found.waited} == {waited}
    assert found.demand == 0.5 + max(0.5, demand)


class TestStaircase:
    def test_a_need_that_is_exceeded_says_nothing_any_more(self) -> None:
        assert update_needs(staircase((0, 5), (60, 3)), 120, 4) == staircase((0, 5), (120, 4))

    def test_the_same_need_again_moves_its_time(self) -> None:
        assert update_needs(staircase((0, 5), (60, 3)), 120, 3) == staircase((0, 5), (120, 3))

    def test_needs_are_forgotten_after_the_longest_delay(self) -> None:
        assert update_needs(staircase((0, 5)), FORGET_SECONDS, 3) == staircase((0, 5), (FORGET_SECONDS, 3))
        assert update_needs(staircase((0, 5)), FORGET_SECONDS + 1, 3) == staircase((FORGET_SECONDS + 1, 3))

    def test_time_without_a_reading_makes_no_need_older(self) -> None:
        """Ten minutes between two readings count."""
        assert update_needs(staircase((0, 5)), 660, 3, 60) == staircase((0, 5), (660, 3))
        assert update_needs(staircase((0, 5)), 86_400, 3, 60) == staircase((86_400 - 660, 5), (86_400, 3))

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


class TestKept:
    @pytest.mark.parametrize(
        ("delay", "share", "expected"),
        [(0, 1.0, 2), (1, 1.0, 4), (2, 1.0, 7), (1, 0.5, 3), (2, 0.5, 5), (7, 1.0, 7)],
        ids=["shorter than 6 minutes", "6 minutes", "12 minutes", "half of 2", "half of 5, rounded up", "longest"],
    )
    def test_a_plan_keeps_its_share_of_what_was_needed_within_its_delay(
        self, delay: int, share: float, expected: int
    ) -> None:
        needs = staircase((0, 7), (360, 4), (719, 2))
        assert Plan(start=0, delay=delay, share=share).kept(needs, 719, 2) == expected

    @pytest.mark.parametrize(("delay", "expected"), [(2, 2), (3, 7)])
    def test_at_the_end_of_the_delay_a_need_is_over(self, delay: int, expected: int) -> None:
        needs = staircase((0, 7), (720, 2))
        assert Plan(start=0, delay=delay, share=1.0).kept(needs, 720, 2) == expected

    @given(
        st.lists(st.tuples(st.integers(1, 4000), st.integers(0, 60)), min_size=1, max_size=40),
        st.sampled_from(PLANS),
    )
    def test_a_trial_of_a_large_fleet_keeps_what_its_plan_keeps(self, moves: list[tuple[int, int]], plan: Plan) -> None:
        needs, now = staircase(), 0
        for seconds, workers in moves:
            now += seconds
            needs = update_needs(needs, now, workers)
        hold = needs[-1].workers
        tried = replace(initial_trials(), workers=(99,) * len(PLANS))
        found = advance_trials(tried, needs, now, seen(hold), keep=1.0)
        assert found.workers[PLANS.index(plan)] == plan.kept(needs, now, hold) >= hold


class TestChoice:
    def test_a_fleet_that_never_went_up_again_removes_workers_at_once(self) -> None:
        assert choose_plan(initial_trials(), wait_cost=2, change_cost=25).plan == PLANS[0]
        assert chosen(after(1, minutes=480, workers=1)).plan == PLANS[0]

    def test_one_worker_needed_again_after_twenty_minutes_is_held(self) -> None:
        """Holding costs 18 worker-minutes each time, going and coming back two changes."""
        found = chosen(after(20, minutes=20, workers=1)).plan
        assert (found.delay_seconds, found.share) == (20 * MINUTE, 1.0)

    def test_eight_workers_needed_again_after_twenty_minutes_are_started_anew(self) -> None:
        """Holding costs 152 worker-minutes each time, and half of them 80 beside the two changes."""
        assert chosen(after(20, minutes=20, workers=8), change=60).plan == PLANS[0]

    def test_half_is_held_where_half_is_needed_again(self) -> None:
        """Two of four workers are needed again after twenty minutes: two held cost 2 x 18, four held 4 x 18."""
        found = chosen(met([*[(2, 6), (9, 2), (2, 4), (200, 2)] * 20, (1, 6)])).plan
        assert (found.delay_seconds, found.share) == (20 * MINUTE, 0.5)

    @pytest.mark.parametrize(("cost", "minutes"), [(32, 2), (34, 20)])
    def test_the_price_of_a_change_decides_between_them(self, cost: float, minutes: int) -> None:
        """Four workers held 16 minutes longer than by the shortest delay are 64 worker-minutes for two changes."""
        assert chosen(after(20, minutes=20, workers=4), change=cost).plan.delay_seconds == minutes * MINUTE

    @pytest.mark.parametrize(("price", "minutes"), [(1.2, 2), (1.3, 20)])
    def test_the_price_of_waiting_does_too(self, price: float, minutes: int) -> None:
        """A worker held for 16 minutes more saves the 12.8 pod-minutes for which seven pods wait."""
        assert chosen(after(20, minutes=20, workers=1), change=0, wait=price).plan.delay_seconds == minutes * MINUTE

    def test_the_cost_is_reported(self) -> None:
        """Four pauses are eight ways, of which the first is no change yet; the shortest delay lets seven pods wait
        after each of them."""
        found = chosen(after(4, minutes=20, workers=1), wait=1.0)
        assert (found.holding, found.changing, found.waiting) == (pytest.approx(4 * 18), 0, 0)
        assert found.first == pytest.approx(4 * 2 + 7 * 100 + 4 * WAIT_POD_MINUTES, abs=0.1)

    def test_a_change_costs_minutes_of_the_whole_fleet(self) -> None:
        """At a mean demand of 2.5 workers, 40 minutes of it are 100 worker-minutes."""
        tried = replace(after(4, minutes=20, workers=1), demand=250.0, readings=100.0)
        first = choose_plan(tried, wait_cost=0.0, change_cost=40.0).first
        assert first == pytest.approx(4 * 2 + 7 * 100)

    def test_old_pauses_fade_as_new_ones_come(self) -> None:
        known = after(100, minutes=20, workers=1, keep=0.99)
        assert chosen(known).plan.delay_seconds == 20 * MINUTE
        known = after(100, minutes=20, workers=8, keep=0.99, tried=known)
        assert chosen(known, change=60).plan == PLANS[0]

    def test_a_dearer_change_never_means_more_of_them(self) -> None:
        tried = met([(3, 4), (7, 2), (2, 9), (30, 3), (5, 5)] * 9)
        turns = [tried.turns[PLANS.index(chosen(tried, change=cost).plan)] for cost in (0, 20, 50, 100, 500)]
        assert turns == sorted(turns, reverse=True) and turns[0] > turns[-1]


class TestTrials:
    def test_a_gap_between_readings_counts_for_little(self) -> None:
        tried = advance_trials(initial_trials(), staircase((0, 3)), 0, seen(3, minutes=0), keep=1.0)
        tried = advance_trials(tried, staircase((86400, 2)), 86400, seen(2, minutes=1440), keep=1.0)
        assert set(tried.held) == {100 * GAP_MINUTES}

    def test_headroom_that_would_not_be_started_is_no_change_of_direction(self) -> None:
        """It is held while it is worth its price, and not started again after its removal."""
        tried, needs = initial_trials(), staircase()
        for at, hold in enumerate((3, 2, 3, 2, 3)):
            needs = update_needs(needs, at * 600, hold)
            tried = advance_trials(tried, needs, at * 600, seen(2, hold=hold, start=2, minutes=10), keep=1.0)
        assert set(tried.turns) == {0} and set(tried.workers) == {2}

    def test_each_start_price_starts_its_own_headroom(self) -> None:
        reading = replace(seen(2, demand=1.5), starts=(2, 3, 4), hold=4)
        tried = advance_trials(initial_trials(), staircase((0, 4)), 0, reading, keep=1.0)
        assert [tried.workers[n * 16] for n in range(3)] == [2, 3, 4]

    def test_headroom_is_started_with_the_workers_of_pending_pods_in_every_plan(self) -> None:
        """A trial that had two workers: at a demand of three it starts the joint headroom, at a demand of two none."""
        stairs = staircase((120, 2))
        two = replace(initial_trials(), workers=(2,) * len(PLANS))
        for demand, expected in ((2.0, 2), (2.1, 5)):
            reading = replace(seen(2, hold=2, demand=demand), starts=(5, 5, 2 if demand == 2.0 else 3))
            found = advance_trials(two, stairs, 120, reading, keep=1.0)
            joint = [n for n, plan in zip(found.workers, PLANS, strict=True) if plan.start_price == math.inf]
            assert joint == [expected] * 16

    def test_a_missing_worker_lets_its_pods_wait_until_it_has_booted_and_a_held_one_does_not(self) -> None:
        """Demand rises by 1.5 workers beside 2; only the plans that kept a third worker have half of the waiting."""
        tried = replace(initial_trials(), workers=(2,) * 24 + (3,) * 24, moved=(-1,) * 48)
        found = advance_trials(tried, staircase((0, 4)), 0, seen(4, demand=3.5), keep=1.0)
        assert found.waited == (round(150 * WAIT_POD_MINUTES),) * 24 + (round(50 * WAIT_POD_MINUTES),) * 24
        assert found.turns == (100,) * 48 and set(found.workers) == {4}

    @pytest.mark.parametrize(
        ("demand", "late"),
        [(3.0, (0, 0)), (3.1, (10, 0)), (4.0, (100, 0)), (4.5, (150, 50))],
        ids=["no rise", "beyond the last demand", "up to a worker that was there", "beyond it"],
    )
    def test_pods_that_are_created_while_a_worker_boots_wait_for_the_rest_of_the_boot(
        self, demand: float, late: tuple[int, int]
    ) -> None:
        """Trials that had 2 and 4 workers at a demand of 3 and launched up to 6, beside trials that had all 6."""
        had = (2,) * 16 + (4,) * 16 + (6,) * 16
        tried = replace(initial_trials(), workers=(6,) * 48, before=had)
        reading = replace(seen(6, demand=demand), demand_before=3.0, late_pod_minutes=7 * 0.5)
        found = advance_trials(tried, staircase((0, 6)), 0, reading, keep=1.0)
        assert found.waited == tuple(round(rise * 3.5) for rise in (late[0],) * 16 + (late[1],) * 16 + (0,) * 16)
        assert found.before == ()

    def test_the_fleet_sizes_before_a_launch_are_kept_until_the_next_reading(self) -> None:
        stairs, two = staircase((0, 4)), replace(initial_trials(), workers=(2,) * 48)
        launched = advance_trials(two, stairs, 0, seen(4), keep=1.0)
        assert (launched.before, launched.workers) == ((2,) * 48, (4,) * 48)
        assert advance_trials(launched, stairs, 60, seen(4), keep=1.0).before == ()
        removed = advance_trials(launched, staircase((9999, 2)), 9999, seen(2), keep=1.0)
        assert (removed.before, set(removed.workers)) == ((), {2}), "a removal is no launch"

    @pytest.mark.parametrize(("age", "after"), [(119, 5), (120, 2)])
    def test_a_trial_holds_what_was_needed_within_its_delay_and_not_at_its_end(self, age: int, after: int) -> None:
        first = advance_trials(initial_trials(), staircase((0, 5)), 0, seen(5, minutes=0), keep=1.0)
        assert first.moved == (0,) * 48, "the first size is no change"
        tried = advance_trials(first, staircase((0, 5), (age, 2)), age, seen(2), keep=1.0)
        assert (tried.workers[0], tried.moved[0]) == (after, 0 if after == 5 else -1)
        assert tried.held == (3 * 2 * 100,) * 48, "the reading before was held, whatever is removed at this one"
        again = advance_trials(tried, staircase((age, 5)), age, seen(5, minutes=0), keep=1.0)
        assert (again.turns[0], again.moved[0]) == ((0, 0) if after == 5 else (100, 1))

    @pytest.mark.parametrize(("hold", "workers"), [(3, 3), (4, 4), (5, 4)])
    def test_a_trial_holds_at_most_what_it_had(self, hold: int, workers: int) -> None:
        had = advance_trials(initial_trials(), staircase((0, 4)), 0, seen(4, minutes=0), keep=1.0)
        tried = advance_trials(had, staircase((9999, hold)), 9999, seen(2, hold=hold, start=2), keep=1.0)
        assert tried.workers == (workers,) * 48

    def test_a_new_entry_counts_twice_as_much_as_one_of_which_half_remains(self) -> None:
        tried = met([(1, 4), (1, 2), (1, 4), (1, 2), (1, 4)], keep=0.5)
        shortest = tried.turns[0] / tried.weight / 100
        assert shortest == pytest.approx(1 / 4 + 1 / 2 + 1)

    def test_the_sums_are_divided_before_they_grow_too_large(self) -> None:
        before = after(3, minutes=20, workers=2)
        due = replace(before, weight=HIGHEST_WEIGHT / 2, held=tuple(HIGHEST_WEIGHT * n for n in before.held))
        found = advance_trials(due, staircase((0, 4)), 0, seen(4, minutes=0), keep=0.5)
        assert found.weight == 1.0 and found.held == before.held

    def test_all_sums_are_divided_alike(self) -> None:
        sums = {"held": (5121,) * 48, "waited": (7169,) * 48, "turns": (9217,) * 48}
        due = replace(initial_trials(), **sums, weight=HIGHEST_WEIGHT / 2, demand=2048.0, readings=1024.0)
        found = advance_trials(replace(due, workers=(4,) * 48), staircase((0, 4)), 0, seen(4, minutes=0), keep=0.5)
        assert (found.held, found.waited, found.turns) == ((5,) * 48, (7,) * 48, (9,) * 48)
        assert (found.demand, found.readings) == (2.0 + 4, 1.0 + 1), "with this reading"

    @given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 9)), min_size=1, max_size=60))
    def test_a_longer_delay_or_more_of_it_holds_no_less_waits_no_more_and_never_keeps_too_little(
        self, moves: list[tuple[int, int]]
    ) -> None:
        known = met(moves)
        for share in (0, 1):
            held, waited, workers = (
                [row[place] for place in ONE_PRICE if place % 2 == share]
                for row in (known.held, known.waited, known.workers)
            )
            assert held == sorted(held) and workers == sorted(workers)
            assert waited == sorted(waited, reverse=True)
        for place in ONE_PRICE[::2]:
            assert known.held[place] >= known.held[place + 1]
            assert known.waited[place] <= known.waited[place + 1]
        assert min(known.workers) >= moves[-1][1]
