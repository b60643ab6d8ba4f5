"""Whether pods fit on nodes at the same time: the hard predicates of the Kubernetes scheduler, over plain values.

The server's commands judge with it the pods of a worker that may be removed; Decide judges pending pods against the
workers that a launch would add. It calls nothing and needs only the standard library of Python 3.9.
"""

import functools
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from node_fleet.domain.fit.demand import CORDON, Demand, any_term_holds, selects, tolerates

_REPELLING = ("NoSchedule", "NoExecute")


class Pod:
    """One pod with its demand.

    place: equal for pods that the same nodes accept, as far as no other pod matters. is_plain: where it may run does
    not depend on other pods, unless they repel it.
    """

    def __init__(self, name: str, demand: Demand) -> None:
        self.name = name
        self.demand = demand
        self.requests: dict[str, int] = demand["requests"]
        self.place = repr((demand.get("terms"), demand.get("tolerations")))
        self.is_plain = not demand.keys() & {"ports", "affinity", "anti", "spread"}

    @functools.cached_property
    def identity(self) -> str:
        """Equal for pods that the same terms of other pods select."""
        return repr((self.demand.get("namespace"), self.demand.get("labels")))

    def matches(self, term: Mapping[str, Any]) -> bool:
        """Whether a term of pod affinity or anti-affinity selects this pod."""
        demand, namespaces = self.demand, term["namespaces"]
        namespace = demand.get("namespace", "")
        return (not namespaces or namespace in namespaces) and selects(term["selector"], demand.get("labels") or {})


class Node:
    """One node. is_open: pods may be placed on it. free: what its pods leave of the allocatable amounts."""

    def __init__(
        self,
        name: str,
        labels: Mapping[str, str],
        allocatable: Mapping[str, int],
        taints: Iterable[Mapping[str, Any]] = (),
        is_open: bool = True,
    ) -> None:
        self.name = name
        self.labels = labels
        self.allocatable = allocatable
        self.free = dict(allocatable)
        self.taints = [taint for taint in taints if taint.get("effect") in _REPELLING]
        self.is_open = is_open
        self.pods: list[Pod] = []
        self.load = -2.0
        """The scheduler prefers the least loaded node, by the shares of CPU and memory that are requested."""

    def take(self, pod: Pod, count: int) -> None:
        """Subtract what so many of these pods request."""
        for resource, amount in pod.requests.items():
            self.free[resource] = self.free.get(resource, 0) - amount * count
        self.load = -sum(self.free[r] / self.allocatable[r] for r in ("cpu", "memory") if self.allocatable.get(r))

    def refuses_ports(self, pod: Pod) -> bool:
        """Whether a pod of this node holds a host port that the pod needs."""
        held = [port for other in self.pods for port in other.demand.get("ports", ())]
        return any(_collide(one, other) for one in pod.demand.get("ports", ()) for other in held)


def _collide(one: Sequence[Any], other: Sequence[Any]) -> bool:
    everywhere = ("", "0.0.0.0")
    same_address = one[2] == other[2] or one[2] in everywhere or other[2] in everywhere
    return list(one[:2]) == list(other[:2]) and same_address


class Misfit:
    """Why a pod fits on no node. requested, free: amounts as text, when the predicate is a resource.

    together: the pod fits alone, but not beside the others that must be placed at the same time.
    """

    def __init__(self, pod: str, predicate: str, requested: str = "", free: str = "") -> None:
        self.pod = pod
        self.predicate = predicate
        self.requested = requested
        self.free = free
        self.together = False


Rule = tuple[str, str, Any, Any, bool]
"""A condition on a node's label: (predicate, label, allowed values or None, refused values, the label must exist)."""


class Tally:
    """How many pods of each node match all of some terms."""

    def __init__(self, terms: Sequence[Mapping[str, Any]]) -> None:
        self.terms = terms
        self.counts: Counter[Node] = Counter()
        self._known: dict[str, bool] = {}

    def matches(self, pod: Pod) -> bool:
        """Whether the pod matches; judged once for equal namespace and labels."""
        if pod.identity not in self._known:
            self._known[pod.identity] = all(map(pod.matches, self.terms))
        return self._known[pod.identity]


