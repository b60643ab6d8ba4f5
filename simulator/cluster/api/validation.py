"""What the API server refuses to store: the checks that a script's mistake would meet. Reason and message are its own.

Only the fields that node-fleet's scripts write, and budgets, are checked.
"""

from __future__ import annotations

import re
from typing import Final

from simulator.cluster.api.errors import ApiError
from simulator.cluster.objects import Obj

_KEY: Final = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PERCENTAGE: Final = re.compile(r"(100|[0-9]{1,2})%")
_KINDS: Final = {"nodes": "Node", "poddisruptionbudgets": "PodDisruptionBudget.policy"}


def check_update(resource: str, before: Obj, after: Obj) -> None:
    """Refuse a changed object that does not decode or is not valid."""
    problems = [
        f"metadata.{field}[{key}]: Invalid value: {value}: a string is expected"
        for field in ("labels", "annotations")
        for key, value in (after["metadata"].get(field) or {}).items()
        if not isinstance(value, str)
    ]
    problems += [
        f'metadata.annotations: Invalid value: "{key}": a qualified name is expected'
        for key in after["metadata"].get("annotations") or {}
        if not _KEY.fullmatch(key)
    ]
    if resource == "nodes":
        known, wanted = before["spec"].get("providerID", ""), after["spec"].get("providerID", "")
        if known and known != wanted:
            problems.append("spec.providerID: Forbidden: node updates may only change labels, taints, or capacity")
        if not isinstance(after["spec"].get("unschedulable", False), bool):
            problems.append("spec.unschedulable: Invalid value: true or false is expected")
    if resource == "poddisruptionbudgets":
        problems += _budget_problems(after["spec"])
    if problems:
        name = after["metadata"]["name"]
        raise ApiError(
            code=422, reason="Invalid", message=f'{_KINDS.get(resource, resource)} "{name}" is invalid: {problems[0]}'
        )


def check_event(event: Obj) -> None:
    """An Event about an object without a namespace is in the namespace default, every other one beside its object."""
    about = event["involvedObject"].get("namespace") or "default"
    if event["metadata"].get("namespace") != about:
        raise ApiError(
            code=422,
            reason="Invalid",
            message=f'Event "{event["metadata"]["name"]}" is invalid: involvedObject.namespace: Invalid value: '
            f'"{about}": does not match event.namespace',
        )


def version_of(text: str) -> int:
    """The number in a resourceVersion. The API server answers 500 when it is none."""
    try:
        return int(text)
    except ValueError as error:
        raise ApiError(code=500, reason="", message=f'strconv.ParseUint: parsing "{text}": invalid syntax') from error


def _budget_problems(spec: Obj) -> list[str]:
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        return ["spec: Invalid value: minAvailable and maxUnavailable cannot be both set"]
    return [
        f'spec.{field}: Invalid value: "{spec[field]}": a number of at most 100 followed by % is expected'
        for field in ("minAvailable", "maxUnavailable")
        if isinstance(spec.get(field), str) and not _PERCENTAGE.fullmatch(spec[field])
    ]
