"""Disruption budgets: how many workers, for which reason, and when, in the local time of any zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.disruption.budgets import (
    MACROS,
    Allowance,
    allowed,
    clock_jumps,
    is_active,
    next_openings,
)
from node_fleet.domain.model.budget import Budget, duration_text
from node_fleet.domain.model.local_time import WINDOW, DailyWindow, parse_window
from tests.support.tiers import examples

NOW = 1_790_000_040  # Monday 21 September 2026, 14:14 UTC
HOUR = 3600
DHAKA, BERLIN, NEW_YORK, LORD_HOWE = "Asia/Dhaka", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"


def at(zone: str, text: str, fold: int = 0) -> int:
    """Epoch seconds of a wall-clock time; fold 1 is its second occurrence."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp())


def windows(*texts: str) -> tuple[DailyWindow, ...]:
    return tuple(parse_window(re.match(WINDOW, text), text) for text in texts)  # type: ignore[arg-type]


def number(*budgets: Budget, reason: str = "idle", now: int = NOW, workers: int = 10, disrupted: int = 0) -> int:
    return allowed(budgets, reason, now=now, workers=workers, disrupted=disrupted).number  # type: ignore[arg-type]


class TestNumber:
    def test_without_a_budget_every_worker_may_be_disrupted(self) -> None:
        assert allowed((), "idle", now=NOW, workers=7, disrupted=3) == Allowance(number=7)

    @pytest.mark.parametrize(
        ("nodes", "workers", "disrupted", "expected"),
        [
            ("2", 10, 0, 2),
            ("2", 10, 1, 1),
            ("2", 10, 2, 0),
            ("2", 10, 5, 0),
            ("5", 3, 0, 3),
            ("0", 10, 0, 0),
            # A percentage is rounded up: Karpenter's documentation has 20 % of 19 nodes as 4.
            ("20%", 19, 0, 4),
            ("10%", 10, 0, 1),
            ("10%", 11, 0, 2),
            ("10%", 1, 0, 1),
            ("10%", 0, 0, 0),
            ("0%", 10, 0, 0),
            ("100%", 10, 3, 7),
            ("29%", 100, 0, 29),
        ],
    )
    def test_the_limit_is_counted_in_whole_workers(
        self, nodes: str, workers: int, disrupted: int, expected: int
    ) -> None:
        assert number(Budget(nodes=nodes), workers=workers, disrupted=disrupted) == expected

    def test_the_strictest_of_several_holds_and_is_named(self) -> None:
        budgets = (Budget(nodes="50%"), Budget(nodes="2"), Budget(nodes="3"))
        assert allowed(budgets, "idle", now=NOW, workers=10, disrupted=0) == Allowance(
            number=2, budget="at most 2 workers", setting="disruption_budgets"
        )

    def test_a_budget_holds_for_its_reasons_only(self) -> None:
        budget = Budget(nodes="0", reasons=("drifted", "expired"))
        reasons = ("idle", "drifted", "expired", "unhealthy")
        assert [number(budget, reason=r) for r in reasons] == [10, 0, 0, 10]

    @given(
        st.lists(st.sampled_from(["0", "1", "3", "10%", "34%", "100%"]), max_size=4),
        st.integers(0, 40),
        st.integers(0, 40),
    )
    def test_one_more_budget_or_disruption_never_allows_more(
        self, nodes: list[str], workers: int, disrupted: int
    ) -> None:
        budgets = [Budget(nodes=n) for n in nodes]
        found = number(*budgets, workers=workers, disrupted=disrupted)
        assert 0 <= found <= workers
        assert number(*budgets, workers=workers, disrupted=disrupted + 1) <= found
        assert number(*budgets, Budget(nodes="2"), workers=workers, disrupted=disrupted) <= found