class Placement:
    """Pods on nodes, and whether more pods fit. Adding and removing keeps every count."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes = list(nodes)
        self._fixed: dict[str, dict[Node, str]] = defaultdict(dict)
        self._anti: dict[str, tuple[Mapping[str, Any], Counter[Node]]] = {}
        self._tallies: dict[str, Tally] = {}
        self.leaving: list[tuple[Pod, Node]] = []
        """Placed pods that are being deleted: they hold what they requested and do not count for a spread."""

    def add(self, pod: Pod, node: Node, count: int = 1) -> None:
        """Place so many equal pods on the node."""
        node.pods += [pod] * count
        self._account(pod, node, count)

    def remove(self, pod: Pod, node: Node) -> None:
        """Take one pod off the node."""
        node.pods.remove(pod)
        self._account(pod, node, -1)

    def _account(self, pod: Pod, node: Node, count: int) -> None:
        node.take(pod, count)
        for term in pod.demand.get("anti", ()):
            self._anti.setdefault(json.dumps(term), (term, Counter()))[1][node] += count
        for tally in self._tallies.values():
            if tally.matches(pod):
                tally.counts[node] += count

    def fill(self, pod: Pod, node: Node, count: int) -> int:
        """Place as many of `count` equal pods as fit on the node. Returns the number."""
        for resource, amount in pod.requests.items():
            free = node.free.get(resource, 0)
            if free < amount:  # most nodes of a packing are full: the other predicates are not asked
                return 0
            count = min(count, free // amount)
        rules = self.rules_for(pod)
        if pod.is_plain and not rules:
            placed = 0 if self._fixed_refusal(pod, node) or not node.is_open else count
            if placed:
                self.add(pod, node, placed)
            return placed
        placed = 0
        while placed < count and not self.refusal(pod, node, rules):
            self.add(pod, node)
            placed, rules = placed + 1, self.rules_for(pod)
        return placed

    def refusal(self, pod: Pod, node: Node, rules: Sequence[Rule]) -> str:
        """The first predicate that refuses the pod on the node; empty when it fits. rules: rules_for() the pod."""
        if not node.is_open:
            return "nodes"
        if fixed := self._fixed_refusal(pod, node):
            return fixed
        for resource, amount in pod.requests.items():
            if amount > node.free.get(resource, 0):
                return resource
        if "ports" in pod.demand and node.refuses_ports(pod):
            return "ports"
        return _refusal_by_rules(node, rules)

    def refusal_by_pods(self, pod: Pod, new: Node) -> str:
        """The predicate by which the pods that run refuse the pod on a new, empty node; empty when they do not."""
        self.nodes.append(new)
        try:
            return _refusal_by_rules(new, self.rules_for(pod))
        finally:
            self.nodes.pop()

    def _fixed_refusal(self, pod: Pod, node: Node) -> str:
        """The predicates that depend on no other pod, judged once for each kind of pod and node."""
        known = self._fixed[pod.place]
        if node not in known:
            known[node] = self._judge_fixed(pod, node)
        return known[node]

    def _judge_fixed(self, pod: Pod, node: Node) -> str:
        tolerations = pod.demand.get("tolerations", ())
        if not all(tolerates(tolerations, taint) for taint in node.taints):
            return "taints"
        for predicate, terms in pod.demand.get("terms", ()):
            if not any_term_holds(terms, node.labels, node.name):
                return str(predicate)
        return ""

    def rules_for(self, pod: Pod) -> list[Rule]:
        """What the pods that are placed mean for this one, as conditions on the labels of a node."""
        rules: list[Rule] = []
        if not pod.is_plain:
            rules += self._affinity_rules(pod) + self._spread_rules(pod)
            for term in pod.demand.get("anti", ()):
                matching = self._tally([term]).counts
                rules.append(("anti-affinity", term["key"], None, set(_domains(term["key"], matching)), False))
        for term, holders in self._anti.values():
            if pod.matches(term):
                rules.append(("anti-affinity", term["key"], None, set(_domains(term["key"], holders)), False))
        return rules

    def _tally(self, terms: Sequence[Mapping[str, Any]]) -> "Tally":
        """How many pods of each node match every term; counted once and then kept."""
        key = json.dumps([[term["selector"], term["namespaces"]] for term in terms])
        if key not in self._tallies:
            tally = self._tallies[key] = Tally(terms)
            for node in self.nodes:
                tally.counts[node] = sum(map(tally.matches, node.pods))
        return self._tallies[key]

    def _affinity_rules(self, pod: Pod) -> list[Rule]:
        """Pods count that match every term. The first pod of a group that matches itself may start anywhere."""
        terms = pod.demand.get("affinity", ())
        if not terms:
            return []
        matching = self._tally(terms).counts
        starts = not any(matching.values()) and all(map(pod.matches, terms))
        return [
            ("pod-affinity", term["key"], None if starts else set(_domains(term["key"], matching)), (), True)
            for term in terms
        ]

    def _spread_rules(self, pod: Pod) -> list[Rule]:
        """A value is refused where one more pod would exceed the skew over the least used value."""
        constraints, rules = pod.demand.get("spread", ()), []
        for constraint in constraints:
            term = {**constraint, "namespaces": [pod.demand.get("namespace", "")]}
            counts: Counter[str] = Counter()
            tally = self._tally([term])
            ending = Counter(node for other, node in self.leaving if tally.matches(other))
            for node in self.nodes:
                if all(c["key"] in node.labels for c in constraints) and self._is_domain(pod, node, constraint):
                    counts[node.labels[constraint["key"]]] += tally.counts[node] - ending[node]
            least = min(counts.values(), default=0) if len(counts) >= constraint["domains"] else 0
            own = pod.matches(term)
            refused = {value for value, count in counts.items() if count + own - least > constraint["most"]}
            rules.append(("spread", constraint["key"], None, refused, True))
        return rules

    def _is_domain(self, pod: Pod, node: Node, constraint: Mapping[str, Any]) -> bool:
        """Whether a node counts for a spread constraint. A cordoned node does, unless the constraint honors taints."""
        if constraint["affinity"]:
            terms = (t for predicate, t in pod.demand.get("terms", ()) if predicate == "affinity")
            if not all(any_term_holds(t, node.labels, node.name) for t in terms):
                return False
        taints = node.taints if node.is_open else [*node.taints, CORDON]
        return not constraint["taints"] or all(tolerates(pod.demand.get("tolerations", ()), t) for t in taints)

    def misfit(self, pods: Sequence[Pod], nodes: Sequence[Node]) -> "Misfit | None":
        """Why these pods do not fit on the nodes at the same time; None when they do. Nothing stays placed.

        The order in which they reach the scheduler is not known. Unless no order can fail, they must fit with the
        largest first, with the smallest first, and in the order of the list from both ends.
        """
        if self.is_certain(pods, nodes):
            return None
        largest_first = sorted(pods, key=_size, reverse=True)
        orders = {tuple(o) for o in (largest_first, largest_first[::-1], pods, pods[::-1])}
        for ordered in sorted(orders, key=lambda order: [pod.name for pod in order]):
            placed, failed = self._place(ordered, nodes)
            found = self.explain(failed, nodes) if failed else None
            for pod, node in placed:
                self.remove(pod, node)
            if failed and found:
                rules = self.rules_for(failed)
                found.together = not all(self.refusal(failed, node, rules) for node in nodes)
                return found
        return None

    def _place(self, pods: Sequence[Pod], nodes: Sequence[Node]) -> "tuple[list[tuple[Pod, Node]], Pod | None]":
        """Place each pod on the least loaded node, as the scheduler prefers. Returns what was placed, and the first
        pod that fits nowhere. A pod that must run beside others is tried again after them.
        """
        placed: list[tuple[Pod, Node]] = []
        waiting = list(pods)
        while waiting:
            later = []
            for pod in waiting:
                rules = self.rules_for(pod)
                for node in sorted(nodes, key=_load):
                    if not self.refusal(pod, node, rules):
                        self.add(pod, node)
                        placed.append((pod, node))
                        break
                else:
                    if "affinity" not in pod.demand:
                        return placed, pod
                    later.append(pod)
            if len(later) == len(waiting):
                return placed, later[0]
            waiting = later
        return placed, None

    def is_certain(self, pods: Sequence[Pod], nodes: Sequence[Node]) -> bool:
        """Whether the pods fit in any order and with any choice, even when some of them move several times.

        A pod can be refused only if the others fill every node that accepts it. With each resource they can fill at
        most so many of these nodes; with more nodes than that, one always has enough for the pod.
        """
        if not all(pod.is_plain and not self.rules_for(pod) for pod in pods):
            return False
        total: Counter[str] = Counter()
        for pod in pods:
            total.update(pod.requests)
        for pod in {(each.place, json.dumps(each.requests)): each for each in pods}.values():
            accepting = [node for node in nodes if not self.refusal(pod, node, ())]
            filled = 0
            for resource, amount in pod.requests.items():
                left = total[resource] - amount
                for gap in sorted(node.free[resource] - amount + 1 for node in accepting):
                    left -= gap
                    if left < 0:
                        break
                    filled += 1
            if filled >= len(accepting):
                return False
        return True

    def explain(self, pod: Pod, nodes: Sequence[Node]) -> Misfit:
        """The predicate that refuses the pod on most nodes, with the amounts when it is a resource."""
        rules = self.rules_for(pod)
        found = Counter(self.refusal(pod, node, rules) for node in nodes)
        predicate = found.most_common(1)[0][0] if found else "nodes"
        if predicate not in pod.requests:
            return Misfit(pod.name, predicate)
        most = max(n.free.get(predicate, 0) for n in nodes if self.refusal(pod, n, rules) == predicate)
        requested = pod.requests[predicate]
        return Misfit(pod.name, predicate, text_of(predicate, requested), text_of(predicate, max(0, most)))


def _refusal_by_rules(node: Node, rules: Sequence[Rule]) -> str:
    for predicate, key, allowed, refused, must_exist in rules:
        value = node.labels.get(key)
        if value is None and not must_exist:
            continue
        if value is None or value in refused or (allowed is not None and value not in allowed):
            return predicate
    return ""


def _load(node: Node) -> tuple[float, str]:
    return node.load, node.name


def _size(pod: Pod) -> tuple[int, int]:
    return pod.requests.get("cpu", 0), pod.requests.get("memory", 0)


def _domains(key: str, counts: "Counter[Node]") -> list[str]:
    """The values of a label on the nodes that have a count."""
    return [node.labels[key] for node, count in counts.items() if count > 0 and key in node.labels]


def text_of(resource: str, amount: int) -> str:
    """An amount as people write it: 1000m of cpu, 512Mi of memory, a number of anything else."""
    if resource == "cpu":
        return f"{amount}m"
    if resource in ("memory", "ephemeral-storage"):
        return f"{amount / 1024**2:.0f}Mi"
    return str(amount)
