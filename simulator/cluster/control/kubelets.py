"""Machines and their kubelets: joining, starting and stopping containers, and failing.

The pods of a failed machine stop at once; its Node turns NotReady only after the grace period of the node lifecycle
controller (50 s), and its pods are evicted after the toleration of the not-ready taint (300 s), as in Kubernetes.
"""

from __future__ import annotations

from node_fleet.domain.model.k3s_version import is_newer
from simulator.cluster.api.store import Change
from simulator.cluster.machines import MAX_PODS
from simulator.cluster.objects import (
    LABEL_CONTROL_PLANE,
    LABEL_HOSTNAME,
    LABEL_MARKET,
    LABEL_REGION,
    LABEL_ROLE,
    LABEL_TYPE,
    LABEL_ZONE,
    RUN_SECONDS,
    SHUTDOWN_SECONDS,
    START_SECONDS,
    TAINT_NOT_READY,
    TAINT_STARTING,
    TAINT_UNINITIALIZED,
    TAINT_UNREACHABLE,
    TAINT_UNSCHEDULABLE,
    Obj,
    condition_is_true,
    is_finished,
    is_terminating,
    iso,
    node_of,
    number_annotation,
    set_condition,
)
from simulator.cluster.state import ClusterState, Machine

NETWORK_NOT_READY = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady"


def password_secret_name(node_name: str) -> str:
    return f"{node_name}.node-password.k3s"


