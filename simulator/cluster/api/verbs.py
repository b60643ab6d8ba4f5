"""The API server's verbs over the world, for whoever speaks: the HTTPS face and the double of kubectl.

Every refusal is an ApiError with Kubernetes' own words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simulator.cluster.api.errors import ApiError, conflict, invalid, not_found
from simulator.cluster.api.patches import apply_patch
from simulator.cluster.api.selectors import parse_field_selector, parse_label_selector
from simulator.cluster.api.store import RESOURCES, copy_of
from simulator.cluster.model import SimulatedCluster
from simulator.cluster.objects import Obj

_PROTECTED = ("uid", "creationTimestamp", "resourceVersion", "name", "namespace", "deletionTimestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What a list or a watch is narrowed to."""

    resource: str
    namespace: str = ""
    name: str = ""
    label_selector: str = ""
    field_selector: str = ""

    def matches(self, obj: Obj) -> bool:
        metadata = obj["metadata"]
        if self.namespace and metadata.get("namespace") != self.namespace:
            return False
        if self.name and metadata["name"] != self.name:
            return False
        if self.label_selector and not parse_label_selector(self.label_selector)(obj):
            return False
        return not self.field_selector or parse_field_selector(self.field_selector)(obj)


class ApiVerbs:
    """Verbs in the name of one actor, who is written on every change."""

    def __init__(self, cluster: SimulatedCluster, actor: str) -> None:
        self._cluster = cluster
        self._actor = actor

    def get(self, resource: str, namespace: str, name: str) -> Obj:
        found = self._cluster.find(resource, namespace, name)
        if found is None:
            raise not_found(resource, name, RESOURCES[resource].group)
        return found

    def list(self, query: Query) -> list[Obj]:
        """In the order of the API server: by namespace and name."""
        found = [obj for obj in self._cluster.objects(query.resource) if query.matches(obj)]
        return sorted(found, key=lambda obj: (obj["metadata"].get("namespace", ""), obj["metadata"]["name"]))

    def create(self, resource: str, namespace: str, obj: Obj) -> Obj:
        fresh = copy_of(obj)
        if RESOURCES[resource].namespaced:
            fresh["metadata"].setdefault("namespace", namespace or "default")
        with self._cluster.changing(self._actor):
            self._cluster.create(resource, fresh)
        return self.get(resource, fresh["metadata"].get("namespace", ""), fresh["metadata"]["name"])

    def patch(self, resource: str, namespace: str, name: str, kind: str, patch: Any) -> Obj:
        """Apply a patch; one that carries a resourceVersion or uid fails when the object has another."""
        current = self.get(resource, namespace, name)
        patched = apply_patch(current, kind, patch)
        self._check_preconditions(resource, current, patched)
        return self._store(resource, current, patched)

    def replace(self, resource: str, namespace: str, name: str, obj: Obj) -> Obj:
        current = self.get(resource, namespace, name)
        self._check_preconditions(resource, current, obj)
        return self._store(resource, current, copy_of(obj))

    def _check_preconditions(self, resource: str, current: Obj, wanted: Obj) -> None:
        name, have, want = current["metadata"]["name"], current["metadata"], wanted["metadata"]
        if want.get("resourceVersion", have["resourceVersion"]) != have["resourceVersion"]:
            why = "the object has been modified; please apply your changes to the latest version and try again"
            raise conflict(resource, name, why)
        if want.get("uid", have["uid"]) != have["uid"]:
            raise conflict(
                resource,
                name,
                f"Precondition failed: UID in precondition: {want['uid']}, UID in object meta: {have['uid']}",
            )
        if want.get("name", name) != name:
            raise invalid(current["kind"], name, "metadata.name: Invalid value: field is immutable")

    def _store(self, resource: str, current: Obj, wanted: Obj) -> Obj:
        metadata = current["metadata"]

        def edit(fresh: Obj) -> None:
            fresh.clear()
            fresh.update(wanted)
            for key in _PROTECTED:
                if key in metadata:
                    fresh["metadata"][key] = metadata[key]
            if "annotations" in fresh["metadata"] and not fresh["metadata"]["annotations"]:
                del fresh["metadata"]["annotations"]

        namespace = metadata.get("namespace", "")
        self._cluster.update(resource, namespace, metadata["name"], edit, actor=self._actor)
        return self.get(resource, namespace, metadata["name"])

    def delete(
        self, resource: str, namespace: str, name: str, *, grace_seconds: float | None = None, uid: str = ""
    ) -> Obj:
        """The object as it was or as it now terminates."""
        found = self.get(resource, namespace, name)
        if uid and found["metadata"]["uid"] != uid:
            raise conflict(
                resource,
                name,
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: {found['metadata']['uid']}",
            )
        return self._cluster.delete(resource, namespace, name, grace_seconds=grace_seconds, actor=self._actor)

    def evict(self, namespace: str, name: str, *, grace_seconds: float | None = None, dry_run: bool = False) -> None:
        self._cluster.evict(namespace, name, grace_seconds=grace_seconds, dry_run=dry_run, actor=self._actor)


__all__ = ["ApiError", "ApiVerbs", "Query"]
