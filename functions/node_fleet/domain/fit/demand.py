"""What one pod demands of a node, read from an object of the Kubernetes API, and how labels and taints answer it.

Only hard demands: preferred affinity, ScheduleAnyway and PreferNoSchedule are left out. What cannot be judged raises
ValueError. The server's commands contain this file: it needs only the standard library of Python 3.9.
"""

import functools
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

Demand = dict[str, Any]
"""What one pod demands of a node, as JSON: see demand_of(). Empty parts are left out."""

UNREADABLE = (AttributeError, KeyError, TypeError, ValueError)
"""What an object of an unexpected shape raises when it is read."""
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_MOST_DIGITS = 18
_WHOLE = re.compile(r"[+-]?[0-9]+")
_QUANTITY = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)([A-Za-z]*)")
"""The grammar of the API: digits with a point anywhere but alone, an exponent or a suffix."""
_UNITS = {
    **{suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate(("n", "u", "m", "", "k", "M", "G", "T"), -3)},
    **{suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
    "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18,
}


@functools.lru_cache(maxsize=4096)
def amount_of(resource: str, quantity: str) -> int:
    """A Kubernetes quantity, rounded up: millicores of cpu, bytes or pieces of every other resource."""
    found = _QUANTITY.fullmatch(quantity)
    if found is None or found[2] not in _UNITS:
        raise ValueError(f"{quantity!r:.80} is not a quantity")
    number = Decimal(found[1])
    if number.adjusted() > _MOST_DIGITS:
        raise ValueError(f"{quantity!r:.80} is larger than any quantity of Kubernetes")
    return math.ceil(number * _UNITS[found[2]] * (1000 if resource == "cpu" else 1))


def requests_of(spec: Mapping[str, Any]) -> dict[str, int]:
    """The requests of a pod: its containers and sidecars, or its largest init step if more; plus its overhead."""
    beside: Counter[str] = Counter()
    largest: Counter[str] = Counter()
    for container in spec.get("initContainers") or ():
        own = _requested(container)
        if container.get("restartPolicy") == "Always":
            beside += own
            own = Counter()
        largest |= own + beside
    total = sum(map(_requested, spec.get("containers") or ()), beside) | largest
    total.update({r: n - total[r] for r, n in _requested(spec).items()})  # requests of the whole pod take precedence
    total.update({r: amount_of(r, str(q)) for r, q in (spec.get("overhead") or {}).items()})
    return {"pods": 1, **{r: n for r, n in total.items() if n > 0}}


def _requested(container: Mapping[str, Any]) -> "Counter[str]":
    resources = container.get("resources") or {}
    listed = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return Counter({resource: amount_of(resource, str(quantity)) for resource, quantity in listed.items()})


def demand_of(pod: Mapping[str, Any], volumes: Sequence[Any] = ()) -> Demand:
    """The demand of a pod. volumes: for each of its volumes node selector terms, one of which must hold."""
    spec, metadata = pod["spec"], pod["metadata"]
    affinity = spec.get("affinity") or {}
    required = (affinity.get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    terms = [["affinity", required.get("nodeSelectorTerms") or []]] if required else []
    if spec.get("nodeSelector"):
        expressions = [{"key": k, "operator": "In", "values": [v]} for k, v in sorted(spec["nodeSelector"].items())]
        terms.append(["affinity", [{"matchExpressions": expressions}]])
    namespace, labels = metadata.get("namespace") or "", metadata.get("labels") or {}
    parts = {
        "terms": [*terms, *(["volume", each] for each in volumes)],
        "tolerations": [
            {k: t[k] for k in ("key", "operator", "value", "effect") if t.get(k)} for t in spec.get("tolerations") or ()
        ],
        "ports": _host_ports(spec),
        "affinity": [_pod_term(t, namespace) for t in _required_terms(affinity, "podAffinity")],
        "anti": [_pod_term(t, namespace, is_anti=True) for t in _required_terms(affinity, "podAntiAffinity")],
        "spread": [
            _spread(c, labels)
            for c in spec.get("topologySpreadConstraints") or ()
            if c.get("whenUnsatisfiable") != "ScheduleAnyway"
        ],
        "namespace": namespace,
        "labels": labels,
    }
    return {"requests": requests_of(spec), **{name: part for name, part in parts.items() if part}}


def _host_ports(spec: Mapping[str, Any]) -> list[list[Any]]:
    sidecars = [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    ports = [p for c in [*(spec.get("containers") or ()), *sidecars] for p in c.get("ports") or ()]
    return [[p["hostPort"], p.get("protocol") or "TCP", p.get("hostIP") or ""] for p in ports if p.get("hostPort")]


def _required_terms(affinity: Mapping[str, Any], kind: str) -> list[Any]:
    return (affinity.get(kind) or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or []


def _pod_term(term: Mapping[str, Any], namespace: str, *, is_anti: bool = False) -> dict[str, Any]:
    """namespaces: the empty list means every namespace, which for anti-affinity is the careful answer."""
    selector, namespaces = term.get("namespaceSelector"), term.get("namespaces") or []
    if selector and not is_anti:
        raise ValueError("its affinity selects namespaces by their labels")
    listed = [] if selector is not None else sorted(namespaces or [namespace])
    return {"key": term["topologyKey"], "selector": term.get("labelSelector"), "namespaces": listed}


def _spread(constraint: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    selector = constraint.get("labelSelector")
    same = [k for k in constraint.get("matchLabelKeys") or () if k in labels]
    if same and selector is not None:
        expressions = [{"key": k, "operator": "In", "values": [labels[k]]} for k in same]
        selector = {**selector, "matchExpressions": [*(selector.get("matchExpressions") or ()), *expressions]}
    return {
        "key": constraint["topologyKey"],
        "selector": selector,
        "most": constraint["maxSkew"],
        "domains": constraint.get("minDomains") or 1,
        "affinity": constraint.get("nodeAffinityPolicy") != "Ignore",
        "taints": constraint.get("nodeTaintsPolicy") == "Honor",
    }


def selects(selector: "Mapping[str, Any] | None", labels: Mapping[str, str]) -> bool:
    """Kubernetes' label selector: absent selects nothing, empty selects everything."""
    if selector is None or any(labels.get(k) != v for k, v in (selector.get("matchLabels") or {}).items()):
        return False
    return all(expression_holds(each, labels) for each in selector.get("matchExpressions") or ())


def expression_holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """One requirement of a label selector or of a node selector."""
    value, operator, values = labels.get(expression["key"]), expression["operator"], expression.get("values") or []
    if operator in ("In", "NotIn"):
        return (value is not None and value in values) is (operator == "In")
    if operator in ("Exists", "DoesNotExist"):
        return (value is not None) is (operator == "Exists")
    if operator in ("Gt", "Lt"):
        if value is None or not _WHOLE.fullmatch(value):
            return False  # as the scheduler does with a label that is not a whole number
        sign = 1 if operator == "Gt" else -1
        return sign * int(value) > sign * int(values[0])
    raise ValueError(f"the operator {operator} is unknown")


def any_term_holds(terms: Iterable[Mapping[str, Any]], labels: Mapping[str, str], name: str) -> bool:
    """Node selector terms: one must hold with all its expressions. A term without any holds nowhere."""
    for term in terms:
        by_label, by_field = term.get("matchExpressions") or (), term.get("matchFields") or ()
        expressions = [(e, labels) for e in by_label] + [(e, {"metadata.name": name}) for e in by_field]
        if expressions and all(expression_holds(e, of) for e, of in expressions):
            return True
    return False


def tolerates(tolerations: Iterable[Mapping[str, Any]], taint: Mapping[str, Any]) -> bool:
    """Whether one of the tolerations matches the taint."""
    return any(_tolerates(each, taint) for each in tolerations)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    key, operator = toleration.get("key") or "", toleration.get("operator") or "Equal"
    if toleration.get("effect") not in (None, "", taint.get("effect")) or key not in ("", taint["key"]):
        return False
    same_value = (toleration.get("value") or "") == (taint.get("value") or "")
    return operator == "Exists" or bool(operator == "Equal" and key and same_value)
