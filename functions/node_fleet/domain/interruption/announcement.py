"""Reads the events in which AWS announces a change of instances, and decides which of two announcements counts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from node_fleet.domain.model.errors import InvalidInputError
from node_fleet.domain.model.fleet_state import Notice
from node_fleet.domain.model.snapshot import Instance
from node_fleet.domain.model.spot_pools import pool_name
from node_fleet.domain.model.value_class import value_class

Kind = Literal["spot", "rebalance", "scheduled", "gone", "stopped"]

SPOT_NOTICE_SECONDS = 120
"""The time between a Spot interruption warning and the end of the instance."""
RANK: dict[str, int] = {"rebalance": 0, "scheduled": 1, "spot": 2}
"""Kinds of notices; a higher one leaves less time."""
KINDS: dict[str, Kind] = {
    "EC2 Spot Instance Interruption Warning": "spot",
    "EC2 Instance Rebalance Recommendation": "rebalance",
    "AWS Health Event": "scheduled",
}


@value_class
class Announcement:
    """One event about one or more instances. kind: None when the event asks for nothing.

    deadline: epoch seconds, 0 when the event names none. event: the ARN of a scheduled change, which stays the same
    when AWS moves its date; empty for other kinds.
    """

    instance_ids: tuple[str, ...]
    kind: Kind | None
    at: int
    deadline: int = 0
    event: str = ""


def read_announcement(event: Mapping[str, Any]) -> Announcement:
    """The announcement in an EventBridge event.

    Raises:
        InvalidInputError: names what is missing or malformed.
    """
    try:
        detail, at = event["detail"], int(datetime.fromisoformat(event["time"]).timestamp())
        name = event["detail-type"]
        if name == "AWS Health Event":
            return _health_announcement(detail, at)
        instance_id = detail["instance-id"]
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise InvalidInputError(f"the event lacks or misstates {error}, expected an EventBridge event of EC2") from None
    if name == "EC2 Instance State-change Notification":
        kinds: dict[str, Kind] = {"terminated": "gone", "stopped": "stopped"}
        return Announcement(instance_ids=(instance_id,), kind=kinds.get(detail.get("state", "")), at=at)
    deadline = at + SPOT_NOTICE_SECONDS if KINDS.get(name) == "spot" else 0
    return Announcement(instance_ids=(instance_id,), kind=KINDS.get(name), at=at, deadline=deadline)


def pool_lost(announcement: Announcement, instance: Instance) -> str:
    """The pool "zone/type" whose Spot worker AWS reclaims; empty for every other announcement."""
    is_lost = announcement.kind == "spot" and instance.market == "spot"
    return pool_name(instance.zone, instance.instance_type) if is_lost else ""


def outranks(new: Announcement, known: Notice) -> bool:
    """True when the new announcement replaces the known notice.

    It does when it leaves less time, when it comes after the date of the known notice (AWS did not reclaim the worker
    then and announces it again), or when it moves the date of the same scheduled change.
    """
    if RANK.get(new.kind or "", -1) > RANK.get(known.kind, 99):
        return True
    if new.kind not in ("spot", "scheduled"):
        return False
    return 0 < known.deadline < new.at or (new.kind == known.kind == "scheduled" and _is_moved_or_sooner(new, known))


def _is_moved_or_sooner(new: Announcement, known: Notice) -> bool:
    """Of two events about one change the later event counts; of two changes the one with the earlier date."""
    if new.event == known.event:
        return new.at > known.at and new.deadline != known.deadline
    return new.deadline < known.deadline


def _health_announcement(detail: Mapping[str, Any], at: int) -> Announcement:
    """AWS closes a change that is over or cancelled; CheckOutcome queries EC2 after the date in either case."""
    is_change = detail.get("service") == "EC2" and detail.get("eventTypeCategory") == "scheduledChange"
    if not is_change or detail.get("statusCode") == "closed":
        return Announcement(instance_ids=(), kind=None, at=at)
    ids = tuple(entity["entityValue"] for entity in detail.get("affectedEntities", ()))
    deadline = int(parsedate_to_datetime(detail["startTime"]).timestamp())
    return Announcement(instance_ids=ids, kind="scheduled", at=at, deadline=deadline, event=detail.get("eventArn", ""))
