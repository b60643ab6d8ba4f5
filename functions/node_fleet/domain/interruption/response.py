"""What an announcement of AWS means for a worker: how long there is, what is done, and what became of it.

Spot warnings end in minutes, scheduled changes in days, recommendations often in nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from node_fleet.domain.model.errors import InvalidInputError
from node_fleet.domain.model.fleet_state import FleetState, Notice
from node_fleet.domain.model.memory import PoolBackOff
from node_fleet.domain.model.operation import LaunchSlot, Operation
from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.snapshot import Instance
from node_fleet.domain.notify.message import Message
from node_fleet.domain.scale_up.launch import mark_under_notice
from node_fleet.domain.scale_up.placement import Placement, Pool, plan_slots

Kind = Literal["spot", "rebalance", "scheduled", "gone", "stopped"]
Path = Literal["respond", "forget", "tell"]
DrainMode = Literal["deadline", "voluntary", "none"]
OutcomeStatus = Literal["gone", "not_reclaimed", "superseded"]

SPOT_NOTICE_SECONDS = 120
"""AWS gives two minutes with a Spot interruption warning."""
LEAST_DRAIN_SECONDS = 10
"""With less time than that a drain is not begun."""
POLL_SECONDS = 5
MAX_DRAIN_CHECKS = 60
"""A drain that may take an hour is looked at less often than one of two minutes: each look is nine history events."""
CAPACITY_WAITS = (*[300] * 11, *[3600] * 5)
"""Seconds between the looks for room for a spared worker: for an hour every five minutes, then for five hours."""
ENDED = ("shutting-down", "terminated")
"""States of an instance that never runs again."""
RANK: dict[str, int] = {"rebalance": 0, "scheduled": 1, "spot": 2}
KINDS: dict[str, Kind] = {
    "EC2 Spot Instance Interruption Warning": "spot",
    "EC2 Instance Rebalance Recommendation": "rebalance",
    "AWS Health Event": "scheduled",
}
WORDS: dict[str, str] = {
    "spot": "AWS takes this Spot instance back",
    "rebalance": "AWS recommends to replace this Spot instance",
    "scheduled": "AWS has scheduled a change of this instance",
    "gone": "the instance was terminated",
    "stopped": "the instance was stopped by somebody",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """One event about one or more instances. deadline: epoch seconds, 0 when the event names none.

    event: the name that AWS Health gives a change and keeps when its date moves; empty for others.
    """

    instance_ids: tuple[str, ...]
    kind: Kind | None
    at: int
    deadline: int = 0
    event: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The settings that an answer to an announcement obeys, in seconds."""

    margin_seconds: int
    settle_seconds: int
    rebalance_hold_seconds: int
    scheduled_lead_seconds: int
    join_limit_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """What is done about one worker: the plan that the workflow carries, written for who opens it in the console.

    drain_time and settle_time are for Wait states; drain_until is epoch seconds.
    """

    instance_id: str
    kind: Kind
    path: Path
    operation_id: str
    claimed_by: str
    why: str
    at: int
    drain_mode: DrainMode = "none"
    drain_time: str = ""
    drain_until: int = 0
    settle_time: str = ""
    poll_seconds: int = POLL_SECONDS
    zone: str = ""
    market: str = ""
    slot: LaunchSlot | None = None

    @property
    def event_key(self) -> str:
        """What tells this answer's events from those of another execution about the same worker."""
        return f"{self.operation_id}#{self.claimed_by.rpartition(':')[2]}"

    def with_slot(self, slot: LaunchSlot | None) -> Interruption:
        """The same with the place of its replacement."""
        return replace(self, slot=slot)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineDrain:
    """How the drain stands: "waiting", "drained", "failed", "skipped"; started_at and until in epoch seconds."""

    status: str
    detail: str
    node_name: str = ""
    command_id: str = ""
    started_at: int = 0
    until: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """What became of the replacement: "launched", "none" or "failed"."""

    status: str
    detail: str
    instance_id: str = ""


def read_announcement(event: Mapping[str, Any]) -> Announcement:
    """The instances and the date in an EventBridge event; kind None for one that asks for nothing.

    Raises:
        InvalidInputError: names what is missing.
    """
    try:
        detail, at = event["detail"], int(datetime.fromisoformat(event["time"]).timestamp())
        name = event["detail-type"]
        if name == "AWS Health Event":
            return _health(detail, at)
        instance_id = detail["instance-id"]
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(f"the event lacks or misstates {error}, expected an EventBridge event of EC2") from None
    if name == "EC2 Instance State-change Notification":
        kinds: dict[str, Kind] = {"terminated": "gone", "stopped": "stopped"}
        return Announcement(instance_ids=(instance_id,), kind=kinds.get(detail.get("state", "")), at=at)
    deadline = at + SPOT_NOTICE_SECONDS if KINDS.get(name) == "spot" else 0
    return Announcement(instance_ids=(instance_id,), kind=KINDS.get(name), at=at, deadline=deadline)


