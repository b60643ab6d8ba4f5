"""The state item of one cluster as the rules see it: lease, pause, operation, memory, reservations, notices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime
from typing import Any

from node_fleet.domain.model.hibernation import Hibernation, Order, Times, lead_seconds
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.set_aside import SetAside
from node_fleet.domain.model.timed_minimum import TimedMinimum
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.model.weight import NO_WEIGHT, Weight

CORRUPT_AHEAD_SECONDS = 86_400
"""A lease lasts an hour at most, so an expiry more than a day ahead is corrupt."""


@value_class
class Lease:
    """The lock as one run holds it. Only the owner with this very fence may change or release anything."""

    owner: str
    fence: int
    acquired_at: int
    expires_at: int


@value_class
class Pause:
    """An operator's order to change nothing until `until` (epoch seconds), with its reason and author."""

    reason: str
    by: str
    since: int
    until: int

    @property
    def sentence(self) -> str:
        """For example: paused by ana: a sale."""
        return f"paused by {self.by}: {self.reason}"


@value_class
class Protection:
    """An operator's order to neither remove nor replace this worker until `until` (epoch seconds)."""

    instance_id: str
    by: str
    since: int
    until: int
    reason: str = ""

    @property
    def sentence(self) -> str:
        """For example: it is protected by ana until 2026-09-21 14:00 UTC: a long job."""
        until = datetime.fromtimestamp(self.until, UTC)
        return f"it is protected by {self.by} until {until:%Y-%m-%d %H:%M} UTC{self.reason and f': {self.reason}'}"


@value_class
class Reservation:
    """Capacity promised to a launch that EC2 may not show yet: both workflows count it against the maximum.

    pool: "zone/type/market" of the launch; empty for a worker that exists. at: when EC2 was asked or answered last.
    weight: the most that the launch may take of the limits in money and vCPUs; empty: what its pool takes.
    """

    key: str
    instance_id: str = ""
    until: int = 0
    pool: str = ""
    at: int = 0
    weight: Weight = NO_WEIGHT


@value_class
class Notice:
    """AWS may reclaim this instance: an interruption notice, a rebalance recommendation or a scheduled change.

    deadline: epoch seconds, 0 when AWS gave none. claimed_by: the execution that answers the notice, so that its own
    repeated claim is not a duplicate. event: the id of a scheduled change, which AWS may move or cancel later.
    reported_volumes: a message has named the volumes that end with the worker. is_due: the response has begun; until
    then the worker counts like every other.
    """

    instance_id: str
    kind: str
    at: int
    deadline: int = 0
    claimed_by: str = ""
    event: str = ""
    reported_volumes: bool = False
    is_due: bool = True

    def belongs_to_other(self, execution_id: str) -> bool:
        """True when another execution responds to it: this one must neither lift it nor change the worker."""
        return self.claimed_by not in ("", execution_id)


@value_class
class FleetState:
    """One cluster's state item. `slots_version` grows with every change of `reservations`."""

    cluster_id: str
    fence: int = 0
    lease: Lease | None = None
    last_tick: int = 0
    pause: Pause | None = None
    operation: Operation | None = None
    memory: Memory = field(default_factory=Memory)
    reservations: tuple[Reservation, ...] = ()
    slots_version: int = 0
    notices: tuple[Notice, ...] = ()
    set_aside: tuple[SetAside, ...] = ()
    protections: tuple[Protection, ...] = ()
    timed_minimums: tuple[TimedMinimum, ...] = ()
    node_count: int = 0
    problems: tuple[str, ...] = ()
    hibernation: Hibernation = field(default_factory=Hibernation)
    hibernate_order: Order | None = None

    def notice_of(self, instance_id: str) -> Notice | None:
        """The open notice about that instance; None when there is none."""
        return next((notice for notice in self.notices if notice.instance_id == instance_id), None)

    def has_reported_volumes(self, instance_id: str) -> bool:
        """Whether a message has named the volumes that end with that worker."""
        notice = self.notice_of(instance_id)
        return notice is not None and notice.reported_volumes

    @property
    def due_notices(self) -> tuple[Notice, ...]:
        """The notices to which the response has begun; only these take a worker out of the counts."""
        return tuple(notice for notice in self.notices if notice.is_due)

    @property
    def ids_under_notice(self) -> frozenset[str]:
        """Instances under an interruption notice that is due."""
        return frozenset(notice.instance_id for notice in self.due_notices)

    @property
    def ids_set_aside(self) -> frozenset[str]:
        """Instances whose removal is set aside."""
        return frozenset(removal.instance_id for removal in self.set_aside)

    def active_protections(self, now: int) -> dict[str, Protection]:
        """The protections that have not ended, by instance id."""
        return {p.instance_id: p for p in self.protections if p.until > now}

    def active_pause(self, now: int) -> Pause | None:
        """The pause while it lasts; None when the fleet is not paused."""
        return self.pause if self.pause is not None and self.pause.until > now else None


def times_of(policy: Policy, state: FleetState) -> Times:
    """When this fleet is to be off."""
    return Times(
        windows=policy.hibernate,
        timezone=policy.timezone,
        order=state.hibernate_order,
        lead_seconds=lead_seconds(policy.hibernate_lead_seconds, state.hibernation),
        drain_seconds=policy.hibernate_drain_seconds,
        on=tuple((one.since, one.until) for one in state.timed_minimums),
    )


def readable_lease(item: Mapping[str, Any]) -> tuple[Lease | None, tuple[str, ...]]:
    """The lease in a state item, and what is wrong with it. A corrupt one counts as expired (expires_at 0)."""
    if "lock_owner" not in item:
        return None, ()
    wrong = [
        f"lock attribute {name} is {item.get(name)!r}, expected epoch seconds"
        for name in ("lock_acquired_at", "lock_expires_at")
        if not _is_whole(item.get(name))
    ]
    fence, acquired_at, expires_at = (
        item[name] if _is_whole(item.get(name)) else 0 for name in ("lock_fence", "lock_acquired_at", "lock_expires_at")
    )
    lease = Lease(owner=str(item["lock_owner"]), fence=fence, acquired_at=acquired_at, expires_at=expires_at)
    return lease, tuple(wrong)


def describe_takeover(item: Mapping[str, Any], new_owner: str, now: int) -> str:
    """One sentence when the run took the lock from another owner or found it corrupt; empty for a free or own lock."""
    lease, wrong = readable_lease(item)
    if lease is None or lease.owner == new_owner:
        return ""
    if wrong:
        return f"took over a corrupt lock of {lease.owner}: {'; '.join(wrong)}"
    if lease.expires_at > now + CORRUPT_AHEAD_SECONDS:
        return f"took over a corrupt lock of {lease.owner}: it would expire at {lease.expires_at}, over a day ahead"
    return f"took over the lock of {lease.owner}, which expired {now - lease.expires_at} s ago"


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
