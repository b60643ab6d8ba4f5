"""Prediction: when it speaks, when it abstains, and what it holds."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.model.memory import Memory, Streak
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import HourlyLoad
from node_fleet.domain.scaling.decision import decide
from node_fleet.domain.scaling.prediction import forecast
from tests.support.decisions import TICK, Fleet, idle, pods, snapshot, workers
from tests.support.tiers import examples

HOUR, DAY = 3600, 86400
MONDAY = 1_789_948_800  # Monday 21 September 2026, 00:00 UTC
POLICY = Policy(predictive=True)


def busy_from_nine(hour_of_day: int, weekday: int) -> float:
    """A shop: 80 % from 9 to 17 o'clock on weekdays, 20 % otherwise."""
    return 80.0 if 9 <= hour_of_day < 17 and weekday < 5 else 20.0


def history(
    days: float,
    load: Callable[[int, int], float] = busy_from_nine,
    *,
    until: int = MONDAY + 8 * HOUR,
    workers: float = 4.0,
    readings: int = 30,
) -> tuple[HourlyLoad, ...]:
    hours = range(until - int(days * DAY), until, HOUR)
    return tuple(
        HourlyLoad(
            hour_epoch=hour,
            cpu_percent=load(hour % DAY // HOUR, (hour // DAY + 3) % 7),
            readings=readings,
            workers=workers,
        )
        for hour in hours
    )


def at_minute(minute: int, days: float = 21, hour: int = 8, **changes: object) -> object:
    now = MONDAY + hour * HOUR + minute * 60
    hourly = history(days, until=MONDAY + hour * HOUR)
    seen = snapshot(now, **{"cpu_percent": 20.0, "workers": workers(4), "hourly": hourly, **changes})
    return decide(seen, Memory(), POLICY, now)


class TestWhen:
    @pytest.mark.parametrize(("minute", "action"), [(48, "none"), (49, "none"), (50, "scale_up"), (58, "scale_up")])
    def test_from_minute_50_a_worker_is_added_ahead_of_a_usually_busy_hour(self, minute: int, action: str) -> None:
        decision = at_minute(minute)
        assert decision.action == action  # type: ignore[attr-defined]

    def test_it_says_what_it_expects(self) -> None:
        decision = at_minute(50)
        assert decision.rule == "prediction" and decision.count == 1  # type: ignore[attr-defined]
        assert decision.sentence.startswith(  # type: ignore[attr-defined]
            "the next hour is usually at 80.0 % CPU on 4 workers, over 70 % -> +1"
        )

    def test_an_hour_is_judged_once(self) -> None:
        fleet = Fleet(POLICY)
        start = MONDAY + 8 * HOUR + 50 * 60
        actions = [
            fleet.tick(snapshot(start + k * TICK, cpu_percent=20.0, workers=workers(4 + (k > 0)), hourly=history(21)))
            for k in range(5)
        ]
        assert [d.action for d in actions] == ["scale_up"] + ["none"] * 4

    def test_it_is_off_unless_the_setting_says_so(self) -> None:
        now = MONDAY + 8 * HOUR + 50 * 60
        seen = snapshot(now, cpu_percent=20.0, hourly=history(21))
        assert decide(seen, Memory(), Policy(), now).action == "none"

    @pytest.mark.parametrize("source", ["cached", "none"])
    def test_it_does_not_speak_on_stale_data(self, source: str) -> None:
        assert at_minute(50, source=source).action == "none"  # type: ignore[attr-defined]

    def test_the_cooldown_holds_for_it_but_the_worker_is_wanted_until_the_hour_ends(self) -> None:
        now = MONDAY + 8 * HOUR + 50 * 60
        memory = Memory(last_action="scale_up", last_action_at=now - 200)
        fleet = Fleet(POLICY, memory)
        quiet = {"cpu_percent": 40.0, "workers": workers(4), "hourly": history(21)}
        first, second = (fleet.tick(snapshot(now + k * TICK, **quiet)) for k in range(2))
        assert (first.action, first.blocked_by) == ("none", ("cooldown",))
        assert (second.action, second.rule, second.count) == ("scale_up", "prediction", 1)


class TestHold:
    def test_the_worker_is_held_until_that_hour_ends(self) -> None:
        start = MONDAY + 8 * HOUR + 50 * 60
        fleet = Fleet(POLICY)
        fleet.tick(snapshot(start, cpu_percent=20.0, workers=workers(4), hourly=history(21)))
        hold = fleet.memory
        assert (hold.predictive_hold_workers, hold.predictive_hold_until) == (5, MONDAY + 10 * HOUR)
        idle_long = {"idle": Streak(since=MONDAY, last=MONDAY + 10 * HOUR - 2 * TICK, readings=99)}
        for now, action in ((MONDAY + 10 * HOUR - TICK, "none"), (MONDAY + 10 * HOUR, "scale_down")):
            memory = replace(hold, since=idle_long)
            assert decide(idle(now, workers=workers(5)), memory, POLICY, now).action == action

    def test_a_second_busy_hour_keeps_the_hold_and_adds_nobody_when_the_workers_suffice(self) -> None:
        now = MONDAY + 9 * HOUR + 50 * 60
        memory = Memory(predictive_hold_until=MONDAY + 10 * HOUR, predictive_hold_workers=5)
        seen = snapshot(now, cpu_percent=64.0, workers=workers(5), hourly=history(21, until=MONDAY + 9 * HOUR))
        decision = decide(seen, memory, POLICY, now)
        assert decision.action == "none"
        assert decision.memory.predictive_hold_until == MONDAY + 11 * HOUR

    @pytest.mark.parametrize(("busy", "is_extended"), [(87.5, False), (87.6, True)])
    def test_a_hold_is_extended_when_one_worker_less_would_be_over_the_threshold(
        self, busy: float, is_extended: bool
    ) -> None:
        """87.5 % of four workers are 70 % of five; six run."""
        now = MONDAY + 9 * HOUR + 50 * 60
        loads = history(21, lambda hour, day: busy if busy_from_nine(hour, day) > 20 else 20.0, until=MONDAY + 9 * HOUR)
        memory = Memory(predictive_hold_until=MONDAY + 10 * HOUR, predictive_hold_workers=6)
        seen = snapshot(now, cpu_percent=50.0, workers=workers(6), hourly=loads)
        held_until = decide(seen, memory, POLICY, now).memory.predictive_hold_until
        assert held_until == MONDAY + (11 if is_extended else 10) * HOUR

    @pytest.mark.parametrize(
        ("hour", "held_for", "kept_until"),
        [
            (9, 600, 11 * HOUR),
            (9, 0, 10 * HOUR - 600),
            (9, -1, 10 * HOUR - 600 - 1),
            (20, 600, 20 * HOUR + 50 * 60 + 600),
        ],
        ids=[
            "a busy hour extends it",
            "it ends at a busy hour",
            "it has expired before a busy hour",
            "a calm hour does not extend it",
        ],
    )
    def test_a_hold_is_extended_only_while_it_runs_and_the_next_hour_needs_it(
        self, hour: int, held_for: int, kept_until: int
    ) -> None:
        now = MONDAY + hour * HOUR + 50 * 60
        memory = Memory(predictive_hold_until=now + held_for, predictive_hold_workers=5)
        seen = snapshot(now, cpu_percent=64.0, workers=workers(5), hourly=history(21, until=MONDAY + hour * HOUR))
        assert decide(seen, memory, POLICY, now).memory.predictive_hold_until == MONDAY + kept_until

    def test_an_urgent_step_keeps_its_size_beside_a_prediction(self) -> None:
        urgent = at_minute(50, pending=pods(8, 1500))
        assert (urgent.rule, urgent.count) == ("pending", POLICY.step_urgent)  # type: ignore[attr-defined]

    def test_it_may_only_raise(self) -> None:
        now = MONDAY + 20 * HOUR + 50 * 60
        seen = snapshot(now, cpu_percent=60.0, workers=workers(8), hourly=history(21, until=MONDAY + 20 * HOUR))
        assert decide(seen, Memory(), POLICY, now).action == "none"


class TestAbstains:
    @pytest.mark.parametrize(("days", "speaks"), [(6.9, False), (7, True), (21, True)])
    def test_until_there_are_seven_days(self, days: float, speaks: bool) -> None:
        hour = MONDAY + 8 * HOUR
        assert (forecast(history(days), hour, POLICY).abstains == "") == speaks

    def test_until_it_has_seen_enough_hours_like_this_one(self) -> None:
        saturday = MONDAY + 5 * DAY + 9 * HOUR
        said = forecast(history(8, until=saturday), saturday, POLICY)
        assert said.abstains == "2 comparable hours, 3 are needed"

    def test_when_same_as_now_did_better_last_week(self) -> None:
        dice = random.Random(7)
        level = {"at": 40.0}

        def wander(_hour: int, _weekday: int) -> float:
            level["at"] = min(100.0, max(0.0, level["at"] + dice.uniform(-2, 2)))
            return level["at"]

        said = forecast(history(21, wander), MONDAY + 8 * HOUR, POLICY)
        assert said.abstains.startswith('last week it was not better than "same as now"')
        assert said.error >= said.naive_error

    def test_when_same_as_now_did_as_well_last_week(self) -> None:
        said = forecast(history(21, lambda _h, _w: 20.0), MONDAY + 8 * HOUR, POLICY)
        assert said.abstains == 'last week it was not better than "same as now" (error 0.0 against 0.0)'

    def test_after_a_level_shift_until_history_has_caught_up(self) -> None:
        shifted = tuple(
            replace(h, cpu_percent=h.cpu_percent + (70.0 if h.hour_epoch >= MONDAY - 3 * DAY else 0.0))
            for h in history(21, lambda _h, _w: 20.0)
        )
        assert forecast(shifted, MONDAY + 8 * HOUR, POLICY).abstains

    def test_when_most_of_its_calls_last_week_were_false_alarms(self) -> None:
        """Every second hour was at 75 %; since a week ago it is at 69 %: near, but no longer over the mark."""
        now = MONDAY + 9 * HOUR
        loads = tuple(
            replace(h, cpu_percent=69.0 if h.hour_epoch >= now - 7 * DAY else 75.0) if h.cpu_percent > 50 else h
            for h in history(28, lambda hour, _w: 75.0 if hour % 2 else 20.0, until=now, workers=1.0)
        )
        said = forecast(loads, now, POLICY)
        assert said.abstains == f"{said.calls} of its {said.calls} predictions last week were false alarms"
        assert said.error < said.naive_error and said.calls > 50

    @pytest.mark.parametrize(("hits", "abstains"), [(42, False), (41, True)])
    def test_when_fewer_than_half_of_its_84_calls_last_week_were_right(self, hits: int, abstains: bool) -> None:
        """Every second hour was at 75 %. In the last week so many of them are, and the others are at 69 %."""
        now = MONDAY + 9 * HOUR
        odd = [hour for hour in range(now - 7 * DAY, now, HOUR) if hour // HOUR % 2]
        calm = set(odd[hits:])
        loads = tuple(
            replace(h, cpu_percent=69.0) if h.hour_epoch in calm else h
            for h in history(28, lambda hour, _w: 75.0 if hour % 2 else 20.0, until=now, workers=1.0)
        )
        said = forecast(loads, now, POLICY)
        assert (said.calls, said.hits) == (84, hits)
        assert said.abstains == ("43 of its 84 predictions last week were false alarms" if abstains else "")

    @pytest.mark.parametrize(("busy", "calls", "hits"), [(70.0, 0, 0), (70.1, 84, 84)])
    def test_an_hour_at_the_threshold_is_no_call_and_no_hit(self, busy: float, calls: int, hits: int) -> None:
        now = MONDAY + 9 * HOUR
        said = forecast(history(28, lambda hour, _w: busy if hour % 2 else 20.0, until=now, workers=1.0), now, POLICY)
        assert (said.calls, said.hits) == (calls, hits)

    def test_when_too_few_hours_of_the_last_week_can_be_checked(self) -> None:
        holes = tuple(h for h in history(21) if h.hour_epoch < MONDAY - 7 * DAY or h.hour_epoch % (2 * HOUR) == 0)
        said = forecast(holes, MONDAY + 8 * HOUR, POLICY)
        assert said.abstains == "only 0 hours of the last week could be checked, 24 are needed"
        assert (said.error, said.naive_error, said.load, said.per_worker) == (0.0, 0.0, 0.0, False)

    @pytest.mark.parametrize(("hours", "is_enough"), [(23, False), (24, True)])
    def test_until_a_day_of_hours_of_the_last_week_can_be_checked(self, hours: int, is_enough: bool) -> None:
        whole = history(21)
        said = forecast((*whole[: 14 * 24], *whole[-hours - 1 :]), MONDAY + 8 * HOUR, POLICY)
        too_few = f"only {hours} hours of the last week could be checked, 24 are needed"
        assert (said.abstains != too_few) is is_enough

    def test_hours_with_few_readings_are_not_history(self) -> None:
        assert forecast(history(21, readings=14), MONDAY + 8 * HOUR, POLICY).abstains
        assert not forecast(history(21, readings=15), MONDAY + 8 * HOUR, POLICY).abstains

    @pytest.mark.parametrize(("interval", "readings"), [(120, 15), (300, 6), (1800, 1), (3600, 1), (7200, 1)])
    def test_half_of_the_readings_of_an_hour_and_at_least_one_make_it_history(
        self, interval: int, readings: int
    ) -> None:
        policy = replace(POLICY, interval_seconds=interval)
        few, enough = (forecast(history(21, readings=n), MONDAY + 8 * HOUR, policy) for n in (readings - 1, readings))
        assert few.abstains == "0.0 days of history, 7 are needed" and not enough.abstains

    def test_when_no_hour_like_this_one_was_seen(self) -> None:
        saturday = MONDAY + 5 * DAY + 9 * HOUR
        said = forecast(history(4, until=MONDAY + 4 * DAY), saturday, replace(POLICY, predictive_min_days=5))
        assert said.abstains == "0 comparable hours, 3 are needed"

    def test_without_history(self) -> None:
        assert forecast((), MONDAY, POLICY).abstains == "0.0 days of history, 7 are needed"


class TestAverage:
    def test_one_wild_day_does_not_move_it(self) -> None:
        spiked = tuple(
            replace(h, cpu_percent=100.0) if MONDAY - 11 * DAY <= h.hour_epoch < MONDAY - 10 * DAY else h
            for h in history(21)
        )
        hour = MONDAY + 8 * HOUR
        assert forecast(spiked, hour, POLICY).load == forecast(history(21), hour, POLICY).load

    def test_weekdays_say_nothing_of_weekends(self) -> None:
        saturday = MONDAY + 5 * DAY + 10 * HOUR
        said = forecast(history(28, until=saturday), saturday, POLICY)
        assert said.percent_on(4) == 20.0

    def test_the_weekend_is_a_setting(self) -> None:
        friday = MONDAY + 4 * DAY + 10 * HOUR

        def dhaka(hour: int, weekday: int) -> float:
            return 80.0 if 9 <= hour < 17 and weekday not in (4, 5) else 20.0

        policy = replace(POLICY, weekend_days=("fri", "sat"))
        assert forecast(history(28, dhaka, until=friday), friday, policy).percent_on(4) == 20.0

    def test_hours_are_those_of_the_configured_zone(self) -> None:
        """10:00 in Dhaka is 04:00 UTC; the weekday there decides too: 20:00 UTC on Sunday is Monday, 02:00."""
        sunday_evening = MONDAY - DAY + 20 * HOUR

        def monday_at_two(hour: int, weekday: int) -> float:
            return 80.0 if (hour, weekday) in {(20, day) for day in (6, 0, 1, 2, 3)} else 20.0

        policy = replace(POLICY, timezone="Asia/Dhaka")
        said = forecast(history(28, monday_at_two, until=sunday_evening), sunday_evening, policy)
        assert said.percent_on(4) == 80.0

    def test_a_fleet_sized_well_last_week_does_not_hide_the_demand(self) -> None:
        sized = tuple(
            replace(h, cpu_percent=h.cpu_percent / 2, workers=8.0) if h.cpu_percent == 80.0 else h for h in history(21)
        )
        said = forecast(sized, MONDAY + 9 * HOUR, POLICY)
        assert (said.percent_on(4), said.percent_on(8)) == (80.0, 40.0)
        assert (said.percent_on(1), said.percent_on(0)) == (320.0, 320.0)

    def test_unknown_worker_counts_leave_the_percent_as_it_is(self) -> None:
        said = forecast(history(21, workers=0.0), MONDAY + 9 * HOUR, POLICY)
        assert said.percent_on(2) == said.percent_on(9) == 80.0

    @given(st.randoms(use_true_random=False))
    @examples(20)
    def test_the_order_of_history_does_not_matter(self, dice: random.Random) -> None:
        mixed = list(history(14))
        dice.shuffle(mixed)
        assert forecast(mixed, MONDAY + 8 * HOUR, POLICY) == forecast(history(14), MONDAY + 8 * HOUR, POLICY)

    def test_the_future_is_not_history(self) -> None:
        hour = MONDAY - 2 * DAY
        assert forecast(history(28), hour, POLICY) == forecast(history(26 - 8 / 24, until=hour), hour, POLICY)


def test_the_hour_that_the_end_of_summer_time_repeats_is_one_sample() -> None:
    sunday = 1_792_886_400  # Sunday 25 October 2026, 02:00 in Berlin; one hour later it is 02:00 again
    following = sunday + HOUR + 7 * DAY
    policy = Policy(predictive=True, timezone="Europe/Berlin", predictive_min_samples=99)
    found = forecast(history(14, until=following), following, policy)
    assert found.abstains == "3 comparable hours, 99 are needed"
