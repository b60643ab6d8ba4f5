"""The size of a typical pod, from the requests of all workers, and how many typical pods a worker holds."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from node_fleet.domain.model.instance_types import PODS_PER_NODE
from node_fleet.domain.model.memory import PodSums
from node_fleet.domain.model.snapshot import PodShape, Worker

_ROUNDING = 0.02


@dataclass(slots=True, kw_only=True)
class PodSize:
    """The requests of a typical pod, and the requests of the DaemonSets of one worker."""

    cpu_milli: float
    memory_mib: float
    daemon_cpu_milli: float = 0.0
    daemon_memory_mib: float = 0.0
    daemon_pods: int = 0


FreeCapacity = tuple[float, float, int]
"""What one worker has for pods, in whole or beside what its pods request: CPU in milli, memory in MiB, pods."""


def whole_capacity(worker: Worker) -> FreeCapacity:
    """What the worker offers when it is empty."""
    pods = worker.pods_allocatable
    return (
        worker.cpu_allocatable_milli or 0,
        worker.memory_allocatable_mib or 0,
        PODS_PER_NODE if pods is None else pods,
    )


def free_capacity(worker: Worker, whole: FreeCapacity) -> FreeCapacity:
    """What the worker has free by its requests. whole: what it offers when it is empty."""
    cpu, memory, pods = whole
    return (
        cpu - (worker.cpu_requested_milli or 0),
        memory - (worker.memory_requested_mib or 0),
        pods - (worker.pods or 0),
    )


def learn_pods(sums: PodSums, workers: Iterable[Worker], keep: float) -> PodSums:
    """The sums after one more reading. `keep` (0 to 1) of the old sums remains. Unknown workers are skipped."""
    known = [
        (w.pods, w.cpu_requested_milli, w.memory_requested_mib)
        for w in workers
        if w.pods is not None and w.cpu_requested_milli is not None and w.memory_requested_mib is not None
    ]
    if not known:
        return sums
    pods, cpu, memory = zip(*known, strict=True)
    fewest = min(pods)
    return PodSums(
        workers=sums.workers * keep + len(known),
        pods=sums.pods * keep + sum(pods),
        pods_squared=sums.pods_squared * keep + sum(map(operator.mul, pods, pods)),
        cpu=sums.cpu * keep + sum(cpu),
        pods_cpu=sums.pods_cpu * keep + sum(map(operator.mul, pods, cpu)),
        memory=sums.memory * keep + sum(memory),
        pods_memory=sums.pods_memory * keep + sum(map(operator.mul, pods, memory)),
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
    (free_cpu, free_memory, pods), cpu, memory = free, size.cpu_milli, size.memory_mib
    fits: float = pods
    if cpu > 0 and (by_cpu := free_cpu / cpu) < fits:
        fits = by_cpu
    if memory > 0 and (by_memory := free_memory / memory) < fits:
        fits = by_memory
    return math.floor(fits + _ROUNDING) if fits > 0 else 0
