"""The input of one decision: workers joined from EC2 and the cluster, their load, and the pending pods. Values only."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal

from node_fleet.domain.model.set_aside import SetAside
from node_fleet.domain.model.standby import FAILED, READY, STOPPED_STATES
from node_fleet.domain.model.timed_minimum import TimedMinimum
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.model.weight import LimitUse

Market = Literal["spot", "on-demand"]
MARKETS: tuple[Market, ...] = ("spot", "on-demand")
Phase = Literal["usable", "joining", "cordoned", "not_ready", "unjoined", "unknown"]
STATUS_CHECK = "InstanceStatusImpaired"
"""The condition of a worker whose instance status check has been impaired for long: software or network inside it."""
SYSTEM_CHECK = "SystemStatusImpaired"
"""The same for the system status check: the host of AWS, which a reboot keeps."""
Source = Literal["live", "cached", "none"]


@value_class
class Instance:
    """One EC2 instance of the fleet that is pending or running (no other state counts as capacity).

    addresses: every private address in EC2. node_names: the names that its Node may have; empty: any name. slot: the
    numbers of the slots of the request that launched it. rotate: who marked it for rotation, empty when it is not.
    standby: its tag Standby, empty when it never was a standby worker.
    What it was launched from is empty where EC2 and the tags do not show it.
    """

    instance_id: str
    zone: str
    instance_type: str
    market: Market
    state: str
    launched_at: int
    operation_id: str = ""
    under_notice: bool = False
    join_failed: bool = False
    addresses: tuple[str, ...] = ()
    node_names: tuple[str, ...] = ()
    slot: str = ""
    template_id: str = ""
    template_version: str = ""
    image_id: str = ""
    bootstrap_hash: str = ""
    k3s_version: str = ""
    subnet_id: str = ""
    rotate: str = ""
    images: str = ""
    standby: str = ""

    @property
    def is_standby(self) -> bool:
        """Whether node-fleet stopped it as a standby worker, and it has not joined again.

        One that is kept for inspection because it did not join is none, when a person stops it.
        """
        return self.state in STOPPED_STATES and self.standby in (READY, FAILED) and not self.join_failed

    @property
    def slot_numbers(self) -> tuple[int, ...]:
        """The slots of which it may be the instance."""
        return tuple(int(number) for number in self.slot.split() if number.isdigit())


@value_class
class NodeUsage:
    """Capacity, requests and use of one node. None means missing, never zero. conditions: the bad ones that hold.

    kubelet_version: for example v1.35.5+k3s1; empty when unknown.
    """

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
    conditions: tuple[str, ...] = ()
    kubelet_version: str = ""

    @property
    def cpu(self) -> tuple[float, float] | None:
        """CPU use in percent and the number of cores, when both are known."""
        if self.cpu_percent is None or not self.cores:
            return None
        return self.cpu_percent, self.cores

    @property
    def memory(self) -> tuple[int, int] | None:
        """Memory used and in total, in MiB, when both are known."""
        if self.memory_used_mib is None or not self.memory_total_mib:
            return None
        return self.memory_used_mib, self.memory_total_mib


@value_class
class NodeReading(NodeUsage):
    """One Kubernetes node as the metrics show it. address: its internal address, empty when it states none."""

    node_name: str
    provider_id: str
    ready: bool
    address: str = ""
    unschedulable: bool = False
    blocking_taints: tuple[str, ...] = ()

    @property
    def instance_id(self) -> str:
        """The EC2 id at the end of `aws:///ZONE/INSTANCE_ID`; empty when the provider id is not of that form."""
        last = self.provider_id.rpartition("/")[2]
        return last if self.provider_id.startswith("aws:///") and last.startswith("i-") and len(last) <= 19 else ""

    @property
    def zone(self) -> str:
        """The zone in the provider id."""
        return self.provider_id.removeprefix("aws:///").rpartition("/")[0]

    @property
    def usable(self) -> bool:
        """Ready, not cordoned, and without a taint that keeps ordinary pods away."""
        return self.ready and not self.unschedulable and not self.blocking_taints


@value_class
class Worker(NodeUsage):
    """One worker: the EC2 instance joined with its node by provider id.

    drift: how it differs from a worker that would be launched today, in words; empty when it does not.
    kubelet_version: empty also when it is that of the tag of the launch, and not newer than the server.
    refill: it was launched to become a standby worker, and has not become one.
    """

    instance_id: str
    zone: str
    market: Market
    instance_type: str
    phase: Phase
    launched_at: int
    under_notice: bool = False
    join_failed: bool = False
    node_name: str = ""
    template_version: str = ""
    drift: str = ""
    refill: bool = False


@value_class
class StandbyWorker:
    """An On-Demand worker that node-fleet stopped. launched_at: when it was last started, as EC2 states it.

    is_broken: it did not join again after a start, and is not started. unfit: why it is to be renewed, in words.
    """

    instance_id: str
    zone: str
    instance_type: str
    launched_at: int
    is_stopping: bool = False
    is_broken: bool = False
    unfit: str = ""


@value_class
class LaunchImage:
    """The image that a version of the launch template gives; empty when it is unknown.

    at: when EC2 was asked last. answered_at: when it named this image, before any refusals.
    """

    version: str = ""
    image_id: str = ""
    at: int = 0
    answered_at: int = 0


@value_class
class Dispute:
    """An instance whose Node EC2 does not confirm, or that several Nodes claim; node_names: the first of them."""

    instance_id: str
    node_names: tuple[str, ...]
    reason: str

    @property
    def sentence(self) -> str:
        """For example: its identity is disputed: 2 Nodes claim it: i-0a, i-0b."""
        return f"its identity is disputed: {self.reason}"


@value_class
class PodShape:
    """Unschedulable pods with equal demands: how many, how much each requests, and how long the oldest is pending.

    demand: as the API shows it (domain/fit/demand.py); empty when only the requests are known. problem: why no new
    worker helps these pods now, for example because their claim is not bound. lasting: the problem does not end by
    itself, for example because the node of their volume does not exist.
    """

    cpu_milli: int
    memory_mib: int
    count: int
    oldest_seconds: int = 0
    example: str = ""
    demand: dict[str, Any] = field(default_factory=dict)
    problem: str = ""
    lasting: bool = False

    @property
    def owner(self) -> str:
        """Namespace and name of the owner, taken from the name of a pod."""
        return self.example.rpartition("-")[0]

    @property
    def is_plain(self) -> bool:
        """Whether these pods ask for CPU and memory only."""
        requests = self.demand.get("requests", {})
        return (
            not self.problem
            and not self.demand.keys() - {"requests", "tolerations"}
            and not (requests.keys() - {"cpu", "memory", "pods"})
        )


@value_class
class NewWorker:
    """A worker that a launch adds. pools: "zone/type/market" of each pool that may serve; empty: every pool.

    types: the types that hold all its pods, best first; empty: the configured ones. smaller_types: those that hold some
    of them, tried when no other type has capacity.
    """

    pools: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    smaller_types: tuple[str, ...] = ()


@value_class
class CustomReading:
    """One custom metric's value this tick; None when the series is absent, empty or not finite."""

    name: str
    value: float | None
    traffic: float | None = None


