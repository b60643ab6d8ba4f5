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
from node_fleet.domain.scaling.signals.pending_pods import Demand
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


def figures(view: Tick, demand: Demand | None, sums: PodSums) -> CapacityEstimate | None:
    """The figures; None when too many workers do not say what their pods ask for, or when no pod was ever seen."""
    known = [w for w in view.usable if _is_known(w)]
    if len(view.usable) - len(known) > MISSING_SHARE * len(view.usable):
        return None
    shapes = demand.helpful if demand else ()
    size = typical_pod(sums, shapes)
    model = _new_room(view, known)
    if size is None or model is None:
        return None
    per_worker = max(1, _empty(model, size))
    offered_room = _without_daemons(model, size)
    places = sorted((w.pods or 0, w.instance_id, _free(w, size), _whole(w, size)) for w in known)
    free, whole = sum(p[2] for p in places), sum(p[3] for p in places)
    waiting = sum(_weight(s, offered_room, per_worker) * s.count for s in shapes)
    used = whole - free + waiting + sum(_leaving(w, size) for w in view.snapshot.workers)
    blind = len(view.usable) - len(known)
    return CapacityEstimate(
        demand=used / per_worker + blind,
        have=whole / per_worker + blind + len(view.joining),
        pods_per_worker=per_worker,
        new_workers=_new_workers(view, demand, offered_room, known),
        by_pods=tuple((p[2], p[3] - p[2]) for p in places),
    )


def _is_known(w: Worker) -> bool:
    return None not in (
        w.cpu_requested_milli,
        w.cpu_allocatable_milli,
        w.memory_requested_mib,
        w.memory_allocatable_mib,
    )


def _new_room(view: Tick, known: list[Worker]) -> FreeCapacity | None:
    """What a worker that would be launched offers: measured on one of its type, or on any, before the type's name."""
    types = view.policy.instance_types
    like = [w for w in known if w.instance_type in types[:1]] or known
    if like:
        sample = max(like, key=lambda w: (w.cpu_allocatable_milli or 0, w.memory_allocatable_mib or 0))
        cpu, memory = sample.cpu_allocatable_milli or 0, sample.memory_allocatable_mib or 0
        pods = PODS_PER_NODE if sample.pods_allocatable is None else sample.pods_allocatable
        return FreeCapacity(cpu_milli=cpu, memory_mib=memory, pods=pods)
    size = next((found for t in types if (found := offered(t))), None)
    return FreeCapacity(cpu_milli=size[0], memory_mib=size[1], pods=PODS_PER_NODE) if size else None


def _empty(room: FreeCapacity, size: PodSize) -> int:
    left = _without_daemons(room, size)
    return slots(left.cpu_milli, left.memory_mib, left.pods, size)


def _without_daemons(room: FreeCapacity, size: PodSize) -> FreeCapacity:
    return FreeCapacity(
        cpu_milli=room.cpu_milli - size.daemon_cpu_milli,
        memory_mib=room.memory_mib - size.daemon_memory_mib,
        pods=room.pods - size.daemon_pods,
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


def _free(w: Worker, size: PodSize) -> int:
    most = PODS_PER_NODE if w.pods_allocatable is None else w.pods_allocatable
    return slots(
        (w.cpu_allocatable_milli or 0) - (w.cpu_requested_milli or 0),
        (w.memory_allocatable_mib or 0) - (w.memory_requested_mib or 0),
        most - (w.pods or 0),
        size,
    )


def _whole(w: Worker, size: PodSize) -> int:
    """Places of the worker when it is empty; never fewer than are free."""
    most = PODS_PER_NODE if w.pods_allocatable is None else w.pods_allocatable
    room = FreeCapacity(cpu_milli=w.cpu_allocatable_milli or 0, memory_mib=w.memory_allocatable_mib or 0, pods=most)
    return max(_empty(room, size), _free(w, size))


def _leaving(w: Worker, size: PodSize) -> float:
    """Places that the pods of a worker that goes will need elsewhere."""
    if not (w.phase == "cordoned" or (w.phase == "usable" and w.under_notice)) or not _is_known(w):
        return 0.0
    asked = (w.cpu_requested_milli or 0) - size.daemon_cpu_milli
    return max(0.0, asked / size.cpu_milli) if size.cpu_milli > 0 else 0.0


def _new_workers(view: Tick, demand: Demand | None, model: FreeCapacity, known: list[Worker]) -> int:
    """Workers for the waiting pods beyond what joins; pods the scheduler has only just seen may still find room."""
    if not demand or not demand.left:
        return 0
    grace = view.policy.scheduling_grace_seconds
    fresh = [s for s in demand.helpful if s.oldest_seconds < grace]
    rooms = [_joining_room(w, model, view.policy) for w in view.joining]
    rooms += [_room(w) for w in known if view.now - view.memory.fresh.get(w.instance_id, 0) < grace]
    if len(fresh) == len(demand.helpful):
        rooms = [*rooms[: len(view.joining)], *(_room(w) for w in known)]
    new, _ = pack(demand.helpful, rooms, model, view.policy.max_workers)
    return new


def _joining_room(w: Worker, model: FreeCapacity, policy: Policy) -> FreeCapacity:
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


def _room(w: Worker) -> FreeCapacity:
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
