"""Stands in for the kubelets of a real control plane, and for the provisioner of local volumes.

It registers nodes, renews their leases, sets bound pods Running after their start time, ends terminating pods after
their shutdown time, and gives each claim that waits for its pod a volume on the pod's node. Annotations of the
simulator set the times. A silent machine does none of it.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from simulator.cluster.api.errors import ApiError
from simulator.cluster.control.kubelets import node_object, password_secret, password_secret_name
from simulator.cluster.control.volumes import local_volume
from simulator.cluster.objects import (
    LABEL_CONTROL_PLANE,
    RUN_SECONDS,
    SHUTDOWN_SECONDS,
    START_SECONDS,
    Obj,
    condition_is_true,
    is_finished,
    is_terminating,
    iso,
    node_of,
    number_annotation,
    set_condition,
)
from simulator.cluster.state import Machine
from tests.support.real_plane.api import GRACE_NONE, RealApi

LEASE_SECONDS = 40
RENEWAL_SECONDS = 5.0
START_DEFAULT_SECONDS = 0.1
SHUTDOWN_DEFAULT_SECONDS = 0.1
SELECTED_NODE = "volume.kubernetes.io/selected-node"


class Kubelets:
    """All machines of one control plane. `close` ends its threads, after the control plane ended."""

    def __init__(self, api: RealApi) -> None:
        self._api = api
        self.machines: dict[str, Machine] = {}
        self._stopping = threading.Event()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()
        self._timer_added = threading.Condition()
        work = (self._watch_pods, self._watch_claims, self._renew_leases, self._run_timers)
        self._threads = [threading.Thread(target=each, daemon=True, name=each.__name__) for each in work]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        for thread in self._threads:
            thread.join(timeout=20)

    def end(self) -> None:
        """Begin to end; watches end with the API server."""
        self._stopping.set()
        with self._timer_added:
            self._timer_added.notify()

    # Machines ------------------------------------------------------------------------------------------------

    def join(self, machine: Machine, *, tainted: bool = False) -> None:
        """Register the node and its node password, as K3s does."""
        name = machine.node_name
        machine.kubelet_alive = True
        self.machines[name] = machine
        self._create("secrets", password_secret(password_secret_name(name), machine.password))
        node = node_object(machine, time.time(), True, True)
        if tainted:
            node["spec"]["taints"] = [{"key": LABEL_CONTROL_PLANE, "value": "true", "effect": "NoSchedule"}]
        self._create("leases", {"metadata": {"name": name, "namespace": "kube-node-lease"}, "spec": lease(name)})
        self._create("nodes", node)

    def silence(self, machine: Machine) -> None:
        """The kubelet stops: no lease is renewed and no pod is touched."""
        machine.kubelet_alive = False

    def recover(self, machine: Machine) -> None:
        """The kubelet runs again: it reports Ready, and finishes what it missed."""
        machine.kubelet_alive = True
        self._api.set_status("nodes", {"metadata": {"name": machine.node_name}}, _be_ready)
        self._renew(machine.node_name)
        for pod in self._api.list("pods"):
            if node_of(pod) == machine.node_name:
                self._on_pod(pod)
                self._try(self._report_pod, pod)

    def _create(self, resource: str, obj: Obj) -> None:
        try:
            self._api.create(resource, obj)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    # Threads -------------------------------------------------------------------------------------------------

    def _renew_leases(self) -> None:
        while not self._stopping.wait(RENEWAL_SECONDS):
            for name, machine in list(self.machines.items()):
                if machine.serves:
                    self._try(self._renew, name)
                    self._try(self._report, machine)

    def _renew(self, name: str) -> None:
        self._api.update("leases", "kube-node-lease", name, lambda fresh: fresh["spec"].update(lease(name)))

    def _report(self, machine: Machine) -> None:
        """A node that the control plane gave up, as after a pause of this computer, is Ready again."""
        node = self._api.find("nodes", "", machine.node_name)
        if node is None or condition_is_true(node, "Ready"):
            return
        if machine.serves:  # asked after the reading: the node of a machine that has ended meanwhile stays lost
            self.recover(machine)

    def _watch_pods(self) -> None:
        for change, pod in self._api.watch("pods", self._stopping):
            if change != "DELETED":
                self._on_pod(pod)

    def _on_pod(self, pod: Obj) -> None:
        if not self._serves(pod):
            return
        if is_terminating(pod):
            default = min(SHUTDOWN_DEFAULT_SECONDS, pod["metadata"]["deletionGracePeriodSeconds"])
            wanted = number_annotation(pod, SHUTDOWN_SECONDS, default)
            self._after(min(wanted, float(pod["metadata"]["deletionGracePeriodSeconds"])), self._stop, pod)
        elif pod["status"].get("phase") == "Pending":
            self._after(number_annotation(pod, START_SECONDS, START_DEFAULT_SECONDS), self._start, pod)
        elif pod["status"].get("phase") == "Running":
            self._after(number_annotation(pod, RUN_SECONDS, 0), self._finish, pod)

    def _watch_claims(self) -> None:
        for change, claim in self._api.watch("persistentvolumeclaims", self._stopping):
            node = claim["metadata"].get("annotations", {}).get(SELECTED_NODE)
            if change != "DELETED" and node and not claim["spec"].get("volumeName"):
                self._try(self._provide, claim, node)

    def _provide(self, claim: Obj, node: str) -> None:
        metadata = claim["metadata"]
        volume = local_volume(f"pvc-{metadata['uid']}", node, metadata["namespace"], metadata["name"])
        volume["spec"]["claimRef"]["uid"] = metadata["uid"]
        del volume["status"]
        self._create("persistentvolumes", volume)

    def _after(self, seconds: float, act: Callable[[Obj], None], pod: Obj) -> None:
        with self._timer_added:
            due = time.monotonic() + seconds
            heapq.heappush(self._timers, (due, next(self._number), lambda: self._try(act, pod)))
            self._timer_added.notify()

    def _run_timers(self) -> None:
        while not self._stopping.is_set():
            with self._timer_added:
                due = self._timers[0][0] - time.monotonic() if self._timers else 60.0
                if due > 0:
                    self._timer_added.wait(due)
                    continue
                act = heapq.heappop(self._timers)[2]
            act()

    def _try(self, act: Callable[..., None], *arguments: object) -> None:
        """Act unless the object is gone or another one, or the server ends."""
        try:
            act(*arguments)
        except ApiError as error:
            if error.code not in (404, 409):
                raise
        except OSError:
            if not self._stopping.is_set():
                raise

    # What a kubelet does with a pod ----------------------------------------------------------------------------

    def _serves(self, pod: Obj) -> bool:
        machine = self.machines.get(node_of(pod))
        return machine is not None and machine.serves

    def _start(self, pod: Obj) -> None:
        def edit(fresh: Obj) -> None:
            if fresh["status"].get("phase") == "Pending" and not is_terminating(fresh) and _same(fresh, pod):
                fresh["status"].update(phase="Running", startTime=iso(time.time()))
                for kind in ("Initialized", "ContainersReady", "Ready"):
                    set_condition(fresh, time.time(), kind, "True")

        if self._serves(pod):
            self._api.set_status("pods", pod, edit)

    def _report_pod(self, pod: Obj) -> None:
        def edit(fresh: Obj) -> None:
            if fresh["status"].get("phase") == "Running" and not is_terminating(fresh) and _same(fresh, pod):
                for kind in ("ContainersReady", "Ready"):
                    set_condition(fresh, time.time(), kind, "True")

        self._api.set_status("pods", pod, edit)

    def _finish(self, pod: Obj) -> None:
        def edit(fresh: Obj) -> None:
            if not is_finished(fresh) and not is_terminating(fresh) and _same(fresh, pod):
                fresh["status"]["phase"] = "Succeeded"
                for kind in ("ContainersReady", "Ready"):
                    set_condition(fresh, time.time(), kind, "False", "PodCompleted")

        if self._serves(pod) and number_annotation(pod, RUN_SECONDS, 0):
            self._api.set_status("pods", pod, edit)

    def _stop(self, pod: Obj) -> None:
        if self._serves(pod):
            metadata = pod["metadata"]
            options = {**GRACE_NONE, "preconditions": {"uid": metadata["uid"]}}
            self._api.delete("pods", metadata["namespace"], metadata["name"], options)


def lease(node: str) -> Obj:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"holderIdentity": node, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now}


def _same(one: Obj, other: Obj) -> bool:
    return bool(one["metadata"]["uid"] == other["metadata"]["uid"])


def _be_ready(node: Obj) -> None:
    if not condition_is_true(node, "Ready"):
        set_condition(node, time.time(), "Ready", "True", "KubeletReady", "kubelet is posting ready status")
