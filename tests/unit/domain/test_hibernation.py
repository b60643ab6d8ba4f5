"""Times off: their windows in local time, orders over them, the next step, and what forbids to switch off."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.model.fleet_state import FleetState, Protection
from node_fleet.domain.model.hibernation import (
    LEAST_OFF_SECONDS,
    LONGEST_LEAD_SECONDS,
    Hibernation,
    Order,
    Phase,
    Step,
    Times,
    lead_seconds,
    midnight_warning,
    next_step,
    off_minutes,
    parse_windows,
)
from node_fleet.domain.model.memory import Memory, Replacement, RollOut, Streak
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.domain.scale_down.drain import after_target, closing_budget, left_for_later, to_be_on
from node_fleet.domain.scale_down.hibernation import (
    drainable,
    ending,
    forgotten,
    guard_in,
    metric_guard,
    protected_guard,
    switch_off,
)
from node_fleet.domain.scale_down.inspection import parse_inspection
from node_fleet.domain.scale_down.last_proof import last_refusal
from node_fleet.domain.scaling.minimum_size import effective_minimum
from node_fleet.domain.scaling.schedule import parse_schedules
from node_fleet.domain.scaling.tick import make_tick
from node_fleet.settings.budget_parsing import parse_budgets
from tests.support.handlers.fakes import (
    NOW,
    A,
    B,
    C,
    answer,
    inspection_text,
    instance,
    scale_down,
    worker_line,
)

DHAKA, BERLIN = "Asia/Dhaka", "Europe/Berlin"
NIGHTS = parse_windows("Mon-Fri 20:00-07:00; Sat-Sun")
LEAD = 600


def at(text: str, zone: str = DHAKA) -> int:
    """Epoch seconds of a local time; 2026-09-21 is a Monday."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp())


def times(order: Order | None = None, *, zone: str = DHAKA) -> Times:
    return Times(windows=NIGHTS, timezone=zone, order=order, lead_seconds=LEAD, drain_seconds=1800)


@pytest.mark.parametrize(
    ("moment", "is_off"),
    [
        ("2026-09-21T19:59:59", False),
        ("2026-09-21T20:00:00", True),
        ("2026-09-22T06:59:59", True),
        ("2026-09-22T07:00:00", False),
        ("2026-09-25T20:00:00", True),  # Friday evening to Monday 00:00 is one time off
        ("2026-09-26T12:00:00", True),
        ("2026-09-27T23:59:59", True),
        ("2026-09-28T00:00:00", False),  # no window begins on Sunday evening
    ],
)
def test_a_window_belongs_to_the_day_on_which_it_begins(moment: str, is_off: bool) -> None:
    assert times().is_off(at(moment)) is is_off


def test_windows_that_follow_each_other_are_one_time_off() -> None:
    assert times().on_again(at("2026-09-25T21:00:00")) == at("2026-09-28T00:00:00")
    assert times().off_again(at("2026-09-28T01:00:00")) == at("2026-09-28T20:00:00")
    assert times().off_again(at("2026-09-28T21:00:00")) == at("2026-09-28T21:00:00")
    assert Times(windows=(), timezone="UTC").off_again(NOW) is None


@pytest.mark.parametrize(
    ("night", "hours"),
    [("2026-03-28", 10), ("2026-10-24", 12)],  # the clock skips, and repeats, the hour from 02:00
)
def test_an_hour_that_the_clock_skips_or_repeats_moves_no_end(night: str, hours: int) -> None:
    windows = parse_windows("Mon-Sun 20:00-07:00")
    begin = at(f"{night}T20:00:00", BERLIN)
    end = Times(windows=windows, timezone=BERLIN).on_again(begin)
    assert (end - begin) // 3600 == hours
    assert datetime.fromtimestamp(end, ZoneInfo(BERLIN)).hour == 7


