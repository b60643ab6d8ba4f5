"""What `kubectl get` prints: the columns of each kind, shared by the API's Table answers and the double."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simulator.cluster.objects import (
    LABEL_CONTROL_PLANE,
    Obj,
    condition_is_true,
    epoch_of,
    is_terminating,
    node_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: priority 0 is always shown, 1 only with -o wide."""

    name: str
    value: Callable[[Obj, float], str]
    priority: int = 0


def age(created: str, now: float) -> str:
    """kubectl's short human duration."""
    seconds = max(0, int(now - epoch_of(created)))
    if seconds < 120:
        return f"{seconds}s"
    minutes = seconds // 60
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    return f"{days}d{hours % 24}h" if days < 8 and hours % 24 else f"{days}d"


def _age(obj: Obj, now: float) -> str:
    return age(obj["metadata"]["creationTimestamp"], now)


def _name(obj: Obj, _now: float) -> str:
    return str(obj["metadata"]["name"])


def _node_status(node: Obj, _now: float) -> str:
    ready = "Ready" if condition_is_true(node, "Ready") else "NotReady"
    return f"{ready},SchedulingDisabled" if node["spec"].get("unschedulable") else ready


def _node_roles(node: Obj, _now: float) -> str:
    return "control-plane" if LABEL_CONTROL_PLANE in node["metadata"].get("labels", {}) else "<none>"


def _pod_ready(pod: Obj, _now: float) -> str:
    total = len(pod["spec"].get("containers", ())) or 1
    return f"{total if condition_is_true(pod, 'Ready') else 0}/{total}"


def _pod_status(pod: Obj, _now: float) -> str:
    if is_terminating(pod):
        return "Terminating"
    phase = str(pod["status"].get("phase", "Pending"))
    if phase == "Pending" and node_of(pod):
        return "ContainerCreating"
    return "Completed" if phase == "Succeeded" else phase


def _field(*path: str, default: str = "<none>") -> Callable[[Obj, float], str]:
    def read(obj: Obj, _now: float) -> str:
        value: Any = obj
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        return default if value is None else str(value)

    return read


def _ready_of(obj: Obj, _now: float) -> str:
    return f"{obj.get('status', {}).get('readyReplicas', 0)}/{obj['spec']['replicas']}"


NAME = Column(name="Name", value=_name)
AGE = Column(name="Age", value=_age)

COLUMNS: dict[str, tuple[Column, ...]] = {
    "nodes": (
        NAME,
        Column(name="Status", value=_node_status),
        Column(name="Roles", value=_node_roles),
        AGE,
        Column(name="Version", value=_field("status", "nodeInfo", "kubeletVersion")),
        Column(name="OS-Image", value=_field("status", "nodeInfo", "osImage"), priority=1),
    ),
    "pods": (
        NAME,
        Column(name="Ready", value=_pod_ready),
        Column(name="Status", value=_pod_status),
        Column(name="Restarts", value=lambda _pod, _now: "0"),
        AGE,
        Column(name="Node", value=_field("spec", "nodeName"), priority=1),
    ),
    "namespaces": (NAME, Column(name="Status", value=_field("status", "phase")), AGE),
    "deployments": (
        NAME,
        Column(name="Ready", value=_ready_of),
        Column(name="Up-to-date", value=_field("status", "replicas", default="0")),
        Column(name="Available", value=_field("status", "availableReplicas", default="0")),
        AGE,
    ),
    "statefulsets": (NAME, Column(name="Ready", value=_ready_of), AGE),
    "poddisruptionbudgets": (
        NAME,
        Column(name="Min available", value=_field("spec", "minAvailable", default="N/A")),
        Column(name="Max unavailable", value=_field("spec", "maxUnavailable", default="N/A")),
        Column(name="Allowed disruptions", value=_field("status", "disruptionsAllowed", default="0")),
        AGE,
    ),
    "secrets": (
        NAME,
        Column(name="Type", value=_field("type", default="Opaque")),
        Column(name="Data", value=lambda obj, _now: str(len(obj.get("data", {})))),
        AGE,
    ),
}


def columns_of(resource: str) -> tuple[Column, ...]:
    return COLUMNS.get(resource, (NAME, AGE))


def table_object(resource: str, objects: list[Obj], now: float, version: int) -> Obj:
    """A meta.k8s.io/v1 Table."""
    columns = columns_of(resource)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": str(version)},
        "columnDefinitions": [
            {
                "name": column.name,
                "type": "string",
                "format": "name" if column is NAME else "",
                "description": "",
                "priority": column.priority,
            }
            for column in columns
        ],
        "rows": [_row(columns, obj, now) for obj in objects],
    }


def _row(columns: tuple[Column, ...], obj: Obj, now: float) -> Obj:
    partial = {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }
    return {"cells": [column.value(obj, now) for column in columns], "object": partial}
