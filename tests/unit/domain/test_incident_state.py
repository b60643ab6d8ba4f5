"""An incident begins with one message, is not repeated while it lasts, and its end is reported once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_app.alarms import ALARMS
from node_fleet.domain.model.memory import BackOff, Memory, ReadingPoint, newest_memory
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.run import Alert
from node_fleet.domain.notify.incident_state import (
    READING_END_SECONDS,
    EndedIncident,
    Failure,
    complete_since,
    ended_incidents,
    incident_keys,
    news_of,
    remembered,
    unreported,
)
from node_fleet.domain.notify.incidents import (
    ALERTS,
    CRITICAL_ALARMS,
    ERRORS,
    OF_ALARM,
    RUN_FAILED,
    incident_of,
    most_severe,
)
from node_fleet.domain.notify.message import Message, end_message
from tests.support.decisions import START, snapshot

QUIET = 3600
SEEN = snapshot(at=START)


def ended(before: dict[str, int], after: dict[str, int] | None = None, **changes: Any) -> tuple[list[str], list[str]]:
    """The keys that ended, and those that stay remembered."""
    over, kept = ended_incidents(before, before if after is None else after, replace(SEEN, **changes), QUIET)
    return [one.key for one in over], sorted(kept)


@pytest.mark.parametrize(
    ("key", "ago", "is_over"),
    [
        ("at_maximum", READING_END_SECONDS, False),
        ("at_maximum", READING_END_SECONDS + 1, True),
        ("not_ready:i-1", READING_END_SECONDS + 1, True),
        ("drain_failed:i-1", READING_END_SECONDS + 1, False),
        ("drain_failed:i-1", QUIET, False),
        ("drain_failed:i-1", QUIET + 1, True),
        ("Ec2Error", QUIET + 1, True),
    ],
)
def test_an_incident_ends_when_its_cause_was_absent_long_enough(key: str, ago: int, is_over: bool) -> None:
    assert ended({key: START - ago}) == (([key], []) if is_over else ([], [key]))


@pytest.mark.parametrize("key", ["volumes_lost:i-1", "roll_out_stopped:1", "PausedError", "of_a_later_version"])
def test_what_is_over_with_its_report_has_no_end_message(key: str) -> None:
    assert ended({key: START - QUIET - 1}) == ([], [])


def test_a_cause_that_this_reading_found_again_lasts() -> None:
    assert ended({"at_maximum": START - 700}, {"at_maximum": START}) == ([], ["at_maximum"])


def test_the_end_of_an_incident_that_the_decision_has_forgotten_is_still_reported() -> None:
    assert ended({"drain_failed:i-1": START - QUIET - 1}, {}) == (["drain_failed:i-1"], [])


@pytest.mark.parametrize(
    "changes", [{"source": "none"}, {"source": "cached"}, {"problem": "p"}, {"pending": None}, {"cpu_percent": None}]
)
def test_an_incomplete_reading_ends_nothing(changes: dict[str, Any]) -> None:
    """A cause may be absent only because it cannot be seen; its end is reported by a later reading."""
    assert ended({"not_ready:i-1": START - 9999}, {}, **changes) == ([], ["not_ready:i-1"])


@pytest.mark.parametrize(
    ("key", "back_off"),
    [
        ("termination_refused", "removal"),
        ("circuit_breaker", "join"),
        ("join_failed:i-1", "join"),
        ("quota_exceeded", "scale_up"),
        ("launch_configuration", "scale_up"),
        ("drain_failed:i-1", "node:i-1"),
        ("own_pods_waiting:i-1", "node:i-1"),
    ],
)
def test_an_incident_lasts_as_long_as_its_action_is_in_back_off(key: str, back_off: str) -> None:
    """Nothing tries the cause in that time, so that its absence does not show that it is over."""
    before = {key: START - QUIET - 1}
    for until, result in ((START + 1, ((), before)), (START, ((EndedIncident(key=key, last_seen=before[key]),), {}))):
        entry = BackOff(key=back_off, failures=2, until=until)
        assert ended_incidents(before, {}, SEEN, QUIET, back_offs=(entry,)) == result


def readings(*points: tuple[int, float | None, int | None]) -> tuple[ReadingPoint, ...]:
    """Readings so many seconds before START, with CPU and the pending pods."""
    return tuple(
        ReadingPoint(at=START - ago, cpu_percent=cpu, memory_percent=1.0, pending=pending, usable=3)
        for ago, cpu, pending in points
    )


@pytest.mark.parametrize(
    ("points", "ago"),
    [
        ((), None),
        (((240, 1.0, 0), (120, 1.0, 0), (0, 1.0, 0)), 240),
        (((240, 1.0, 0), (120, None, 0), (0, 1.0, 0)), 0),
        (((240, 1.0, 0), (120, 1.0, None), (0, 1.0, 0)), 0),
        (((600, 1.0, 0), (300, 1.0, 0), (0, 1.0, 0)), 600),
        (((601, 1.0, 0), (300, 1.0, 0), (0, 1.0, 0)), 300),
        (((360, 1.0, 0), (240, 1.0, 0), (120, 1.0, 0), (0, 1.0, 0)), None),
    ],
    ids=["none", "all complete", "no CPU", "no pods", "at the gap", "a gap", "as long as they are kept"],
)
def test_readings_are_complete_since_the_last_gap(points: Any, ago: int | None) -> None:
    policy = Policy(reading_gap_seconds=300, readings_kept=4)
    assert complete_since(readings(*points), policy) == (0 if ago is None else START - ago)


@pytest.mark.parametrize(("since", "is_over"), [(START - 600, False), (START - 601, True), (0, True)])
def test_an_outage_of_the_metrics_does_not_end_what_it_hid(since: int, is_over: bool) -> None:
    before = {"many_unhealthy": START - 7000, "Ec2Error": START - 7000}
    over, kept = ended_incidents(before, {}, SEEN, QUIET, complete_since=since)
    assert [one.key for one in over] == [*(["many_unhealthy"] if is_over else []), "Ec2Error"]
    assert kept == ({} if is_over else {"many_unhealthy": START - 7000})


def test_a_back_off_of_another_object_or_of_a_drain_holds_no_end_that_a_reading_shows() -> None:
    before = {"drain_failed:i-1": START - QUIET - 1, "not_ready:i-2": START - 601}
    others = tuple(BackOff(key=f"node:{i}", failures=1, until=START + 99) for i in ("i-2", "i-3"))
    ended_now, kept = ended_incidents(before, before, SEEN, QUIET, back_offs=others)
    assert ([one.key for one in ended_now], kept) == (list(before), {})


def test_without_complete_readings_what_has_no_end_is_forgotten_after_the_quiet_time() -> None:
    """Else the memory would grow for as long as Prometheus is down."""
    before = {"volumes_lost:i-1": START - QUIET - 1, "PausedError": START - QUIET, "Ec2Error#1": START - QUIET - 1}
    assert ended(before, {"PausedError": START - QUIET}, source="none") == ([], ["PausedError"])


KEYS = st.sampled_from(["at_maximum", "not_ready:i-1", "drain_failed:i-1", "volumes_lost:i-1", "Ec2Error"])


@given(st.dictionaries(KEYS, st.integers(START - 9000, START)), st.sets(KEYS))
def test_an_incident_ends_once_and_is_then_forgotten(before: dict[str, int], present: set[str]) -> None:
    after = {**before, **dict.fromkeys(present, START)}
    over, kept = ended_incidents(before, after, SEEN, QUIET)
    keys = {one.key for one in over}
    assert not keys & present and not keys & set(kept)
    assert ended_incidents(kept, kept, SEEN, QUIET) == ((), kept)


NOW, STARTED = 10_000, 9_900


def news(
    *found: str,
    decided: tuple[str, ...] = (),
    error: str = "",
    text: str = "",
    alerted: dict[str, int] | None = None,
) -> tuple[tuple[str, ...], bool]:
    given_news = news_of(
        [Alert(kind=kind, text="t") for kind in decided],
        [Alert(kind=kind, text="t") for kind in found],
        Failure(error=error, text=text),
        alerted=alerted or {},
        started_at=STARTED,
        now=NOW,
        quiet_seconds=QUIET,
    )
    return given_news.keys, given_news.is_new


def test_the_first_failure_is_news_and_the_same_one_in_the_next_run_is_not() -> None:
    keys, is_new = news(error="Ec2Error")
    assert (keys, is_new) == (("Ec2Error", RUN_FAILED), True)
    after = remembered({}, keys, Failure(error="Ec2Error"), NOW - 120)
    assert after == {"Ec2Error": NOW - 120}
    assert news(error="Ec2Error", alerted=after) == (keys, False)
    assert news(error="StateStoreError", alerted=after)[1], "another cause is another incident"


@pytest.mark.parametrize(("ago", "is_new"), [(QUIET, False), (QUIET + 1, True)])
def test_a_failure_that_was_absent_for_the_quiet_time_is_news(ago: int, is_new: bool) -> None:
    assert news(error="Ec2Error", alerted={"Ec2Error": NOW - ago})[1] is is_new


def test_another_cause_with_the_class_of_a_known_failure_is_news_and_other_ids_are_not() -> None:
    """Ec2Error lasts because of one missing permission; a second one must not be hidden by it."""
    subnet = "EC2: cannot launch in subnet-0a1: subnet-0a1 does not exist (request 6ab-1)"
    keys, _ = news(error="LaunchConfigurationError", text=subnet)
    after = remembered({}, keys, Failure(error="LaunchConfigurationError", text=subnet), NOW - 120)
    same = subnet.replace("0a1", "0b2").replace("6ab-1", "77-2c")
    assert not news(error="LaunchConfigurationError", text=same, alerted=after)[1]
    role = "EC2: cannot launch: iam:PassRole is missing"
    assert news(error="LaunchConfigurationError", text=role, alerted=after) == (keys, True)
    after = remembered(after, keys, Failure(error="LaunchConfigurationError", text=role), NOW)
    assert not news(error="LaunchConfigurationError", text=subnet, alerted=after)[1], "both are known"


@pytest.mark.parametrize(
    ("error", "alerted"),
    [
        ("NoCapacityError", {"no_capacity": NOW - 9, "NoCapacityError#0": NOW - 9}),
        ("MetricsUnavailableError", {"metrics_unavailable": NOW - 9}),
    ],
    ids=["its text lists tries", "only an alert has reported it"],
)
def test_the_words_of_a_failure_do_not_count_where_they_cannot_be_compared(error: str, alerted: dict[str, int]) -> None:
    assert not news(error=error, text="any words", alerted=alerted)[1]


def test_what_no_topic_accepted_is_news_again_and_an_end_is_reported_later() -> None:
    over = EndedIncident(key="join_failed", last_seen=5)
    alerted = {"at_maximum": NOW, "not_ready:i-1": 7}
    assert unreported(alerted, ("at_maximum",), (over,)) == {"not_ready:i-1": 7, "join_failed": 5}
    assert ended(unreported({}, (), (over,))) == (["join_failed"], [])


def test_an_error_and_the_alert_with_its_cause_are_one_incident() -> None:
    outage = ("metrics_unavailable", RUN_FAILED)
    assert news(decided=("metrics_unavailable",), error="MetricsUnavailableError") == (outage, True)
    seen = {"metrics_unavailable": NOW - 10}
    assert news(error="MetricsUnavailableError", alerted=seen) == (outage, False)


@pytest.mark.parametrize(
    ("marked", "is_new"), [(STARTED - 61, False), (STARTED - 60, True), (NOW, True)], ids=["before", "clocks", "in it"]
)
def test_an_alert_that_a_step_of_this_run_has_marked_is_news(marked: int, is_new: bool) -> None:
    assert news("drain_failed:i-1", alerted={"drain_failed:i-1": marked})[1] is is_new


def test_what_is_over_with_its_report_is_news_each_time() -> None:
    assert news("volumes_lost:i-1", alerted={"volumes_lost:i-1": STARTED - 100})[1]
    assert news(error="PausedError", alerted={"PausedError": STARTED - 100})[1]


def test_the_most_severe_incident_leads_and_each_is_named_once() -> None:
    alerts = [Alert(kind=kind, text="t") for kind in ("join_failed:i-1", "join_failed:i-1", "at_maximum")]
    assert incident_keys(alerts) == ("at_maximum", "join_failed:i-1")
    assert incident_keys(alerts, "NothingJoinedError")[-1] == RUN_FAILED


def test_a_failed_run_keeps_what_its_message_has_reported() -> None:
    stored = Memory(last_action_at=2, alerted={"old": 1})
    assert newest_memory(stored, Memory(last_action_at=1, alerted={"Ec2Error": 5})).alerted == {"Ec2Error": 5}


def test_the_messages_about_one_incident_have_one_subject_and_its_severity() -> None:
    begin = Message(
        cluster_id="c",
        level="error",
        what="w",
        why="y",
        execution_id="e",
        trigger="t",
        incidents=("at_maximum", "join_failed"),
    )
    end = end_message(EndedIncident(key="at_maximum", last_seen=0), "c", "e")
    assert (begin.subject, begin.severity) == (end.subject, end.severity) == ("at_maximum", "critical")
    assert end.what == "ended: at_maximum was last seen at 1970-01-01 00:00 UTC"
    lost = replace(begin, incidents=(), alerts=(Alert(kind="k", text="t", is_critical=True),))
    assert (lost.severity, lost.subject) == ("critical", "w")
    assert replace(begin, incidents=(), trigger="weekly").subject == "y"
    assert most_severe([]) == "info"


def test_each_alarm_is_listed_with_its_severity_and_an_incident_that_exists() -> None:
    assert {rule.name for rule in ALARMS if rule.severity == "critical"} == set(CRITICAL_ALARMS)
    assert set(OF_ALARM) <= {rule.name for rule in ALARMS}
    assert all(incident_of(kind) for kind in OF_ALARM.values())


def test_the_cause_of_an_error_is_a_kind_of_alert_of_at_least_its_severity() -> None:
    kinds = {row.name: row for row in ALERTS}
    order = ("info", "warning", "critical")
    for row in ERRORS:
        if row.cause:
            assert row.cause in kinds
    assert all(row.end == "none" for row in (*ALERTS, *ERRORS) if row.severity == order[0])
