"""What the pods that run mean for a pod that waits: affinity, anti-affinity, spread, host ports, other resources.

Written from the documentation of kube-scheduler and apart from node-fleet's own rules, which are tested against it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from simulator.cluster.api.selectors import matches_expression, matches_selector
from simulator.cluster.objects import Obj, is_finished, is_terminating
from simulator.cluster.state import ClusterState

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_COUNTED_ELSEWHERE = ("cpu", "memory", "pods")


def find_conflicts(state: ClusterState, pod: Obj, nodes: list[Obj]) -> dict[str, list[str]]:
    """Node name -> the reasons of kube-scheduler against this pod there."""
    conflicts: dict[str, list[str]] = {}
    if not (has_relations(pod) or state.repelling):
        return conflicts
    running = [(p, n) for n in nodes for p in state.pods_of_node(n["metadata"]["name"]) if not is_finished(p)]
    checks = (_ports, _other_resources, _affinity, _anti_affinity, _repelled, _spread)
    for check in checks:
        for name, reason in check(pod, nodes, running).items():
            conflicts.setdefault(name, []).append(reason)
    return conflicts


def has_relations(pod: Obj) -> bool:
    """Whether what runs elsewhere, or a resource besides CPU and memory, decides where this pod may run."""
    spec = pod["spec"]
    affinity = spec.get("affinity") or {}
    return bool(
        _host_ports(pod)
        or _other_requests(pod)
        or spec.get("topologySpreadConstraints")
        or affinity.get("podAffinity")
        or affinity.get("podAntiAffinity")
    )


Running = list[tuple[Obj, Obj]]
Reasons = dict[str, str]


def _name(node: Obj) -> str:
    return str(node["metadata"]["name"])


def _labels(obj: Obj) -> Mapping[str, str]:
    labels: Mapping[str, str] = obj["metadata"].get("labels") or {}
    return labels


def _host_ports(pod: Obj) -> list[tuple[int, str]]:
    ports = [p for c in pod["spec"].get("containers", ()) for p in c.get("ports", ()) if p.get("hostPort")]
    return [(p["hostPort"], p.get("protocol", "TCP")) for p in ports]


def _ports(pod: Obj, nodes: list[Obj], running: Running) -> Reasons:
    wanted = set(_host_ports(pod))
    taken = {_name(node) for other, node in running if wanted & set(_host_ports(other))}
    return dict.fromkeys(taken, "node(s) didn't have free ports for the requested pod ports")


def _other_requests(pod: Obj) -> Counter[str]:
    total: Counter[str] = Counter()
    for container in pod["spec"].get("containers", ()):
        for resource, quantity in (container.get("resources", {}).get("requests") or {}).items():
            if resource not in _COUNTED_ELSEWHERE:
                total[resource] += int(quantity)
    return total


def _other_resources(pod: Obj, nodes: list[Obj], running: Running) -> Reasons:
    wanted, used = _other_requests(pod), defaultdict[str, Counter[str]](Counter)
    for other, node in running:
        used[_name(node)].update(_other_requests(other))
    return {
        _name(node): f"Insufficient {resource}"
        for node in nodes
        for resource, amount in wanted.items()
        if used[_name(node)][resource] + amount > int(node["status"]["allocatable"].get(resource, 0))
    }


def _terms(pod: Obj, kind: str) -> list[Obj]:
    found: list[Obj] = ((pod["spec"].get("affinity") or {}).get(kind) or {}).get(_REQUIRED) or []
    return found


def _matches(term: Obj, owner: Obj, pod: Obj) -> bool:
    own, selector = owner["metadata"].get("namespace"), term.get("namespaceSelector")
    everywhere = selector is not None and not selector
    listed = term.get("namespaces") or ([] if selector is not None else [own])
    in_namespace = everywhere or pod["metadata"].get("namespace") in listed
    return in_namespace and matches_selector(term.get("labelSelector"), _labels(pod))


def _values(key: str, where: list[Obj]) -> set[str]:
    return {_labels(node)[key] for node in where if key in _labels(node)}


def _affinity(pod: Obj, nodes: list[Obj], running: Running) -> Reasons:
    terms = _terms(pod, "podAffinity")
    if not terms:
        return {}
    beside = [node for other, node in running if all(_matches(t, pod, other) for t in terms)]
    alone = not beside and all(_matches(t, pod, pod) for t in terms)
    reason = "node(s) didn't match pod affinity rules"
    refused = {}
    for node in nodes:
        for term in terms:
            value = _labels(node).get(term["topologyKey"])
            if value is None or not (alone or value in _values(term["topologyKey"], beside)):
                refused[_name(node)] = reason
    return refused


def _anti_affinity(pod: Obj, nodes: list[Obj], running: Running) -> Reasons:
    refused = {}
    for term in _terms(pod, "podAntiAffinity"):
        values = _values(term["topologyKey"], [node for other, node in running if _matches(term, pod, other)])
        for node in nodes:
            if _labels(node).get(term["topologyKey"]) in values:
                refused[_name(node)] = "node(s) didn't match pod anti-affinity rules"
    return refused


def _repelled(pod: Obj, nodes: list[Obj], running: Running) -> Reasons:
    refused = {}
    for other, home in running:
        for term in _terms(other, "podAntiAffinity"):
            value = _labels(home).get(term["topologyKey"])
            if value is not None and _matches(term, other, pod):
                same = [node for node in nodes if _labels(node).get(term["topologyKey"]) == value]
                refused.update({_name(n): "node(s) didn't satisfy existing pods anti-affinity rules" for n in same})
    return refused


def _spread(pod: Obj, nodes: list[Obj], running: Running) -> Reasons:
    constraints = [
        c for c in pod["spec"].get("topologySpreadConstraints") or () if c["whenUnsatisfiable"] == "DoNotSchedule"
    ]
    keys = {c["topologyKey"] for c in constraints}
    eligible = [node for node in nodes if keys <= _labels(node).keys() and _selected(pod, node)]
    refused: dict[str, str] = {}
    for constraint in constraints:
        refused |= _over_skew(pod, constraint, nodes, eligible, running)
    return refused


def _over_skew(pod: Obj, constraint: Obj, nodes: list[Obj], eligible: list[Obj], running: Running) -> Reasons:
    key, namespace = constraint["topologyKey"], pod["metadata"].get("namespace")
    names = {_name(node) for node in eligible}
    counts = Counter({_labels(node)[key]: 0 for node in eligible})
    for other, node in running:
        same = other["metadata"].get("namespace") == namespace and not is_terminating(other)
        if same and _name(node) in names and matches_selector(constraint.get("labelSelector"), _labels(other)):
            counts[_labels(node)[key]] += 1
    least = min(counts.values(), default=0) if len(counts) >= constraint.get("minDomains", 1) else 0
    own = matches_selector(constraint.get("labelSelector"), _labels(pod))
    reason = "node(s) didn't match pod topology spread constraints"
    return {
        _name(node): reason
        for node in nodes
        if key not in _labels(node) or counts[_labels(node)[key]] + own - least > constraint["maxSkew"]
    }


def _selected(pod: Obj, node: Obj) -> bool:
    """A node counts for a spread when the pod's own node selector and required node affinity accept it."""
    spec, labels = pod["spec"], _labels(node)
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    required: Any = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    if required is None:
        return True
    terms = required.get("nodeSelectorTerms", [])
    return any(all(matches_expression(e, labels) for e in term.get("matchExpressions") or ()) for term in terms)