def outranks(new: Announcement, known: Notice) -> bool:
    """True when the one being answered must make way.

    The new one leaves less time; or comes after that one's date: a worker was spared once, and now AWS takes it after
    all; or is the same scheduled change with its date moved.
    """
    if RANK.get(new.kind or "", -1) > RANK.get(known.kind, 99):
        return True
    if new.kind not in ("spot", "scheduled"):
        return False
    return 0 < known.deadline < new.at or (new.kind == known.kind == "scheduled" and _moved_or_sooner(new, known))


def _moved_or_sooner(new: Announcement, known: Notice) -> bool:
    """News of one change count in their order; of two changes the sooner one does."""
    if new.event == known.event:
        return new.at > known.at and new.deadline != known.deadline
    return new.deadline < known.deadline


def operation_of(instance_id: str) -> str:
    """Name of the operation that answers for that instance: one, whatever is announced and how often."""
    return f"int-{instance_id}"


def answer_to(
    announcement: Announcement, instance: Instance, *, claimed_by: str, now: int, times: Times
) -> Interruption:
    """What is done about one claimed worker, without the slot of its replacement."""
    kind = announcement.kind
    assert kind is not None
    gone = kind == "gone" or instance.state in ENDED
    drain_at, drain_until, settle_at = _dates(announcement, now, times)
    path: Path = "forget" if gone else "tell" if kind == "stopped" else "respond"
    return Interruption(
        instance_id=instance.instance_id,
        kind=kind,
        path=path,
        operation_id=operation_of(instance.instance_id),
        claimed_by=claimed_by,
        why=WORDS[kind],
        at=announcement.at,
        drain_mode=_mode(kind) if path == "respond" else "none",
        drain_time=_iso(drain_at),
        drain_until=drain_until,
        poll_seconds=max(POLL_SECONDS, (drain_until - drain_at) // MAX_DRAIN_CHECKS),
        settle_time=_iso(settle_at),
        zone=instance.zone,
        market=instance.market,
    )


def replacement_slot(
    instance: Instance,
    instances: tuple[Instance, ...],
    state: FleetState,
    placement: Placement,
    *,
    now: int,
    dry: tuple[PoolBackOff, ...] = (),
) -> LaunchSlot | None:
    """Where the replacement goes: another pool than the one that is being taken; None when every pool rests."""
    taken = Pool(instance.zone, instance.instance_type, instance.market)
    marked = mark_under_notice(instances, (*state.notices, Notice(instance_id=instance.instance_id, kind="", at=now)))
    slots = plan_slots(1, marked, placement, back_offs=(*state.memory.dry_pools, *dry), now=now, avoid=(taken,))
    return slots[0] if slots else None


def needs_no_replacement(operation: Operation | None, instance_id: str) -> bool:
    """True for a worker that a scale-down is removing anyway."""
    return operation is not None and any(
        target.instance_id == instance_id and target.phase not in ("undone", "skipped") for target in operation.targets
    )


def replacement_operation(interruption: Interruption, slot: LaunchSlot, dry: tuple[PoolBackOff, ...]) -> Operation:
    """The one launch that answers the interruption; never stored, found again by its tags."""
    return Operation(
        operation_id=interruption.operation_id,
        kind="scale_up",
        phase="begin",
        started_at=interruption.at,
        requested=1,
        reason=interruption.why,
        execution_id=interruption.claimed_by,
        slots=(slot,),
        dry_pools=dry,
    )


def replacement_of(operation: Operation) -> Replacement:
    """What became of it, in words."""
    slot = operation.slots[0]
    if not slot.instance_id:
        return Replacement(status="failed", detail=slot.detail or "not launched")
    text = f"{slot.instance_id} ({slot.instance_type} {slot.market} in {slot.zone})"
    status = "launched" if slot.outcome == "launched" else "failed"
    return Replacement(status=status, detail=f"{text} {slot.detail}".strip(), instance_id=slot.instance_id)


def is_anothers(notice: Notice, claimed_by: str) -> bool:
    """True when another execution answers it by now: this one must neither lift it nor touch the worker."""
    return notice.claimed_by not in ("", claimed_by)


def what_happened(ec2_state: str, notice: Notice | None, claimed_by: str) -> OutcomeStatus:
    """After the date: taken, spared, or settled by another execution: a later notice, or the end of the instance."""
    if notice is None or is_anothers(notice, claimed_by):
        return "superseded"
    return "not_reclaimed" if ec2_state in ("pending", "running") else "gone"


def response_sentence(interruption: Interruption, drain: DeadlineDrain, replacement: Replacement) -> str:
    """What was done, for people."""
    return (
        f"{interruption.why}: {interruption.instance_id} ({interruption.market}, {interruption.zone}); "
        f"drain {drain.status}: {drain.detail}; replacement {replacement.status}: {replacement.detail}"
    )


def interruption_alerts(
    interruption: Interruption, drain: DeadlineDrain, replacement: Replacement
) -> tuple[Alert, ...]:
    """What needs a person: a drain that did not finish, a replacement that could not be launched."""
    found = []
    if drain.status == "failed":
        text = f"{interruption.instance_id} was not drained before it goes: {drain.detail}"
        found.append(Alert(kind=f"drain_failed:{interruption.instance_id}", text=text))
    if replacement.status == "failed":
        text = f"no replacement for {interruption.instance_id}: {replacement.detail}"
        found.append(Alert(kind="replacement_failed", text=text))
    return tuple(found)


def _health(detail: Mapping[str, Any], at: int) -> Announcement:
    """A change that is over or cancelled is "closed": whoever answers it asks EC2 after its date what became of it."""
    asks = detail.get("service") == "EC2" and detail.get("eventTypeCategory") == "scheduledChange"
    if not asks or detail.get("statusCode") == "closed":
        return Announcement(instance_ids=(), kind=None, at=at)
    ids = tuple(entity["entityValue"] for entity in detail.get("affectedEntities", ()))
    when = int(parsedate_to_datetime(detail["startTime"]).timestamp())
    return Announcement(instance_ids=ids, kind="scheduled", at=at, deadline=when, event=detail.get("eventArn", ""))


def _mode(kind: Kind) -> DrainMode:
    return "voluntary" if kind == "rebalance" else "deadline"


def _dates(announcement: Announcement, now: int, times: Times) -> tuple[int, int, int]:
    """When the drain begins, when it must have ended, and when it is looked what became of the instance."""
    if announcement.kind == "spot":
        return now, announcement.deadline - times.margin_seconds, announcement.deadline + times.settle_seconds
    if announcement.kind == "rebalance":
        begin = now + times.join_limit_seconds
        return begin, begin + times.join_limit_seconds, now + times.rebalance_hold_seconds
    if announcement.kind == "scheduled":
        begin = max(now + times.join_limit_seconds, announcement.deadline - times.scheduled_lead_seconds)
        until = max(announcement.deadline - times.margin_seconds, begin)
        return begin, until, announcement.deadline + times.settle_seconds
    return now, now, now


def _iso(epoch: int) -> str:
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def why_no_drain(interruption: Interruption, state: FleetState, now: int, *, least_seconds: int) -> str:
    """Why the drain is not begun; empty when it is."""
    notice = state.notice_of(interruption.instance_id)
    if notice is None:
        return "the notice was lifted meanwhile"
    if is_anothers(notice, interruption.claimed_by):
        return "a later notice took over"
    if state.pause is not None and state.pause.until > now:
        return f"paused by {state.pause.by}: {state.pause.reason}"
    if interruption.drain_until - now < least_seconds:
        return f"too late: {max(0, interruption.drain_until - now)} s are left"
    return ""


def interruption_message(interruption: Interruption, cluster_id: str, text: str, alerts: tuple[Alert, ...]) -> Message:
    """The message to people about one interruption."""
    return Message(
        cluster_id=cluster_id,
        level="warning" if alerts else "info",
        what=text,
        why=interruption.why,
        execution_id=interruption.claimed_by,
        trigger="interruption",
        workers_before=0,
        workers_after=0,
        alerts=alerts,
    )


def capacity_wait_seconds(looks: int) -> int | None:
    """Seconds until the next look, after so many; None when people must decide."""
    return CAPACITY_WAITS[looks - 1] if looks <= len(CAPACITY_WAITS) else None


def closing_sentence(interruption: Interruption, status: str, detail: str, failure: Mapping[str, str] | None) -> str:
    """How the announcement ended, for people."""
    head = f"{interruption.instance_id}: {interruption.why}"
    if failure is not None:
        return f"{head}; not settled: {failure['Error']}: {failure['Cause']}"
    return f"{head}; {detail or status or 'nothing to do'}"


def closing_alerts(interruption: Interruption, status: str, text: str, *, failed: bool) -> tuple[Alert, ...]:
    """Only what needs a person: a worker that could not be settled, or one that somebody stopped."""
    if failed or status == "kept":
        return (Alert(kind=f"interruption_unsettled:{interruption.instance_id}", text=text),)
    if interruption.kind == "stopped":
        return (Alert(kind=f"worker_stopped:{interruption.instance_id}", text=text),)
    return ()
