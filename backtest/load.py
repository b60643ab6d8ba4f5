"""Computes from a trace the CPU demand and the wanted replicas at each step.

Replicas depend on the load alone, so that every policy and the clairvoyant bound have the same pods.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator

from backtest.model import STEP_SECONDS, Capacity, ModelError, Scaling
from backtest.trace import DAY_SECONDS, Stretch, Trace
from node_fleet.domain.model.value_class import value_class

SYNC_SECONDS = 15
MOST_DAYS = 1100
"""Three years take half a minute and 100 MB before the first policy is replayed."""


@value_class
class Phase:
    """The demand of one stretch [start, end). changes: (time, wanted replicas) of each change.

    used_milli_seconds[k]: CPU demand of the first k steps, in milli-core-seconds.
    """

    start: int
    end: int
    changes: tuple[tuple[int, int], ...]
    used_milli_seconds: array[float]

    def used_between(self, since: int, until: int) -> float:
        """The demand between two steps, in milli-core-seconds."""
        first, last = (since - self.start) // STEP_SECONDS, (until - self.start) // STEP_SECONDS
        return self.used_milli_seconds[last] - self.used_milli_seconds[first]


@value_class
class Load:
    """The whole demand of one trace under one model. milli_per_unit: CPU of one unit of the trace."""

    name: str
    phases: tuple[Phase, ...]
    milli_per_unit: float
    min_workers: int
    max_workers: int
    pods_per_worker: int

    @property
    def seconds(self) -> int:
        return sum(phase.end - phase.start for phase in self.phases)

    @property
    def max_running_pods(self) -> int:
        """Pods that fit on the largest fleet; no policy can run more."""
        return self.max_workers * self.pods_per_worker

    def workers_for(self, replicas: int) -> int:
        """The fewest workers on which these pods fit, between the minimum and the maximum."""
        return min(self.max_workers, max(self.min_workers, -(-replicas // self.pods_per_worker)))


def plan_load(trace: Trace, capacity: Capacity, scaling: Scaling, *, min_workers: int, max_workers: int) -> Load:
    """Scale the trace to the stated capacity and compute the replicas.

    Raises:
        ModelError: no stretch of the trace covers a step of the model.
    """
    stretches = [one for one in trace.stretches if scaling.interpolation == "jump" or _steps(one)]
    if not stretches:
        covered = trace.end - trace.start
        raise ModelError(f"trace {trace.name} covers {covered} s, expected readings over {STEP_SECONDS} s or more")
    days = sum(map(_steps, stretches)) * STEP_SECONDS / DAY_SECONDS
    if days > MOST_DAYS:
        text = f"trace {trace.name} covers {days:,.0f} days, expected at most {MOST_DAYS:,}; use a part of it"
        raise ModelError(text)
    milli_per_unit = cpu_milli_per_unit(trace, capacity, scaling)
    most = scaling.max_replicas or max_workers * capacity.pods_per_worker
    autoscaler = _PodAutoscaler(capacity, scaling, most)
    return Load(
        name=trace.name,
        phases=tuple(_phase(s, trace.interval_seconds, milli_per_unit, scaling, autoscaler) for s in stretches),
        milli_per_unit=milli_per_unit,
        min_workers=min_workers,
        max_workers=max_workers,
        pods_per_worker=capacity.pods_per_worker,
    )


def _steps(stretch: Stretch) -> int:
    """The steps of the model that the stretch covers."""
    return stretch.times[-1] // STEP_SECONDS - stretch.times[0] // STEP_SECONDS


def cpu_milli_per_unit(trace: Trace, capacity: Capacity, scaling: Scaling) -> float:
    """CPU milli of one unit of the trace: as stated, or such that the quantile needs the stated number of workers."""
    if scaling.milli_per_unit:
        return scaling.milli_per_unit
    per_worker = capacity.pods_per_worker * capacity.pod_cpu_milli * scaling.target_percent / 100
    high = quantile(trace.values, scaling.quantile) or max(trace.values)
    return scaling.workers_at_quantile * per_worker / high if high > 0 else 0.0


def quantile(values: Iterable[float], share: float) -> float:
    """The value that this share of all values does not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]


def _phase(stretch: Stretch, interval: int, scale: float, scaling: Scaling, autoscaler: _PodAutoscaler) -> Phase:
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
        replicas = autoscaler.replicas(at, milli)
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
    """Values on straight lines between the readings."""
    times, values, index = stretch.times, stretch.values, 0
    for at in range(start, end, STEP_SECONDS):
        while index + 2 < len(times) and times[index + 1] <= at:
            index += 1
        left, right = times[index], times[index + 1]
        share = (max(at, left) - left) / (right - left)
        yield values[index] + (values[index + 1] - values[index]) * share


class _PodAutoscaler:
    """A HorizontalPodAutoscaler in short: every 15 s it computes the replicas from the CPU use before.

    It has a target utilisation, a tolerance, a limit of twice the replicas or four more in one step, and a
    stabilization window before it removes replicas.
    """

    def __init__(self, capacity: Capacity, scaling: Scaling, most: int) -> None:
        self._per_pod = capacity.pod_cpu_milli * scaling.target_percent / 100
        self._idle = capacity.pod_idle_cpu_milli
        self._tolerance = scaling.tolerance_percent / 100
        self._window = scaling.stabilization_seconds
        self._least, self._most = scaling.min_replicas, most
        self._current = 0
        self._milli_before = 0.0
        self._synced_at = 0
        self._recommendations: deque[tuple[int, int]] = deque()

    def replicas(self, at: int, milli: float) -> int:
        """Pods wanted at this step; milli: the CPU demand from this step on."""
        if not self._current:
            self._current = self._bounded(math.ceil(milli / self._per_pod - 1e-9))
        elif at // SYNC_SECONDS != self._synced_at:
            self._current = self._sync(at)
        self._synced_at = at // SYNC_SECONDS
        self._milli_before = milli
        return self._current

    def _sync(self, at: int) -> int:
        current = self._current
        used = self._milli_before + self._idle * current
        recommended = current
        if abs(used / (self._per_pod * current) - 1) > self._tolerance:
            most_now = max(2 * current, current + 4)
            recommended = self._bounded(min(most_now, math.ceil(used / self._per_pod - 1e-9)))
        return self._stabilized(at, recommended) if self._window else recommended

    def _bounded(self, replicas: int) -> int:
        return min(self._most, max(self._least, replicas))

    def _stabilized(self, at: int, recommended: int) -> int:
        """The highest recommendation of the window; the queue keeps only values that can still be the highest."""
        recommendations = self._recommendations
        while recommendations and recommendations[-1][1] <= recommended:
            recommendations.pop()
        recommendations.append((at, recommended))
        while recommendations[0][0] <= at - self._window:
            recommendations.popleft()
        return recommendations[0][1]
