"""The shared state of the simulated cluster: store, clock, machines, indexes and pending work.

Every change happens inside `changing()`; when the outermost one ends, the controllers, the scheduler and the
meters settle, so a reader never sees a half-finished change. Nothing polls: time passes only by clock events.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from node_fleet.domain.model.value_class import value_class
from simulator.cluster.api.store import Change, ObjectStore
from simulator.cluster.machines import MachineType
from simulator.cluster.objects import K3S_VERSION, Obj, PodFacts, is_finished, is_gated, key_of, node_of, pod_facts

PodKey = tuple[str, str]


class Clock(Protocol):
    """The part of the virtual clock that the simulated cluster uses."""

    def now(self) -> float: ...

    def at(self, epoch: float, callback: Callable[[], None], /) -> Any: ...


@value_class
class ClusterSettings:
    """How fast the simulated cluster reacts. The defaults are K3s's own where it has one."""

    boot_seconds: float = 60.0
    start_seconds: float = 25.0
    container_start_seconds: float = 5.0
    image_pull_seconds: float = 20.0
    shutdown_seconds: float = 2.0
    node_not_ready_seconds: float = 50.0
    pod_eviction_timeout_seconds: float = 300.0
    orphan_cycle_seconds: float = 20.0
    orphan_quarantine_seconds: float = 40.0
    reregister_seconds: float = 10.0
    load_step_seconds: float = 60.0
    server_is_tainted: bool = True
    system_cpu_milli: int = 40
    system_memory_mib: int = 300
    seed: int = 1


@dataclass(slots=True, kw_only=True)
class Machine:
    """One EC2 instance as the cluster knows it: hardware, and whether its kubelet runs."""

    instance_id: str
    node_name: str
    type: MachineType
    az: str
    market: str
    role: str
    started_at: float
    password: str
    address: str
    joined_at: float | None = None
    powered: bool = True
    kubelet_alive: bool = False
    exporter_up: bool = True
    k3s_version: str = K3S_VERSION

    @property
    def serves(self) -> bool:
        return self.powered and self.kubelet_alive

    @property
    def provider_id(self) -> str:
        return f"aws:///{self.az}/{self.instance_id}"


@dataclass(slots=True)
class PendingWork:
    """The objects that a change touched and that wait for a controller. Dictionaries keep their order."""

    owners: dict[str, None] = field(default_factory=dict)
    budgets: dict[PodKey, None] = field(default_factory=dict)
    changed_pods: dict[PodKey, Obj] = field(default_factory=dict)
    usage: dict[str, None] = field(default_factory=dict)
    schedule: bool = False
    daemons: bool = False
    namespaces: bool = False
    members: bool = False
    applications: bool = False


