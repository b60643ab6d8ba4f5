"""The capacity estimate of the strategy `adaptive`: what pods request, and what running and new workers hold.

Counts only; strategy.py decides what follows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from node_fleet.domain.fit.placement import Node
from node_fleet.domain.model.instance_types import PODS_PER_NODE, offered
from node_fleet.domain.model.memory import PodSums
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import NewWorker, PodShape, Worker
from node_fleet.domain.scaling.signals.new_workers import launched_markets, node_of, templates
from node_fleet.domain.scaling.signals.pending_pods import PendingPods
from node_fleet.domain.scaling.signals.type_mix import choose_new_workers
from node_fleet.domain.scaling.strategies.adaptive.typical_pod import (
    FreeCapacity,
    PodSize,
    free_capacity,
    slots,
    typical_pod,
    whole_capacity,
)
from node_fleet.domain.scaling.tick import Tick

MISSING_SHARE = 0.5
"""The largest share of usable workers whose requests may be unknown."""


@dataclass(slots=True, kw_only=True)
class CapacityEstimate:
    """Demand and capacity, both in workers of the type that a launch creates; `have` includes joining workers.

    workers: how many instances have this capacity: another number where they have other types. pods_per_worker: typical
    pods on an empty worker. new_workers: workers that the pending pods need beyond all free capacity. worker_slots:
    (free, used) slots for typical pods of every usable worker, the one with the fewest pods first.
    """

    demand: float
    have: float
    workers: int
    pods_per_worker: int
    new_workers: tuple[NewWorker, ...]
    worker_slots: tuple[tuple[int, int], ...]

    @property
    def mean(self) -> float:
        """The capacity of one worker of this fleet."""
        return self.have / self.workers if self.workers else 1.0

    def of_minimum(self, minimum: int) -> int:
        """The least capacity, where a minimum of instances is kept: that of so many workers of this fleet."""
        return math.floor(minimum * self.mean + 1e-6)

    def of_maximum(self, maximum: int) -> int:
        """The largest capacity, where a maximum of instances is kept: each worker that may be launched adds 1."""
        more = maximum - self.workers
        return math.floor(self.have + (more if more >= 0 else more * self.mean) + 1e-6)

    def fits_without(self, count: int) -> bool:
        """Whether the pods of the `count` workers with the fewest pods fit on the other workers."""
        moved = list(accumulate(used for _, used in self.worker_slots))
        return count < len(self.worker_slots) and moved[count - 1] <= sum(free for free, _ in self.worker_slots[count:])


def estimate_capacity(tick: Tick, pending_pods: PendingPods | None, sums: PodSums) -> CapacityEstimate | None:
    """The estimate for this tick.

    None when the requests of more than MISSING_SHARE of the usable workers are unknown, or when no pod was ever seen.
    """
    known = [w for w in tick.usable if _has_known_requests(w)]
    unknown = len(tick.usable) - len(known)
    if _are_too_many(unknown, tick):
        return None
    shapes = pending_pods.helpful if pending_pods else ()
    size = typical_pod(sums, shapes)
    offers = [(w, whole_capacity(w)) for w in known]
    new_worker = _new_worker_capacity(tick, offers)
    if size is None or new_worker is None:
        return None
    available = _without_daemons(new_worker, size)
    per_worker = max(1, slots(available, size))
    offers.sort(key=lambda offer: (offer[0].pods or 0, offer[0].instance_id))
    worker_slots = _free_and_used_slots(offers, size)
    free, used = map(sum, zip(*worker_slots, strict=True)) if worker_slots else (0, 0)
    joining = [_without_daemons(_joining_capacity(w, new_worker, tick.policy), size) for w in tick.joining]
    waiting = sum(_slots_per_pod(s, available, per_worker) * s.count for s in shapes)
    leaving = [w for w in tick.snapshot.workers if w.phase == "cordoned" or (w.phase == "usable" and w.under_notice)]
    moving = sum(_slots_to_move(w, size) for w in leaving)
    coming = sum(slots(capacity, size) for capacity in joining)
    return CapacityEstimate(
        demand=(used + waiting + moving) / per_worker + unknown,
        have=(free + used + coming) / per_worker + unknown,
        workers=len(tick.usable) + len(tick.joining),
        pods_per_worker=per_worker,
        new_workers=_new_workers(tick, pending_pods, size, known),
        worker_slots=tuple(worker_slots),
    )


def lacks_requests(tick: Tick) -> bool:
    """Whether the requests of more than MISSING_SHARE of the usable workers are unknown."""
    return _are_too_many(sum(not _has_known_requests(w) for w in tick.usable), tick)


def _are_too_many(unknown: int, tick: Tick) -> bool:
    return unknown > MISSING_SHARE * len(tick.usable)


def _has_known_requests(w: Worker) -> bool:
    return None not in (
        w.cpu_requested_milli,
        w.cpu_allocatable_milli,
        w.memory_requested_mib,
        w.memory_allocatable_mib,
    )


def _new_worker_capacity(tick: Tick, offers: list[tuple[Worker, FreeCapacity]]) -> FreeCapacity | None:
    """What a new worker offers: measured on a worker of the first type, else on any worker, else by the type's name.

    offers: the workers with known requests, each with its whole capacity.
    """
    types = tick.policy.instance_types
    first = types[:1]
    like = [whole for w, whole in offers if w.instance_type in first] or [whole for _, whole in offers]
    if like:
        return max(like)
    size = next((found for t in types if (found := offered(t))), None)
    return (size[0], size[1], PODS_PER_NODE) if size else None


def _without_daemons(free: FreeCapacity, size: PodSize) -> FreeCapacity:
    cpu, memory, pods = free
    return cpu - size.daemon_cpu_milli, memory - size.daemon_memory_mib, pods - size.daemon_pods


def _slots_per_pod(shape: PodShape, available: FreeCapacity, per_worker: int) -> float:
    """How many typical pods' slots one pod of this shape takes, by how many of them fill a worker."""
    size = PodSize(cpu_milli=shape.cpu_milli, memory_mib=shape.memory_mib)
    return per_worker / max(1, slots(available, size))


