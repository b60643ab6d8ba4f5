"""The fleet's room in numbers: what pods ask for, what there is, and what new workers would hold.

Counts; what follows from the figures is for adaptive.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from node_fleet.domain.model.instance_types import offered
from node_fleet.domain.model.memory import PodSums
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import PodShape, Worker
from node_fleet.domain.scaling.signals.bin_packing import (
    PODS_PER_NODE,
    FreeCapacity,
    PodSize,
    pack,
    slots,
    typical_pod,
)
from node_fleet.domain.scaling.signals.pending_pods import PendingPods
from node_fleet.domain.scaling.tick import Tick

MISSING_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityEstimate:
    """demand, have: in workers like those that would be launched; have counts joining ones too.

    new_workers: how many the waiting pods need beyond all room. by_pods: (free, used) places of the usable workers,
    the cheapest to empty first.
    """

    demand: float
    have: float
    pods_per_worker: int
    new_workers: int
    by_pods: tuple[tuple[int, int], ...]

    def fits_without(self, count: int) -> bool:
        """Whether the pods of the `count` cheapest workers to empty fit on the others."""
        moved = list(accumulate(used for _, used in self.by_pods))
        return count < len(self.by_pods) and moved[count - 1] <= sum(free for free, _ in self.by_pods[count:])


def estimate_capacity(tick: Tick, pending_pods: PendingPods | None, sums: PodSums) -> CapacityEstimate | None:
    """The figures; None when too many workers do not say what their pods ask for, or when no pod was ever seen."""
    known = [w for w in tick.usable if _is_known(w)]
    if len(tick.usable) - len(known) > MISSING_SHARE * len(tick.usable):
        return None
    shapes = pending_pods.helpful if pending_pods else ()
    size = typical_pod(sums, shapes)
    model = _new_worker_capacity(tick, known)
    if size is None or model is None:
        return None
    per_worker = max(1, _slots_when_empty(model, size))
    offered_room = _without_daemons(model, size)
    places = sorted((w.pods or 0, w.instance_id, _free_slots(w, size), _total_slots(w, size)) for w in known)
    free, whole = sum(p[2] for p in places), sum(p[3] for p in places)
    waiting = sum(_weight(s, offered_room, per_worker) * s.count for s in shapes)
    used = whole - free + waiting + sum(_slots_needed_elsewhere(w, size) for w in tick.snapshot.workers)
    blind = len(tick.usable) - len(known)
    return CapacityEstimate(
        demand=used / per_worker + blind,
        have=whole / per_worker + blind + len(tick.joining),
        pods_per_worker=per_worker,
        new_workers=_new_workers(tick, pending_pods, offered_room, known),
        by_pods=tuple((p[2], p[3] - p[2]) for p in places),
    )


def _is_known(w: Worker) -> bool:
    return None not in (
        w.cpu_requested_milli,
        w.cpu_allocatable_milli,
        w.memory_requested_mib,
        w.memory_allocatable_mib,
    )


def _new_worker_capacity(tick: Tick, known: list[Worker]) -> FreeCapacity | None:
    """What a worker that would be launched offers: measured on one of its type, or on any, before the type's name."""
    types = tick.policy.instance_types
    like = [w for w in known if w.instance_type in types[:1]] or known
    if like:
        sample = max(like, key=lambda w: (w.cpu_allocatable_milli or 0, w.memory_allocatable_mib or 0))
        cpu, memory = sample.cpu_allocatable_milli or 0, sample.memory_allocatable_mib or 0
        pods = PODS_PER_NODE if sample.pods_allocatable is None else sample.pods_allocatable
        return FreeCapacity(cpu_milli=cpu, memory_mib=memory, pods=pods)
    size = next((found for t in types if (found := offered(t))), None)
    return FreeCapacity(cpu_milli=size[0], memory_mib=size[1], pods=PODS_PER_NODE) if size else None


def _slots_when_empty(free: FreeCapacity, size: PodSize) -> int:
    left = _without_daemons(free, size)
    return slots(left.cpu_milli, left.memory_mib, left.pods, size)