@given(
    st.integers(1_700_000_000, 1_900_000_000),
    st.sampled_from(["UTC", DHAKA, BERLIN, "America/New_York", "America/Havana", "Australia/Lord_Howe"]),
)
def test_the_end_of_a_time_off_is_on_and_everything_before_it_is_off(now: int, zone: str) -> None:
    found = Times(windows=NIGHTS, timezone=zone)
    end = found.on_again(now)
    assert now <= end <= now + 3 * 86_400 and not found.is_off(end)
    assert end == now or (found.is_off(end - 1) and found.is_off((now + end) // 2))
    begin = found.off_again(now)
    assert begin is not None and begin >= now and found.is_off(begin)
    assert begin == now or not found.is_off(begin - 1)


def test_an_order_goes_over_the_windows_until_its_end() -> None:
    night, day = at("2026-09-21T23:00:00"), at("2026-09-22T12:00:00")
    woken = times(Order(kind="wake", by="ana", since=night, until=night + 3600))
    assert not woken.is_off(night) and not woken.is_off(night + 3599) and woken.is_off(night + 3600)
    assert woken.on_again(night) == night
    assert woken.off_again(night) == night + 3600
    asleep = times(Order(kind="sleep", by="ana", since=day, until=at("2026-09-22T21:00:00")))
    assert asleep.is_off(day)
    assert asleep.on_again(day) == at("2026-09-23T07:00:00"), "the order ends within a window"


def test_capacity_that_is_ordered_for_a_time_goes_over_the_windows_and_under_an_order_to_sleep() -> None:
    night, morning = at("2026-09-21T20:00:00"), at("2026-09-22T07:00:00")
    busy = replace(times(), on=((night + 3600, night + 7200),))
    assert busy.is_off(night + 3599) and not busy.is_off(night + 3600) and busy.is_off(night + 7200)
    assert (busy.on_again(night), busy.on_again(night + 7200)) == (night + 3600, morning)
    assert busy.off_again(night + 3600) == night + 7200
    sleep = Order(kind="sleep", by="ana", since=night, until=morning)
    assert replace(busy, order=sleep).is_off(night + 3600)


@pytest.mark.parametrize(
    ("phase", "moment", "step"),
    [
        ("on", "2026-09-21T19:59:59", "on"),
        ("on", "2026-09-21T20:00:00", "drain"),
        ("on", "2026-09-22T05:50:00", "drain"),  # the drain, half an hour and the lead are left
        ("on", "2026-09-22T05:50:01", "on"),
        ("draining", "2026-09-22T06:49:59", "drain"),
        ("draining", "2026-09-22T06:50:00", "on"),  # the server would have to start at once
        ("stopping", "2026-09-22T06:49:59", "check"),
        ("off", "2026-09-22T06:49:59", "check"),
        ("off", "2026-09-22T06:50:00", "wake"),
        ("off", "2026-09-22T09:00:00", "wake"),
        ("waking", "2026-09-21T22:00:00", "wake"),
    ],
)
def test_the_next_step_follows_from_the_phase_and_the_time(phase: Phase, moment: str, step: Step) -> None:
    assert (LEAD, LEAST_OFF_SECONDS) == (600, 1800)
    assert next_step(Hibernation(phase=phase), times(), at(moment)) == step


def test_an_order_that_is_shorter_than_the_lead_starts_the_server_too() -> None:
    night = at("2026-09-21T23:00:00")
    woken = times(Order(kind="wake", by="ana", since=night, until=night + LEAD - 60))
    assert next_step(Hibernation(phase="off"), woken, night) == "wake"


@pytest.mark.parametrize(
    ("configured", "last", "lead"),
    [(600, 0, 600), (600, 300, 600), (600, 301, 601), (600, 9000, LONGEST_LEAD_SECONDS), (120, 0, 120)],
)
def test_the_server_starts_as_early_as_configured_or_as_its_last_start_needed(
    configured: int, last: int, lead: int
) -> None:
    assert lead_seconds(configured, Hibernation(wake_seconds=last)) == lead


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("Mon-Fri 20:00-07:00; Sat-Sun", 4 * 11 + 11 + 41),
        ("Sun-Fri 19:00-07:00; Sat-Sun", 5 * 12 + 48),
        ("Sat-Sun", 48),
        ("2026-12-24", 0),
        ("Mon-Sun", 168),
    ],
)
def test_the_hours_of_a_week_that_are_off(text: str, hours: int) -> None:
    assert off_minutes(parse_windows(text)) == hours * 60


@pytest.mark.parametrize(
    ("text", "days", "added"),
    [
        ("Mon-Fri 20:00-07:00; Sat-Sun", "Mon", "Mon 00:00-07:00"),
        ("Mon-Fri 20:00-06:00; Sat-Sun", "Mon", "Mon 00:00-06:00"),
        ("Sun-Thu 22:00-06:00; Wed; Sat", "Sun", "Sun 00:00-06:00"),
        ("Mon,Wed 20:00-07:00; Mon 22:00-05:00; Sat; Thu", "Fri,Sun", "Fri,Sun 00:00-07:00"),
        ("Mon 18:00-07:00; Fri 22:00-24:00", "Sat", "Sat 00:00-07:00"),
    ],
)
def test_a_day_that_begins_on_while_other_nights_last_until_the_morning_is_named(
    text: str, days: str, added: str
) -> None:
    warning = midnight_warning(parse_windows(text))
    assert warning.startswith(f"the fleet is on from 00:00 on {days}, ") and warning.endswith(f"add {added}")
    before, after = parse_windows(text), parse_windows(f"{text}; {added}")
    assert midnight_warning(after) == ""
    assert off_minutes(after) - off_minutes(before) == sum(w.length_minutes * len(w.days) for w in parse_windows(added))


