"""node-fleet scale: what its words mean, what an order adds up to, its price, and each refusal."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from cli.output import CommandError, ExitCode, WrongUseError
from cli.scale import Plan, length_of, number_of, plan_lines, plan_order, start_of
from node_fleet.domain.model.fleet_state import FleetState, Pause
from node_fleet.domain.model.hibernation import Hibernation, Order
from node_fleet.domain.model.timed_minimum import TimedMinimum
from node_fleet.settings import Settings

BERLIN, DHAKA = "Europe/Berlin", "Asia/Dhaka"
NOW = 1_790_000_040  # Monday 21 September 2026, 14:14 UTC
SETTINGS = Settings(min_workers=2, max_workers=10, region="ap-southeast-1", spot_percent=0)
EMPTY = FleetState(cluster_id="c")
ORDER = TimedMinimum(name="a1", workers=3, since=NOW, until=NOW + 7200, by="ana", reason="a sale")


def at(zone: str, text: str, fold: int = 0) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp())


def planned(order: TimedMinimum = ORDER, settings: Settings = SETTINGS, state: FleetState = EMPTY, **more: Any) -> Plan:
    return plan_order(order, settings, state, **{"now": NOW, "running": 4, "is_relative": True, **more})


@pytest.mark.parametrize(("text", "expected"), [("+3", (True, 3)), ("8", (False, 8)), ("+9999", (True, 9999))])
def test_a_plus_is_relative_and_a_bare_number_is_not(text: str, expected: tuple[bool, int]) -> None:
    assert number_of(text) == expected


@pytest.mark.parametrize("text", ["", "0", "+0", "three", "3.5", "++3", "10000", "-3"])
def test_what_is_no_number_of_workers_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(WrongUseError) as caught:
        number_of(text)
    assert caught.value.text == (f"{text!r} is no number of workers" if text else "how many workers?")
    assert 'type: node-fleet scale +3 --for 2h --why "sale"' in caught.value.hint


def test_the_length_has_a_limit_and_must_be_given() -> None:
    assert (length_of("7d"), length_of("2h")) == (604_800, 7200)
    for text, words in (("", "for how long?"), ("7d1s", "--for 7d1s is too long"), ("soon", "--for 'soon' is not")):
        with pytest.raises(WrongUseError, match=words):
            length_of(text)


@pytest.mark.parametrize(
    ("text", "now", "expected"),
    [
        ("18:00", at(DHAKA, "2026-11-27 17:59"), at(DHAKA, "2026-11-27 18:00")),
        ("18:00", at(DHAKA, "2026-11-27 18:00"), at(DHAKA, "2026-11-27 18:00")),
        ("18:00", at(DHAKA, "2026-11-27 18:00") + 1, at(DHAKA, "2026-11-28 18:00")),
        ("00:00", at(DHAKA, "2026-12-31 23:00"), at(DHAKA, "2027-01-01 00:00")),
        ("2026-12-27 18:00", at(DHAKA, "2026-11-27 18:00"), at(DHAKA, "2026-12-27 18:00")),
        ("2026-11-28T06:30", at(DHAKA, "2026-11-27 18:00"), at(DHAKA, "2026-11-28 06:30")),
    ],
)
def test_a_wall_clock_time_is_the_next_one_and_a_date_is_that_day(text: str, now: int, expected: int) -> None:
    assert start_of(text, DHAKA, now) == expected


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        # 02:30 comes twice on 25 October 2026: the next one counts.
        (at(BERLIN, "2026-10-25 01:00"), at(BERLIN, "2026-10-25 02:30", fold=0)),
        (at(BERLIN, "2026-10-25 02:31", fold=0), at(BERLIN, "2026-10-25 02:30", fold=1)),
        (at(BERLIN, "2026-10-25 02:31", fold=1), at(BERLIN, "2026-10-26 02:30")),
        # On 29 March 2026 the clock skips it: the earlier reading, which is 01:30, and the next day after that.
        (at(BERLIN, "2026-03-29 01:00"), at(BERLIN, "2026-03-29 01:30")),
        (at(BERLIN, "2026-03-29 01:31"), at(BERLIN, "2026-03-30 02:30")),
        (at(BERLIN, "2026-03-29 03:10"), at(BERLIN, "2026-03-30 02:30")),
    ],
)
def test_where_the_clock_jumps_the_order_is_never_late(now: int, expected: int) -> None:
    assert start_of("02:30", BERLIN, now) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("24:00", "--at '24:00' is no time"),
        ("6pm", "--at '6pm' is no time"),
        ("2026-02-30 18:00", "is no time"),
        ("2026-09-21 14:13", "is in the past"),
        ("2026-10-21 14:15", "is too far ahead"),
    ],
)
def test_a_time_that_is_none_is_past_or_too_far_ahead_is_refused(text: str, words: str) -> None:
    with pytest.raises(WrongUseError, match=words):
        start_of(text, "UTC", NOW)
    assert start_of("2026-10-21 14:14", "UTC", NOW) == NOW + 30 * 86_400


@pytest.mark.parametrize(
    ("running", "beside", "schedules", "expected"),
    [
        (4, (), "", (7, 4, 2)),
        (1, (), "", (5, 2, 2)),  # below the minimum: more than what will run anyway
        (4, (), "Mon-Sun 00:00-24:00: 5", (8, 5, 5)),
        (4, ((0, 7200, 6),), "", (9, 6, 6)),  # an order of the same time: both add up, whoever ordered first
        (4, ((7200, 9000, 6),), "", (7, 4, 2)),
        (4, ((7199, 9000, 6),), "", (9, 6, 6)),
        (4, ((-900, 0, 6),), "", (7, 4, 2)),
    ],
)
def test_a_relative_number_counts_from_what_runs_or_holds_at_that_time(
    running: int, beside: tuple[tuple[int, int, int], ...], schedules: str, expected: tuple[int, int, int]
) -> None:
    orders = (replace(ORDER, name=f"o{a}", since=NOW + a, until=NOW + b, workers=w) for a, b, w in beside)
    settings = Settings.from_mapping({"max_workers": 10, "schedules": schedules})
    plan = planned(settings=settings, state=replace(EMPTY, timed_minimums=tuple(orders)), running=running)
    assert (plan.order.workers, plan.base, plan.minimum) == expected


def test_an_absolute_number_is_what_it_says() -> None:
    assert planned(is_relative=False).order.workers == 3


@pytest.mark.parametrize(
    ("number", "more", "words", "hint"),
    [
        (7, {}, "11 workers are above max_workers=10", "+6 at most, or raise max_workers"),
        (1, {"running": 10}, "11 workers are above max_workers=10", "at most 10, or raise"),
        (11, {"is_relative": False}, "11 workers are above max_workers=10", "at most 10, or raise"),
        (2, {"is_relative": False}, "at least 2 workers run at that time anyway", "+N for N more"),
    ],
)
def test_more_than_the_maximum_and_no_more_than_the_minimum_are_refused(
    number: int, more: dict[str, Any], words: str, hint: str
) -> None:
    with pytest.raises(CommandError) as caught:
        planned(replace(ORDER, workers=number), **more)
    assert caught.value.text == words and hint in caught.value.hint


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ({"max_vcpu": 14}, ""),
        ({"max_vcpu": 13}, "max_vcpu=13: 7 workers need 14 vCPU"),
        ({"max_usd_per_hour": 0.2383}, ""),
        ({"max_usd_per_hour": 0.2382}, "max_usd_per_hour=0.2382: 7 workers need 0.2382 USD an hour"),
    ],
)
def test_more_than_a_limit_in_money_or_vcpus_holds_is_refused(limit: dict[str, Any], words: str) -> None:
    settings = replace(SETTINGS, **limit)
    if not words:
        assert planned(settings=settings).order.workers == 7
        return
    with pytest.raises(CommandError) as caught:
        planned(settings=settings)
    assert caught.value.text == words


def test_the_largest_number_and_the_shortest_time_are_accepted() -> None:
    assert planned(replace(ORDER, workers=6)).order.workers == 10
    assert planned(replace(ORDER, until=NOW + 120)).order.workers == 7
    with pytest.raises(CommandError, match="119 s are less than the 120 s between two runs"):
        planned(replace(ORDER, until=NOW + 119))


def test_what_is_confirmed_names_the_number_the_time_the_price_and_what_it_meets() -> None:
    pause = Pause(reason="a look", by="mira", since=NOW - 60, until=NOW + 600)
    other = replace(ORDER, name="b2", workers=5, by="ben", reason="a test", until=NOW + 60)
    state = replace(EMPTY, pause=pause, timed_minimums=(other,))
    lines = plan_lines(planned(state=state), SETTINGS, NOW)
    # t3.small: 0.0264 USD an hour, 20 GiB for 0.096 USD a month, an address for 0.005 USD: 0.03403 USD x 3 x 2 h
    assert lines == [
        "at least 8 workers (3 more than 5) from Mon 2026-09-21 14:14 UTC to Mon 2026-09-21 16:14 UTC, 2h",
        "price: about $0.20, at most $0.20, for 3 workers above the minimum of 5 (prices shipped 2025-11)",
        "the fleet is paused by mira: a look: no worker is launched before Mon 2026-09-21 14:24 UTC",
        "at the same time b2: at least 5 workers until Mon 2026-09-21 14:15 UTC, ordered by ben: a test; "
        "the highest number holds",
    ]


@pytest.mark.parametrize(
    ("kind", "phase", "until", "since", "said"),
    [
        ("sleep", "off", 601, 600, "the fleet is off until Mon 2026-09-21 14:24 UTC, ordered by ben"),
        ("sleep", "off", 600, 600, "a check follows within 10 min"),
        ("wake", "off", 601, 600, "a check follows within 10 min"),
        ("wake", "off", 601, 601, ""),
        ("wake", "stopping", 601, 0, "a check follows within 10 min"),
        ("wake", "draining", 601, 0, ""),
    ],
)
def test_an_order_for_a_fleet_that_is_off_names_when_it_is_switched_on(
    kind: Any, phase: Any, until: int, since: int, said: str
) -> None:
    off = Order(kind=kind, by="ben", since=NOW - 60, until=NOW + until)
    state = replace(EMPTY, hibernate_order=off, hibernation=Hibernation(phase=phase))
    order = replace(ORDER, since=NOW + since, until=NOW + since + 7200)
    settings = replace(SETTINGS, hibernate_lead_seconds=600)
    plan = plan_order(order, settings, state, now=NOW, running=5, is_relative=True)
    lines = plan_lines(plan, settings, NOW)[2:]
    assert len(lines) == bool(said)
    assert said in "".join(lines)


def test_the_price_is_that_of_the_wanted_spot_share_and_at_most_that_of_the_dearest_type_on_demand() -> None:
    settings = replace(SETTINGS, spot_percent=100, instance_types=("t3.small", "t3.large", "t3.medium"))
    plan = planned(settings=settings)
    volume_and_address = 20 * 0.096 / 730 + 0.005
    assert plan.about.usd == pytest.approx((0.0087 + volume_and_address) * 5 * 2)
    assert plan.at_most.usd == pytest.approx((0.1056 + volume_and_address) * 5 * 2)


def test_a_price_that_is_not_known_is_named_and_not_guessed() -> None:
    plan = planned(settings=replace(SETTINGS, instance_types=("t3.small", "x9.huge")))
    assert (
        "price: unknown: the price of x9.huge on-demand in ap-southeast-1, for 5 workers"
        in plan_lines(plan, SETTINGS, NOW)[1]
    )


def test_an_order_that_raises_nothing_ends_as_nothing_done() -> None:
    with pytest.raises(CommandError) as caught:
        planned(replace(ORDER, workers=1), is_relative=False)
    assert caught.value.code == ExitCode.NOTHING_DONE
