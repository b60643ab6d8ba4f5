"""Bin packing of pods onto workers by their requests: first-fit decreasing, and the size of a typical pod.

Reads requests only; pending_pods.py decides which pods count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from node_fleet.domain.model.memory import PodSums
from node_fleet.domain.model.snapshot import PodShape, Worker

PODS_PER_NODE = 110
"""The kubelet's default maximum of pods."""

_ZONE, _TYPE, _MARKET = "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type", "node-fleet.io/market"
_ROUNDING = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSize:
    """The requests of a typical pod, and the requests of the DaemonSets of one worker."""

    cpu_milli: float
    memory_mib: float
    daemon_cpu_milli: float = 0.0
    daemon_memory_mib: float = 0.0
    daemon_pods: int = 0


@dataclass(slots=True, kw_only=True)
class FreeCapacity:
    """The free capacity of one worker; packing reduces it. An empty zone, type or market matches every pod."""

    zone: str = ""
    instance_type: str = ""
    market: str = ""
    taints: tuple[str, ...] = ()
    cpu_milli: float
    memory_mib: float
    pods: int

    def accepts(self, shape: PodShape) -> bool:
        """Whether zone, node selector and taints allow such a pod. Labels with an unknown value match."""
        if shape.zone and self.zone and shape.zone != self.zone:
            return False
        labels = {_ZONE: self.zone, _TYPE: self.instance_type, _MARKET: self.market}
        for entry in shape.node_selector:
            key, _, value = entry.partition("=")
            if labels.get(key) and labels[key] != value:
                return False
        return all(_is_tolerated(taint, shape.tolerations) for taint in self.taints)

    def take(self, shape: PodShape, count: int) -> int:
        """Place up to `count` pods of this shape. Returns the number that fit."""
        if self.pods <= 0 or not self.accepts(shape):
            return 0
        fits = min(count, self.pods)
        if shape.cpu_milli > 0:
            fits = min(fits, int(self.cpu_milli // shape.cpu_milli))
        if shape.memory_mib > 0:
            fits = min(fits, int(self.memory_mib // shape.memory_mib))
        fits = max(0, fits)
        self.cpu_milli -= fits * shape.cpu_milli
        self.memory_mib -= fits * shape.memory_mib
        self.pods -= fits
        return fits


def free_capacity(worker: Worker, allocatable: tuple[int, int] | None = None) -> FreeCapacity:
    """What the worker has free by its requests. allocatable: CPU milli and memory MiB when its own are unknown."""
    cpu, memory = worker.cpu_allocatable_milli, worker.memory_allocatable_mib
    if cpu is None or memory is None:
        cpu, memory = allocatable or (0, 0)
    return FreeCapacity(
        zone=worker.zone,
        instance_type=worker.instance_type,
        market=worker.market,
        taints=worker.taints,
        cpu_milli=cpu - (worker.cpu_requested_milli or 0),
        memory_mib=memory - (worker.memory_requested_mib or 0),
        pods=(PODS_PER_NODE if worker.pods_allocatable is None else worker.pods_allocatable) - (worker.pods or 0),
    )


def _is_tolerated(taint: str, tolerations: Sequence[str]) -> bool:
    if "PreferNoSchedule" in taint:
        return True
    key = taint.partition("=")[0].partition(":")[0]
    return any(t in (taint, key, "*") or taint.startswith(f"{t}:") for t in tolerations)


def place(shape: PodShape, count: int, capacities: Iterable[FreeCapacity]) -> int:
    """Place the pods on the first workers that hold them. Returns the number of pods that do not fit."""
    for free in capacities:
        if count <= 0:
            break
        if not shape.cpu_milli or free.cpu_milli >= shape.cpu_milli:
            count -= free.take(shape, count)
    return max(0, count)


def pack(
    shapes: Iterable[PodShape], capacities: Iterable[FreeCapacity], new: FreeCapacity, most_new: int
) -> tuple[int, int]:
    """First-fit decreasing over `capacities` and then over at most `most_new` copies of `new`.

    Returns the number of new workers and the number of pods that fit nowhere.
    """
    ordered = sorted(shapes, key=lambda s: (-s.cpu_milli, -s.memory_mib, s.zone, s.node_selector, s.tolerations))
    smallest = ordered[-1].cpu_milli if ordered else 0
    open_capacities, opened, unplaced = list(capacities), 0, 0
    for shape in ordered:
        open_capacities = [free for free in open_capacities if free.pods > 0 and free.cpu_milli >= smallest]
        remaining = place(shape, shape.count, open_capacities)
        while remaining > 0 and opened < most_new:
            free = replace(new, zone=shape.zone)
            placed = free.take(shape, remaining)
            if not placed:
                break
            open_capacities.append(free)
            opened += 1
            remaining -= placed
        unplaced += remaining
    return opened, unplaced


def learn_pods(sums: PodSums, workers: Iterable[Worker], keep: float) -> PodSums:
    """The sums after one more reading. `keep` (0 to 1) of the old sums remains. Unknown workers are skipped."""
    known = [
        (w.pods, w.cpu_requested_milli, w.memory_requested_mib)
        for w in workers
        if w.pods is not None and w.cpu_requested_milli is not None and w.memory_requested_mib is not None
    ]
    if not known:
        return sums
    fewest = min(p for p, _, _ in known)
    return PodSums(
        workers=sums.workers * keep + len(known),
        pods=sums.pods * keep + sum(p for p, _, _ in known),
        pods_squared=sums.pods_squared * keep + sum(p * p for p, _, _ in known),
        cpu=sums.cpu * keep + sum(c for _, c, _ in known),
        pods_cpu=sums.pods_cpu * keep + sum(p * c for p, c, _ in known),
        memory=sums.memory * keep + sum(m for _, _, m in known),
        pods_memory=sums.pods_memory * keep + sum(p * m for p, _, m in known),
        least=fewest if sums.least < 0 else min(fewest, sums.least),
    )


def typical_pod(sums: PodSums, shapes: Sequence[PodShape]) -> PodSize | None:
    """The slope and start of the least-squares line through pods and requests of the workers.

    The mean when every worker has the same number of pods. The mean of the pending `shapes` when no pod ran yet;
    None when none is pending either.
    """
    if sums.pods <= 0:
        count = sum(s.count for s in shapes)
        if not count:
            return None
        cpu = sum(s.cpu_milli * s.count for s in shapes) / count
        return PodSize(cpu_milli=cpu, memory_mib=sum(s.memory_mib * s.count for s in shapes) / count)
    cpu, cpu_start = _line(sums, sums.cpu, sums.pods_cpu)
    memory, memory_start = _line(sums, sums.memory, sums.pods_memory)
    daemons = _daemon_pods(sums, cpu, cpu_start)
    return PodSize(
        cpu_milli=cpu,
        memory_mib=memory,
        daemon_cpu_milli=max(0.0, cpu_start + cpu * daemons),
        daemon_memory_mib=max(0.0, memory_start + memory * daemons),
        daemon_pods=daemons,
    )


def _line(sums: PodSums, requested: float, pods_requested: float) -> tuple[float, float]:
    """(request of one more pod, request of a worker without pods); the slope stays between 1 and 3 times the mean."""
    mean = requested / sums.pods
    spread = sums.workers * sums.pods_squared - sums.pods * sums.pods
    if spread > 1e-3 * sums.pods * sums.pods:
        slope = (sums.workers * pods_requested - sums.pods * requested) / spread
    else:
        slope = mean
    slope = min(max(slope, mean), 3 * mean)
    return slope, (requested - slope * sums.pods) / sums.workers


def _daemon_pods(sums: PodSums, slope: float, start: float) -> int:
    """DaemonSet pods of one worker: the fewest pods seen, if a worker was nearly empty; else taken from the line.

    A line that starts below zero means that some pods request less than a typical one.
    """
    if 3 * sums.least <= sums.pods / sums.workers:
        return sums.least
    by_line = math.ceil(-start / slope - _ROUNDING) if slope > 0 and start < 0 else 0
    return min(sums.least, max(0, by_line))


def slots(free: FreeCapacity, size: PodSize) -> int:
    """The number of typical pods that this capacity holds, limited by its scarcest resource."""
    fits = float(free.pods)
    if size.cpu_milli > 0:
        fits = min(fits, free.cpu_milli / size.cpu_milli)
    if size.memory_mib > 0:
        fits = min(fits, free.memory_mib / size.memory_mib)
    return max(0, math.floor(fits + _ROUNDING))