class ClusterState:
    """Store and indexes. Controllers, scheduler, kubelets and load work on it."""

    def __init__(self, clock: Clock, settings: ClusterSettings) -> None:
        self.clock = clock
        self.settings = settings
        self.lock = threading.RLock()
        self.random = random.Random(settings.seed)
        self.store = ObjectStore(clock.now)
        self.machines: dict[str, Machine] = {}
        self.machine_of_node: dict[str, Machine] = {}
        self.facts: dict[str, PodFacts] = {}
        self.pods_on: dict[str, dict[PodKey, None]] = {}
        self.owned: dict[str, dict[PodKey, None]] = {}
        self.pending: dict[PodKey, None] = {}
        self.repelling: dict[PodKey, None] = {}
        self._requested: dict[str, tuple[int, float, int]] = {}
        self.work = PendingWork()
        self.reconcilers: list[Callable[[], bool]] = []
        self.refreshers: list[Callable[[], None]] = []
        self._depth = 0
        self.store.listeners.append(self._index)

    def now(self) -> float:
        return self.clock.now()

    @contextmanager
    def changing(self, actor: str | None = None) -> Iterator[None]:
        """Hold the lock, make changes, and let the cluster settle when the outermost one ends."""
        with self.lock:
            self._depth += 1
            try:
                if actor is None:
                    yield
                else:
                    with self.store.acting_as(actor):
                        yield
            finally:
                if self._depth == 1:
                    self._settle()
                self._depth -= 1

    def after(self, seconds: float, action: Callable[[], None]) -> Any:
        """Run `action` inside `changing()` after `seconds` of virtual time."""

        def run() -> None:
            with self.changing():
                action()

        return self.clock.at(self.now() + seconds, run)

    def pod_facts(self, pod: Obj) -> PodFacts:
        uid = pod["metadata"]["uid"]
        if uid not in self.facts:
            self.facts[uid] = pod_facts(pod)
        return self.facts[uid]

    def pods_of_owner(self, uid: str) -> list[Obj]:
        return [self.store.get("pods", *key) for key in self.owned.get(uid, ())]

    def pods_of_node(self, name: str) -> list[Obj]:
        return [self.store.get("pods", *key) for key in self.pods_on.get(name, ())]

    def requested_on(self, name: str) -> tuple[int, float, int]:
        """(CPU milli, memory MiB, pods) that the node's unfinished pods request."""
        found = self._requested.get(name)
        if found is None:
            facts = [self.pod_facts(pod) for pod in self.pods_of_node(name) if not is_finished(pod)]
            cpu, memory = sum(one.cpu_milli for one in facts), sum(one.memory_mib for one in facts)
            found = self._requested[name] = (cpu, memory, len(facts))
        return found

    def machine_serves(self, node_name: str) -> bool:
        machine = self.machine_of_node.get(node_name)
        return machine is not None and machine.serves

    def new_suffix(self, length: int = 5) -> str:
        return "".join(self.random.choices("bcdfghjklmnpqrstvwxz2456789", k=length))

    def _settle(self) -> None:
        for _ in range(10_000):
            if not any([reconciler() for reconciler in self.reconcilers]):
                break
        else:
            raise RuntimeError("the simulated cluster does not settle: controllers keep changing objects")
        for refresher in self.refreshers:
            refresher()

    def _index(self, change: Change) -> None:
        if change.resource == "pods":
            self._index_pod(change)
        elif change.resource == "nodes":
            self.work.schedule = self.work.daemons = True
            self.work.usage[change.subject["metadata"]["name"]] = None
        elif change.resource == "poddisruptionbudgets":
            self.work.budgets[key_of(change.subject)] = None
        elif change.resource == "namespaces":
            self.work.namespaces = True
        elif change.resource in ("deployments", "replicasets", "statefulsets", "jobs"):
            self.work.owners[change.subject["metadata"]["uid"]] = None
        elif change.resource in ("daemonsets",):
            self.work.daemons = True
        elif change.resource in ("persistentvolumes", "persistentvolumeclaims"):
            self.work.schedule = True

    def _index_pod(self, change: Change) -> None:
        pod, key = change.subject, key_of(change.subject)
        uid = pod["metadata"]["uid"]
        facts = self.pod_facts(pod)
        bound_before = node_of(change.before) if change.before else ""
        bound_after = node_of(change.after) if change.after else ""
        if bound_before and bound_before != bound_after:
            self.pods_on[bound_before].pop(key, None)
        if bound_after:
            self.pods_on.setdefault(bound_after, {})[key] = None
        if facts.owner_uid:
            self._index_owner(facts.owner_uid, key, change.after is not None)
        waits = change.after is not None and not bound_after and not is_finished(pod) and not is_gated(pod)
        if waits and "deletionTimestamp" not in pod["metadata"]:
            self.pending[key] = None
        else:
            self.pending.pop(key, None)
        if (pod["spec"].get("affinity") or {}).get("podAntiAffinity"):
            self.repelling[key] = None
        if change.after is None:
            self.facts.pop(uid, None)
            self.repelling.pop(key, None)
        self._mark_pod(change, key, bound_after or bound_before, facts)

    def _index_owner(self, uid: str, key: PodKey, exists: bool) -> None:
        if exists:
            self.owned.setdefault(uid, {})[key] = None
        else:
            self.owned.get(uid, {}).pop(key, None)

    def _mark_pod(self, change: Change, key: PodKey, node: str, facts: PodFacts) -> None:
        work = self.work
        freed = change.after is None or is_finished(change.after)
        if freed or key in self.pending:
            work.schedule = True
        if facts.owner_uid:
            work.owners[facts.owner_uid] = None
        if change.after is None and facts.is_daemon:
            work.daemons = True
        if change.after is None or "deletionTimestamp" in change.after["metadata"]:
            work.namespaces = True
        work.changed_pods[key] = change.subject
        work.members = True
        if node:
            work.usage[node] = None
            self._requested.pop(node, None)
