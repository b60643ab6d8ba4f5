"""Counters that grow at a known rate between two changes, so that a reading at any instant is exact.

CPU seconds by mode, bytes of network and disk, requests and latency buckets. No sampling, no drift.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

CPU_MODES: Final = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")

# How a worker's busy time divides: mostly user and system, some waiting for disk and for the hypervisor.
BUSY_SHARES: Final[dict[str, float]] = {
    "user": 0.70,
    "nice": 0.01,
    "system": 0.19,
    "iowait": 0.04,
    "irq": 0.005,
    "softirq": 0.015,
    "steal": 0.04,
}

LATENCY_BUCKETS_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BYTES_PER_BUSY_CORE_SECOND: Final[dict[str, float]] = {
    "network_receive_bytes": 1_500_000.0,
    "network_transmit_bytes": 2_500_000.0,
    "disk_read_bytes": 200_000.0,
    "disk_written_bytes": 800_000.0,
}
IDLE_BYTES_PER_SECOND: Final = 5_000.0


@dataclass(slots=True)
class Counters:
    """Named totals and the rates at which they grow."""

    at: float
    totals: dict[str, float] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)

    def read(self, now: float) -> dict[str, float]:
        """The totals at this instant; reading changes nothing."""
        elapsed = max(0.0, now - self.at)
        return {name: total + self.rates.get(name, 0.0) * elapsed for name, total in self.totals.items()}

    def set_rates(self, now: float, rates: Mapping[str, float]) -> None:
        self.totals = {**dict.fromkeys(rates, 0.0), **self.read(now)}
        self.rates = dict(rates)
        self.at = now


@dataclass(slots=True)
class NodeMeter:
    """One machine's CPU, network and disk counters and its memory in use."""

    cores: int
    memory_total_mib: float
    counters: Counters
    busy_cores: float = 0.0
    wanted_cores: float = 0.0
    memory_used_mib: float = 0.0

    @classmethod
    def start(cls, now: float, cores: int, memory_total_mib: float) -> NodeMeter:
        meter = cls(cores=cores, memory_total_mib=memory_total_mib, counters=Counters(at=now))
        meter.set_load(now, 0.0, 0.0)
        return meter

    def set_load(self, now: float, wanted_cores: float, memory_used_mib: float) -> None:
        """Demand above the capacity of the machine is cut to its capacity: the pods slow down."""
        memory_used_mib = min(self.memory_total_mib * 0.99, memory_used_mib)
        if self.counters.rates and (wanted_cores, memory_used_mib) == (self.wanted_cores, self.memory_used_mib):
            return
        self.wanted_cores = wanted_cores
        self.busy_cores = min(float(self.cores), wanted_cores)
        self.memory_used_mib = memory_used_mib
        rates = {mode: self.busy_cores * share for mode, share in BUSY_SHARES.items()}
        rates["idle"] = self.cores - self.busy_cores
        for name, per_core in BYTES_PER_BUSY_CORE_SECOND.items():
            rates[name] = IDLE_BYTES_PER_SECOND + per_core * self.busy_cores
        self.counters.set_rates(now, rates)

    @property
    def slowdown(self) -> float:
        """The share of their CPU demand that the pods get: 1 when the machine is not overloaded."""
        return self.busy_cores / self.wanted_cores if self.wanted_cores > 0 else 1.0


def bucket_share(bound_seconds: float, mean_seconds: float) -> float:
    """The share of exponentially distributed latencies at or under the bound."""
    return 1.0 - math.exp(-bound_seconds / mean_seconds) if mean_seconds > 0 else 1.0
