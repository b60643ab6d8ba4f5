"""A cluster on a real control plane, with the methods of the simulated cluster that tests use to set one up.

Nodes and volumes come from the stand-in for kubelets; everything else is the API server, the controllers and the
scheduler. Time is real: `wait` sleeps, and `settle` waits until nothing changes.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simulator.cluster.api.errors import ApiError
from simulator.cluster.boot import private_address
from simulator.cluster.control.volumes import local_claim, local_path_class
from simulator.cluster.kubectl.fake import CommandResult
from simulator.cluster.load.applications import ApplicationSpec
from simulator.cluster.machines import machine_type
from simulator.cluster.objects import (
    TAINT_NOT_READY,
    TAINT_UNSCHEDULABLE,
    Obj,
    condition,
    condition_is_true,
    is_active,
    is_finished,
    is_terminating,
    node_of,
    set_condition,
)
from simulator.cluster.state import Machine
from simulator.cluster.workloads import application_objects, budget_object, server_add_ons
from tests.support.real_plane.api import GRACE_NONE, RealApi, path_of
from tests.support.real_plane.kubelets import SELECTED_NODE, Kubelets
from tests.support.real_plane.plane import NOWHERE, ControlPlane
from tests.support.real_servers import tool

WORKLOADS = ("deployments", "statefulsets", "daemonsets", "replicasets", "jobs")
NAMESPACED = (*WORKLOADS, "poddisruptionbudgets", "persistentvolumeclaims")
OWN_NAMESPACES = ("default", "kube-system", "monitoring", "shop")
KEPT_NAMESPACES = (*OWN_NAMESPACES, "kube-public", "kube-node-lease")
QUIET_SECONDS = 0.6
QUIET_WITH_WAITING_PODS_SECONDS = 2.0
"""Longer than the scheduler's first back-off: a pod that it could not place is tried again within a second."""
LIMIT_SECONDS = 90


class NotSettledError(Exception):
    """The cluster did not come to rest; the message names what still changes."""