class TestSchedule:
    OFFICE = Budget(nodes="0", schedule="0 9 * * mon-fri", duration_seconds=8 * HOUR, timezone=DHAKA)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("2026-09-21 08:59:59", False),
            ("2026-09-21 09:00:00", True),
            ("2026-09-21 16:59:59", True),
            ("2026-09-21 17:00:00", False),
            ("2026-09-26 12:00:00", False),
        ],
    )
    def test_it_holds_from_its_time_for_its_duration_in_its_zone(self, text: str, expected: bool) -> None:
        assert is_active(self.OFFICE, at(DHAKA, text)) is expected

    def test_the_next_opening_is_the_end_of_the_schedule(self) -> None:
        found = allowed([self.OFFICE], "idle", now=at(DHAKA, "2026-09-21 12:00"), workers=4, disrupted=0)
        text = "at most 0 workers ('0 9 * * mon-fri' for 8h, Asia/Dhaka)"
        assert found == Allowance(
            number=0, budget=text, next_opening=at(DHAKA, "2026-09-21 17:00"), setting="disruption_budgets"
        )

    def test_openings_end_where_the_schedule_begins_again(self) -> None:
        found = next_openings([self.OFFICE], "idle", now=at(DHAKA, "2026-09-21 12:00"), workers=4, count=2)
        assert [(o.start, o.end) for o in found] == [
            (at(DHAKA, f"2026-09-{day} 17:00"), at(DHAKA, f"2026-09-{day + 1} 09:00")) for day in (21, 22)
        ]

    def test_a_schedule_that_lasts_until_its_next_time_never_opens(self) -> None:
        budget = Budget(nodes="0", schedule="0 * * * *", duration_seconds=HOUR)
        assert allowed([budget], "idle", now=NOW, workers=4, disrupted=0).next_opening is None
        assert next_openings([budget], "idle", now=NOW, workers=4, count=1) == []

    def test_a_rare_schedule_forbids_nothing_before_its_day(self) -> None:
        budget = Budget(nodes="0", schedule="0 0 29 2 *", duration_seconds=HOUR)
        assert number(budget) == 10
        (found,) = next_openings([budget], "idle", now=NOW, workers=4, count=2)
        assert (found.start, found.end, found.limit) == (NOW, None, 4)

    def test_the_next_opening_must_allow_more_than_is_disrupted(self) -> None:
        budgets = [self.OFFICE, Budget(nodes="1", schedule="0 17 * * *", duration_seconds=HOUR, timezone=DHAKA)]
        noon = at(DHAKA, "2026-09-21 12:00")
        opening = {n: allowed(budgets, "idle", now=noon, workers=4, disrupted=n).next_opening for n in (0, 1)}
        assert opening == {0: at(DHAKA, "2026-09-21 17:00"), 1: at(DHAKA, "2026-09-21 18:00")}

    def test_a_budget_that_always_holds_has_no_next_opening(self) -> None:
        assert allowed([Budget(nodes="0")], "idle", now=NOW, workers=4, disrupted=0).next_opening is None

    def test_schedules_that_cover_all_time_have_no_next_opening(self) -> None:
        always = Budget(nodes="0", schedule="*/5 * * * *", duration_seconds=300)
        assert allowed([always], "idle", now=NOW, workers=4, disrupted=0).next_opening is None

    def test_a_schedule_inside_a_longer_run_of_itself_ends_with_the_last(self) -> None:
        budget = Budget(nodes="0", schedule="0 9,10 * * *", duration_seconds=2 * HOUR)
        assert [is_active(budget, at("UTC", f"2026-09-21 {hour:02}:30")) for hour in (8, 9, 10, 11, 12)] == [
            False,
            True,
            True,
            True,
            False,
        ]

    def test_a_time_that_the_clock_skips_is_the_first_after_the_jump(self) -> None:
        budget = Budget(nodes="0", schedule="30 2 * * *", duration_seconds=HOUR, timezone=BERLIN)
        jump = at(BERLIN, "2026-03-29 03:00")
        assert [is_active(budget, jump + seconds) for seconds in (-1, 0, HOUR - 1, HOUR)] == [False, True, True, False]

    def test_a_time_that_the_clock_repeats_counts_once(self) -> None:
        budget = Budget(nodes="0", schedule="30 2 * * *", duration_seconds=600, timezone=BERLIN)
        once, again = (at(BERLIN, "2026-10-25 02:30", fold=fold) for fold in (0, 1))
        assert [is_active(budget, moment) for moment in (once, once + 599, once + 600, again)] == [
            True,
            True,
            False,
            False,
        ]

    @pytest.mark.parametrize("macro", sorted(MACROS))
    def test_the_names_of_schedules_have_times(self, macro: str) -> None:
        budget = Budget(nodes="0", schedule=macro, duration_seconds=60)
        assert is_active(budget, at("UTC", "2027-01-01 00:00") if macro != "@weekly" else at("UTC", "2026-09-27 00:00"))

    @examples(60)
    @given(
        minute=st.sets(st.integers(0, 59), min_size=1, max_size=3),
        hour=st.sets(st.integers(0, 23), min_size=1, max_size=3),
        days=st.sets(st.integers(0, 6), min_size=1, max_size=7),
        duration=st.integers(1, 40 * 60),
        offset=st.integers(0, 14 * 86_400 // 60),
        zone=st.sampled_from(["UTC", DHAKA]),
    )
    def test_it_holds_exactly_within_the_duration_after_a_matching_minute(
        self, *, minute: set[int], hour: set[int], days: set[int], duration: int, offset: int, zone: str
    ) -> None:
        fields = (",".join(map(str, sorted(values))) for values in (minute, hour, days))
        one, two, three = fields
        budget = Budget(nodes="0", schedule=f"{one} {two} * * {three}", duration_seconds=duration * 60, timezone=zone)
        now = NOW + offset * 60
        expected = any(
            when.minute in minute and when.hour in hour and when.isoweekday() % 7 in days
            for back in range(duration)
            if (when := datetime.fromtimestamp(now - now % 60 - back * 60, ZoneInfo(zone)))
        )
        assert is_active(budget, now) is expected


class TestWindows:
    ONLY = Budget(nodes="0", only=windows("Mon-Fri 09:00-17:00", "Sat 10:00-12:00"), timezone=DHAKA)
    NEVER = Budget(nodes="0", never=windows("Fri 22:00-06:00", "2026-11-27 00:00-24:00"), timezone=DHAKA)

    @pytest.mark.parametrize(
        ("text", "only", "never"),
        [
            ("2026-09-21 08:59:59", 0, 10),
            ("2026-09-21 09:00:00", 10, 10),
            ("2026-09-21 16:59:59", 10, 10),
            ("2026-09-21 17:00:00", 0, 10),
            ("2026-09-26 11:00:00", 10, 10),
            ("2026-09-25 21:59:59", 0, 10),
            ("2026-09-25 22:00:00", 0, 0),
            ("2026-09-26 05:59:59", 0, 0),
            ("2026-09-26 06:00:00", 0, 10),
            ("2026-11-26 23:59:59", 0, 10),
            ("2026-11-27 00:00:00", 0, 0),
            ("2026-11-27 23:59:59", 0, 0),
            ("2026-11-28 06:00:00", 0, 10),
        ],
    )
    def test_only_holds_outside_its_windows_and_never_inside(self, text: str, only: int, never: int) -> None:
        now = at(DHAKA, text)
        assert (number(self.ONLY, now=now), number(self.NEVER, now=now)) == (only, never)

    def test_the_next_five_openings_are_listed_with_their_ends(self) -> None:
        found = next_openings([self.ONLY], "idle", now=at(DHAKA, "2026-09-24 12:00"), workers=3, count=5)
        assert [(o.start, o.end, o.limit, o.jumps) for o in found] == [
            (at(DHAKA, f"2026-09-{begin}"), at(DHAKA, f"2026-09-{end}"), 3, ())
            for begin, end in (
                ("24 12:00", "24 17:00"),
                ("25 09:00", "25 17:00"),
                ("26 10:00", "26 12:00"),
                ("28 09:00", "28 17:00"),
                ("29 09:00", "29 17:00"),
            )
        ]

    def test_a_window_of_the_next_day_may_open_before_that_of_this_day_ends(self) -> None:
        budget = Budget(nodes="0", never=windows("Fri 22:00-06:00"), timezone="UTC")
        inner = Budget(nodes="0", never=windows("Fri 22:00-03:00", "Sat 02:00-02:30", "Fri 21:00-06:00"))
        friday = at("UTC", "2026-09-25 23:00")
        assert allowed([budget], "idle", now=friday, workers=1, disrupted=0).next_opening == at(
            "UTC", "2026-09-26 06:00"
        )
        assert allowed([inner], "idle", now=friday, workers=1, disrupted=0).next_opening == at(
            "UTC", "2026-09-26 06:00"
        )

    def test_windows_that_never_open_again_leave_no_opening(self) -> None:
        past = Budget(nodes="0", only=windows("2025-01-01 00:00-24:00"))
        assert allowed([past], "idle", now=NOW, workers=1, disrupted=0).next_opening is None
        assert next_openings([past], "idle", now=NOW, workers=1, count=5) == []

    @pytest.mark.parametrize(("days", "is_found"), [(398, True), (399, False)])
    def test_openings_are_looked_for_over_400_days(self, days: int, is_found: bool) -> None:
        day = f"{datetime.fromtimestamp(NOW, UTC) + timedelta(days=days):%Y-%m-%d}"
        budget = Budget(nodes="0", only=windows(f"{day} 00:00-24:00"), timezone="UTC")
        found = allowed([budget], "idle", now=NOW, workers=1, disrupted=0).next_opening
        assert found == (at("UTC", day) if is_found else None)

    def test_without_windows_one_opening_has_no_end(self) -> None:
        (found,) = next_openings([Budget(nodes="1")], "idle", now=NOW, workers=9, count=5)
        assert (found.start, found.end, found.limit) == (NOW, None, 1)

    @pytest.mark.parametrize(
        ("zone", "day"), [(BERLIN, "2026-03-29"), (BERLIN, "2026-10-25"), (NEW_YORK, "2026-11-01")]
    )
    def test_an_opening_on_a_day_of_a_clock_jump_is_marked(self, zone: str, day: str) -> None:
        budget = Budget(nodes="0", only=windows("Mon-Sun 00:30-12:00"), timezone=zone)
        before = at(zone, f"{day} 00:00") - 86_400
        found = next_openings([budget], "idle", now=before, workers=1, count=3)
        assert [len(o.jumps) for o in found] == [0, 1, 0]
        assert datetime.fromtimestamp(found[1].jumps[0], ZoneInfo(zone)).date().isoformat() == day

    @examples(80)
    @given(
        zone=st.sampled_from([DHAKA, BERLIN, NEW_YORK, LORD_HOWE]),
        spans=st.lists(
            st.tuples(st.integers(0, 95), st.integers(1, 96), st.sets(st.integers(0, 6), min_size=1)).filter(
                lambda span: span[0] != span[1]
            ),
            min_size=1,
            max_size=3,
        ),
        begin=st.sampled_from(["2026-03-28", "2026-10-24", "2026-10-31", "2026-03-07", "2026-04-04", "2026-10-03"]),
        kind=st.sampled_from(["only", "never"]),
    )
    def test_openings_are_the_times_at_which_the_local_clock_shows_a_time_inside_or_outside(
        self, *, zone: str, spans: list[tuple[int, int, set[int]]], begin: str, kind: str
    ) -> None:
        several = tuple(DailyWindow(start_minute=a * 15, end_minute=b * 15, days=tuple(days)) for a, b, days in spans)
        budget = Budget(nodes="0", timezone=zone, **{kind: several})  # type: ignore[arg-type]
        first = at(zone, begin)
        moments = range(first, first + 2 * 86_400, 900)
        expected = [any(self.shows(w, zone, moment) for w in several) is (kind == "only") for moment in moments]
        openings = next_openings([budget], "idle", now=first, workers=1, count=20)
        found = [any(o.start <= m and (o.end is None or m < o.end) for o in openings) for m in moments]
        assert found == expected

    def shows(self, window: DailyWindow, zone: str, moment: int) -> bool:
        """Whether the clock on the wall is inside the window, from zoneinfo alone."""
        wall = datetime.fromtimestamp(moment, UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        for back in (0, 1):
            midnight = datetime(wall.year, wall.month, wall.day) - timedelta(days=back)
            opens = midnight + timedelta(minutes=window.start_minute)
            closes = midnight + timedelta(minutes=window.end_minute)
            closes += timedelta(days=1) if window.end_minute <= window.start_minute else timedelta()
            if midnight.weekday() in window.days and opens <= wall < closes:
                return True
        return False


def test_a_clock_jump_is_found_to_the_second() -> None:
    jump = at(BERLIN, "2026-03-29 03:00")
    for before in (86_400, 50_001, 1):
        assert [str(at) for at in clock_jumps(BERLIN, jump - before, jump + 86_400)] == [str(jump)]
    assert clock_jumps(BERLIN, jump, jump + 86_400) == [], "a jump at the begin is not in the span"
    assert clock_jumps(DHAKA, jump - 86_400, jump + 86_400) == []


@pytest.mark.parametrize(
    ("budget", "text"),
    [
        (Budget(nodes="1"), "at most 1 worker"),
        (Budget(nodes="20%", reasons=("idle", "drifted")), "at most 20% (idle, drifted)"),
        (
            Budget(nodes="0", reasons=("idle",), schedule="@daily", duration_seconds=600),
            "at most 0 workers (idle; '@daily' for 10m, UTC)",
        ),
        (TestWindows.ONLY, "removal windows 'only: Mon-Fri 09:00-17:00; Sat 10:00-12:00' (Asia/Dhaka)"),
        (TestWindows.NEVER, "removal windows 'never: Fri 22:00-06:00; 2026-11-27 00:00-24:00' (Asia/Dhaka)"),
    ],
)
def test_a_budget_has_a_text(budget: Budget, text: str) -> None:
    assert budget.text == text


@pytest.mark.parametrize(("seconds", "text"), [(60, "1m"), (3600, "1h"), (36300, "10h5m"), (0, "0m")])
def test_a_duration_is_written_as_it_is_given(seconds: int, text: str) -> None:
    assert duration_text(seconds) == text
