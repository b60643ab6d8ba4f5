"""What an announcement means: which instances, how much time, which answer. The workflow's walk is tested elsewhere."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from node_fleet.domain.interruption.announcement import Announcement, outranks, read_announcement
from node_fleet.domain.interruption.closing import (
    capacity_wait_seconds,
    closing_alerts,
    closing_sentence,
    outcome_status,
)
from node_fleet.domain.interruption.response import (
    DeadlineDrain,
    Replacement,
    interruption_alerts,
    interruption_message,
    needs_no_replacement,
    plan_response,
    reason_to_skip_drain,
    replacement_of,
    replacement_operation,
    replacement_slot,
)
from node_fleet.domain.model.errors import InvalidInputError
from node_fleet.domain.model.fleet_state import FleetState, Notice, Pause
from node_fleet.domain.scale_down.lost_volumes import LostVolume
from node_fleet.settings import Settings
from tests.support.handlers.fakes import A, B, scale_down
from tests.support.launches import NOW, instance, placement
from tests.support.launches import slot as launch_slot

ISO = "2026-09-21T14:13:20Z"
AT = 1_790_000_000
TIMES = Settings()
ONE = instance(1)


def event(kind: str, **detail: Any) -> dict[str, Any]:
    return {"detail-type": kind, "time": ISO, "detail": {"instance-id": ONE.instance_id, **detail}}


def test_a_spot_warning_gives_two_minutes_from_the_time_of_the_event() -> None:
    found = read_announcement(event("EC2 Spot Instance Interruption Warning", **{"instance-action": "terminate"}))
    assert found == Announcement(instance_ids=(ONE.instance_id,), kind="spot", at=AT, deadline=AT + 120)


def test_a_recommendation_names_no_date() -> None:
    found = read_announcement(event("EC2 Instance Rebalance Recommendation"))
    assert found == Announcement(instance_ids=(ONE.instance_id,), kind="rebalance", at=AT, deadline=0, event="")


@pytest.mark.parametrize(
    ("state", "kind"), [("terminated", "gone"), ("stopped", "stopped"), ("running", None), ("shutting-down", None)]
)
def test_of_state_changes_only_the_ends_mean_something(state: str, kind: str | None) -> None:
    found = read_announcement(event("EC2 Instance State-change Notification", state=state))
    assert found == Announcement(instance_ids=(ONE.instance_id,), kind=kind, at=AT, deadline=0, event="")  # type: ignore[arg-type]


def health(**changes: Any) -> dict[str, Any]:
    detail = {
        "service": "EC2",
        "eventTypeCategory": "scheduledChange",
        "startTime": "Thu, 24 Sep 2026 14:13:20 GMT",
        "affectedEntities": [{"entityValue": "i-1"}, {"entityValue": "i-2"}],
        **changes,
    }
    return {"detail-type": "AWS Health Event", "time": ISO, "detail": detail}


def test_a_scheduled_change_may_name_several_instances_and_its_date() -> None:
    found = read_announcement(health(statusCode="upcoming", eventArn="arn:aws:health:::event/EC2/X/X_1"))
    assert (found.instance_ids, found.kind, found.deadline) == (("i-1", "i-2"), "scheduled", AT + 3 * 86_400)
    assert found.event == "arn:aws:health:::event/EC2/X/X_1"


@pytest.mark.parametrize("changes", [{"service": "RDS"}, {"eventTypeCategory": "issue"}, {"statusCode": "closed"}])
def test_other_health_events_ask_for_nothing(changes: dict[str, str]) -> None:
    assert read_announcement(health(**changes)) == Announcement(instance_ids=(), kind=None, at=AT, deadline=0, event="")


@pytest.mark.parametrize(
    ("broken", "word"),
    [({}, "detail"), ({"detail": {}}, "time"), ({"detail": {}, "time": "soon"}, "soon"), ({"detail": 5}, "time")],
)
def test_an_event_that_cannot_be_read_is_refused_by_name(broken: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidInputError, match=word):
        read_announcement(broken)


@pytest.mark.parametrize(
    ("new", "known", "wins"),
    [
        ("spot", "rebalance", True),
        ("spot", "scheduled", True),
        ("scheduled", "rebalance", True),
        ("spot", "spot", False),
        ("rebalance", "rebalance", False),
        ("rebalance", "spot", False),
        ("scheduled", "spot", False),
    ],
)
def test_only_a_notice_with_less_time_takes_over(new: str, known: str, wins: bool) -> None:
    announcement = Announcement(instance_ids=("i",), kind=new, at=NOW)  # type: ignore[arg-type]
    assert outranks(announcement, Notice(instance_id="i", kind=known, at=0)) is wins


@pytest.mark.parametrize(("late", "wins"), [(-120, False), (0, False), (1, True), (7200, True)])
@pytest.mark.parametrize(("new", "known"), [("spot", "spot"), ("scheduled", "scheduled"), ("scheduled", "spot")])
def test_another_with_no_less_time_takes_over_only_after_the_date_of_the_first(
    new: str, known: str, late: int, wins: bool
) -> None:
    announcement = Announcement(instance_ids=("i",), kind=new, at=NOW + late, deadline=NOW + 9000, event="b")  # type: ignore[arg-type]
    notice = Notice(instance_id="i", kind=known, at=NOW - 120, deadline=NOW, event="a")
    assert outranks(announcement, notice) is wins


@pytest.mark.parametrize(("moved_by", "wins"), [(-3600, True), (-1, True), (0, False), (1, True), (86_400, True)])
@pytest.mark.parametrize("age", [-60, 0, 60])
def test_a_scheduled_change_whose_date_moves_is_answered_again_unless_the_news_is_old(
    moved_by: int, wins: bool, age: int
) -> None:
    due = NOW + 2 * 86_400
    news = Announcement(instance_ids=("i",), kind="scheduled", at=NOW + age, deadline=due + moved_by, event="a")
    known = Notice(instance_id="i", kind="scheduled", at=NOW, deadline=due, event="a")
    assert outranks(news, known) is (wins and age > 0)


@pytest.mark.parametrize(("later_by", "wins"), [(-1, True), (0, False), (1, False)])
def test_of_two_scheduled_changes_the_sooner_one_is_answered(later_by: int, wins: bool) -> None:
    due = NOW + 2 * 86_400
    other = Announcement(instance_ids=("i",), kind="scheduled", at=NOW + 60, deadline=due + later_by, event="b")
    known = Notice(instance_id="i", kind="scheduled", at=NOW, deadline=due, event="a")
    assert outranks(other, known) is wins


@pytest.mark.parametrize(
    "known",
    [
        Notice(instance_id="i", kind="rebalance", at=NOW - 9000),
        Notice(instance_id="i", kind="spot", at=NOW - 120, deadline=NOW),
    ],
    ids=["an earlier recommendation has no date after which the next would count", "the worker was not reclaimed"],
)
def test_a_recommendation_adds_nothing(known: Notice) -> None:
    assert not outranks(Announcement(instance_ids=("i",), kind="rebalance", at=NOW + 1), known)


def answer(kind: str, deadline: int = 0, *, now: int = NOW, **changes: Any) -> Any:
    announcement = Announcement(instance_ids=(ONE.instance_id,), kind=kind, at=NOW, deadline=deadline)  # type: ignore[arg-type]
    return plan_response(
        announcement, instance(1, **changes), claimed_by="e", now=now, times=TIMES, join_limit_seconds=300
    )


def test_a_spot_notice_is_drained_at_once_until_fifteen_seconds_before_its_end() -> None:
    found = answer("spot", NOW + 120)
    assert (found.path, found.drain_mode, found.drain_until) == ("respond", "deadline", NOW + 105)
    assert (found.respond_time, found.drain_time) == (ISO, ISO)


def test_a_scheduled_change_is_drained_an_hour_before_its_date() -> None:
    found = answer("scheduled", NOW + 86_400)
    assert (found.drain_mode, found.drain_until) == ("deadline", NOW + 86_385)
    assert found.drain_time == "2026-09-22T13:13:20Z"


@pytest.mark.parametrize(("seconds", "path"), [(3900, "respond"), (3901, "wait")])
def test_the_response_to_a_scheduled_change_begins_a_join_limit_before_its_drain(seconds: int, path: str) -> None:
    found = answer("scheduled", NOW + 2 * 86_400 + 3900)
    assert (found.path, found.respond_time) == ("wait", "2026-09-23T14:13:20Z")
    assert answer("scheduled", NOW + seconds).path == path


def test_a_scheduled_change_close_at_hand_waits_for_the_replacement_only() -> None:
    assert answer("scheduled", NOW + 1800).drain_time == "2026-09-21T14:18:20Z"


def test_a_recommendation_is_drained_politely_after_its_replacement_had_time_to_join() -> None:
    found = answer("rebalance")
    assert (found.drain_mode, found.drain_time) == ("voluntary", "2026-09-21T14:18:20Z")
    assert found.drain_until == NOW + 600, "a join limit each for the replacement and the drain"
    assert found.settle_time == "2026-09-21T14:43:20Z"


@pytest.mark.parametrize(
    ("kind", "state", "path"),
    [
        ("spot", "terminated", "forget"),
        ("spot", "shutting-down", "forget"),
        ("gone", "terminated", "forget"),
        ("stopped", "stopped", "notify"),
        ("spot", "pending", "respond"),
    ],
)
def test_what_is_already_gone_is_only_forgotten(kind: str, state: str, path: str) -> None:
    assert answer(kind, NOW + 120, state=state).path == path


def test_one_worker_is_replaced_by_one() -> None:
    operation = replacement_operation(answer("spot", NOW + 120), launch_slot(1), ())
    assert (operation.operation_id, operation.requested, len(operation.slots)) == (f"int-{ONE.instance_id}", 1, 1)


def test_the_replacement_counts_the_taken_worker_as_gone_and_avoids_its_pool() -> None:
    fleet = (ONE, instance(2, zone="b"), instance(3, zone="c", market="on-demand"))
    slot = replacement_slot(ONE, fleet, FleetState(cluster_id="c"), placement(), now=NOW)
    assert slot is not None and (slot.zone, slot.instance_type, slot.market) == ("a", "t3a.small", "spot")
    one_type = placement(instance_types=("t3.small",))
    slot = replacement_slot(ONE, fleet, FleetState(cluster_id="c"), one_type, now=NOW)
    assert slot is not None and (slot.zone, slot.instance_type, slot.market) == ("b", "t3.small", "spot")


@pytest.mark.parametrize(
    ("interrupted", "types", "replaced_by", "smaller"),
    [
        ("t3.medium", ("t3.small", "t3.medium", "t3.large"), "t3.medium", ("t3.small",)),
        ("t3.medium", ("t3.small", "t3.large", "t3.medium"), "t3.large", ("t3.small",)),
        ("t3.small", ("t3.small", "t3.medium"), "t3.small", ()),
        ("t3.small", ("t3a.small", "t3.small"), "t3a.small", ()),
        ("t3.large", ("t3.small", "t3.medium"), "t3.small", ()),
        ("x9.unknown", ("t3.small", "t3.medium"), "t3.small", ()),
    ],
)
def test_a_replacement_is_not_smaller_when_a_configured_type_is_not(
    interrupted: str, types: tuple[str, ...], replaced_by: str, smaller: tuple[str, ...]
) -> None:
    fleet = (replace(ONE, instance_type=interrupted), instance(2, zone="b"))
    setup = placement(instance_types=types)
    slot = replacement_slot(fleet[0], fleet, FleetState(cluster_id="c"), setup, now=NOW)
    assert slot is not None and slot.instance_type == replaced_by
    assert slot.smaller_types == smaller


@pytest.mark.parametrize(
    ("state", "notice", "expected"),
    [
        ("running", Notice(instance_id="i", kind="spot", at=0, claimed_by="e"), "not_reclaimed"),
        ("pending", Notice(instance_id="i", kind="spot", at=0, claimed_by="e"), "not_reclaimed"),
        ("terminated", Notice(instance_id="i", kind="spot", at=0, claimed_by="e"), "gone"),
        ("gone", Notice(instance_id="i", kind="spot", at=0, claimed_by="e"), "gone"),
        ("running", Notice(instance_id="i", kind="spot", at=0, claimed_by="other"), "superseded"),
        ("running", None, "superseded"),
    ],
)
def test_after_the_date_it_is_looked_outcome_status(state: str, notice: Notice | None, expected: str) -> None:
    assert outcome_status(state, notice, "e") == expected


@pytest.mark.parametrize(
    ("now", "notices", "paused", "word"),
    [
        (NOW, ["e"], False, ""),
        (NOW + 95, ["e"], False, ""),
        (NOW + 96, ["e"], False, "too late: 9 s are left"),
        (NOW + 200, ["e"], False, "too late: 0 s are left"),
        (NOW, ["other"], False, "another execution"),
        (NOW, [], False, "lifted"),
        (NOW, ["e"], True, "paused by ann"),
    ],
)
def test_a_drain_is_begun_only_while_it_can_do_good(now: int, notices: list[str], paused: bool, word: str) -> None:
    held = tuple(Notice(instance_id=ONE.instance_id, kind="spot", at=NOW, claimed_by=by) for by in notices)
    pause = Pause(reason="sale", by="ann", since=NOW, until=NOW + 999) if paused else None
    state = FleetState(cluster_id="c", notices=held, pause=pause)
    why = reason_to_skip_drain(answer("spot", NOW + 120), state, now)
    assert word in why and bool(why) is bool(word)


LOST = (LostVolume(claim="shop/data", volume="pvc-1", pod="-"),)


@pytest.mark.parametrize(
    ("drain", "replacement", "kinds", "level"),
    [
        ("drained", "launched", [], "info"),
        ("skipped", "none", [], "info"),
        ("failed", "launched", [f"drain_failed:{ONE.instance_id}"], "warning"),
        ("drained", "failed", ["replacement_failed"], "warning"),
        ("failed", "failed", [f"drain_failed:{ONE.instance_id}", "replacement_failed"], "warning"),
    ],
)
@pytest.mark.parametrize("volumes", [(), LOST])
def test_what_failed_is_reported_and_lost_volumes_make_the_message_an_error(
    drain: str, replacement: str, kinds: list[str], level: str, volumes: tuple[LostVolume, ...]
) -> None:
    planned = answer("spot", NOW + 120)
    ended = DeadlineDrain(status=drain, detail="x", volumes=volumes)
    alerts = interruption_alerts(planned, ended, Replacement(status=replacement, detail="y"))
    lost = [f"volumes_lost:{ONE.instance_id}"] if volumes else []
    assert [alert.kind for alert in alerts] == lost + kinds
    message = interruption_message(planned, "c", "text", alerts)
    assert (message.level, message.alerts, message.what) == ("error" if volumes else level, alerts, "text")


@pytest.mark.parametrize(
    ("kind", "status", "failed", "alert"),
    [
        ("spot", "gone", False, ""),
        ("spot", "kept", False, "interruption_unsettled"),
        ("spot", "gone", True, "interruption_unsettled"),
        ("stopped", "", False, "worker_stopped"),
        ("stopped", "", True, "interruption_unsettled"),
    ],
)
def test_an_operator_hears_of_what_is_unsettled_or_stopped(kind: str, status: str, failed: bool, alert: str) -> None:
    planned = answer(kind, NOW + 120)
    found = [one.kind for one in closing_alerts(planned, status, "text", failed=failed)]
    assert found == ([f"{alert}:{ONE.instance_id}"] if alert else [])
    with_lost = [one.kind for one in closing_alerts(planned, status, "text", failed=failed, volumes=LOST)]
    assert with_lost == (found if alert == "worker_stopped" else [f"volumes_lost:{ONE.instance_id}", *found])


@pytest.mark.parametrize(("tries", "seconds"), [(1, 300), (11, 300), (12, 3600), (16, 3600), (17, None), (18, None)])
def test_capacity_is_tried_every_five_minutes_for_an_hour_then_hourly_for_five(tries: int, seconds: int | None) -> None:
    assert capacity_wait_seconds(tries) == seconds


@pytest.mark.parametrize(
    ("status", "detail", "failure", "words"),
    [
        ("gone", "it ended", None, "; it ended"),
        ("gone", "", None, "; gone"),
        ("", "", None, "; nothing to do"),
        ("gone", "it", {"Error": "E", "Cause": "c"}, "; the notice could not be settled: c [E]"),
    ],
)
def test_the_closing_sentence_has_the_worker_the_reason_and_the_end(
    status: str, detail: str, failure: dict[str, str] | None, words: str
) -> None:
    text = f"{ONE.instance_id}: AWS reclaims this Spot instance{words}"
    assert closing_sentence(answer("spot", NOW + 120), status, detail, failure) == text


@pytest.mark.parametrize(
    ("kind", "deadline", "poll", "settle"),
    [
        ("spot", NOW + 120, 5, NOW + 420),
        ("scheduled", NOW + 86_400, 149, NOW + 86_700),
        ("rebalance", 0, 12, NOW + 1800),
        ("stopped", 0, 5, NOW),
    ],
)
def test_a_drain_is_checked_twenty_four_times_at_most_and_ec2_is_asked_some_time_after_the_date(
    kind: str, deadline: int, poll: int, settle: int
) -> None:
    found = answer(kind, deadline)
    at = datetime.fromtimestamp(settle, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert (found.poll_seconds, found.settle_time) == (poll, at)
    assert found.drain_mode == {"rebalance": "voluntary", "stopped": "none"}.get(kind, "deadline")


@pytest.mark.parametrize(
    ("outcome", "detail", "status", "text"),
    [
        ("launched", "", "launched", f"{ONE.instance_id} (t3.small spot in a)"),
        ("failed", "it ended", "failed", f"{ONE.instance_id} (t3.small spot in a) it ended"),
        ("planned", "refused", "failed", "refused"),
        ("planned", "", "failed", "not launched"),
    ],
)
def test_the_result_of_a_replacement_names_its_instance_or_why_there_is_none(
    outcome: str, detail: str, status: str, text: str
) -> None:
    launch = launch_slot(1, outcome=outcome, detail=detail)
    found = replacement_of(replacement_operation(answer("spot", NOW + 120), launch, ()))
    assert (found.status, found.detail, found.instance_id) == (status, text, launch.instance_id)


@pytest.mark.parametrize(
    ("phase", "instance_id", "is_removed"),
    [
        ("selected", A, True),
        ("forgotten", A, True),
        ("undone", A, False),
        ("skipped", A, False),
        ("selected", B, False),
    ],
)
def test_a_worker_that_a_scale_down_removes_already_needs_no_replacement(
    phase: Any, instance_id: str, is_removed: bool
) -> None:
    assert needs_no_replacement(scale_down(phase), instance_id) is is_removed
    assert needs_no_replacement(None, instance_id) is False