class RealCluster:
    """One cluster at a time on a control plane: `reset` removes everything of the one before."""

    def __init__(self, plane: ControlPlane, kubelets: Kubelets) -> None:
        self.plane = plane
        self.api: RealApi = plane.api("person")
        self.kubelets = kubelets

    def reset(self, *, add_ons: bool = True) -> None:
        """An empty cluster with the namespaces, the storage class and the add-ons of the simulated one."""
        self._empty()
        self.kubelets.machines.clear()
        for name in OWN_NAMESPACES:
            self.ensure_namespace(name)
        if self.find("storageclasses", "", "local-path") is None:
            self.create("storageclasses", local_path_class())
        for resource, obj in server_add_ons() if add_ons else ():
            self.create(resource, obj)

    def _empty(self) -> None:
        background = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        ends_at = time.monotonic() + LIMIT_SECONDS
        while left := self._left_over():
            if time.monotonic() > ends_at:
                raise NotSettledError(f"cannot be removed: {left[:5]}")
            for resource, obj in left:
                metadata = obj["metadata"]
                namespace, name = metadata.get("namespace", ""), metadata["name"]
                options = GRACE_NONE if resource == "pods" else background
                try:
                    if resource.startswith("persistent") and metadata.get("finalizers"):
                        self.api.request(
                            "PATCH",
                            path_of(resource, namespace, name),
                            {"metadata": {"finalizers": None}},
                            "application/merge-patch+json",
                        )
                    if not is_terminating(obj) or resource == "pods":
                        self.api.delete(resource, namespace, name, options)
                except ApiError as error:
                    if error.code not in (404, 409):
                        raise
            time.sleep(0.05)

    def _left_over(self) -> list[tuple[str, Obj]]:
        """Workloads first, so that no controller replaces a pod that is deleted."""
        left = [(kind, obj) for kind in NAMESPACED for obj in self.objects(kind)]
        left += [(kind, obj) for kind in ("pods", "nodes", "persistentvolumes") for obj in self.objects(kind)]
        left += [("secrets", obj) for obj in self.objects("secrets", "kube-system")]
        left += [("leases", obj) for obj in self.objects("leases", "kube-node-lease")]
        spaces = self.objects("namespaces")
        return left + [
            ("namespaces", obj)
            for obj in spaces
            if is_terminating(obj) or obj["metadata"]["name"] not in KEPT_NAMESPACES
        ]

    # Machines --------------------------------------------------------------------------------------------------

    def add_server(self, instance_id: str, az: str, instance_type: str = "t3.medium") -> None:
        self.kubelets.join(self._machine_for(instance_id, instance_type, az, "on-demand", "server"), tainted=True)

    def add_worker(
        self, instance_id: str, *, instance_type: str = "t3.small", az: str = "us-east-1a", market: str = "on-demand"
    ) -> None:
        self.kubelets.join(self._machine_for(instance_id, instance_type, az, market, "worker"))

    def instance_started(self, *, instance_id: str, instance_type: str, az: str, market: str, address: str) -> None:
        """EC2 started a worker: its kubelet joins at once."""
        machine = self._machine_for(instance_id, instance_type, az, market, "worker")
        machine.address = address
        self.kubelets.join(machine)

    def _machine_for(self, instance_id: str, instance_type: str, az: str, market: str, role: str) -> Machine:
        return Machine(
            instance_id=instance_id,
            node_name=instance_id,
            type=machine_type(instance_type),
            az=az,
            market=market,
            role=role,
            started_at=time.time(),
            password=hashlib.sha256(instance_id.encode()).hexdigest()[:32],
            address=private_address(instance_id),
        )

    def instance_ended(self, instance_id: str, *, voluntary: bool = True) -> None:
        self.kubelets.machines[instance_id].powered = False

    def instance_rebooted(self, instance_id: str, *, heals: bool) -> None:
        self.kubelets.silence(self.kubelets.machines[instance_id])
        if heals:
            self.kubelets.recover(self.kubelets.machines[instance_id])

    def fail_node(self, instance_id: str) -> None:
        self.kubelets.silence(self.kubelets.machines[instance_id])

    def recover_node(self, instance_id: str) -> None:
        self.kubelets.recover(self.kubelets.machines[instance_id])

    # Objects ---------------------------------------------------------------------------------------------------

    def ensure_namespace(self, name: str) -> None:
        """The namespace with its service account, without which no pod is admitted."""
        if self.find("namespaces", "", name) is None:
            self.api.create("namespaces", {"metadata": {"name": name}})
        ends_at = time.monotonic() + LIMIT_SECONDS
        while self.find("serviceaccounts", name, "default") is None:
            if time.monotonic() > ends_at:
                raise NotSettledError(f"namespace {name} got no service account")
            time.sleep(0.02)

    def create(self, resource: str, obj: Obj) -> Obj:
        namespace = obj["metadata"].get("namespace")
        if namespace:
            self.ensure_namespace(namespace)
        return self.api.create(resource, obj)

    def create_owned_pod(self, pod: Obj, owners: dict[str, list[Obj]]) -> None:
        """Controllers adopt the pod by its labels: with a reference to an owner of another uid it would be removed."""
        metadata, fresh = pod["metadata"], {**pod, "metadata": {**pod["metadata"]}}
        found = [(kind, item) for kind, items in owners.items() for item in items]
        references = [
            r for r in metadata.get("ownerReferences", ()) if not owners.get(f"{r['kind'].lower()}s")
        ]  # what refers to an owner that does not exist is removed: so does the garbage collector with all its kinds
        for reference in references:
            owner = self.find("nodes", "", reference["name"]) if reference["kind"] == "Node" else None
            reference["uid"] = owner["metadata"]["uid"] if owner else str(uuid.uuid4())
        fresh["metadata"]["ownerReferences"] = references
        for _, item in found:
            fresh["metadata"]["labels"] = {
                **metadata.get("labels", {}),
                **item["spec"]["template"]["metadata"]["labels"],
            }
        self.create("pods", fresh)
        for kind, item in found:
            if kind == "jobs":
                item["spec"] = {"manualSelector": True, **{k: item["spec"][k] for k in ("selector", "template")}}
                item["spec"]["template"]["spec"]["restartPolicy"] = "Never"
            if kind == "daemonsets":
                del item["spec"]["replicas"]
            self.create(kind, item)

    def lose(self, _seconds: float) -> None:
        """Show the nodes of ended machines as the node lifecycle controller does after its grace period of 50 s."""
        for name, machine in self.kubelets.machines.items():
            if not machine.powered and self.find("nodes", "", name):
                self.api.set_status("nodes", {"metadata": {"name": name}}, be_lost)

    def add_application(self, spec: ApplicationSpec) -> None:
        if spec.volume == "local-path" and spec.kind == "Deployment":
            self.create("persistentvolumeclaims", local_claim(spec.namespace, f"{spec.name}-data"))
        for resource, obj in application_objects(spec):
            self.create(resource, obj)

    def add_budget(self, name: str, **spec: Any) -> None:
        self.create("poddisruptionbudgets", budget_object(name, **spec))

    def update(self, resource: str, namespace: str, name: str, edit: Callable[[Obj], None]) -> Obj:
        """Change an object; a change of a node's status is stored too."""
        stored = self.api.update(resource, namespace, name, edit)
        if resource == "nodes":
            stored = self.api.set_status(resource, stored, edit)
        return stored

    def cordon(self, node_name: str) -> None:
        self.api.update("nodes", "", node_name, lambda node: node["spec"].update(unschedulable=True))

    def uncordon(self, node_name: str) -> None:
        self.api.update("nodes", "", node_name, lambda node: node["spec"].pop("unschedulable", None))

    def delete(self, resource: str, namespace: str, name: str, *, grace_seconds: float | None = None) -> Obj:
        grace = {"gracePeriodSeconds": int(grace_seconds)} if grace_seconds is not None else {}
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background", **grace}
        return self.api.delete(resource, namespace, name, options)

    def evict(self, namespace: str, name: str) -> None:
        eviction = {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"namespace": namespace, "name": name}}
        self.api.request("POST", path_of("pods", namespace, name, "eviction"), eviction)

    def find(self, resource: str, namespace: str, name: str) -> Obj | None:
        return self.api.find(resource, namespace, name)

    def objects(self, resource: str, namespace: str = "") -> list[Obj]:
        """In the order of creation, as the simulated cluster gives them."""
        found = self.api.list(resource, namespace)
        return sorted(found, key=lambda obj: obj["metadata"]["creationTimestamp"])

    def pods_on(self, node_name: str) -> list[Obj]:
        return [pod for pod in self.objects("pods") if node_of(pod) == node_name]

    # Commands --------------------------------------------------------------------------------------------------

    def kubectl(self, *words: str, reachable: bool = True) -> CommandResult:
        return self._run([tool("kubectl"), *words], {"KUBECONFIG": str(self._kubeconfig(reachable))})

    def script(self, text: str, variables: dict[str, str]) -> CommandResult:
        return self._run(["sh", "-c", text], variables)

    def _kubeconfig(self, reachable: bool) -> Path:
        return self.plane.kubeconfig("node-fleet" if reachable else NOWHERE)

    def script_environment(self) -> dict[str, str]:
        """The variables of a script on the server."""
        path = f"{Path(tool('kubectl')).parent}:{os.environ['PATH']}"
        places = {"HOME": str(self.plane.folder), "NODE_FLEET_LOCK_DIRECTORY": str(self.plane.folder)}
        return {"PATH": path, "KUBECONFIG": str(self._kubeconfig(True)), **places}

    def _run(self, command: list[str], variables: dict[str, str]) -> CommandResult:
        environment = {**self.script_environment(), **variables}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
        return CommandResult(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr)

    # Time ------------------------------------------------------------------------------------------------------

    def now(self) -> float:
        return time.time()

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def settle(self) -> None:
        """Wait until controllers, scheduler and kubelets have nothing left to do."""
        ends_at, seen, since = time.monotonic() + LIMIT_SECONDS, None, 0.0
        while True:
            open_work, versions = self._open_work()
            now = time.monotonic()
            if open_work or versions != seen:
                seen, since = versions, now
            elif now - since >= self._quiet_seconds():
                return
            if now > ends_at:
                raise NotSettledError(f"after {LIMIT_SECONDS} s these still change: {open_work[:5]}")
            time.sleep(0.1)

    def _quiet_seconds(self) -> float:
        is_waiting = any(not node_of(pod) and is_active(pod) for pod in self.objects("pods"))
        return QUIET_WITH_WAITING_PODS_SECONDS if is_waiting else QUIET_SECONDS

    def _open_work(self) -> tuple[list[str], list[Any]]:
        """What waits for a controller or a kubelet, and the versions of what tests look at."""
        pods, nodes = self.objects("pods"), self.objects("nodes")
        budgets, claims = self.objects("poddisruptionbudgets"), self.objects("persistentvolumeclaims")
        work = [f"pod {_name(pod)}: {_account(pod)}" for pod in pods if not self._is_at_rest(pod)]
        work += [f"node {_name(node)}" for node in nodes if not self._is_known(node)]
        for kind in WORKLOADS[:4]:
            owned = [(o, [p for p in pods if _is_owned(p, o) and is_active(p)]) for o in self.objects(kind)]
            work += [f"{kind} {_name(o)}" for o, members in owned if not _is_reconciled(kind, o, members)]
        work += [f"budget {_name(b)}" for b in budgets if _lags(b)]
        work += [f"claim {_name(claim)}" for claim in claims if _waits_for_its_volume(claim)]
        versions = [o["metadata"]["resourceVersion"] for o in (*pods, *budgets, *claims)]
        return work, sorted(versions)

    def _is_at_rest(self, pod: Obj) -> bool:
        machine = self.kubelets.machines.get(node_of(pod))
        if not node_of(pod):
            return condition(pod, "PodScheduled") is not None
        if machine is None or not machine.serves:
            return True
        return not is_terminating(pod) and (is_finished(pod) or condition_is_true(pod, "Ready"))

    def _is_known(self, node: Obj) -> bool:
        taints = {taint["key"] for taint in node["spec"].get("taints", ())}
        cordoned = bool(node["spec"].get("unschedulable"))
        machine = self.kubelets.machines.get(node["metadata"]["name"])
        serves = machine is not None and machine.serves
        return (TAINT_UNSCHEDULABLE in taints) is cordoned and not (serves and TAINT_NOT_READY in taints)


