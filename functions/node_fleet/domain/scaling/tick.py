"""The tick context: the snapshot counted once, and whether its data may justify a scale-up or a removal."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import NewWorker, Phase, Snapshot, Worker
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.model.weight import at_limits, fitting


@value_class
class Launchable:
    """What the maximum and the limits leave. against, setting: what keeps further instances away."""

    count: int
    wanted: tuple[NewWorker, ...]
    against: str
    setting: str


@dataclass(slots=True, kw_only=True)
class Tick:
    """Facts that several rules need. Workers under interruption notice are left out of every count.

    live: read from Prometheus in this tick. readable: live, or cached and recent enough to justify a scale-up.
    workers: instances that count against the maximum; counted: their number. now, read_at: epoch seconds. terse:
    without the texts that only a person reads.
    """

    snapshot: Snapshot
    memory: Memory
    policy: Policy
    now: int
    read_at: int
    live: bool
    readable: bool
    workers: tuple[Worker, ...]
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
        """Instances that may still be launched under the maximum and the limits in money and vCPUs."""
        return self.launchable(()).count

    def launchable(self, wanted: Sequence[NewWorker]) -> Launchable:
        """How many instances may be launched, and which of the wanted ones. Other instances may be of any type."""
        most = max(0, self.policy.max_workers - self.counted)
        limits = self.snapshot.limits
        if not most or not limits:
            text = f"at the maximum of {self.policy.max_workers} workers"
            return Launchable(count=most, wanted=tuple(wanted), against=text, setting="max_workers")
        kinds = [_kinds(one, limits[0].of_kind) for one in wanted[:most]]
        fits, against = fitting(limits, [*kinds, *[[]] * (most - len(kinds))])
        return Launchable(
            count=sum(fits),
            wanted=tuple(one for one, fit in zip(wanted, fits, strict=False) if fit),
            against=at_limits(against),
            setting=" and ".join(use.name for use in against),
        )


def make_tick(snapshot: Snapshot, memory: Memory, policy: Policy, now: int, *, terse: bool = False) -> Tick:
    """Count the snapshot once. The order of its workers does not matter."""
    workers = snapshot.counted
    of_phase: defaultdict[Phase, list[Worker]] = defaultdict(list)
    for worker in workers:
        of_phase[worker.phase].append(worker)
    read_at = snapshot.read_at or snapshot.at
    is_recent = now - read_at < policy.cached_reading_seconds
    if memory.last_action_at > now:  # a clock was ahead: the cooldown counts from now
        memory = replace(memory, last_action_at=now)
    return Tick(
        snapshot=snapshot,
        memory=memory,
        policy=policy,
        now=now,
        read_at=read_at,
        live=snapshot.source == "live" and is_recent,
        readable=snapshot.source != "none" and is_recent,
        workers=workers,
        usable=tuple(of_phase["usable"]),
        joining=tuple(of_phase["joining"]),
        not_ready=tuple(of_phase["not_ready"]),
        unknown=len(of_phase["unknown"]),
        counted=len(workers),
        terse=terse,
    )


def _kinds(worker: NewWorker, known: Iterable[str]) -> list[str]:
    """The "type/market" that may serve the worker."""
    types = {*worker.types, *worker.smaller_types}
    pools = {pool.partition("/")[2] for pool in worker.pools}
    return [kind for kind in known if (not types or kind.partition("/")[0] in types) and (not pools or kind in pools)]


def finite(value: float | None) -> float | None:
    """The value when it is a finite number, else None: NaN and infinity are missing, never zero."""
    return value if value is not None and math.isfinite(value) else None
