"""Schedule windows in local time: past midnight, overlapping, and where daylight saving time moves the clock."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.model.memory import Memory, Streak
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.scaling.decision import decide
from node_fleet.domain.scaling.schedule import open_window, parse_schedules
from tests.support.decisions import TICK, idle, snapshot, workers

DHAKA, BERLIN, NEW_YORK = "Asia/Dhaka", "Europe/Berlin", "America/New_York"


def at(zone: str, text: str, fold: int = 0) -> int:
    """Epoch seconds of a wall-clock time; fold 1 is its second occurrence."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp())


def minimum_at(windows: str, zone: str, now: int) -> int:
    window = open_window(parse_schedules(windows), zone, now)
    return window.minimum if window else 0


WEEKDAYS, NIGHT, SALE = "Mon-Sat 09:00-21:00: 4", "Fri 22:00-06:00: 6", "2026-11-27 18:00-24:00: 8"
OVERLAPPING = f"Mon-Sun 09:00-21:00: 4; {SALE}; Fri 18:30-20:00: 5"


@pytest.mark.parametrize(
    ("windows", "text", "expected"),
    [
        (WEEKDAYS, "2026-09-21 08:59:59", 0),
        (WEEKDAYS, "2026-09-21 09:00:00", 4),
        (WEEKDAYS, "2026-09-26 20:59:59", 4),
        (WEEKDAYS, "2026-09-26 21:00:00", 0),
        (WEEKDAYS, "2026-09-27 12:00:00", 0),
        # A window over midnight belongs to the day it starts on.
        (NIGHT, "2026-09-25 22:00", 6),
        (NIGHT, "2026-09-26 05:59", 6),
        (NIGHT, "2026-09-26 06:00", 0),
        (NIGHT, "2026-09-25 05:00", 0),
        # A sale day is a date.
        (SALE, "2026-11-27 17:59", 0),
        (SALE, "2026-11-27 18:00", 8),
        (SALE, "2026-11-28 00:00", 0),
        # Of overlapping windows the highest counts.
        (OVERLAPPING, "2026-11-27 10:00", 4),
        (OVERLAPPING, "2026-11-27 19:00", 8),
        (OVERLAPPING, "2026-11-27 23:00", 8),
    ],
)
def test_a_window_opens_and_closes_to_the_second_in_its_own_zone(windows: str, text: str, expected: int) -> None:
    assert minimum_at(windows, DHAKA, at(DHAKA, text)) == expected


def test_days_may_be_listed_and_may_wrap_around_the_week() -> None:
    assert parse_schedules("Sat-Mon,Wed 00:00-24:00: 3")[0].days == (0, 2, 5, 6)


def test_windows_are_one_text_or_a_list() -> None:
    texts = ["Mon-Sat 09:00-21:00: 4", "2026-11-27 18:00-24:00: 8"]
    assert parse_schedules(texts) == parse_schedules("; ".join(texts) + ";") and len(parse_schedules(texts)) == 2