@pytest.mark.parametrize(
    "text",
    ["", "Sun-Fri 19:00-07:00; Sat-Sun", "Sat-Sun", "Mon-Fri 20:00-24:00; Sat", "Mon-Fri 00:00-07:00", "2026-12-24"],
)
def test_windows_whose_nights_all_end_alike_need_no_warning(text: str) -> None:
    assert midnight_warning(parse_windows(text)) == ""


def test_sixty_of_168_hours_on_is_64_percent_off() -> None:
    assert round(100 * off_minutes(parse_windows("Sun-Fri 19:00-07:00; Sat-Sun")) / (168 * 60)) == 64


@pytest.mark.parametrize("text", ["Mon-Fri 20:00", "never", "Mon-Fri 20-07", "Mon 20:00-20:00"])
def test_a_window_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        parse_windows(f"Sat; {text}")
    with pytest.raises(ValueError, match="expected text such as"):
        parse_windows(5)


# what forbids it --------------------------------------------------------------------------------------------------

NOTHING = "server i-server\nresult: checked"


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("", ""),
        ("job shop/report\njob shop/z", "Job shop/report runs"),
        ("namespace night", "namespace night has the label node-fleet.io/hibernate=never"),
        ("node i-1:karpenter.sh/do-not-disrupt", "worker i-1 is annotated karpenter.sh/do-not-disrupt"),
        ("pod shop/db-0:v", "pod shop/db-0 uses a volume that exists on this node only"),
        ("pod shop/data:b", "claim shop/data is bound to a volume that no other node can attach"),
        ("pod shop/x:z", "pod shop/x cannot be judged"),
        ("server i-2", "the cluster has 2 servers (i-2, i-server), and only a single one can be switched off"),
    ],
)
def test_the_first_thing_that_would_be_lost_forbids_it(printed: str, said: str) -> None:
    assert guard_in(answer(f"{printed}\n{NOTHING}"), with_jobs=True) == said


def test_jobs_forbid_nothing_where_they_are_not_to() -> None:
    assert guard_in(answer(f"job shop/report\n{NOTHING}"), with_jobs=False) == ""


@pytest.mark.parametrize("said", [answer("result: checked"), answer(NOTHING, 1), answer("server i-server")])
def test_what_is_unknown_forbids_it_too(said: object) -> None:
    assert guard_in(said, with_jobs=True) != ""  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "said"),
    [((), "hibernate_unless has no value: q"), ((0.0, -1.0), ""), ((0.0, 0.5), "hibernate_unless is 0.5: q")],
)
def test_a_metric_above_zero_or_without_a_value_forbids_it(values: tuple[float, ...], said: str) -> None:
    assert metric_guard("q", values) == said


def test_a_protection_forbids_it_until_its_end() -> None:
    held = Protection(instance_id=A, by="ana", since=NOW, until=NOW + 60)
    state = FleetState(cluster_id="c", protections=(held,))
    assert protected_guard(state, NOW + 59).startswith(f"worker {A} stays: it is protected by ana")
    assert protected_guard(state, NOW + 60) == ""


# the operations ---------------------------------------------------------------------------------------------------

STATE = FleetState(cluster_id="c")
FLEET = tuple(instance(i) for i in (C, B, A))


def test_workers_are_drained_whatever_their_pods_need_but_not_one_that_another_drains() -> None:
    lines = (worker_line(A, blockers="shop/db-0:s"), worker_line(B, "RCW", "?"), worker_line(C, "W"))
    inspection = parse_inspection(inspection_text(*lines))
    found = drainable(inspection, FLEET, STATE, Memory(), NOW)
    assert [t.instance_id for t in found] == [A]
    assert [t.phase for t in found] == ["selected"]


def test_all_that_are_left_are_ended_together_by_the_name_of_their_node() -> None:
    inspection = parse_inspection(inspection_text(worker_line(A, name="ip-10-0-0-1")))
    targets = ending(FLEET, inspection, NOW)
    assert [(t.instance_id, t.node_name, t.phase) for t in targets] == [
        (A, "ip-10-0-0-1", "drained"),
        (B, B, "drained"),
        (C, C, "drained"),
    ]
    operation = switch_off(targets, operation_id="off-1", execution_id="e", now=NOW, workers=3, reason="off")
    assert (operation.hibernate, operation.requested, operation.workers_before) == ("end", 3, 3)
    drained = drainable(parse_inspection(inspection_text(worker_line(A))), FLEET, STATE, Memory(), NOW)
    assert switch_off(drained, operation_id="o", execution_id="e", now=NOW, workers=1, reason="").hibernate == "drain"


