"""The state item of one cluster as the rules see it: lease, pause, operation, memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.snapshot import Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The lock as one run holds it. Only the owner with this very fence may change or release anything."""

    owner: str
    fence: int
    acquired_at: int
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """An operator's order to change nothing until `until` (epoch seconds), with the reason and who gave it."""

    reason: str
    by: str
    since: int
    until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Capacity promised to a launch that EC2 may not show yet: both workflows count it against the maximum."""

    key: str
    instance_id: str = ""
    until: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """AWS has announced to take this instance, or may: `deadline` in epoch seconds, 0 when none was given.

    claimed_by: the execution that answers it, so that a repeated claim of its own is not taken for a duplicate.
    event: names the scheduled change, which AWS may move or cancel later; empty for others.
    """

    instance_id: str
    kind: str
    at: int
    deadline: int = 0
    claimed_by: str = ""
    event: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
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
    node_count: int = 0
    problems: tuple[str, ...] = ()

    def notice_of(self, instance_id: str) -> Notice | None:
        """What AWS has announced about that instance; None when nothing stands."""
        return next((notice for notice in self.notices if notice.instance_id == instance_id), None)
