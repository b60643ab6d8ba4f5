"""Deployment, ReplicaSet, StatefulSet, Job and DaemonSet controllers, run when an object or a pod of theirs changed.

They replace lost pods. Of rolling updates only a restart is modelled: any other changed template applies to new pods
only.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

from simulator.cluster.api.store import RESOURCES, ObjectStore, copy_of
from simulator.cluster.control.scheduler import NodeCapacity, find_refusals, mark_gated
from simulator.cluster.control.volumes import local_claim
from simulator.cluster.objects import (
    Obj,
    condition_is_true,
    is_active,
    is_terminating,
    node_of,
    set_condition,
)
from simulator.cluster.state import ClusterState

DEFAULT_GRACE_SECONDS = 30
RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
_DAEMON_TOLERATIONS: list[Obj] = [
    {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": effect}
    for what, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("unschedulable", "NoSchedule"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
    )
]


def owner_reference(owner: Obj) -> Obj:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_from_template(owner: Obj, name: str, template: Obj) -> Obj:
    metadata = template.get("metadata", {})
    return {
        "metadata": {
            "name": name,
            "namespace": owner["metadata"]["namespace"],
            "labels": dict(metadata.get("labels", {})),
            "annotations": dict(metadata.get("annotations", {})),
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": copy_of(template["spec"]),
    }


class Controllers:
    """Keeps the number of pods of each workload object at its replicas."""

    def __init__(self, state: ClusterState, delete_pod: Callable[[str, str], Obj]) -> None:
        self._state = state
        self._store = state.store
        self._delete_pod = delete_pod
        self._kind_of_uid: dict[str, tuple[str, str, str]] = {}
        self._reconcilers: dict[str, Callable[[Obj], None]] = {
            "deployments": self._deployment,
            "replicasets": self._replica_set,
            "statefulsets": self._stateful_set,
            "jobs": self._job,
        }
        state.reconcilers.append(self.run_if_needed)

    def run_if_needed(self) -> bool:
        work = self._state.work
        if not work.owners and not work.daemons:
            return False
        owners, work.owners = work.owners, {}
        for uid in owners:
            self._reconcile(uid)
        if work.daemons:
            work.daemons = False
            for daemon_set in self._store.all("daemonsets"):
                self._daemon_set(daemon_set)
        return True

    def create_pod(self, pod: Obj) -> Obj:
        """Store a new pod with the defaults that the API server gives it."""
        spec = pod["spec"]
        spec.setdefault("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
        spec.setdefault("restartPolicy", "Always")
        pod.setdefault("status", {}).setdefault("phase", "Pending")
        mark_gated(pod, self._state.now())
        return self._store.create("pods", pod)

    def remember(self, resource: str, owner: Obj) -> None:
        metadata = owner["metadata"]
        self._kind_of_uid[metadata["uid"]] = (resource, metadata["namespace"], metadata["name"])

    def _reconcile(self, uid: str) -> None:
        where = self._kind_of_uid.get(uid) or self._look_up(uid)
        if where is None:
            return
        owner = self._store.find(*where)
        if owner is None or owner["metadata"]["uid"] != uid:
            self._collect_garbage(uid)
        elif not is_terminating(owner) and not self._is_namespace_terminating(where[1]):
            self._reconcilers[where[0]](owner)

    def _is_namespace_terminating(self, namespace: str) -> bool:
        found = self._store.find("namespaces", "", namespace)
        return found is not None and is_terminating(found)

    def _look_up(self, uid: str) -> tuple[str, str, str] | None:
        for resource in self._reconcilers:
            for owner in self._store.all(resource):
                self.remember(resource, owner)
        return self._kind_of_uid.get(uid)

    def _collect_garbage(self, uid: str) -> None:
        """The owner is removed: garbage collection removes the objects that it owned."""
        self._kind_of_uid.pop(uid, None)
        for pod in self._state.pods_of_owner(uid):
            if not is_terminating(pod):
                self._delete_pod(pod["metadata"]["namespace"], pod["metadata"]["name"])
        for replica_set in self._store.all("replicasets"):
            references = replica_set["metadata"].get("ownerReferences", [])
            if any(reference["uid"] == uid for reference in references):
                metadata = replica_set["metadata"]
                self._store.remove("replicasets", metadata["namespace"], metadata["name"])

    def _deployment(self, deployment: Obj) -> None:
        metadata, wanted = deployment["metadata"], int(deployment["spec"]["replicas"])
        name = replica_set_name(metadata["name"], restarted_at(deployment))
        replica_set = self._store.find("replicasets", metadata["namespace"], name)
        others = replica_sets_of(self._store, deployment) if restarted_at(deployment) else []
        others = [one for one in others if one["metadata"]["name"] != name]
        if replica_set is None:
            replica_set = _replica_set_for(deployment, name, 0 if others else wanted)
            replica_set = self._store.create("replicasets", replica_set)
            self.remember("replicasets", replica_set)
        if sum(one["spec"]["replicas"] for one in others):
            wanted = self._roll_out(deployment, replica_set, others)
        self._scale(replica_set, wanted)
        counts = {key: sum(one.get("status", {}).get(key, 0) for one in (replica_set, *others)) for key in _COUNTS}
        counts["updatedReplicas"] = replica_set.get("status", {}).get("replicas", 0)
        self._status(deployment, "deployments", counts)

    def _roll_out(self, deployment: Obj, newest: Obj, others: list[Obj]) -> int:
        """Take pods of the old ReplicaSets as far as enough are available; how many the newest one gets."""
        wanted, strategy = int(deployment["spec"]["replicas"]), deployment["spec"].get("strategy", {})
        rolling = {"maxSurge": "25%", "maxUnavailable": "25%", **strategy.get("rollingUpdate", {})}
        surge, unavailable = _counted(rolling["maxSurge"], wanted, 99), _counted(rolling["maxUnavailable"], wanted, 0)
        every = [newest, *others]
        free = wanted + surge - sum(one["spec"]["replicas"] for one in every)
        spare = sum(one.get("status", {}).get("availableReplicas", 0) for one in every) - (wanted - unavailable)
        for one in others:
            ended = min(one["spec"]["replicas"], max(0, spare))
            spare -= ended
            self._scale(one, one["spec"]["replicas"] - ended)
        return min(wanted, int(newest["spec"]["replicas"]) + max(0, int(free)))

    def _scale(self, replica_set: Obj, replicas: int) -> None:
        if replica_set["spec"]["replicas"] != replicas:
            self._set(replica_set, "replicasets", lambda fresh: fresh["spec"].update(replicas=replicas))

    def _replica_set(self, replica_set: Obj) -> None:
        uid, name = replica_set["metadata"]["uid"], replica_set["metadata"]["name"]
        active = [pod for pod in self._state.pods_of_owner(uid) if is_active(pod)]
        wanted = int(replica_set["spec"]["replicas"])
        for _ in range(wanted - len(active)):
            template = replica_set["spec"]["template"]
            self.create_pod(pod_from_template(replica_set, f"{name}-{self._state.new_suffix()}", template))
        for pod in self._surplus_pods(active, len(active) - wanted):
            self._delete_pod(pod["metadata"]["namespace"], pod["metadata"]["name"])
        self._count_status(replica_set, "replicasets")
        owner = replica_set["metadata"].get("ownerReferences")
        if owner:
            self._state.work.owners[owner[0]["uid"]] = None

    def _surplus_pods(self, active: list[Obj], surplus: int) -> list[Obj]:
        """The pods to delete, in the ReplicaSet controller's order: unbound, not ready, most siblings, newest."""
        if surplus <= 0:
            return []
        siblings: dict[str, int] = {}
        for pod in active:
            siblings[node_of(pod)] = siblings.get(node_of(pod), 0) + 1

        def rank(pod: Obj) -> tuple[Any, ...]:
            ready = condition_is_true(pod, "Ready")
            created = pod["metadata"]["creationTimestamp"]
            return bool(node_of(pod)), ready, -siblings[node_of(pod)], _descending(created)

        return sorted(active, key=rank)[:surplus]

    def _stateful_set(self, stateful_set: Obj) -> None:
        metadata, spec = stateful_set["metadata"], stateful_set["spec"]
        wanted = int(spec["replicas"])
        for ordinal in range(wanted):
            pod = self._store.find("pods", metadata["namespace"], f"{metadata['name']}-{ordinal}")
            if pod is None:
                self._create_ordinal(stateful_set, ordinal)
                break
            if not condition_is_true(pod, "Ready"):
                break
        for pod in self._state.pods_of_owner(metadata["uid"]):
            ordinal = int(pod["metadata"]["name"].rsplit("-", 1)[1])
            if ordinal >= wanted and not is_terminating(pod):
                self._delete_pod(metadata["namespace"], pod["metadata"]["name"])
        self._count_status(stateful_set, "statefulsets")

    def _create_ordinal(self, stateful_set: Obj, ordinal: int) -> None:
        metadata, spec = stateful_set["metadata"], stateful_set["spec"]
        pod = pod_from_template(stateful_set, f"{metadata['name']}-{ordinal}", spec["template"])
        for template in spec.get("volumeClaimTemplates", ()):
            volume = template["metadata"]["name"]
            claim = f"{volume}-{pod['metadata']['name']}"
            if self._store.find("persistentvolumeclaims", metadata["namespace"], claim) is None:
                self._store.create("persistentvolumeclaims", local_claim(metadata["namespace"], claim))
            pod["spec"].setdefault("volumes", []).append(
                {"name": volume, "persistentVolumeClaim": {"claimName": claim}}
            )
        self.create_pod(pod)

    def _job(self, job: Obj) -> None:
        """One pod, once: a Job with more completions is not modelled."""
        metadata = job["metadata"]
        if not self._state.owned.get(metadata["uid"]):
            name = f"{metadata['name']}-{self._state.new_suffix()}"
            self.create_pod(pod_from_template(job, name, job["spec"]["template"]))

    def _daemon_set(self, daemon_set: Obj) -> None:
        metadata = daemon_set["metadata"]
        covered = {node_of(pod) for pod in self._state.pods_of_owner(metadata["uid"])}
        nodes = {node["metadata"]["name"]: node for node in self._store.all("nodes")}
        for name, node in nodes.items():
            if name not in covered and self._daemon_fits(daemon_set, node):
                pod = pod_from_template(
                    daemon_set, f"{metadata['name']}-{self._state.new_suffix()}", daemon_set["spec"]["template"]
                )
                pod["spec"]["nodeName"] = name
                set_condition(pod, self._state.now(), "PodScheduled", "True")
                pod["spec"]["tolerations"] = [*pod["spec"].get("tolerations", ()), *_DAEMON_TOLERATIONS]
                self.create_pod(pod)

    def _daemon_fits(self, daemon_set: Obj, node: Obj) -> bool:
        spec = dict(daemon_set["spec"]["template"]["spec"])
        spec["tolerations"] = [*spec.get("tolerations", ()), *_DAEMON_TOLERATIONS]
        facts = self._state.pod_facts({"metadata": {"uid": f"daemon {daemon_set['metadata']['uid']}"}, "spec": spec})
        unlimited = NodeCapacity(node=node, cpu_milli=10**9, memory_mib=1e12, max_pods=10**6)
        return not find_refusals({"spec": spec}, facts, unlimited)

    def _count_status(self, owner: Obj, resource: str) -> None:
        pods = [pod for pod in self._state.pods_of_owner(owner["metadata"]["uid"]) if is_active(pod)]
        ready = sum(1 for pod in pods if condition_is_true(pod, "Ready"))
        counts = {"replicas": len(pods), "readyReplicas": ready, "availableReplicas": ready}
        self._status(owner, resource, counts)

    def _status(self, owner: Obj, resource: str, counts: dict[str, int]) -> None:
        self._set(owner, resource, lambda fresh: fresh.setdefault("status", {}).update(counts))

    def _set(self, owner: Obj, resource: str, edit: Callable[[Obj], None]) -> None:
        metadata = owner["metadata"]
        self._store.update(resource, metadata["namespace"], metadata["name"], edit)


