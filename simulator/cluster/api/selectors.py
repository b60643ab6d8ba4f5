"""Label selectors, node selector terms and field selectors, as the API server reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.cluster.objects import Obj

Labels = Mapping[str, str]


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


def fields_of(selector: str) -> list[str]:
    """The paths of a field selector."""
    return [part.partition("=")[0] for part in selector.split(",") if part]


def matches_fields(selector: str, obj: Obj) -> bool:
    """PATH=VALUE pairs such as spec.nodeName=NAME, separated by commas; an empty selector matches everything."""
    for part in filter(None, selector.split(",")):
        path, _, wanted = part.partition("=")
        value: Any = obj
        for step in path.split("."):
            value = value.get(step, "") if isinstance(value, dict) else ""
        if str(value) != wanted:
            return False
    return True