def _free_and_used_slots(offers: Iterable[tuple[Worker, FreeCapacity]], size: PodSize) -> list[tuple[int, int]]:
    """Of each worker the slots that are free, and those that it would have beyond them if it were empty."""
    empty: dict[FreeCapacity, int] = {}
    found = []
    for w, whole in offers:
        if whole not in empty:
            empty[whole] = slots(_without_daemons(whole, size), size)
        free = slots(free_capacity(w, whole), size)
        used = empty[whole] - free
        found.append((free, used if used > 0 else 0))
    return found


def _slots_to_move(w: Worker, size: PodSize) -> float:
    """Slots that the pods of a cordoned worker, or of one under interruption notice, will need on other workers."""
    if not _has_known_requests(w):
        return 0.0
    requested = (w.cpu_requested_milli or 0) - size.daemon_cpu_milli
    return max(0.0, requested / size.cpu_milli) if size.cpu_milli > 0 else 0.0


def _new_workers(
    tick: Tick, pending_pods: PendingPods | None, size: PodSize, known: Sequence[Worker]
) -> tuple[NewWorker, ...]:
    """New workers for the pending pods beyond the joining ones.

    Free capacity of usable workers counts only while the scheduler may not have used it yet: on new workers, and for
    pods that are all younger than the scheduling grace.
    """
    if not pending_pods or not pending_pods.left:
        return ()
    grace = tick.policy.scheduling_grace_seconds
    pods_are_new = all(s.oldest_seconds < grace for s in pending_pods.helpful)
    nodes = [_with_daemons(node_of(tick, w), size) for w in tick.joining]
    for worker in known:
        if pods_are_new or tick.now - tick.memory.fresh.get(worker.instance_id, 0) < grace:
            nodes.append(node_of(tick, worker))
    kinds = [_with_daemons(kind, size) for kind in templates(tick, launched_markets(tick.policy))]
    return choose_new_workers(pending_pods.helpful, nodes, kinds, tick.policy)


def _joining_capacity(w: Worker, new: FreeCapacity, policy: Policy) -> FreeCapacity:
    size = None if w.instance_type in policy.instance_types[:1] else offered(w.instance_type)
    return (size[0], size[1], new[2]) if size else new


def _with_daemons(node: Node, size: PodSize) -> Node:
    """A node whose DaemonSets do not run yet, without what they will request."""
    daemons = {"cpu": size.daemon_cpu_milli, "memory": size.daemon_memory_mib * 1024 * 1024, "pods": size.daemon_pods}
    free = {resource: amount - int(daemons.get(resource, 0)) for resource, amount in node.free.items()}
    return Node(node.name, node.labels, free, node.taints)
