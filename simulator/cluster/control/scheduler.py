"""Binding pending pods to nodes as kube-scheduler does: filters, then the least allocated node.

`find_refusals` is the pure part: the reasons of kube-scheduler against one pod on one node, in its words.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from simulator.cluster.api.selectors import matches_expression
from simulator.cluster.control.relations import find_conflicts, has_relations
from simulator.cluster.control.volumes import bind_local_claims, claim_problem, volume_node_terms
from simulator.cluster.objects import (
    TAINT_UNSCHEDULABLE,
    Obj,
    PodFacts,
    condition,
    cpu_milli,
    is_gated,
    key_of,
    memory_mib,
    set_condition,
    tolerates,
)
from simulator.cluster.state import ClusterState, PodKey

_BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")


@dataclass(slots=True, kw_only=True)
class NodeCapacity:
    """The allocatable capacity of a node and the requests of its pods."""

    node: Obj
    cpu_milli: int
    memory_mib: float
    max_pods: int
    used_cpu_milli: int = 0
    used_memory_mib: float = 0.0
    used_pods: int = 0

    @property
    def name(self) -> str:
        return str(self.node["metadata"]["name"])

    def add(self, facts: PodFacts) -> None:
        self.used_cpu_milli += facts.cpu_milli
        self.used_memory_mib += facts.memory_mib
        self.used_pods += 1

    def allocated_after(self, facts: PodFacts) -> float:
        cpu = (self.used_cpu_milli + facts.cpu_milli) / max(1, self.cpu_milli)
        memory = (self.used_memory_mib + facts.memory_mib) / max(1.0, self.memory_mib)
        return cpu + memory


def capacity_of_node(state: ClusterState, node: Obj) -> NodeCapacity:
    allocatable = node["status"]["allocatable"]
    used_cpu, used_memory, used_pods = state.requested_on(node["metadata"]["name"])
    return NodeCapacity(
        node=node,
        cpu_milli=cpu_milli(allocatable["cpu"]),
        memory_mib=memory_mib(allocatable["memory"]),
        max_pods=int(allocatable["pods"]),
        used_cpu_milli=used_cpu,
        used_memory_mib=used_memory,
        used_pods=used_pods,
    )


def find_refusals(
    pod: Obj, facts: PodFacts, capacity: NodeCapacity, volume_terms: list[list[Obj]] | None = None
) -> list[str]:
    """The reasons against this pod on this node; empty when it fits."""
    spec, node = pod["spec"], capacity.node
    tolerations = spec.get("tolerations", ())
    if node["spec"].get("unschedulable") and not tolerates(tolerations, _CORDONED):
        return ["node(s) were unschedulable"]
    for taint in node["spec"].get("taints", ()):
        if taint["effect"] in _BLOCKING_EFFECTS and not tolerates(tolerations, taint):
            return [f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"]
    if not _selected(spec, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    if any(not _any_term(terms, node) for terms in volume_terms or ()):
        return ["node(s) didn't match PersistentVolume's node affinity"]
    return _shortages(facts, capacity)


_CORDONED = {"key": TAINT_UNSCHEDULABLE, "effect": "NoSchedule"}


def _shortages(facts: PodFacts, capacity: NodeCapacity) -> list[str]:
    reasons = []
    if capacity.used_pods + 1 > capacity.max_pods:
        reasons.append("Too many pods")
    if facts.cpu_milli and capacity.used_cpu_milli + facts.cpu_milli > capacity.cpu_milli:
        reasons.append("Insufficient cpu")
    if facts.memory_mib and capacity.used_memory_mib + facts.memory_mib > capacity.memory_mib + 1e-9:
        reasons.append("Insufficient memory")
    return reasons


def _selected(spec: Obj, node: Obj) -> bool:
    labels = node["metadata"].get("labels", {})
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or _any_term(required.get("nodeSelectorTerms", []), node)


def _any_term(terms: list[Obj], node: Obj) -> bool:
    return any(_term_matches(term, node) for term in terms)


def _term_matches(term: Obj, node: Obj) -> bool:
    labels = node["metadata"].get("labels", {})
    fields = {"metadata.name": node["metadata"]["name"]}
    expressions, field_terms = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not field_terms:
        return False
    return all(matches_expression(entry, labels) for entry in expressions) and all(
        matches_expression(entry, fields) for entry in field_terms
    )


def unschedulable_message(reasons: Counter[str], nodes: int) -> str:
    if not nodes:
        return "no nodes available to schedule pods"
    parts = sorted(f"{count} {reason}" for reason, count in reasons.items())
    return f"0/{nodes} nodes are available: {', '.join(parts)}."


class Scheduler:
    """Tries every pending pod again after each change that can make it fit."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        state.reconcilers.append(self.run_if_needed)

    def run_if_needed(self) -> bool:
        if not self._state.work.schedule:
            return False
        self._state.work.schedule = False
        if self._state.pending:
            self._run()
        return True

    def _run(self) -> None:
        state = self._state
        capacities = [capacity_of_node(state, node) for node in state.store.all("nodes")]
        refused: dict[Any, str] = {}
        for key in self._queue():
            pod = state.store.get("pods", *key)
            signature = _signature(pod)
            message = refused.get(signature)
            if message is None:
                message = self._place(pod, capacities)
            if message:
                refused[signature] = message
                self._mark_unschedulable(key, message)

    def _queue(self) -> list[PodKey]:
        def order(key: PodKey) -> tuple[int, str]:
            pod = self._state.store.get("pods", *key)
            return -int(pod["spec"].get("priority", 0)), pod["metadata"]["creationTimestamp"]

        return sorted(self._state.pending, key=order)

    def _place(self, pod: Obj, capacities: list[NodeCapacity]) -> str:
        """Bind the pod to its best node and return an empty text, or return why it fits no node."""
        facts = self._state.pod_facts(pod)
        problem = claim_problem(self._state.store, pod)
        if problem:
            return f"0/{len(capacities)} nodes are available: {problem}."
        volume_terms = volume_node_terms(self._state.store, pod)
        conflicts = find_conflicts(self._state, pod, [capacity.node for capacity in capacities])
        fitting, reasons = [], Counter[str]()
        for capacity in capacities:
            refusals = find_refusals(pod, facts, capacity, volume_terms) or conflicts.get(capacity.name, [])
            reasons.update(refusals)
            if not refusals:
                fitting.append(capacity)
        if not fitting:
            return unschedulable_message(reasons, len(capacities))
        best = min(fitting, key=lambda capacity: (capacity.allocated_after(facts), capacity.name))
        best.add(facts)
        self._bind(pod, best.node)
        return ""

    def _bind(self, pod: Obj, node: Obj) -> None:
        now, name = self._state.now(), node["metadata"]["name"]

        def edit(fresh: Obj) -> None:
            fresh["spec"]["nodeName"] = name
            set_condition(fresh, now, "PodScheduled", "True")

        bind_local_claims(self._state.store, pod, node)
        metadata = pod["metadata"]
        self._state.store.update("pods", metadata["namespace"], metadata["name"], edit)

    def _mark_unschedulable(self, key: PodKey, message: str) -> None:
        pod = self._state.store.get("pods", *key)
        known = condition(pod, "PodScheduled")
        if known and known.get("message") == message and known["status"] == "False":
            return
        now = self._state.now()
        self._state.store.update(
            "pods",
            *key,
            lambda fresh: set_condition(fresh, now, "PodScheduled", "False", "Unschedulable", message),
        )
        self._state.work.schedule = False


def mark_gated(pod: Obj, now: float) -> None:
    """Set the condition that the API server sets on a pod with scheduling gates."""
    if is_gated(pod):
        set_condition(
            pod,
            now,
            "PodScheduled",
            "False",
            "SchedulingGated",
            "Scheduling is blocked due to non-empty scheduling gates",
        )


def _signature(pod: Obj) -> Any:
    """Pods with the same signature fit the same nodes; where one pod decides about the next, each has its own."""
    if has_relations(pod):
        return key_of(pod)
    spec = pod["spec"]
    volumes = tuple(
        volume["persistentVolumeClaim"]["claimName"]
        for volume in spec.get("volumes", ())
        if "persistentVolumeClaim" in volume
    )
    shape = {key: spec.get(key) for key in ("nodeSelector", "affinity", "tolerations", "containers")}
    owner = pod["metadata"].get("ownerReferences", [{}])[0].get("uid")
    return (owner, volumes) if owner else (repr(shape), volumes)
