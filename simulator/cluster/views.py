"""Readings of the simulated cluster for the fakes and the reports: plain, typed, frozen.

The figures are exact at the moment of the reading; a scrape lags behind them.
"""

from __future__ import annotations

from node_fleet.domain.model.value_class import value_class


@value_class
class TaintView:
    key: str
    value: str
    effect: str


@value_class
class NodeView:
    """One Node object with its machine."""

    name: str
    instance_id: str
    provider_id: str
    instance_type: str
    az: str
    market: str
    role: str
    address: str
    created_at: float
    ready: bool
    ready_status: str
    ready_since: float
    unschedulable: bool
    taints: tuple[TaintView, ...]
    labels: dict[str, str]
    annotations: dict[str, str]
    machine_up: bool
    exporter_up: bool
    cores: int
    memory_mib: int
    allocatable_cpu_milli: int
    allocatable_memory_mib: int
    pods: int

    @property
    def usable(self) -> bool:
        """Ready, not cordoned, and no taint that keeps ordinary pods away."""
        blocked = any(taint.effect in ("NoSchedule", "NoExecute") for taint in self.taints)
        return self.ready and not self.unschedulable and not blocked


@value_class
class PodView:
    """One Pod object and what it uses."""

    namespace: str
    name: str
    node: str
    phase: str
    ready: bool
    unschedulable: bool
    gated: bool
    terminating: bool
    created_at: float
    started_at: float | None
    owner_kind: str
    cpu_request_milli: int
    memory_request_mib: float
    memory_usage_mib: float
    labels: dict[str, str]
    message: str


@value_class
class NodeTruth:
    name: str
    instance_id: str
    role: str
    usable: bool
    alive: bool
    cpu_percent: float
    memory_percent: float
    busy_cores: float
    cores: int
    pods: int


@value_class
class Truth:
    """The fleet at one moment. CPU and memory cover running, usable workers, weighted by size; None without one."""

    at: float
    cpu_percent: float | None
    cpu_max_percent: float | None
    memory_percent: float | None
    memory_max_percent: float | None
    unschedulable_pods: int
    pending_pods: int
    running_pods: int
    usable_workers: int
    nodes: tuple[NodeTruth, ...]


@value_class
class SnapshotLine:
    """One line of a recorded timeline."""

    at: float
    load_per_second: float
    cpu_percent: float | None
    pending_pods: int
    unschedulable_pods: int
    running_pods: int
    workers_booting: int
    workers_usable: int
    workers_cordoned: int