@value_class
class HourlyLoad:
    """Mean CPU of one hour, from `readings` readings; hour_epoch is the UTC start of that hour.

    workers: mean number of usable workers in that hour; 0 when unknown, then cpu_percent is used unscaled.
    """

    hour_epoch: int
    cpu_percent: float
    readings: int
    workers: float = 0.0


@value_class
class FleetLoad:
    """The load of several workers together. None: unknown for all of them."""

    cpu_percent: float | None = None
    cpu_max_percent: float | None = None
    memory_percent: float | None = None
    memory_max_percent: float | None = None


@value_class
class Reading(FleetLoad):
    """One answer of Prometheus, de-duplicated and checked; every value covers workers only, never the server.

    refused: a sentence about each of the first figures that are beyond their bounds. server_version: the oldest version
    of a server's kubelet, which is that of its API; empty when unknown.
    """

    at: int
    pending: tuple[PodShape, ...] | None
    nodes: tuple[NodeReading, ...]
    custom: tuple[CustomReading, ...] = ()
    missing: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    server_version: str = ""


@value_class
class Snapshot(FleetLoad):
    """Everything that one decision may use. dead_nodes: ids of instances that ended and whose node is NotReady.

    unlisted: why the API could not be asked which pods are pending; empty when it was, or when none is. unschedulable:
    the number of pending pods in Prometheus where `pending` is the API's list, which leaves out pods of DaemonSets.
    worker_labels, worker_taints: what all workers of the fleet have in common. set_aside: removals that cannot be
    finished now; their instances are no workers. launch_image: what new workers are launched from. template_id,
    template_version: the configured launch template and its version, empty when unknown. console: the end of the
    console output of a replacement that lost Ready. server_version: of K3s on the server, empty when unknown.
    launch_hold: why workers are not launched from the configured version of the template; empty when they are.
    timed_minimum: what an operator ordered for a time and holds now. limits: those in money and vCPUs that are set.
    standby: the stopped standby workers; they are no workers.
    """

    at: int
    source: Source
    pending: tuple[PodShape, ...] | None = None
    custom: tuple[CustomReading, ...] = ()
    workers: tuple[Worker, ...] = ()
    unmanaged: tuple[str, ...] = ()
    dead_nodes: tuple[str, ...] = ()
    disputes: tuple[Dispute, ...] = ()
    refused: tuple[str, ...] = ()
    set_aside: tuple[SetAside, ...] = ()
    missing: tuple[str, ...] = ()
    hourly: tuple[HourlyLoad, ...] = ()
    read_at: int = 0
    problem: str = ""
    unlisted: str = ""
    unschedulable: int | None = None
    worker_labels: dict[str, str] = field(default_factory=dict)
    worker_taints: tuple[dict[str, Any], ...] = ()
    launch_image: LaunchImage = LaunchImage()
    template_id: str = ""
    template_version: str = ""
    console: str = ""
    server_version: str = ""
    launch_hold: str = ""
    timed_minimum: TimedMinimum | None = None
    limits: tuple[LimitUse, ...] = ()
    standby: tuple[StandbyWorker, ...] = ()

    @property
    def has_values(self) -> bool:
        """Whether any value of the load was read."""
        return any(value is not None for value in (self.cpu_percent, self.memory_percent, self.pending))

    @property
    def pending_count(self) -> int | None:
        """Pods that the scheduler marked unschedulable, as Prometheus counts them; None when unknown."""
        if self.unschedulable is not None:
            return self.unschedulable
        return None if self.pending is None else sum(shape.count for shape in self.pending)

    @property
    def usable(self) -> tuple[Worker, ...]:
        """Workers that run pods and are not under interruption notice."""
        return tuple(w for w in self.workers if w.phase == "usable" and not w.under_notice)

    @property
    def unjoined(self) -> tuple[Worker, ...]:
        """Workers past the join limit without a usable node, oldest first; empty when the data is not live."""
        if self.source != "live":
            return ()
        found = [w for w in self.workers if w.phase == "unjoined" and not w.under_notice]
        return tuple(sorted(found, key=lambda w: (w.launched_at, w.instance_id)))

    @property
    def without_node(self) -> tuple[Worker, ...]:
        """Unjoined workers for which no node is known at all, and which have not reported why."""
        return tuple(w for w in self.unjoined if not w.node_name and not w.join_failed)

    @property
    def has_leftovers(self) -> bool:
        """Whether a node of an ended instance remains, or a cordon that an operator or an ended operation made."""
        return bool(self.dead_nodes) or any(w.phase == "cordoned" for w in self.counted)

    @property
    def counted(self) -> tuple[Worker, ...]:
        """Every instance that counts against the maximum: pending or running, not under interruption notice."""
        return tuple([w for w in self.workers if not w.under_notice])