def test_an_operation_has_at_most_fifty_workers() -> None:
    fleet = [replace(instance(A), instance_id=f"i-{n:017x}") for n in range(60)]
    targets = ending(fleet, parse_inspection(inspection_text(worker_line(A))), NOW)
    operation = switch_off(targets, operation_id="o", execution_id="e", now=NOW, workers=60, reason="")
    assert (len(operation.targets), operation.workers_before) == (50, 60)


def test_the_next_worker_of_those_that_are_ended_is_not_drained() -> None:
    assert after_target(scale_down("forgotten", "drained", hibernate="end")) == "end"
    assert after_target(scale_down("forgotten", "selected", hibernate="drain")) == "target"
    assert after_target(scale_down("forgotten", hibernate="end")) == "done"


def test_a_fleet_that_is_switched_off_asks_no_budget_and_keeps_no_minimum() -> None:
    operation = scale_down("selected", hibernate="drain")
    assert operation.current is not None
    none = parse_budgets([{"nodes": "0"}])
    assert closing_budget(operation, operation.current, none, NOW) == ""
    assert closing_budget(replace(operation, hibernate=""), operation.current, none, NOW) != ""
    inspection = parse_inspection(inspection_text(worker_line(A)))
    judged = _judged(inspection)
    policy = Policy(min_workers=2)
    refused = last_refusal(
        replace(operation, hibernate=""), operation.current, judged, inspection, policy, minimum=2, current=None
    )
    assert refused.startswith("at_min")
    assert last_refusal(operation, operation.current, judged, inspection, policy, minimum=2, current=None) == ""


def _judged(inspection):  # type: ignore[no-untyped-def]
    from node_fleet.domain.scale_down.eligibility import judge_workers

    return judge_workers(inspection, FLEET, under_notice=frozenset(), back_offs=(), now=NOW)


def test_what_ends_the_time_off_ends_the_drains_and_a_long_run_leaves_the_rest_to_the_next() -> None:
    operation, night, morning = (
        scale_down("selected", hibernate="drain"),
        at("2026-09-21T21:00"),
        at("2026-09-22T07:00"),
    )
    order = Order(kind="wake", by="ana", since=night, until=night + 60)
    assert to_be_on(times(order), operation, night + 59) == "the fleet is to be on, ordered by ana"
    assert to_be_on(times(order), operation, night + 60) == ""
    assert to_be_on(times(order), scale_down("selected"), night) == ""
    assert to_be_on(times(), operation, morning - LEAD - 1) == ""
    assert to_be_on(times(), operation, morning - LEAD) == "the fleet is to be on"
    begun = replace(operation, started_at=night)
    assert left_for_later(times(), begun, 900, night + 900) == ""
    assert left_for_later(times(), begun, 900, night + 901) == "left for the next run"
    assert left_for_later(times(), scale_down("selected"), 900, night + 901) == ""
    assert left_for_later(times(order), begun, 900, night).startswith("the fleet is to be on")


def test_what_ends_with_the_last_worker_is_forgotten_and_what_was_learned_is_kept() -> None:
    current = Replacement(worker=A, reason="drifted", replacement=B, since=NOW)
    memory = Memory(
        last_action="scale_up",
        since={"idle": Streak(since=1, last=2, readings=3)},
        suspects={A: 1},
        fresh={A: 1},
        rebooted={A: 1},
        totals="kept",
        roll_out=RollOut(current=current, good_version="7"),
    )
    left = forgotten(memory)
    assert (left.since, left.suspects, left.fresh, left.rebooted, left.readings) == ({}, {}, {}, {}, ())
    assert (left.totals, left.last_action, left.roll_out) == ("kept", "scale_up", RollOut(good_version="7"))


# the size at the end of a time off ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("minutes", "workers"), [(11, 1), (10, 6), (0, 6)], ids=["before the lead", "in the lead", "at the end"]
)
def test_the_minimum_of_the_hour_of_the_end_holds_while_the_fleet_is_started_for_it(minutes: int, workers: int) -> None:
    policy = Policy(
        min_workers=1,
        hibernate=NIGHTS,
        hibernate_lead_seconds=600,
        timezone=DHAKA,
        schedules=parse_schedules("Mon-Fri 07:00-19:00: 6"),
    )
    now = at("2026-09-22T07:00:00") - int(timedelta(minutes=minutes).total_seconds())
    tick = make_tick(Snapshot(at=now, source="none"), Memory(), policy, now)
    assert effective_minimum(tick).workers == workers