def _without_daemons(free: FreeCapacity, size: PodSize) -> FreeCapacity:
    return FreeCapacity(
        cpu_milli=free.cpu_milli - size.daemon_cpu_milli,
        memory_mib=free.memory_mib - size.daemon_memory_mib,
        pods=free.pods - size.daemon_pods,
    )


def _weight(shape: PodShape, empty: FreeCapacity, per_worker: int) -> float:
    """How many typical pods' places one pod of this shape takes: by how many of them fill a worker."""
    asked = PodSize(
        cpu_milli=shape.cpu_milli,
        memory_mib=shape.memory_mib,
        daemon_cpu_milli=0,
        daemon_memory_mib=0,
        daemon_pods=0,
    )
    return per_worker / max(1, slots(empty.cpu_milli, empty.memory_mib, empty.pods, asked))


def _free_slots(w: Worker, size: PodSize) -> int:
    most = PODS_PER_NODE if w.pods_allocatable is None else w.pods_allocatable
    return slots(
        (w.cpu_allocatable_milli or 0) - (w.cpu_requested_milli or 0),
        (w.memory_allocatable_mib or 0) - (w.memory_requested_mib or 0),
        most - (w.pods or 0),
        size,
    )


def _total_slots(w: Worker, size: PodSize) -> int:
    """Places of the worker when it is empty; never fewer than are free."""
    most = PODS_PER_NODE if w.pods_allocatable is None else w.pods_allocatable
    free = FreeCapacity(cpu_milli=w.cpu_allocatable_milli or 0, memory_mib=w.memory_allocatable_mib or 0, pods=most)
    return max(_slots_when_empty(free, size), _free_slots(w, size))


def _slots_needed_elsewhere(w: Worker, size: PodSize) -> float:
    """Places that the pods of a worker that goes will need elsewhere."""
    if not (w.phase == "cordoned" or (w.phase == "usable" and w.under_notice)) or not _is_known(w):
        return 0.0
    asked = (w.cpu_requested_milli or 0) - size.daemon_cpu_milli
    return max(0.0, asked / size.cpu_milli) if size.cpu_milli > 0 else 0.0


def _new_workers(tick: Tick, pending_pods: PendingPods | None, model: FreeCapacity, known: list[Worker]) -> int:
    """Workers for the waiting pods beyond what joins; pods the scheduler has only just seen may still find room."""
    if not pending_pods or not pending_pods.left:
        return 0
    grace = tick.policy.scheduling_grace_seconds
    fresh = [s for s in pending_pods.helpful if s.oldest_seconds < grace]
    capacities = [_joining_capacity(w, model, tick.policy) for w in tick.joining]
    capacities += [_free_capacity(w) for w in known if tick.now - tick.memory.fresh.get(w.instance_id, 0) < grace]
    if len(fresh) == len(pending_pods.helpful):
        capacities = [*capacities[: len(tick.joining)], *(_free_capacity(w) for w in known)]
    new, _ = pack(pending_pods.helpful, capacities, model, tick.policy.max_workers)
    return new


def _joining_capacity(w: Worker, model: FreeCapacity, policy: Policy) -> FreeCapacity:
    size = None if w.instance_type in policy.instance_types[:1] else offered(w.instance_type)
    cpu, memory = size or (model.cpu_milli, model.memory_mib)
    return FreeCapacity(
        zone=w.zone,
        instance_type=w.instance_type,
        market=w.market,
        taints=w.taints,
        cpu_milli=cpu,
        memory_mib=memory,
        pods=model.pods,
    )


def _free_capacity(w: Worker) -> FreeCapacity:
    most = PODS_PER_NODE if w.pods_allocatable is None else w.pods_allocatable
    return FreeCapacity(
        zone=w.zone,
        instance_type=w.instance_type,
        market=w.market,
        taints=w.taints,
        cpu_milli=(w.cpu_allocatable_milli or 0) - (w.cpu_requested_milli or 0),
        memory_mib=(w.memory_allocatable_mib or 0) - (w.memory_requested_mib or 0),
        pods=most - (w.pods or 0),
    )
