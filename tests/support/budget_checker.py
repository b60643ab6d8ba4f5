"""Checks every change against the disruption budgets, with sums of its own from raw pods and selectors.

It shares no arithmetic with `disruption`, so that a mistake there shows here. Violations are acts of node-fleet alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from node_fleet.domain.model.value_class import value_class
from simulator.cluster.api.store import Change
from simulator.cluster.model import OUR_ACTOR
from simulator.cluster.objects import Obj
from simulator.cluster.state import Machine


@value_class
class Violation:
    """A broken budget: `healthy` pods are left of the `promised`."""

    at: float
    budget: str
    pod: str
    act: str
    healthy: int
    promised: int


@value_class
class Removal:
    """A pod that node-fleet removed, with its owner, its volume binding and its labels."""

    at: float
    pod: str
    act: str
    owner_kind: str
    is_node_bound: bool
    labels: dict[str, str]


class Observed(Protocol):
    """A cluster whose changes can be followed."""

    end_listeners: list[Callable[[Machine, bool], None]]

    def on_change(self, listener: Callable[[Change], None]) -> None: ...

    def objects(self, resource: str) -> list[Obj]: ...

    def find(self, resource: str, namespace: str, name: str) -> Obj | None: ...

    def now(self) -> float: ...


class BudgetChecker:
    """Attach it to a cluster; read `violations`, `removals` and `involuntary_drops` afterwards."""

    def __init__(self, cluster: Observed, *, our_actor: str = OUR_ACTOR) -> None:
        self._cluster = cluster
        self._ours = our_actor
        self.violations: list[Violation] = []
        self.removals: list[Removal] = []
        self.involuntary_drops: list[Violation] = []
        self._powered_off: set[str] = set()
        cluster.on_change(self._on_change)
        cluster.end_listeners.append(self._on_machine_end)

    def assert_only_safe_removals(self) -> None:
        """No budget is broken, and no pod that must stay on its node, or has no controller to create it again, ends."""
        assert self.violations == []
        assert [r for r in self.removals if r.is_node_bound or r.owner_kind in ("StatefulSet", "")] == []
        assert [r for r in self.removals if r.act == "terminated with its machine"] == []

    def _on_change(self, change: Change) -> None:
        if change.resource != "pods" or change.before is None:
            return
        was, lost = self._is_healthy(change.before), not self._is_healthy(change.after)
        deleted = change.after is None or "deletionTimestamp" in change.after["metadata"]
        was_terminating = "deletionTimestamp" in change.before["metadata"]
        ours = change.actor == self._ours
        if ours and deleted and not was_terminating and not _is_done(change.before):
            self._note_removal(change.before, "evicted or deleted")
        if was and lost:
            self._judge(change.before, "evicted or deleted", voluntary=ours and deleted)

    def _on_machine_end(self, machine: Machine, voluntary: bool) -> None:
        """Called just before the machine's pods are lost."""
        pods = [pod for pod in self._cluster.objects("pods") if pod["spec"].get("nodeName") == machine.node_name]
        healthy = [pod for pod in pods if self._is_healthy(pod)]
        self._powered_off.add(machine.node_name)
        for pod in pods:
            if voluntary and not _is_done(pod) and not _is_daemon(pod):
                self._note_removal(pod, "terminated with its machine")
        for pod in healthy:
            self._judge(pod, "terminated with its machine", voluntary=voluntary)

    def _is_healthy(self, pod: Obj | None) -> bool:
        if pod is None or "deletionTimestamp" in pod["metadata"] or _is_done(pod):
            return False
        node = pod["spec"].get("nodeName", "")
        conditions = pod.get("status", {}).get("conditions", [])
        ready = any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)
        return bool(node) and ready and node not in self._powered_off

    def _judge(self, pod: Obj, act: str, *, voluntary: bool) -> None:
        for budget in self._cluster.objects("poddisruptionbudgets"):
            if _selects(budget, pod):
                healthy, promised = self._standing(budget)
                if healthy < promised:
                    broken = Violation(
                        at=self._cluster.now(),
                        budget=_name(budget),
                        pod=_name(pod),
                        act=act,
                        healthy=healthy,
                        promised=promised,
                    )
                    (self.violations if voluntary else self.involuntary_drops).append(broken)

    def _standing(self, budget: Obj) -> tuple[int, int]:
        """(healthy pods now, pods that the budget promises to keep)."""
        pods = [pod for pod in self._cluster.objects("pods") if _selects(budget, pod) and not _is_done(pod)]
        healthy = len([pod for pod in pods if self._is_healthy(pod)])
        spec = budget["spec"]
        if "minAvailable" in spec:
            return healthy, _counted(spec["minAvailable"], self._wanted(pods))
        wanted = self._wanted(pods)
        return healthy, max(0, wanted - _counted(spec.get("maxUnavailable", 1), wanted))

    def _wanted(self, pods: list[Obj]) -> int:
        """How many pods the controllers of these pods ask for in sum."""
        wanted: dict[tuple[str, str, str], int] = {}
        for pod in pods:
            for owner in pod["metadata"].get("ownerReferences", []):
                resource = {"ReplicaSet": "replicasets", "StatefulSet": "statefulsets"}.get(owner["kind"])
                if resource:
                    key = (resource, pod["metadata"]["namespace"], owner["name"])
                    found = self._cluster.find(*key)
                    wanted[key] = int(found["spec"]["replicas"]) if found else 0
        return sum(wanted.values())

    def _note_removal(self, pod: Obj, act: str) -> None:
        owners = [owner["kind"] for owner in pod["metadata"].get("ownerReferences", []) if owner.get("controller")]
        self.removals.append(
            Removal(
                at=self._cluster.now(),
                pod=_name(pod),
                act=act,
                owner_kind=owners[0] if owners else "",
                is_node_bound=self._is_node_bound(pod),
                labels=dict(pod["metadata"].get("labels", {})),
            )
        )

    def _is_node_bound(self, pod: Obj) -> bool:
        for volume in pod["spec"].get("volumes", []):
            claim_name = volume.get("persistentVolumeClaim", {}).get("claimName")
            claim = self._cluster.find("persistentvolumeclaims", pod["metadata"]["namespace"], claim_name or "")
            bound = claim["spec"].get("volumeName") if claim else None
            disk = self._cluster.find("persistentvolumes", "", bound) if bound else None
            if disk and "nodeAffinity" in disk["spec"]:
                return True
        return False


def _name(obj: Obj) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def _is_done(pod: Obj) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _is_daemon(pod: Obj) -> bool:
    return any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences", []))


def _selects(budget: Obj, pod: Obj) -> bool:
    """The budget's selector, read on its own: matchLabels and the four set operators."""
    if budget["metadata"]["namespace"] != pod["metadata"]["namespace"]:
        return False
    selector = budget["spec"].get("selector")
    labels = pod["metadata"].get("labels", {})
    if selector is None:
        return False
    for key, value in selector.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    for rule in selector.get("matchExpressions", []):
        has, listed = rule["key"] in labels, labels.get(rule["key"]) in rule.get("values", [])
        passed = {"In": listed, "NotIn": not listed, "Exists": has, "DoesNotExist": not has}[rule["operator"]]
        if not passed:
            return False
    return True


def _counted(value: int | str, total: int) -> int:
    if isinstance(value, int):
        return value
    share = int(value.rstrip("%")) * total
    return share // 100 + (1 if share % 100 else 0)