_COUNTS = ("replicas", "readyReplicas", "availableReplicas")


def _counted(value: int | str, wanted: int, rounded_up: int) -> int:
    """A number, or a percentage of the replicas."""
    return (int(value[:-1]) * wanted + rounded_up) // 100 if isinstance(value, str) else int(value)


def _replica_set_for(deployment: Obj, name: str, replicas: int) -> Obj:
    metadata, spec = deployment["metadata"], deployment["spec"]
    return {
        "apiVersion": RESOURCES["replicasets"].api_version,
        "kind": "ReplicaSet",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": dict(spec["template"].get("metadata", {}).get("labels", {})),
            "ownerReferences": [owner_reference(deployment)],
        },
        "spec": {"replicas": replicas, "selector": spec["selector"], "template": spec["template"]},
    }


def replica_set_name(deployment: str, restarted: str = "") -> str:
    return f"{deployment}-{zlib.crc32(f'{deployment}{restarted}'.encode()):08x}"


def restarted_at(deployment: Obj) -> str:
    """When kubectl restarted it last; empty when it never did."""
    return str(deployment["spec"]["template"].get("metadata", {}).get("annotations", {}).get(RESTARTED_AT, ""))


def replica_sets_of(store: ObjectStore, deployment: Obj) -> list[Obj]:
    """In the order of creation."""
    metadata = deployment["metadata"]
    if not restarted_at(deployment):
        found = store.find("replicasets", metadata["namespace"], replica_set_name(metadata["name"]))
        return [found] if found else []
    return [
        one
        for one in store.all("replicasets")
        if any(reference["uid"] == metadata["uid"] for reference in one["metadata"].get("ownerReferences", ()))
    ]


def _descending(text: str) -> tuple[int, ...]:
    return tuple(-ord(letter) for letter in text)
