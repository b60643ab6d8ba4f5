"""Turns a trace into demand and wanted replicas, second by second, before any policy is asked.

Replicas depend on the load alone, so that every policy and the clairvoyant bound face the same pods.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from backtest.model import STEP_SECONDS, Capacity, Scaling
from backtest.trace import Stretch, Trace

LOOK_SECONDS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One stretch of the trace as the fleet meets it: [start, end), and when the wanted replicas change.

    used_milli_seconds[k]: CPU that the load asked for in the first k steps, in milli-core-seconds.
    """

    start: int
    end: int
    changes: tuple[tuple[int, int], ...]
    used_milli_seconds: array[float]

    def used_between(self, since: int, until: int) -> float:
        """Milli-core-seconds of demand between two times on the grid of steps."""
        first, last = (since - self.start) // STEP_SECONDS, (until - self.start) // STEP_SECONDS
        return self.used_milli_seconds[last] - self.used_milli_seconds[first]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The whole demand of one trace under one model. milli_per_unit: CPU that one unit of the trace stands for."""

    name: str
    phases: tuple[Phase, ...]
    milli_per_unit: float
    least_workers: int
    most_workers: int
    pods_per_worker: int

    @property
    def seconds(self) -> int:
        return sum(phase.end - phase.start for phase in self.phases)

    @property
    def holdable(self) -> int:
        """Pods that the largest fleet holds; what is wanted beyond them no policy can run."""
        return self.most_workers * self.pods_per_worker

    def workers_for(self, replicas: int) -> int:
        """The fewest workers that hold these pods, between the minimum and the maximum."""
        return min(self.most_workers, max(self.least_workers, -(-replicas // self.pods_per_worker)))


def plan_load(trace: Trace, capacity: Capacity, scaling: Scaling, *, least_workers: int, most_workers: int) -> Load:
    """Scale the trace to the stated capacity and let the replicas follow it."""
    milli_per_unit = unit_of(trace, capacity, scaling)
    most = scaling.most_replicas or most_workers * capacity.pods_per_worker
    follower = _Follower(capacity, scaling, most)
    return Load(
        name=trace.name,
        phases=tuple(_phase(s, trace.interval_seconds, milli_per_unit, scaling, follower) for s in trace.stretches),
        milli_per_unit=milli_per_unit,
        least_workers=least_workers,
        most_workers=most_workers,
        pods_per_worker=capacity.pods_per_worker,
    )


def unit_of(trace: Trace, capacity: Capacity, scaling: Scaling) -> float:
    """CPU milli of one unit of the trace: as stated, or so that its quantile is what the stated workers serve."""
    if scaling.milli_per_unit:
        return scaling.milli_per_unit
    per_worker = capacity.pods_per_worker * capacity.pod_cpu_milli * scaling.target_percent / 100
    high = quantile(trace.values, scaling.quantile) or max(trace.values)
    return scaling.workers_at_quantile * per_worker / high if high > 0 else 0.0


def quantile(values: Iterable[float], share: float) -> float:
    """The value that this share of all values does not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]


def _phase(stretch: Stretch, interval: int, scale: float, scaling: Scaling, follower: _Follower) -> Phase:
    start = stretch.times[0] // STEP_SECONDS * STEP_SECONDS
    end = stretch.times[-1] // STEP_SECONDS * STEP_SECONDS
    if scaling.interpolation == "jump":
        end += max(STEP_SECONDS, interval // STEP_SECONDS * STEP_SECONDS)
    used, changes, total, last = array("d", [0.0]), [], 0.0, -1
    rates = _jumps(stretch, start, end) if scaling.interpolation == "jump" else _ramps(stretch, start, end)
    for at, value in zip(range(start, end, STEP_SECONDS), rates, strict=True):
        milli = value * scale
        total += milli * STEP_SECONDS
        used.append(total)
        replicas = follower.replicas(at, milli)
        if replicas != last:
            changes.append((at, replicas))
            last = replicas
    return Phase(start=start, end=end, changes=tuple(changes), used_milli_seconds=used)


def _jumps(stretch: Stretch, start: int, end: int) -> Iterator[float]:
    """Each value holds until the next reading."""
    times, values = stretch.times, stretch.values
    for at in range(start, end, STEP_SECONDS):
        yield values[max(0, bisect_right(times, at) - 1)]


def _ramps(stretch: Stretch, start: int, end: int) -> Iterator[float]:
    """Straight lines between the readings."""
    times, values, index = stretch.times, stretch.values, 0
    for at in range(start, end, STEP_SECONDS):
        while index + 2 < len(times) and times[index + 1] <= at:
            index += 1
        left, right = times[index], times[index + 1]
        share = (max(at, left) - left) / (right - left)
        yield values[index] + (values[index + 1] - values[index]) * share


class _Follower:
    """A HorizontalPodAutoscaler in short: it looks every 15 s at what was used before, and moves as Kubernetes lets it.

    Target utilisation, tolerance, at most double or four more at a look, and a window before it goes down.
    """

    def __init__(self, capacity: Capacity, scaling: Scaling, most: int) -> None:
        self._per_pod = capacity.pod_cpu_milli * scaling.target_percent / 100
        self._idle = capacity.pod_idle_cpu_milli
        self._tolerance = scaling.tolerance_percent / 100
        self._window = scaling.stay_up_seconds
        self._least, self._most = scaling.least_replicas, most
        self._current = 0
        self._seen = 0.0
        self._looked_at = 0
        self._wishes: deque[tuple[int, int]] = deque()

    def replicas(self, at: int, milli: float) -> int:
        """Pods wanted at this step; milli is what the load asks for from now on."""
        if not self._current:
            self._current = self._bounded(math.ceil(milli / self._per_pod - 1e-9))
        elif at // LOOK_SECONDS != self._looked_at:
            self._current = self._look(at)
        self._looked_at = at // LOOK_SECONDS
        self._seen = milli
        return self._current

    def _look(self, at: int) -> int:
        current = self._current
        used = self._seen + self._idle * current
        wish = current
        if abs(used / (self._per_pod * current) - 1) > self._tolerance:
            most_now = max(2 * current, current + 4)
            wish = self._bounded(min(most_now, math.ceil(used / self._per_pod - 1e-9)))
        return self._held(at, wish) if self._window else wish

    def _bounded(self, replicas: int) -> int:
        return min(self._most, max(self._least, replicas))

    def _held(self, at: int, wish: int) -> int:
        """The highest wish of the window; kept as a falling queue."""
        wishes = self._wishes
        while wishes and wishes[-1][1] <= wish:
            wishes.pop()
        wishes.append((at, wish))
        while wishes[0][0] <= at - self._window:
            wishes.popleft()
        return wishes[0][1]
