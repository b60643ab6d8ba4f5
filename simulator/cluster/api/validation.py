"""What the API server refuses to store: the checks that a script's mistake would meet. Reason and message are its own.

Only the fields that node-fleet's scripts write, and budgets, are checked.
"""

from __future__ import annotations

import re
from typing import Any, Final

from simulator.cluster.api.errors import ApiError, bad_request
from simulator.cluster.objects import Obj

_KEY: Final = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PERCENTAGE: Final = re.compile(r"[0-9]+%")
_KINDS: Final = {"nodes": "Node", "poddisruptionbudgets": "PodDisruptionBudget.policy"}


def check_types(resource: str, obj: Obj) -> None:
    """Refuse values that do not decode into the object's fields."""
    for field in ("labels", "annotations"):
        for key, value in (obj["metadata"].get(field) or {}).items():
            if not isinstance(value, str):
                raise bad_request(f"unrecognized type: {_json_type(value)} in metadata.{field}[{key}]")
    if resource == "nodes" and not isinstance(obj["spec"].get("unschedulable", False), bool):
        raise bad_request("json: cannot unmarshal string into Go struct field NodeSpec.spec.unschedulable of type bool")


def check_update(resource: str, before: Obj, after: Obj) -> None:
    """Refuse a changed object that is not valid."""
    problems = [
        f'metadata.annotations: Invalid value: "{key}": a qualified name is expected'
        for key in after["metadata"].get("annotations") or {}
        if not _KEY.fullmatch(key)
    ]
    if resource == "nodes":
        known, wanted = before["spec"].get("providerID", ""), after["spec"].get("providerID", "")
        if known and known != wanted:
            problems.append("spec.providerID: Forbidden: node updates may only change labels, taints, or capacity")
    if resource == "poddisruptionbudgets":
        problems += _budget_problems(after["spec"])
    if problems:
        name = after["metadata"]["name"]
        raise ApiError(
            code=422, reason="Invalid", message=f'{_KINDS.get(resource, resource)} "{name}" is invalid: {problems[0]}'
        )


def _budget_problems(spec: Obj) -> list[str]:
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        return ["spec: Invalid value: minAvailable and maxUnavailable cannot be both set"]
    return [
        f'spec.{field}: Invalid value: "{spec[field]}": a valid percent string must be a number followed by %'
        for field in ("minAvailable", "maxUnavailable")
        if isinstance(spec.get(field), str) and not _PERCENTAGE.fullmatch(spec[field])
    ]


def _json_type(value: Any) -> str:
    return "float64" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__
