"""Disruption budgets and the eviction subresource, with the answers of a real API server.

The status of every budget is current after every change. The sums are those of the disruption controller (policy/v1).
"""

from __future__ import annotations

import math

from simulator.cluster.api.errors import budget_refusal, namespace_terminating, two_budgets
from simulator.cluster.api.selectors import matches_selector
from simulator.cluster.api.store import copy_of
from simulator.cluster.objects import Obj, condition_is_true, is_finished, is_terminating
from simulator.cluster.state import ClusterState


def share_of(value: int | str, total: int) -> int:
    """An IntOrString of `total`; percentages are rounded up, as the disruption controller does."""
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(int(value[:-1]) * total / 100)
    return int(value)


class Disruption:
    """Updates the status of budgets and decides on evictions."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._store = state.store
        state.reconcilers.append(self.refresh_if_needed)

    def refresh_if_needed(self) -> bool:
        namespaces, self._state.work.budgets = self._state.work.budgets, {}
        if not namespaces:
            return False
        for budget in self._store.all("poddisruptionbudgets"):
            if budget["metadata"]["namespace"] in namespaces:
                self._refresh(budget)
        self._state.work.budgets = {}
        return False

    def budgets_of(self, pod: Obj) -> list[Obj]:
        labels, namespace = pod["metadata"].get("labels", {}), pod["metadata"]["namespace"]
        return [
            budget
            for budget in self._store.all("poddisruptionbudgets")
            if budget["metadata"]["namespace"] == namespace and matches_selector(budget["spec"].get("selector"), labels)
        ]

    def check_eviction(self, pod: Obj) -> None:
        """Raise the refusal of the API, or return when the pod can be evicted."""
        metadata = pod["metadata"]
        namespace = self._store.find("namespaces", "", metadata["namespace"])
        if namespace is not None and is_terminating(namespace):
            raise namespace_terminating("pods", metadata["name"], metadata["namespace"])
        if is_finished(pod) or is_terminating(pod) or pod["status"].get("phase") == "Pending":
            return
        budgets = self.budgets_of(pod)
        if len(budgets) > 1:
            raise two_budgets()
        if budgets:
            self._check_budget(pod, budgets[0])

    def _check_budget(self, pod: Obj, budget: Obj) -> None:
        status, spec = budget["status"], budget["spec"]
        healthy, desired = status["currentHealthy"], status["desiredHealthy"]
        if not condition_is_true(pod, "Ready"):
            always = spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
            if always or (desired > 0 and healthy >= desired):
                return
        if status["disruptionsAllowed"] <= 0:
            raise budget_refusal(budget["metadata"]["name"], desired, healthy)

    def _refresh(self, budget: Obj) -> None:
        namespace, name = budget["metadata"]["namespace"], budget["metadata"]["name"]
        selector = budget["spec"].get("selector")
        pods = [
            pod
            for pod in self._store.all("pods")
            if pod["metadata"]["namespace"] == namespace
            and not is_finished(pod)
            and matches_selector(selector, pod["metadata"].get("labels", {}))
        ]
        healthy = sum(1 for pod in pods if condition_is_true(pod, "Ready") and not is_terminating(pod))
        expected, desired = self._expected(budget["spec"], pods)
        status = {
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "disruptionsAllowed": max(0, healthy - desired) if expected > 0 else 0,
            "expectedPods": expected,
            "observedGeneration": 1,
        }
        self._store.update("poddisruptionbudgets", namespace, name, lambda fresh: fresh.update(status=copy_of(status)))

    def _expected(self, spec: Obj, pods: list[Obj]) -> tuple[int, int]:
        """(expected pods, pods that must stay healthy)."""
        minimum = spec.get("minAvailable")
        if minimum is not None and not isinstance(minimum, str):
            return len(pods), int(minimum)
        expected = self._controller_scale(pods)
        if minimum is not None:
            return expected, share_of(minimum, expected)
        return expected, max(0, expected - share_of(spec.get("maxUnavailable", 1), expected))

    def _controller_scale(self, pods: list[Obj]) -> int:
        scales: dict[str, int] = {}
        for pod in pods:
            facts = self._state.pod_facts(pod)
            resource = {"ReplicaSet": "replicasets", "StatefulSet": "statefulsets"}.get(facts.owner_kind)
            owner = self._store.find(resource, pod["metadata"]["namespace"], facts.owner_name) if resource else None
            scales[facts.owner_uid] = int(owner["spec"]["replicas"]) if owner else 0
        return sum(scales.values())
