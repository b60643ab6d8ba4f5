"""Pods into room: what a typical pod asks for, how many more of them each worker holds, and first-fit decreasing.

Works on requests alone; which pods count is demand.py's matter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from node_fleet.domain.model.memory import PodSums
from node_fleet.domain.model.snapshot import PodShape, Worker

PODS_PER_NODE = 110
_ZONE, _TYPE, _MARKET = "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type", "node-fleet.io/market"
_ROUNDING = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSize:
    """A typical pod, and what the DaemonSets of one worker ask for."""

    cpu_milli: float
    memory_mib: float
    daemon_cpu_milli: float
    daemon_memory_mib: float
    daemon_pods: int


@dataclass(slots=True, kw_only=True)
class FreeCapacity:
    """Free room of one worker while pods are packed into it."""

    zone: str = ""
    instance_type: str = ""
    market: str = ""
    taints: tuple[str, ...] = ()
    cpu_milli: float
    memory_mib: float
    pods: int

    def accepts(self, shape: PodShape) -> bool:
        """Whether zone, selector and taints let such a pod run here. Labels that nobody reports do not refuse."""
        if shape.zone and self.zone and shape.zone != self.zone:
            return False
        facts = {_ZONE: self.zone, _TYPE: self.instance_type, _MARKET: self.market}
        for entry in shape.node_selector:
            key, _, value = entry.partition("=")
            if facts.get(key) and facts[key] != value:
                return False
        return all(_tolerated(taint, shape.tolerations) for taint in self.taints)

    def take(self, shape: PodShape, wanted: int) -> int:
        """Put in as many of the wanted pods as fit; returns how many."""
        if self.pods <= 0 or not self.accepts(shape):
            return 0
        fits = min(wanted, self.pods)
        if shape.cpu_milli > 0:
            fits = min(fits, int(self.cpu_milli // shape.cpu_milli))
        if shape.memory_mib > 0:
            fits = min(fits, int(self.memory_mib // shape.memory_mib))
        fits = max(0, fits)
        self.cpu_milli -= fits * shape.cpu_milli
        self.memory_mib -= fits * shape.memory_mib
        self.pods -= fits
        return fits


def _tolerated(taint: str, tolerations: Sequence[str]) -> bool:
    if "PreferNoSchedule" in taint:
        return True
    key = taint.partition("=")[0].partition(":")[0]
    return any(t in (taint, key, "*") or taint.startswith(f"{t}:") for t in tolerations)


def pack(
    shapes: Iterable[PodShape], capacities: Sequence[FreeCapacity], new: FreeCapacity, most_new: int
) -> tuple[int, int]:
    """(new workers needed, pods that fit nowhere), first-fit decreasing over `rooms` and then over copies of `new`."""
    ordered = sorted(shapes, key=lambda s: (-s.cpu_milli, -s.memory_mib, s.zone, s.node_selector, s.tolerations))
    least = ordered[-1].cpu_milli if ordered else 0
    open_capacities, opened, homeless = list(capacities), 0, 0
    for shape in ordered:
        rest = _into(open_capacities, shape, shape.count)
        while rest > 0 and opened < most_new:
            free = replace(new, zone=shape.zone)
            placed = free.take(shape, rest)
            if not placed:
                break
            open_capacities.append(free)
            opened += 1
            rest -= placed
        homeless += max(0, rest)
        open_capacities = [free for free in open_capacities if free.pods > 0 and free.cpu_milli >= least]
    return opened, homeless


def _into(capacities: Iterable[FreeCapacity], shape: PodShape, count: int) -> int:
    """Put the pods into the first rooms that hold them; returns how many are left."""
    for free in capacities:
        if count <= 0:
            break
        if free.cpu_milli >= shape.cpu_milli:
            count -= free.take(shape, count)
    return count


def learn_pods(sums: PodSums, workers: Iterable[Worker], keep: float) -> PodSums:
    """The sums with this reading's usable workers; workers of which something is missing are left out."""
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
    """The line through pods and requests; without two different counts the mean, without any pod what waits."""
    if sums.pods <= 0:
        count = sum(s.count for s in shapes)
        if not count:
            return None
        cpu = sum(s.cpu_milli * s.count for s in shapes) / count
        memory = sum(s.memory_mib * s.count for s in shapes) / count
        return PodSize(cpu_milli=cpu, memory_mib=memory, daemon_cpu_milli=0, daemon_memory_mib=0, daemon_pods=0)
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


def _line(sums: PodSums, asked: float, pods_asked: float) -> tuple[float, float]:
    """(what one more pod asks for, where the line starts), the slope kept between sane bounds."""
    mean = asked / sums.pods
    spread = sums.workers * sums.pods_squared - sums.pods * sums.pods
    slope = (sums.workers * pods_asked - sums.pods * asked) / spread if spread > 1e-3 * sums.pods * sums.pods else mean
    slope = min(max(slope, mean), 3 * mean)
    return slope, (asked - slope * sums.pods) / sums.workers


def _daemon_pods(sums: PodSums, slope: float, start: float) -> int:
    """Pods of the DaemonSets on one worker: the fewest ever seen if some worker was nearly empty, else by the line.

    A line that starts below nothing says that some pods ask for less than a typical one.
    """
    if 3 * sums.least <= sums.pods / sums.workers:
        return sums.least
    by_line = math.ceil(-start / slope - _ROUNDING) if slope > 0 and start < 0 else 0
    return min(sums.least, max(0, by_line))


def slots(cpu_milli: float, memory_mib: float, pods: int, size: PodSize) -> int:
    """How many typical pods this room holds."""
    fits = float(pods)
    if size.cpu_milli > 0:
        fits = min(fits, cpu_milli / size.cpu_milli)
    if size.memory_mib > 0:
        fits = min(fits, memory_mib / size.memory_mib)
    return max(0, math.floor(fits + _ROUNDING))
