"""The discovery documents of the simulated API server: which groups, versions and resources it has."""

from __future__ import annotations

from typing import Any

from simulator.cluster.api.store import RESOURCES, Resource
from simulator.cluster.control.kubelets import K3S_VERSION

VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


def _groups() -> list[str]:
    return sorted({entry.group for entry in RESOURCES.values() if entry.group})


def document(path: str) -> dict[str, Any] | None:
    """The answer to a discovery path, or None when the path is no discovery path."""
    parts = [part for part in path.split("/") if part]
    if parts == ["version"]:
        return {"major": "1", "minor": "33", "gitVersion": K3S_VERSION, "platform": "linux/amd64"}
    if parts == ["api"]:
        return {"kind": "APIVersions", "versions": ["v1"]}
    if parts == ["apis"]:
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in _groups()]}
    if parts == ["api", "v1"]:
        return _resource_list("")
    if len(parts) == 3 and parts[0] == "apis" and parts[1] in _groups() and parts[2] == "v1":
        return _resource_list(parts[1])
    if len(parts) == 2 and parts[0] == "apis" and parts[1] in _groups():
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(parts[1])}
    return None


def _group(name: str) -> dict[str, Any]:
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _resource_list(group: str) -> dict[str, Any]:
    rows = [_row(entry) for entry in RESOURCES.values() if entry.group == group]
    if not group:
        rows.append(
            {
                "name": "pods/eviction",
                "singularName": "",
                "namespaced": True,
                "group": "policy",
                "version": "v1",
                "kind": "Eviction",
                "verbs": ["create"],
            }
        )
        rows.append(
            {
                "name": "nodes/status",
                "singularName": "",
                "namespaced": False,
                "kind": "Node",
                "verbs": ["get", "patch", "update"],
            }
        )
    version = f"{group}/v1" if group else "v1"
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": rows}


def _row(entry: Resource) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": entry.name,
        "singularName": entry.singular,
        "namespaced": entry.namespaced,
        "kind": entry.kind,
        "verbs": VERBS,
    }
    if entry.short_names:
        row["shortNames"] = list(entry.short_names)
    return row
