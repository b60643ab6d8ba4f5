"""What the fake Prometheus has scraped from the cluster: five minutes of counters, and the last state of everything.

It samples every 15 virtual seconds straight from the meters, with no text in between, and answers no query.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from simulator.cluster.load.meters import CPU_MODES, LATENCY_BUCKETS_SECONDS
from simulator.cluster.model import SimulatedCluster
from simulator.cluster.objects import Obj, condition_is_true
from simulator.cluster.state import Machine
from simulator.fakes.exposition import SCRAPE_SECONDS, Targets, exporter_answers, used_cpu_seconds

PHASE_SECONDS: Final = 7.0
KEPT_SECONDS: Final = 330.0
LOOKBACK_SECONDS: Final = 300.0
REMEMBERED_SECONDS: Final = 90_000.0
APP_COUNTERS: Final = ("served", "errors", *(f"latency_le_{bound}" for bound in LATENCY_BUCKETS_SECONDS))


class RepeatingClock(Protocol):
    """The part of the virtual clock that scraping needs."""

    def now(self) -> float: ...

    def every(self, seconds: float, callback: Any, *, first: float | None = None) -> Any: ...


@dataclass(slots=True)
class Track:
    """Counter rows of one target, oldest first."""

    times: deque[float] = field(default_factory=deque)
    rows: deque[tuple[float, ...]] = field(default_factory=deque)

    def add(self, at: float, row: tuple[float, ...]) -> None:
        self.times.append(at)
        self.rows.append(row)
        while self.times[0] < at - KEPT_SECONDS:
            self.times.popleft()
            self.rows.popleft()

    def rates(self, at: float, window_seconds: float) -> list[float] | None:
        """Per-second rate of each counter as Prometheus' rate() extrapolates it; None with fewer than two samples."""
        start = at - window_seconds
        skipped = next((place for place, time in enumerate(self.times) if time >= start), len(self.times))
        count = len(self.times) - skipped
        if count < 2:
            return None
        first_at, last_at, first, last = self.times[skipped], self.times[-1], self.rows[skipped], self.rows[-1]
        interval, before, after = last_at - first_at, first_at - start, at - last_at
        mean = interval / (count - 1)
        late = after if after < mean * 1.1 else mean / 2
        rates = []
        for low, high in zip(first, last, strict=True):
            growth, early = high - low, before
            if growth > 0:
                early = min(early, interval * low / growth)
            early = early if early < mean * 1.1 else mean / 2
            rates.append(growth * (interval + early + late) / interval / window_seconds)
        return rates


@dataclass(slots=True)
class WorkerTrack:
    """One worker's node-exporter and kubelet: their counters and their last scrape."""

    machine: Machine
    cpu: Track = field(default_factory=Track)
    up: bool = False
    used: Track = field(default_factory=Track)
    kubelet_up: bool = False
    cores: int = 0
    memory_total_mib: float = 0.0
    memory_available_mib: float = 0.0


@dataclass(slots=True)
class AppTrack:
    """One application's counters and its queue; `queues` is true where it has one."""

    queues: bool
    counters: Track = field(default_factory=Track)
    queue_depth: float = 0.0


@dataclass(slots=True)
class ReadyTrack:
    """One node over the scrapes: seen since, gone at, and its ready spells as first scrape and first scrape after."""

    seen_at: float
    spells: list[tuple[float, float]] = field(default_factory=list)
    gone_at: float | None = None

    def mark(self, ready: bool, now: float) -> None:
        begun, ends = self.spells[-1] if self.spells else (now, now)
        if ready and ends != math.inf:
            self.spells = [spell for spell in self.spells if now - spell[1] < REMEMBERED_SECONDS]
            self.spells.append((now, math.inf))
        elif not ready and ends == math.inf:
            self.spells[-1] = (begun, now)


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The objects that kube-state-metrics showed in one scrape; the store never changes an object in place."""

    version: int
    nodes: Sequence[Obj]
    pods: Sequence[Obj]


class Scrapes:
    """Scrapes the cluster at a fixed interval from its creation."""

    def __init__(self, cluster: SimulatedCluster, clock: RepeatingClock) -> None:
        self._cluster = cluster
        self._targets = Targets(cluster)
        self.last_at = -math.inf
        self.workers: dict[str, WorkerTrack] = {}
        self.apps: dict[str, AppTrack] = {}
        self.ready: dict[str, ReadyTrack] = {}
        self.state: ClusterState | None = None
        self.state_metrics_up = True
        self.node_metrics_up = True
        first = (math.floor((clock.now() - PHASE_SECONDS) / SCRAPE_SECONDS) + 1) * SCRAPE_SECONDS + PHASE_SECONDS
        clock.every(SCRAPE_SECONDS, self.scrape, first=first)

    def scrape(self) -> None:
        """One scrape of every target, now."""
        with self._cluster.state.lock:
            now = self._cluster.now()
            self._scrape_workers(now)
            self._scrape_state(now)
            self._scrape_apps(now)
            self.last_at = now

    def _scrape_workers(self, now: float) -> None:
        before, self.workers = self.workers, {}
        for machine in self._targets.current() if self.node_metrics_up else ():
            track = before.get(machine.instance_id) or WorkerTrack(machine)
            self.workers[machine.instance_id] = track
            track.up, track.kubelet_up = exporter_answers(machine), machine.serves
            if not (track.up or track.kubelet_up):
                continue
            meter = self._cluster.node_meter(machine.node_name)
            totals, track.cores = meter.counters.read(now), meter.cores
            if track.kubelet_up:
                track.used.add(now, (used_cpu_seconds(totals),))
            if track.up:
                track.cpu.add(now, tuple([totals[mode] / meter.cores for mode in CPU_MODES]))
                track.memory_total_mib = meter.memory_total_mib
                track.memory_available_mib = meter.memory_total_mib - meter.memory_used_mib

    def _scrape_state(self, now: float) -> None:
        store = self._cluster.store
        if not self.state_metrics_up:
            self.state = None
        elif self.state is None or self.state.version != store.version:
            self.state = ClusterState(store.version, store.all("nodes"), store.all("pods"))
            self._mark_ready(self.state.nodes, now)

    def _mark_ready(self, nodes: Sequence[Obj], now: float) -> None:
        shown = {node["metadata"]["name"]: condition_is_true(node, "Ready") for node in nodes}
        for name in shown.keys() - self.ready.keys():
            self.ready[name] = ReadyTrack(seen_at=now)
        for name, track in list(self.ready.items()):
            track.mark(shown.get(name, False), now)
            if name in shown:
                track.gone_at = None
            elif track.gone_at is None:
                track.gone_at = now
            elif now - track.gone_at > REMEMBERED_SECONDS:
                del self.ready[name]

    def _scrape_apps(self, now: float) -> None:
        for name, application in self._cluster.load.running.items():
            track = self.apps.get(name)
            if track is None:
                track = self.apps[name] = AppTrack(queues=application.spec.queues)
            totals = application.counters.read(now)
            track.counters.add(now, tuple([totals.get(counter, 0.0) for counter in APP_COUNTERS]))
            track.queue_depth = application.queue_depth(now)
