"""The simulated K3s cluster as the rest of the simulator uses it.

It composes the parts of `simulator.cluster`, follows the events of EC2 and gives typed readings, without an AWS client.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from simulator.cluster.api.store import Change
from simulator.cluster.boot import BootRule, private_address
from simulator.cluster.control.controllers import Controllers
from simulator.cluster.control.disruption import Disruption
from simulator.cluster.control.kubelets import Kubelets
from simulator.cluster.control.namespaces import Namespaces
from simulator.cluster.control.scheduler import Scheduler
from simulator.cluster.control.volumes import local_claim, local_path_class
from simulator.cluster.load.applications import Application, Applications, ApplicationSpec
from simulator.cluster.load.curves import Curve
from simulator.cluster.load.meters import CPU_MODES, NodeMeter
from simulator.cluster.load.usage import Usage
from simulator.cluster.machines import machine_type
from simulator.cluster.objects import K3S_VERSION, Obj, is_unschedulable, set_condition
from simulator.cluster.reading import Reader
from simulator.cluster.state import Clock, ClusterSettings, ClusterState, Machine
from simulator.cluster.views import NodeView, PodView, SnapshotLine, Truth
from simulator.cluster.workloads import application_objects, budget_object, server_add_ons

OUR_ACTOR = "node-fleet"


class SimulatedCluster:
    """Server, workers, pods and load in virtual time. All public methods may be called from any thread."""

    def __init__(
        self,
        clock: Clock,
        *,
        settings: ClusterSettings | None = None,
        boot_rules: tuple[BootRule, ...] = (),
        add_ons: bool = True,
    ) -> None:
        self.settings = settings or ClusterSettings()
        self.state = ClusterState(clock, self.settings)
        self.store = self.state.store
        self.boot_rules = list(boot_rules)
        self.image_of: Callable[[str], str] = lambda instance_id: ""
        self.version_of: Callable[[str], str] = lambda instance_id: ""
        """The version of K3s that the user data of an instance installs; empty: the usual one."""
        self.image_wait_seconds = 0
        """How long new workers pull images before pods start on them; 0: they pull none."""
        self.on_images: Callable[[str, str], None] = lambda instance_id, pulled: None
        """Called with what the bootstrap of an instance reports of its images."""
        self._launches = 0
        self.kubelets = Kubelets(self.state)
        self.controllers = Controllers(self.state, self.kubelets.delete_pod)
        self.scheduler = Scheduler(self.state)
        self.namespaces = Namespaces(self.state, self.kubelets.delete_pod)
        self.disruption = Disruption(self.state)
        self.load = Applications(self.state)
        self.usage = Usage(self.state, self.load)
        self._reader = Reader(self.state, self.usage, self.load)
        self._unschedulable = (-1, False)
        self.end_listeners: list[Callable[[Machine, bool], None]] = []
        with self.changing():
            for name in ("default", "kube-system", "monitoring", "shop"):
                self.ensure_namespace(name)
            self.create("storageclasses", local_path_class())
            for resource, obj in server_add_ons() if add_ons else ():
                self.create(resource, obj)

    def now(self) -> float:
        return self.state.now()

    def changing(self, actor: str | None = None) -> AbstractContextManager[None]:
        """Make several changes as one: the cluster settles when the block ends."""
        return self.state.changing(actor)

    # Events of EC2 -----------------------------------------------------------------------------------------

    def instance_started(
        self,
        *,
        instance_id: str,
        instance_type: str,
        az: str,
        market: str = "on-demand",
        node_name: str = "",
        address: str = "",
        boot_seconds: float | None = None,
    ) -> None:
        """EC2 started a worker: it joins after its boot delay, or after the shorter one when it was stopped before.

        A repeated event changes nothing.
        """
        with self.changing():
            if known := self.state.machines.get(instance_id):
                self._start_again(known)
                return
            self._launches += 1
            rule = self._boot_rule(instance_type, az, market, self.image_of(instance_id))
            machine = self._power_on(
                instance_id=instance_id,
                instance_type=instance_type,
                az=az,
                market=market,
                role="worker",
                node_name=node_name,
                address=address,
            )
            if rule.kind != "never_joins":
                seconds = rule.seconds if boot_seconds is None else boot_seconds
                delay = self.settings.boot_seconds if seconds is None else seconds
                self.state.after(delay, lambda: self._join(machine, rule))

    def _start_again(self, machine: Machine) -> None:
        """A stopped machine boots from its volume: K3s starts by itself, with the node's password."""
        if machine.powered:
            return
        machine.powered = machine.exporter_up = True
        machine.started_at = started_at = self.now()
        self.usage.start_meter(machine)
        self.state.after(self.settings.start_seconds, lambda: self._joined_again(machine, started_at))

    def _joined_again(self, machine: Machine, started_at: float) -> None:
        if machine.powered and machine.started_at == started_at:
            self.kubelets.join(machine)
            self.kubelets.make_ready(machine.node_name)

    def add_server(self, instance_id: str, az: str, instance_type: str = "t3.medium") -> None:
        """The control-plane machine; its node joins at once."""
        with self.changing():
            machine = self._power_on(
                instance_id=instance_id, instance_type=instance_type, az=az, market="on-demand", role="server"
            )
            self.kubelets.join(machine)

    def add_worker(
        self,
        instance_id: str,
        *,
        instance_type: str = "t3.small",
        az: str = "us-east-1a",
        market: str = "on-demand",
        address: str = "",
    ) -> None:
        """A worker that has already joined, as at the start of a scenario."""
        with self.changing():
            machine = self._power_on(
                instance_id=instance_id,
                instance_type=instance_type,
                az=az,
                market=market,
                role="worker",
                address=address,
            )
            self.kubelets.join(machine)

    def instance_ended(self, instance_id: str, *, voluntary: bool = True) -> None:
        """The machine ended, by node-fleet's termination (voluntary) or otherwise. A repeated event changes nothing."""
        with self.changing():
            machine = self.state.machines.get(instance_id)
            if machine is None or not machine.powered:
                return
            for listener in self.end_listeners:
                listener(machine, voluntary)
            self.kubelets.stop(machine, power_off=True)

    @property
    def server_version(self) -> str:
        """The version of K3s on the server."""
        return next(one.k3s_version for one in self.state.machines.values() if one.role == "server")

    def restart_server(self, version: str) -> None:
        """K3s on the server runs again, with this version."""
        with self.changing():
            for machine in self.state.machines.values():
                if machine.role == "server":
                    self.kubelets.change_version(machine, version)

    def instance_rebooted(self, instance_id: str, *, heals: bool) -> None:
        """The machine starts again; its kubelet too, unless it had stopped before and the reboot does not heal it."""
        with self.changing():
            machine = self.state.machines.get(instance_id)
            if machine is None or not machine.powered:
                return
            returns = heals or machine.kubelet_alive
            self.kubelets.stop(machine, power_off=False)
            if returns:
                self.state.after(self.settings.boot_seconds, lambda: self._booted_again(machine, heals=heals))

    def _booted_again(self, machine: Machine, *, heals: bool) -> None:
        node = self.store.find("nodes", "", machine.node_name)
        if not machine.powered or node is None:
            return
        bad = [c["type"] for c in node["status"]["conditions"] if c["type"] != "Ready" and c["status"] == "True"]
        for kind in bad if heals else ():
            self.set_node_condition(machine.instance_id, kind, holds=False)
        self.kubelets.recover(machine)

    def fail_node(self, instance_id: str) -> None:
        """The kubelet stops while EC2 still reports the instance as running."""
        with self.changing():
            self.kubelets.stop(self._machine(instance_id), power_off=False)

    def recover_node(self, instance_id: str) -> None:
        with self.changing():
            self.kubelets.recover(self._machine(instance_id))

    def is_serving(self, instance_id: str) -> bool:
        """Whether the machine runs and its kubelet too; False for one that has not joined."""
        machine = self.state.machines.get(instance_id)
        return machine is not None and machine.serves

    def set_node_condition(self, instance_id: str, kind: str, *, holds: bool) -> None:
        """The kubelet states a bad condition such as DiskPressure, or its end."""
        name, status = self._machine(instance_id).node_name, "True" if holds else "False"
        self.update("nodes", "", name, lambda node: set_condition(node, self.now(), kind, status))

    def set_exporter(self, instance_id: str, up: bool) -> None:
        """Only the node exporter stops or starts answering."""
        with self.changing():
            self._machine(instance_id).exporter_up = up

    def _machine(self, instance_id: str) -> Machine:
        if instance_id not in self.state.machines:
            raise KeyError(
                f"the simulated cluster has no instance {instance_id!r}; it has {sorted(self.state.machines)}"
            )
        return self.state.machines[instance_id]

    def _boot_rule(self, instance_type: str, az: str, market: str, image: str) -> BootRule:
        for rule in self.boot_rules:
            if rule.matches(self._launches, instance_type=instance_type, az=az, market=market, image=image):
                return rule
        return BootRule()

    def _power_on(
        self,
        *,
        instance_id: str,
        instance_type: str,
        az: str,
        market: str,
        role: str,
        node_name: str = "",
        address: str = "",
    ) -> Machine:
        machine = Machine(
            instance_id=instance_id,
            node_name=node_name or instance_id,
            type=machine_type(instance_type),
            az=az,
            market=market,
            role=role,
            started_at=self.now(),
            password=hashlib.sha256(instance_id.encode()).hexdigest()[:32],
            address=address or private_address(instance_id),
            k3s_version=(self.version_of(instance_id) if role == "worker" else "") or K3S_VERSION,
        )
        self.state.machines[instance_id] = machine
        self.usage.start_meter(machine)
        return machine

    def _join(self, machine: Machine, rule: BootRule) -> None:
        ready, initialized, wait = rule.kind != "not_ready", rule.kind != "uninitialized", self.image_wait_seconds
        self.kubelets.join(machine, ready=ready, initialized=initialized, image_wait_seconds=wait)
        if wait:
            self.state.after(min(wait, self.settings.image_pull_seconds), lambda: self._report_images(machine, wait))
        if rule.ready_after_seconds is not None:
            self.state.after(rule.ready_after_seconds, lambda: self.kubelets.make_ready(machine.node_name))

    def _report_images(self, machine: Machine, wait: int) -> None:
        """The bootstrap has pulled the images, or its time is over: it says so in a tag and on its Node."""
        if not machine.powered or self.store.find("nodes", "", machine.node_name) is None:
            return
        took = round(min(wait, self.settings.image_pull_seconds))
        pulled = 4 if self.settings.image_pull_seconds <= wait else 3
        self.on_images(machine.instance_id, f"{pulled} of 4 in {took} s")
        mark = {"node-fleet.io/images": f"{pulled}/4/{took}"}
        self.update(
            "nodes", "", machine.node_name, lambda node: node["metadata"].setdefault("annotations", {}).update(mark)
        )

    # Changes by users and programs -----------------------------------------------------------------------

    def ensure_namespace(self, name: str) -> None:
        if self.store.find("namespaces", "", name) is None:
            self.store.create("namespaces", {"metadata": {"name": name}, "status": {"phase": "Active"}})

    def create(self, resource: str, obj: Obj, *, actor: str | None = None) -> Obj:
        """Store a new object; a missing namespace is created."""
        with self.changing(actor):
            namespace = obj["metadata"].get("namespace")
            if namespace:
                self.ensure_namespace(namespace)
            if resource == "pods":
                return self.controllers.create_pod(obj)
            return self.store.create(resource, obj)

    def add_application(self, spec: ApplicationSpec) -> None:
        with self.changing():
            if spec.volume == "local-path" and spec.kind == "Deployment":
                self.create("persistentvolumeclaims", local_claim(spec.namespace, f"{spec.name}-data"))
            for resource, obj in application_objects(spec):
                self.create(resource, obj)
            self.load.add(spec)

    def set_load(self, application: str, curve: Curve) -> None:
        """Replace the load of `namespace/name` from this moment on."""
        with self.changing():
            self.load.set_curve(application, curve)

    def scale(self, application: str, replicas: int) -> None:
        with self.changing():
            self.load.scale(self.load.running[application], replicas)

    def add_budget(self, name: str, **spec: Any) -> None:
        self.create("poddisruptionbudgets", budget_object(name, **spec))

    def update(
        self, resource: str, namespace: str, name: str, edit: Callable[[Obj], None], *, actor: str | None = None
    ) -> Obj:
        with self.changing(actor):
            return self.store.update(resource, namespace, name, edit)

    def cordon(self, node_name: str, *, actor: str | None = None) -> None:
        self.update("nodes", "", node_name, lambda node: node["spec"].update(unschedulable=True), actor=actor)

    def uncordon(self, node_name: str, *, actor: str | None = None) -> None:
        self.update("nodes", "", node_name, lambda node: node["spec"].pop("unschedulable", None), actor=actor)

    def delete(
        self,
        resource: str,
        namespace: str,
        name: str,
        *,
        grace_seconds: float | None = None,
        actor: str | None = None,
    ) -> Obj:
        """Delete as the API does: pods gracefully, namespaces by emptying them first."""
        with self.changing(actor):
            if resource == "pods":
                return self.kubelets.delete_pod(namespace, name, grace_seconds)
            if resource == "namespaces":
                return self.namespaces.terminate(name)
            return self.store.remove(resource, namespace, name)

    def evict(
        self,
        namespace: str,
        name: str,
        *,
        actor: str | None = None,
    ) -> None:
        """The eviction subresource: raises ApiError 404, 429, 500 or 403 as Kubernetes does."""
        with self.changing(actor):
            pod = self.store.get("pods", namespace, name)
            self.disruption.check_eviction(pod)
            self.kubelets.delete_pod(namespace, name)

    def find(self, resource: str, namespace: str, name: str) -> Obj | None:
        with self.state.lock:
            return self.store.find(resource, namespace, name)

    def objects(self, resource: str, namespace: str = "") -> list[Obj]:
        """Raw objects, to be read and not changed; in the order of creation."""
        with self.state.lock:
            found = self.store.all(resource)
            return [obj for obj in found if not namespace or obj["metadata"].get("namespace") == namespace]

    def pods_on(self, node_name: str) -> list[Obj]:
        with self.state.lock:
            return self.state.pods_of_node(node_name)

    def on_change(self, listener: Callable[[Change], None]) -> None:
        """Call the listener with every stored change, at the moment of the change."""
        self.store.listeners.append(listener)

    # Readings for the fakes and the reports -----------------------------------------------------------------

    def nodes(self) -> list[NodeView]:
        with self.state.lock:
            return self._reader.nodes()

    def pods(self) -> list[PodView]:
        with self.state.lock:
            return self._reader.pods()

    def application(self, name: str) -> Application:
        return self.load.running[name]

    def truth(self) -> Truth:
        with self.state.lock:
            return self._reader.truth()

    def snapshot_line(self) -> SnapshotLine:
        with self.state.lock:
            return self._reader.snapshot_line()

    def has_unschedulable_pods(self) -> bool:
        """Counted again only when an object has changed."""
        with self.state.lock:
            version = self.store.version
            if self._unschedulable[0] != version:
                self._unschedulable = (version, any(is_unschedulable(pod) for pod in self.store.all("pods")))
            return self._unschedulable[1]

    def node_meter(self, name: str) -> NodeMeter:
        return self.usage.meters[name]

    def node_cpu_seconds(self, name: str) -> dict[str, float]:
        """CPU seconds since boot by mode, summed over the node's cores, exact at this instant."""
        with self.state.lock:
            totals = self.usage.meters[name].counters.read(self.now())
            return {mode: totals[mode] for mode in CPU_MODES}

    def node_io_bytes(self, name: str) -> dict[str, float]:
        """Network and disk counters since boot."""
        with self.state.lock:
            totals = self.usage.meters[name].counters.read(self.now())
            return {counter: total for counter, total in totals.items() if counter not in CPU_MODES}

    def node_memory_mib(self, name: str) -> tuple[float, float]:
        """(total, available)."""
        with self.state.lock:
            meter = self.usage.meters[name]
            return meter.memory_total_mib, meter.memory_total_mib - meter.memory_used_mib