class TestClockJumps:
    """Berlin: on 29 March 2026 02:00 becomes 03:00; on 25 October 2026 03:00 becomes 02:00."""

    def test_a_window_inside_the_hour_that_does_not_exist_still_opens(self) -> None:
        window = "Sun 02:10-02:50: 5"
        open_minutes = [
            m for m in range(-120, 180) if minimum_at(window, BERLIN, at(BERLIN, "2026-03-29 03:00") + m * 60) == 5
        ]
        assert open_minutes and open_minutes == list(range(open_minutes[0], open_minutes[-1] + 1))

    def test_a_window_around_the_missing_hour_is_an_hour_shorter(self) -> None:
        window, start = "Sun 01:00-04:00: 5", at(BERLIN, "2026-03-29 01:00")
        open_hours = [h for h in range(-2, 8) if minimum_at(window, BERLIN, start + h * 3600) == 5]
        assert open_hours == [0, 1]

    def test_a_window_around_the_doubled_hour_is_an_hour_longer(self) -> None:
        window, start = "Sun 01:00-04:00: 5", at(BERLIN, "2026-10-25 01:00")
        open_hours = [h for h in range(-2, 8) if minimum_at(window, BERLIN, start + h * 3600) == 5]
        assert open_hours == [0, 1, 2, 3]

    def test_a_window_that_ends_in_the_doubled_hour_does_not_open_twice(self) -> None:
        window, start = "Sun 01:00-02:30: 5", at(BERLIN, "2026-10-25 01:00")
        open_minutes = [m for m in range(0, 300) if minimum_at(window, BERLIN, start + m * 60) == 5]
        assert open_minutes == list(range(150))
        assert at(BERLIN, "2026-10-25 02:30", fold=1) == start + 150 * 60

    def test_a_window_over_midnight_into_the_jump_closes_at_its_wall_clock_time(self) -> None:
        assert minimum_at("Sat 22:00-06:00: 5", NEW_YORK, at(NEW_YORK, "2026-03-08 05:59")) == 5
        assert minimum_at("Sat 22:00-06:00: 5", NEW_YORK, at(NEW_YORK, "2026-03-08 06:00")) == 0

    @given(
        day=st.sampled_from(["2026-03-29", "2026-10-25", "2026-06-14"]),
        start=st.integers(0, 95),
        length=st.integers(1, 95),
    )
    def test_a_window_is_one_unbroken_span(self, day: str, start: int, length: int) -> None:
        begin, end = start * 15, (start * 15 + length * 15) % 1440
        window = f"Sun {begin // 60:02d}:{begin % 60:02d}-{end // 60:02d}:{end % 60:02d}: 5"
        first = at(BERLIN, f"{day} 00:00") - 3600
        states = [minimum_at(window, BERLIN, first + k * 900) == 5 for k in range(4 * 52)]
        changes = sum(a != b for a, b in pairwise(states))
        assert any(states) and changes == 2


class TestAsAMinimum:
    POLICY = Policy(schedules=parse_schedules("Mon-Sun 09:00-21:00: 4"), timezone=DHAKA)
    OPEN, CLOSED = at(DHAKA, "2026-09-21 12:00"), at(DHAKA, "2026-09-21 22:00")

    @pytest.mark.parametrize(("open_now", "action"), [(True, "scale_up"), (False, "none")])
    def test_an_open_window_raises_the_fleet(self, open_now: bool, action: str) -> None:
        now = self.OPEN if open_now else self.CLOSED
        decision = decide(snapshot(now, workers=workers(3)), Memory(), self.POLICY, now)
        assert decision.action == action
        if open_now:
            assert (decision.rule, decision.count) == ("schedule", 1)
            assert decision.sentence.startswith(
                "3 workers, under the scheduled minimum of 4 (Mon-Sun 09:00-21:00: 4) -> +1"
            )

    def test_a_schedule_above_the_minimum_waits_for_the_cooldown(self) -> None:
        memory = Memory(last_action="scale_down", last_action_at=self.OPEN - 60)
        decision = decide(snapshot(self.OPEN, workers=workers(3)), memory, self.POLICY, self.OPEN)
        assert (decision.action, decision.blocked_by) == ("none", ("cooldown",))

    def test_below_the_minimum_the_whole_difference_is_launched_at_once(self) -> None:
        memory = Memory(last_action="scale_down", last_action_at=self.OPEN - 60)
        assert decide(snapshot(self.OPEN, workers=workers(1)), memory, self.POLICY, self.OPEN).count == 3

    @pytest.mark.parametrize(("open_now", "action"), [(True, "none"), (False, "scale_down")])
    def test_an_open_window_keeps_idle_workers(self, open_now: bool, action: str) -> None:
        now = self.OPEN if open_now else self.CLOSED
        memory = Memory(since={"idle": Streak(since=now - 600, last=now - TICK, readings=6)})
        assert decide(idle(now, workers=workers(4)), memory, self.POLICY, now).action == action

    def test_a_schedule_never_exceeds_the_maximum(self) -> None:
        policy = Policy(schedules=parse_schedules("Mon-Sun 00:00-24:00: 9"), max_workers=5)
        decision = decide(snapshot(self.OPEN, workers=workers(3)), Memory(), policy, self.OPEN)
        assert decision.count == 2
