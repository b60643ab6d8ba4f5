"""The tick context: the snapshot counted once, and whether its data may justify a scale-up or a removal."""

from __future__ import annotations

import math
from dataclasses import dataclass

from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import Snapshot, Worker


@dataclass(slots=True, kw_only=True)
class Tick:
    """Facts that several rules need. Workers under interruption notice are left out of every count.

    live: read from Prometheus in this tick. readable: live, or cached and recent enough to justify a scale-up.
    counted: instances that count against the maximum. now, read_at: epoch seconds. terse: without the texts
    that only a person reads.
    """

    snapshot: Snapshot
    memory: Memory
    policy: Policy
    now: int
    read_at: int
    live: bool
    readable: bool
    usable: tuple[Worker, ...]
    joining: tuple[Worker, ...]
    not_ready: tuple[Worker, ...]
    unknown: int
    counted: int
    terse: bool = False

    @property
    def have(self) -> int:
        """Workers that run pods or soon will: usable, joining and unknown ones; every instance without metrics."""
        return len(self.usable) + len(self.joining) + self.unknown if self.readable else self.counted

    @property
    def headroom(self) -> int:
        """Instances that may still be launched under the maximum."""
        return max(0, self.policy.max_workers - self.counted)


def make_tick(snapshot: Snapshot, memory: Memory, policy: Policy, now: int, *, terse: bool = False) -> Tick:
    """Count the snapshot once. The order of its workers does not matter."""
    staying = [w for w in snapshot.workers if not w.under_notice]
    read_at = snapshot.read_at or snapshot.at
    is_recent = now - read_at < policy.cached_reading_seconds
    return Tick(
        snapshot=snapshot,
        memory=memory,
        policy=policy,
        now=now,
        read_at=read_at,
        live=snapshot.source == "live" and is_recent,
        readable=snapshot.source != "none" and is_recent,
        usable=tuple([w for w in staying if w.phase == "usable"]),
        joining=tuple([w for w in staying if w.phase == "joining"]),
        not_ready=tuple([w for w in staying if w.phase == "not_ready"]),
        unknown=sum(w.phase == "unknown" for w in staying),
        counted=len(staying),
        terse=terse,
    )


def finite(value: float | None) -> float | None:
    """The value when it is a finite number, else None: NaN and infinity are missing, never zero."""
    return value if value is not None and math.isfinite(value) else None
