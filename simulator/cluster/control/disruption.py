"""Disruption budgets and the eviction subresource, with the answers of a real API server.

The status of a budget is current after every change, unless it shares pods with another budget. The sums are those of
the disruption controller (policy/v1).
"""

from __future__ import annotations

import math

from simulator.cluster.api.errors import budget_refusal, namespace_terminating, two_budgets
from simulator.cluster.api.selectors import matches_selector
from simulator.cluster.api.store import copy_of
from simulator.cluster.objects import (
    Obj,
    condition_is_true,
    controller_of,
    is_finished,
    is_terminating,
    key_of,
    set_condition,
)
from simulator.cluster.state import ClusterState


def share_of(value: int | str, total: int) -> int:
    """An IntOrString of `total`; percentages are rounded up, as the disruption controller does."""
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(int(value[:-1]) * total / 100)
    return int(value)


_NOTHING = {"currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}


class UnknownScaleError(Exception):
    """A pod under a budget that counts replicas has a controller without any, such as a Job."""


class Disruption:
    """Updates the status of budgets and decides on evictions."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._store = state.store
        state.reconcilers.append(self.refresh_if_needed)

    def refresh_if_needed(self) -> bool:
        """Refresh the budgets that changed, and one budget of each pod that changed: so the controller does.

        Which one of several budgets it takes is chance; here it is the first by name. The others become stale.
        """
        work = self._state.work
        stale, work.budgets = work.budgets, {}
        pods, work.changed_pods = work.changed_pods, {}
        for pod in pods.values():
            stale.update({key_of(budget): None for budget in self.budgets_of(pod)[:1]})
        for namespace, name in stale:
            budget = self._store.find("poddisruptionbudgets", namespace, name)
            if budget is not None:
                self._refresh(budget)
        work.budgets = {}
        return False

    def budgets_of(self, pod: Obj) -> list[Obj]:
        """By name."""
        labels, namespace = pod["metadata"].get("labels", {}), pod["metadata"]["namespace"]
        found = [
            budget
            for budget in self._store.all("poddisruptionbudgets")
            if budget["metadata"]["namespace"] == namespace and matches_selector(budget["spec"].get("selector"), labels)
        ]
        return sorted(found, key=key_of)

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
            and matches_selector(selector, pod["metadata"].get("labels", {}))
        ]
        try:
            expected, desired = self._expected(budget["spec"], pods)
        except UnknownScaleError as error:
            status = {**_NOTHING, **budget.get("status", {}), "disruptionsAllowed": 0}
            verdict = ("False", "SyncFailed", str(error))
        else:
            healthy = sum(1 for pod in pods if condition_is_true(pod, "Ready") and not is_terminating(pod))
            allowed = max(0, healthy - desired) if expected > 0 else 0
            status = {
                "currentHealthy": healthy,
                "desiredHealthy": desired,
                "disruptionsAllowed": allowed,
                "expectedPods": expected,
                "observedGeneration": 1,
            }
            verdict = ("True", "SufficientPods", "") if allowed else ("False", "InsufficientPods", "")
        now = self._state.now()

        def edit(fresh: Obj) -> None:
            known = fresh.get("status", {}).get("conditions", [])
            fresh["status"] = {**copy_of(status), "conditions": copy_of(known)}
            set_condition(fresh, now, "DisruptionAllowed", *verdict)

        self._store.update("poddisruptionbudgets", namespace, name, edit)

    def _expected(self, spec: Obj, pods: list[Obj]) -> tuple[int, int]:
        """(expected pods, pods that must stay healthy). Raises UnknownScaleError as the controller refuses to count."""
        minimum = spec.get("minAvailable")
        if minimum is not None and not isinstance(minimum, str):
            return len(pods), int(minimum)
        expected = self._controller_scale(pods)
        if minimum is not None:
            return expected, share_of(minimum, expected)
        return expected, max(0, expected - share_of(spec.get("maxUnavailable", 1), expected))

    def _controller_scale(self, pods: list[Obj]) -> int:
        """The sum of the replicas of the pods' controllers. A pod without a controller counts as nothing."""
        scales: dict[str, int] = {}
        for pod in pods:
            owner = controller_of(pod)
            if owner is not None:
                scales[str(owner.get("uid") or owner["name"])] = self._scale_of(pod, owner)
        return sum(scales.values())

    def _scale_of(self, pod: Obj, owner: Obj) -> int:
        resource = {"ReplicaSet": "replicasets", "StatefulSet": "statefulsets"}.get(owner["kind"])
        found = self._store.find(resource, pod["metadata"]["namespace"], owner["name"]) if resource else None
        if found is None:
            name = pod["metadata"]["name"]
            kind = f"{owner['kind'].lower()}s.{owner['apiVersion'].partition('/')[0]}"
            no_scale = f"{kind} does not implement the scale subresource"
            raise UnknownScaleError(f'found no controllers for pod "{name}"' if resource else no_scale)
        return int(found["spec"]["replicas"])
