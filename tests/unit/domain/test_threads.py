"""Where Slack shows a message: a new message, a reply, or nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from node_fleet.domain.notify.threads import (
    LONGEST_SILENCE_SECONDS,
    Display,
    Notice,
    Thread,
    display_of,
    keys_that_share,
    notice_of_alarm,
    takes,
    thread_after,
)

NOW, QUIET = 1_000_000, 3600
OPEN = Thread(ts="1.0", severity="warning", seen_at=NOW - 60, by_run=True)
NEWS = Notice(keys=("drain_failed:i-1", "drain_failed"), severity="warning")
END = replace(NEWS, is_end=True)
ALARM = Notice(keys=("drain_failed",), severity="warning", alarm="DrainFailures")


def display(notice: Notice, known: Thread | None, *, can_reply: bool = True, has_new: bool = False) -> Display:
    return display_of(notice, known, can_reply=can_reply, now=NOW, quiet_seconds=QUIET, has_new=has_new)


@pytest.mark.parametrize(
    ("changes", "action"),
    [
        ({}, "reply"),
        ({"seen_at": NOW - LONGEST_SILENCE_SECONDS}, "reply"),
        ({"seen_at": NOW - LONGEST_SILENCE_SECONDS - 1}, "begin"),
        ({"ended_at": NOW - QUIET}, "reply"),
        ({"ended_at": NOW - QUIET - 1}, "begin"),
    ],
)
def test_news_continue_a_recent_thread_and_begin_one_after_an_old_one(changes: dict[str, Any], action: str) -> None:
    assert display(NEWS, replace(OPEN, **changes)).action == action


def test_the_end_is_always_told_in_the_thread() -> None:
    old = replace(OPEN, seen_at=NOW - 20 * LONGEST_SILENCE_SECONDS)
    assert display(END, old) == Display(action="reply", ts="1.0", broadcast=True)
    assert display(END, None).action == "begin"


@pytest.mark.parametrize(
    ("notice", "changes", "broadcast"),
    [
        (NEWS, {}, False),
        (END, {}, True),
        (replace(ALARM, severity="critical"), {}, True),
        (replace(ALARM, severity="critical"), {"severity": "critical"}, False),
        (NEWS, {"ended_at": NOW - 60}, True),
        (Notice(keys=("wake_failed",), named=("wake_failed",), severity="warning"), {}, True),
    ],
    ids=["more of the same", "the end", "a higher severity", "the same severity", "a new beginning", "still not awake"],
)
def test_the_channel_sees_the_replies_that_change_the_state(
    notice: Notice, changes: dict[str, Any], broadcast: bool
) -> None:
    assert display(notice, replace(OPEN, **changes)).broadcast is broadcast


@pytest.mark.parametrize(
    ("notice", "changes", "action"),
    [
        (NEWS, {}, "post"),
        (END, {}, "post"),
        (ALARM, {}, "skip"),
        (replace(ALARM, severity="critical"), {}, "post"),
        (ALARM, {"by_run": False}, "post"),
        (replace(ALARM, is_end=True), {}, "skip"),
        (replace(ALARM, is_end=True), {"alarms": ("DrainFailures",)}, "post"),
    ],
    ids=["news", "end", "known alarm", "worse alarm", "only alarms", "end of an unseen alarm", "end of a seen alarm"],
)
def test_a_webhook_shows_no_alarm_about_what_a_run_has_reported(
    notice: Notice, changes: dict[str, Any], action: str
) -> None:
    assert display(notice, replace(OPEN, ts="", **changes), can_reply=False).action == action


def test_the_channel_sees_a_reply_that_begins_another_incident() -> None:
    assert display(NEWS, OPEN, has_new=True) == Display(action="reply", ts="1.0", broadcast=True)


@pytest.mark.parametrize("can_reply", [True, False])
def test_the_alarm_that_no_run_completes_is_always_shown(can_reply: bool) -> None:
    """It belongs to the thread of the last failed run, but there may be no run left that could report anything."""
    alarm = Notice(keys=("RunFailedError",), severity="critical", alarm="NoCompletedTick")
    known = replace(OPEN, severity="critical", ts="1.0" if can_reply else "")
    shown = display(alarm, known, can_reply=can_reply)
    assert shown == (Display(action="reply", ts="1.0", broadcast=True) if can_reply else Display(action="post"))
    after = thread_after(alarm, known, shown, "", NOW)
    assert display(replace(alarm, is_end=True), after, can_reply=can_reply).action == shown.action


THREAD = replace(OPEN, ts="1.0")


@pytest.mark.parametrize(
    ("key", "ts", "lasts", "is_end", "takes_it"),
    [
        ("not_ready:i-2", None, False, False, True),
        ("not_ready:i-2", "2.0", True, False, False),
        ("not_ready:i-2", "2.0", False, False, True),
        ("not_ready:i-2", "1.0", True, False, True),
        ("RunFailedError", "2.0", True, False, True),
        ("not_ready:i-2", "1.0", True, True, True),
        ("not_ready:i-2", "2.0", False, True, False),
        ("not_ready:i-2", None, False, True, False),
    ],
)
def test_an_incident_keeps_its_own_thread(key: str, ts: str | None, lasts: bool, is_end: bool, takes_it: bool) -> None:
    other = None if ts is None else replace(OPEN, ts=ts)
    assert takes(key, other, THREAD, replace(NEWS, is_end=is_end), lasts=lasts) is takes_it


def test_a_thread_keeps_its_first_message_the_highest_severity_and_its_alarms() -> None:
    worse = replace(ALARM, severity="critical")
    after = thread_after(worse, OPEN, display(worse, OPEN), "", NOW)
    assert after == Thread(ts="1.0", severity="critical", seen_at=NOW, by_run=True, alarms=("DrainFailures",))
    first = thread_after(ALARM, None, display(ALARM, None), "7.0", NOW)
    assert (first.ts, first.by_run, first.alarms, first.ended_at) == ("7.0", False, ("DrainFailures",), 0)
    assert thread_after(NEWS, first, display(NEWS, first), "", NOW).by_run


@pytest.mark.parametrize(
    ("by_run", "notice", "is_over"),
    [
        (True, END, True),
        (True, replace(ALARM, is_end=True), False),
        (False, replace(ALARM, is_end=True), True),
        (True, NEWS, False),
    ],
    ids=["its end", "the end of an alarm that joined", "the end of an alarm that began it", "news"],
)
def test_a_run_ends_what_it_has_reported_and_an_alarm_what_it_began(
    by_run: bool, notice: Notice, is_over: bool
) -> None:
    known = replace(OPEN, by_run=by_run)
    assert bool(thread_after(notice, known, display(notice, known), "", NOW).ended_at) is is_over


def test_the_end_of_an_alarm_does_not_open_what_has_ended() -> None:
    known = replace(OPEN, ended_at=NOW - 60)
    quiet_alarm = replace(ALARM, is_end=True)
    assert thread_after(quiet_alarm, known, display(quiet_alarm, known), "", NOW).ended_at == NOW - 60
    assert thread_after(quiet_alarm, None, display(quiet_alarm, None), "1.0", NOW).ended_at == NOW


def test_the_kind_of_an_object_and_failed_runs_share_the_thread() -> None:
    assert keys_that_share(NEWS) == ("drain_failed",)
    assert keys_that_share(END) == ("drain_failed", "RunFailedError")
    assert keys_that_share(replace(ALARM, is_end=True)) == ()


@pytest.mark.parametrize(
    ("name", "key", "severity"),
    [
        ("shop-NoCompletedTick", "RunFailedError", "critical"),
        ("shop-DrainFailures", "drain_failed", "warning"),
        ("shop-LockHeld", "LockHeld", "critical"),
        ("of someone else", "of someone else", "warning"),
    ],
)
def test_an_alarm_belongs_to_the_incident_with_its_cause(name: str, key: str, severity: str) -> None:
    notice = notice_of_alarm({"AlarmName": name}, "shop")
    assert (notice.keys, notice.severity, notice.is_end) == ((key,), severity, False)
    assert notice_of_alarm({"AlarmName": name, "NewStateValue": "OK"}, "shop").is_end
