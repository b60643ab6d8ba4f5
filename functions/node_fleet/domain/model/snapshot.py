"""What one tick sees: workers as EC2 and the cluster know them, the figures, and the pods that wait.

Values only. How they are fetched is the adapters' business, what follows from them is decision.py's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from node_fleet.domain.model.adaptive_memory import Learned

Market = Literal["spot", "on-demand"]
Phase = Literal["usable", "joining", "cordoned", "not_ready", "unjoined", "unknown"]
Source = Literal["live", "cached", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One EC2 instance of the fleet that is pending or running (no other state counts as capacity)."""

    instance_id: str
    zone: str
    instance_type: str
    market: Market
    state: str
    launched_at: int
    operation_id: str = ""
    under_notice: bool = False
    join_failed: bool = False
    private_ip: str = ""
    slot: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReading:
    """One Kubernetes node as the metrics show it. None means the value is missing, never zero."""

    node_name: str
    provider_id: str
    ready: bool
    unschedulable: bool = False
    blocking_taints: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()
    not_ready_seconds: int = 0
    cores: float | None = None
    cpu_percent: float | None = None
    memory_used_mib: int | None = None
    memory_total_mib: int | None = None
    cpu_allocatable_milli: int | None = None
    cpu_requested_milli: int | None = None
    memory_allocatable_mib: int | None = None
    memory_requested_mib: int | None = None
    pods: int | None = None
    pods_allocatable: int | None = None

    @property
    def instance_id(self) -> str:
        """The EC2 id at the end of `aws:///ZONE/INSTANCE_ID`; empty when the provider id is not of that form."""
        last = self.provider_id.rsplit("/", 1)[-1]
        return last if self.provider_id.startswith("aws:///") and last.startswith("i-") else ""

    @property
    def usable(self) -> bool:
        """Ready, not cordoned, and without a taint that keeps ordinary pods away."""
        return self.ready and not self.unschedulable and not self.blocking_taints


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One worker: the EC2 instance joined with its node by provider id. None means missing."""

    instance_id: str
    zone: str
    market: Market
    instance_type: str
    phase: Phase
    launched_at: int
    under_notice: bool = False
    join_failed: bool = False
    node_name: str = ""
    not_ready_seconds: int = 0
    cores: float | None = None
    cpu_percent: float | None = None
    memory_used_mib: int | None = None
    memory_total_mib: int | None = None
    cpu_allocatable_milli: int | None = None
    cpu_requested_milli: int | None = None
    memory_allocatable_mib: int | None = None
    memory_requested_mib: int | None = None
    pods: int | None = None
    pods_allocatable: int | None = None
    taints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodShape:
    """Unschedulable pods that ask for the same: how many, how much each, and since when the oldest waits."""

    cpu_milli: int
    memory_mib: int
    count: int
    oldest_seconds: int = 0
    example: str = ""
    node_selector: tuple[str, ...] = ()
    tolerations: tuple[str, ...] = ()
    zone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomReading:
    """One custom metric's value this tick; None when the series is absent, empty or not finite."""

    name: str
    value: float | None
    traffic: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HourlyLoad:
    """Mean CPU of one hour, from `readings` readings; hour_epoch is the UTC start of that hour.

    workers: mean number of usable workers in that hour; 0 when unknown, then cpu_percent is taken as it is.
    """

    hour_epoch: int
    cpu_percent: float
    readings: int
    workers: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What Prometheus answered, de-duplicated and checked; workers only, the server left out of every figure."""

    at: int
    cpu_percent: float | None
    cpu_max_percent: float | None
    memory_percent: float | None
    memory_max_percent: float | None
    pending: tuple[PodShape, ...] | None
    nodes: tuple[NodeReading, ...]
    custom: tuple[CustomReading, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything that one decision may look at."""

    at: int
    source: Source
    cpu_percent: float | None = None
    cpu_max_percent: float | None = None
    memory_percent: float | None = None
    memory_max_percent: float | None = None
    pending: tuple[PodShape, ...] | None = None
    custom: tuple[CustomReading, ...] = ()
    workers: tuple[Worker, ...] = ()
    unmanaged: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    hourly: tuple[HourlyLoad, ...] = ()
    read_at: int = 0
    problem: str = ""

    @property
    def pending_count(self) -> int | None:
        """Pods that the scheduler marked unschedulable; None when that is not known."""
        return None if self.pending is None else sum(shape.count for shape in self.pending)

    @property
    def usable(self) -> tuple[Worker, ...]:
        """Workers that take pods and stay: without those under notice."""
        return tuple(w for w in self.workers if w.phase == "usable" and not w.under_notice)

    @property
    def in_flight(self) -> tuple[Worker, ...]:
        """Launched, not yet usable, within the join limit, not under notice."""
        return tuple(w for w in self.workers if w.phase == "joining" and not w.under_notice)

    @property
    def unjoined(self) -> tuple[Worker, ...]:
        """Workers past the join limit without a usable node, oldest first; nobody when the data is not live."""
        if self.source != "live":
            return ()
        found = [w for w in self.workers if w.phase == "unjoined" and not w.under_notice]
        return tuple(sorted(found, key=lambda w: (w.launched_at, w.instance_id)))

    @property
    def counted(self) -> tuple[Worker, ...]:
        """Every instance that counts against the maximum: pending or running, not under notice."""
        return tuple(w for w in self.workers if not w.under_notice)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Something a person should hear of: a stable kind for de-duplication, and one clear sentence."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Streak:
    """How long, and over how many readings in a row, a condition has held."""

    since: int
    last: int
    readings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DryPool:
    """A capacity pool that answered 'no capacity': not tried again before `until` (epoch seconds)."""

    zone: str
    instance_type: str
    market: Market
    until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BackOff:
    """A thing that failed `failures` times in a row and is left alone until `until` (epoch seconds)."""

    key: str
    failures: int
    until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingPoint:
    """One past reading, as small as the state item keeps it."""

    at: int
    cpu_percent: float | None
    memory_percent: float | None
    pending: int | None
    usable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedFor:
    """Pods of one shape that a scale-up was decided for, so that a launch that did not help is noticed.

    at: when it was decided, 0 once judged. count: how many of them waited then. unhelped: launches in a row after
    which none of them was scheduled although there was room.
    """

    shape: str
    at: int
    count: int
    unhelped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What one decision leaves for the next. Stored in the state item; written only under the lock.

    since: condition name -> its streak. back_offs: `node:ID`, `scale_up`, `join`. not_helped: pod shape -> epoch until
    which that many of them are not counted. alerted: alert -> when its cause was last seen. fresh: instance -> when it
    was first known usable. suspects: instance -> when a run last found no node for it. predicted_hour: the hour
    (epoch of its start) that was last judged. predictive_hold_workers: how many are held until predictive_hold_until.
    learned: what the adaptive rules know of this fleet.
    """

    last_action: str = ""
    last_action_at: int = 0
    last_reason: str = ""
    since: dict[str, Streak] = field(default_factory=dict)
    readings: tuple[ReadingPoint, ...] = ()
    predictive_hold_until: int = 0
    predictive_hold_workers: int = 0
    predicted_hour: int = 0
    dry_pools: tuple[DryPool, ...] = ()
    back_offs: tuple[BackOff, ...] = ()
    not_helped: dict[str, int] = field(default_factory=dict)
    launched_for: tuple[LaunchedFor, ...] = ()
    alerted: dict[str, int] = field(default_factory=dict)
    suspects: dict[str, int] = field(default_factory=dict)
    fresh: dict[str, int] = field(default_factory=dict)
    learned: Learned = field(default_factory=Learned)