def be_lost(node: Obj) -> None:
    set_condition(node, time.time(), "Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")


def _name(obj: Obj) -> str:
    return f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"


def _account(pod: Obj) -> str:
    """What shows why a pod does not come to rest."""
    ends = pod["metadata"].get("deletionTimestamp", "not deleted")
    conditions = [f"{c['type']}={c['status']} {c.get('message', '')}" for c in pod["status"].get("conditions", ())]
    return f"node {node_of(pod) or 'none'}, {pod['status'].get('phase')}, {ends}, {conditions}"


def _is_owned(obj: Obj, owner: Obj) -> bool:
    return any(one["uid"] == owner["metadata"]["uid"] for one in obj["metadata"].get("ownerReferences", ()))


def _lags(obj: Obj) -> bool:
    return bool(obj.get("status", {}).get("observedGeneration", 0) < obj["metadata"].get("generation", 0))


def _waits_for_its_volume(claim: Obj) -> bool:
    """Whether the scheduler has chosen the node, and the pod waits until the volume is bound."""
    is_chosen = SELECTED_NODE in claim["metadata"].get("annotations", {})
    return is_chosen and claim.get("status", {}).get("phase") != "Bound"


def _is_reconciled(kind: str, obj: Obj, members: list[Obj]) -> bool:
    """Whether the controller has seen the object's spec and made its pods."""
    status, spec = obj.get("status", {}), obj["spec"]
    if _lags(obj):
        return False
    if kind == "daemonsets":
        return bool(status.get("currentNumberScheduled", 0) >= status.get("desiredNumberScheduled", 0))
    if kind == "statefulsets":
        return len(members) >= spec["replicas"] or not all(condition_is_true(pod, "Ready") for pod in members)
    return bool(status.get("replicas", 0) == spec["replicas"])