class Kubelets:
    """Reacts to pods that are bound or deleted, and to machines that join, fail or end."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._store = state.store
        self.rejected_joins: list[str] = []
        self.newer_joins: list[str] = []
        """Workers that joined with a newer K3s than the server's, which Kubernetes does not support."""
        self._store.listeners.append(self._on_change)

    def join(
        self, machine: Machine, *, ready: bool = True, initialized: bool = True, image_wait_seconds: int = 0
    ) -> None:
        """Register the machine's node, unless the server holds another password for that name."""
        if not machine.powered or not self._password_accepted(machine):
            return
        machine.kubelet_alive = True
        machine.joined_at = self._state.now()
        if any(is_newer(machine.k3s_version, one.k3s_version) for one in self._servers()):
            self.newer_joins.append(machine.instance_id)
        self._state.machine_of_node[machine.node_name] = machine
        if self._store.find("nodes", "", machine.node_name) is None:
            node = node_object(machine, self._state.now(), ready, initialized)
            if machine.role == "server" and self._state.settings.server_is_tainted:
                taint = {"key": LABEL_CONTROL_PLANE, "value": "true", "effect": "NoSchedule"}
                node["spec"].setdefault("taints", []).append(taint)
            if image_wait_seconds:
                taint = {"key": TAINT_STARTING, "value": str(image_wait_seconds), "effect": "NoSchedule"}
                node["spec"].setdefault("taints", []).append(taint)
            self._store.create("nodes", node)

    def change_version(self, machine: Machine, version: str) -> None:
        """The kubelet runs again with another version, and its Node states it."""
        machine.k3s_version = version

        def state(node: Obj) -> None:
            node["status"]["nodeInfo"]["kubeletVersion"] = version

        self._store.update("nodes", "", machine.node_name, state)

    def _servers(self) -> list[Machine]:
        return [one for one in self._state.machines.values() if one.role == "server" and one.powered]

    def _password_accepted(self, machine: Machine) -> bool:
        name = password_secret_name(machine.node_name)
        secret = self._store.find("secrets", "kube-system", name)
        if secret is None:
            self._store.create("secrets", password_secret(name, machine.password))
            return True
        if secret["data"]["hash"] == machine.password:
            return True
        self.rejected_joins.append(machine.instance_id)
        return False

    def make_ready(self, node_name: str) -> None:
        """The network came up or the cloud provider finished: the node becomes usable."""
        if self._store.find("nodes", "", node_name) and self._state.machine_serves(node_name):
            self._set_ready(node_name, True, "KubeletReady", "kubelet is posting ready status")
            self._drop_taints(node_name, {TAINT_UNINITIALIZED, TAINT_UNREACHABLE, TAINT_NOT_READY})

    def stop(self, machine: Machine, *, power_off: bool) -> None:
        """The kubelet stops; the API shows it only after the grace period."""
        machine.kubelet_alive = False
        machine.exporter_up = False
        if power_off:
            machine.powered = False
        work = self._state.work
        work.usage[machine.node_name] = None
        work.members = True
        delay = self._state.settings.node_not_ready_seconds
        self._state.after(delay, lambda: self._mark_not_ready(machine))

    def recover(self, machine: Machine) -> None:
        """The kubelet runs again: the node reports Ready, and terminating pods stop."""
        machine.kubelet_alive = machine.exporter_up = True
        self.make_ready(machine.node_name)
        for pod in self._state.pods_of_node(machine.node_name):
            if is_terminating(pod):
                self._stop_later(pod)
            elif pod["status"]["phase"] == "Pending":
                self._start_later(pod)
            else:
                self._set_pod_ready(pod, True)
        self._state.work.usage[machine.node_name] = None
        self._state.work.members = True

    def _mark_not_ready(self, machine: Machine) -> None:
        name = machine.node_name
        if machine.kubelet_alive or self._store.find("nodes", "", name) is None:
            return
        self._set_ready(name, None, "NodeStatusUnknown", "Kubelet stopped posting node status.")
        now = iso(self._state.now())
        taints = [
            {"key": TAINT_UNREACHABLE, "effect": effect, "timeAdded": now} for effect in ("NoSchedule", "NoExecute")
        ]
        self._store.update("nodes", "", name, lambda fresh: fresh["spec"].setdefault("taints", []).extend(taints))
        for pod in self._state.pods_of_node(name):
            if not is_finished(pod):
                self._set_pod_ready(pod, False)
        delay = self._state.settings.pod_eviction_timeout_seconds
        self._state.after(delay, lambda: self._evict_pods(machine))

    def _evict_pods(self, machine: Machine) -> None:
        if machine.kubelet_alive:
            return
        for pod in self._state.pods_of_node(machine.node_name):
            if not self._state.pod_facts(pod).is_daemon:
                self.delete_pod(pod["metadata"]["namespace"], pod["metadata"]["name"])

    def _set_ready(self, name: str, ready: bool | None, reason: str, message: str) -> None:
        status = "Unknown" if ready is None else str(ready)
        now = self._state.now()
        self._store.update("nodes", "", name, lambda fresh: set_condition(fresh, now, "Ready", status, reason, message))

    def _drop_taints(self, name: str, keys: set[str]) -> None:
        def edit(fresh: Obj) -> None:
            kept = [taint for taint in fresh["spec"].get("taints", ()) if taint["key"] not in keys]
            fresh["spec"].pop("taints", None)
            if kept:
                fresh["spec"]["taints"] = kept

        self._store.update("nodes", "", name, edit)

    def delete_pod(self, namespace: str, name: str, grace_seconds: float | None = None) -> Obj:
        """Graceful deletion: at once when unbound, finished or grace 0; else when the kubelet has stopped the pod."""
        pod = self._store.get("pods", namespace, name)
        grace = pod["spec"].get("terminationGracePeriodSeconds", 30) if grace_seconds is None else grace_seconds
        if not node_of(pod) or is_finished(pod) or grace == 0:
            return self._store.remove("pods", namespace, name)
        now = self._state.now()

        def edit(fresh: Obj) -> None:
            known = fresh["metadata"].get("deletionGracePeriodSeconds")
            if known is None or grace < known:
                fresh["metadata"]["deletionTimestamp"] = iso(now + grace)
                fresh["metadata"]["deletionGracePeriodSeconds"] = int(grace)

        return self._store.update("pods", namespace, name, edit)

    def _on_change(self, change: Change) -> None:
        if change.resource == "nodes":
            self._on_node(change)
        elif change.resource == "pods" and change.after is not None:
            before, after = change.before, change.after
            if node_of(after) and (before is None or not node_of(before)):
                self._start_later(after)
            if is_terminating(after) and (before is None or not is_terminating(before)):
                self._stop_later(after)

    def _on_node(self, change: Change) -> None:
        name = change.subject["metadata"]["name"]
        if change.after is None:
            self._node_deleted(name)
            return
        cordoned = bool(change.after["spec"].get("unschedulable"))
        tainted = any(taint["key"] == TAINT_UNSCHEDULABLE for taint in change.after["spec"].get("taints", ()))
        if cordoned and not tainted:
            taint = {"key": TAINT_UNSCHEDULABLE, "effect": "NoSchedule", "timeAdded": iso(self._state.now())}
            self._store.update("nodes", "", name, lambda fresh: fresh["spec"].setdefault("taints", []).append(taint))
        elif tainted and not cordoned:
            self._drop_taints(name, {TAINT_UNSCHEDULABLE})

    def _node_deleted(self, name: str) -> None:
        settings = self._state.settings
        until_cycle = settings.orphan_cycle_seconds - self._state.now() % settings.orphan_cycle_seconds
        until_removal = until_cycle + settings.orphan_quarantine_seconds
        self._state.after(until_removal, lambda: self._collect_orphans(name))
        machine = self._state.machine_of_node.get(name)
        if machine is not None and machine.serves:
            self._state.after(settings.reregister_seconds, lambda: self._register_again(machine))

    def _collect_orphans(self, name: str) -> None:
        if self._store.find("nodes", "", name) is None:
            for pod in self._state.pods_of_node(name):
                self._store.remove("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])

    def _register_again(self, machine: Machine) -> None:
        """The K3s agent restarts when its Node object is deleted, and registers anew."""
        if machine.serves and self._store.find("nodes", "", machine.node_name) is None:
            self.join(machine)

    def _start_later(self, pod: Obj) -> None:
        metadata = pod["metadata"]
        seconds = number_annotation(pod, START_SECONDS, self._state.settings.container_start_seconds)
        namespace, name, uid = metadata["namespace"], metadata["name"], metadata["uid"]
        self._state.after(seconds, lambda: self._started(namespace, name, uid))

    def _current(self, namespace: str, name: str, uid: str) -> Obj | None:
        pod = self._store.find("pods", namespace, name)
        same = pod is not None and pod["metadata"]["uid"] == uid
        return pod if same and pod is not None and self._state.machine_serves(node_of(pod)) else None

    def _started(self, namespace: str, name: str, uid: str) -> None:
        pod = self._current(namespace, name, uid)
        if pod is None or is_terminating(pod) or is_finished(pod):
            return
        now = self._state.now()

        def edit(fresh: Obj) -> None:
            fresh["status"]["phase"] = "Running"
            fresh["status"].setdefault("startTime", iso(now))
            for kind in ("Initialized", "ContainersReady", "Ready"):
                set_condition(fresh, now, kind, "True")

        self._store.update("pods", namespace, name, edit)
        run_seconds = number_annotation(pod, RUN_SECONDS, 0.0)
        if run_seconds:
            self._state.after(run_seconds, lambda: self._finished(namespace, name, uid))

    def _finished(self, namespace: str, name: str, uid: str) -> None:
        pod = self._current(namespace, name, uid)
        if pod is None or is_terminating(pod):
            return
        now = self._state.now()

        def edit(fresh: Obj) -> None:
            fresh["status"]["phase"] = "Succeeded"
            for kind in ("ContainersReady", "Ready"):
                set_condition(fresh, now, kind, "False", "PodCompleted")

        self._store.update("pods", namespace, name, edit)

    def _set_pod_ready(self, pod: Obj, ready: bool) -> None:
        if not condition_is_true(pod, "ContainersReady"):
            return
        now, metadata = self._state.now(), pod["metadata"]
        self._store.update(
            "pods",
            metadata["namespace"],
            metadata["name"],
            lambda fresh: set_condition(fresh, now, "Ready", str(ready)),
        )

    def _stop_later(self, pod: Obj) -> None:
        if not self._state.machine_serves(node_of(pod)):
            return
        metadata = pod["metadata"]
        shutdown = number_annotation(pod, SHUTDOWN_SECONDS, self._state.settings.shutdown_seconds)
        seconds = min(shutdown, float(metadata["deletionGracePeriodSeconds"]))
        namespace, name, uid = metadata["namespace"], metadata["name"], metadata["uid"]
        self._state.after(seconds, lambda: self._stopped(namespace, name, uid))

    def _stopped(self, namespace: str, name: str, uid: str) -> None:
        if self._current(namespace, name, uid) is not None:
            self._store.remove("pods", namespace, name)


def password_secret(name: str, password: str) -> Obj:
    return {
        "metadata": {"name": name, "namespace": "kube-system"},
        "type": "Opaque",
        "immutable": True,
        "data": {"hash": password},
    }


def node_object(machine: Machine, now: float, ready: bool, initialized: bool) -> Obj:
    """The Node as its kubelet registers it."""
    obj: Obj = {
        "metadata": {"name": machine.node_name, "labels": _node_labels(machine), "annotations": {}},
        "spec": {"providerID": machine.provider_id},
        "status": _node_status(machine),
    }
    taints = []
    if not initialized:
        taints.append({"key": TAINT_UNINITIALIZED, "value": "true", "effect": "NoSchedule"})
    if not ready:
        taints.append({"key": TAINT_NOT_READY, "effect": "NoSchedule"})
    if taints:
        obj["spec"]["taints"] = taints
    for kind in ("MemoryPressure", "DiskPressure", "PIDPressure"):
        set_condition(obj, now, kind, "False", f"KubeletHasNo{kind}")
    if ready:
        set_condition(obj, now, "Ready", "True", "KubeletReady", "kubelet is posting ready status")
    else:
        set_condition(obj, now, "Ready", "False", "KubeletNotReady", NETWORK_NOT_READY)
    return obj


def _node_labels(machine: Machine) -> dict[str, str]:
    labels = {
        LABEL_HOSTNAME: machine.node_name,
        LABEL_ZONE: machine.az,
        LABEL_REGION: machine.az[:-1],
        LABEL_TYPE: machine.type.name,
        LABEL_ROLE: machine.role,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "arm64" if machine.type.name[:3] in ("t4g", "m6g") else "amd64",
    }
    if machine.role == "server":
        labels[LABEL_CONTROL_PLANE] = "true"
    else:
        labels[LABEL_MARKET] = machine.market
    return labels


def _node_status(machine: Machine) -> Obj:
    kind = machine.type
    return {
        "capacity": {"cpu": str(kind.vcpus), "memory": f"{kind.memory_mib}Mi", "pods": str(MAX_PODS)},
        "allocatable": {
            "cpu": f"{kind.allocatable_cpu_milli}m",
            "memory": f"{kind.allocatable_memory_mib}Mi",
            "pods": str(MAX_PODS),
        },
        "addresses": [
            {"type": "InternalIP", "address": machine.address},
            {"type": "Hostname", "address": machine.node_name},
        ],
        "nodeInfo": {
            "kubeletVersion": machine.k3s_version,
            "osImage": "Ubuntu 24.04.3 LTS",
            "kernelVersion": "6.8.0-1040-aws",
            "containerRuntimeVersion": "containerd://2.1.4-k3s1",
            "architecture": "amd64",
            "operatingSystem": "linux",
        },
    }
