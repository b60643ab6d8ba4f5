"""One tick as the rules look at it: the snapshot counted once, and how far its data may be trusted.

Counts and trust only; what follows from them is for the rules.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import Snapshot, Worker


@dataclass(slots=True, kw_only=True)
class Tick:
    """Facts that several rules need. Workers under notice are left out of every count.

    have: usable, joining and unknown workers, or every instance when there are no metrics at all.
    live: fresh from Prometheus this tick. readable: live, or cached and young enough to justify a scale-up.
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

    @property
    def have(self) -> int:
        """Workers that hold, or will soon hold, pods."""
        return len(self.usable) + len(self.joining) + self.unknown if self.readable else self.counted

    @property
    def headroom(self) -> int:
        """Instances that may still be launched under the maximum."""
        return max(0, self.policy.max_workers - self.counted)


def make_tick(snapshot: Snapshot, memory: Memory, policy: Policy, now: int) -> Tick:
    """Count the snapshot once; the order of its workers does not matter."""
    phases: dict[str, list[Worker]] = {"usable": [], "joining": [], "not_ready": [], "unknown": []}
    counted = 0
    for worker in snapshot.workers:
        if not worker.under_notice:
            counted += 1
            if worker.phase in phases:
                phases[worker.phase].append(worker)
    read_at = snapshot.read_at or snapshot.at
    young = now - read_at < policy.cached_reading_seconds
    return Tick(
        snapshot=snapshot,
        memory=memory,
        policy=policy,
        now=now,
        read_at=read_at,
        live=snapshot.source == "live" and young,
        readable=snapshot.source != "none" and young,
        usable=tuple(phases["usable"]),
        joining=tuple(phases["joining"]),
        not_ready=tuple(phases["not_ready"]),
        unknown=len(phases["unknown"]),
        counted=counted,
    )


def finite(value: float | None) -> float | None:
    """The value when it is a finite number, else None: NaN and infinity are missing, never zero."""
    return value if value is not None and math.isfinite(value) else None
