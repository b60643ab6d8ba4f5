"""Label and field selectors, as the API server reads them.

Both the string form (kubectl -l, --field-selector) and the object form (matchLabels, matchExpressions).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from simulator.cluster.api.errors import bad_request
from simulator.cluster.objects import Obj

Labels = Mapping[str, str]

_SET = re.compile(r"^(?P<key>\S+)\s+(?P<op>in|notin)\s+\((?P<values>[^)]*)\)$")
_SPLIT = re.compile(r",(?![^(]*\))")


def matches_selector(selector: Mapping[str, Any] | None, labels: Labels) -> bool:
    """A LabelSelector object; None selects nothing, an empty one everything (policy/v1)."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(matches_expression(entry, labels) for entry in selector.get("matchExpressions") or ())


def matches_expression(entry: Mapping[str, Any], labels: Labels) -> bool:
    """One matchExpressions entry of a label selector or of a node selector term."""
    key, operator, values = entry["key"], entry["operator"], entry.get("values") or []
    value = labels.get(key)
    if operator in ("In", "NotIn"):
        return (value is not None and value in values) is (operator == "In")
    if operator in ("Exists", "DoesNotExist"):
        return (value is not None) is (operator == "Exists")
    if value is None:
        return False
    return int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0])


def parse_label_selector(text: str) -> Callable[[Obj], bool]:
    tests = [_label_test(part.strip()) for part in _SPLIT.split(text) if part.strip()]
    return lambda obj: all(test(obj["metadata"].get("labels", {})) for test in tests)


def _label_test(part: str) -> Callable[[Labels], bool]:
    found = _SET.match(part)
    if found:
        values = [value.strip() for value in found["values"].split(",")]
        entry = {"key": found["key"], "operator": "In" if found["op"] == "in" else "NotIn", "values": values}
        return lambda labels: matches_expression(entry, labels)
    for sign, equal in (("!=", False), ("==", True), ("=", True)):
        key, separator, value = part.partition(sign)
        if separator:
            return lambda labels: (labels.get(key.strip()) == value.strip()) is equal
    if part.startswith("!"):
        return lambda labels: part[1:].strip() not in labels
    return lambda labels: part in labels


def parse_field_selector(text: str) -> Callable[[Obj], bool]:
    """metadata.name, metadata.namespace, spec.nodeName, status.phase and their like."""
    tests = [_field_test(part.strip()) for part in text.split(",") if part.strip()]
    return lambda obj: all(test(obj) for test in tests)


def _field_test(part: str) -> Callable[[Obj], bool]:
    for sign, equal in (("!=", False), ("==", True), ("=", True)):
        path, separator, value = part.partition(sign)
        if separator:
            steps = path.strip().split(".")
            return lambda obj: (_field(obj, steps) == value.strip()) is equal
    raise bad_request(f"invalid field selector {part!r}: expected PATH=VALUE")


def _field(obj: Obj, steps: list[str]) -> str:
    value: Any = obj
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
