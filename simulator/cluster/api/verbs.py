"""The verbs of the Kubernetes API that kubectl uses for node-fleet's scripts: read, create, replace, patch,
delete and evict.

Every refusal is an ApiError with the status, the reason and the message of Kubernetes 1.35.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, urlsplit

from node_fleet.domain.model.value_class import value_class
from simulator.cluster.api.errors import ApiError, bad_request, conflict, not_found
from simulator.cluster.api.selectors import fields_of, matches_fields
from simulator.cluster.api.store import RESOURCES, ObjectStore, copy_of
from simulator.cluster.api.validation import check_event, check_update, version_of
from simulator.cluster.objects import Obj

_READ_ONLY: Final = ("uid", "creationTimestamp", "resourceVersion", "name", "namespace", "deletionTimestamp")
_BY_NAME: Final = frozenset({"metadata.name", "metadata.namespace"})
_SELECTABLE: Final = {
    "pods": _BY_NAME | {"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "status.phase", "status.podIP"},
    "nodes": _BY_NAME | {"spec.unschedulable"},
}
"""The fields that a list can be narrowed by."""
_PATH: Final = re.compile(
    r"^/(?:api|apis/(?P<group>[^/]+))/v1(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<resource>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<subresource>[a-z]+))?$"
)


class Cluster(Protocol):
    """The operations of the simulated cluster that the verbs are translated to."""

    store: ObjectStore

    def find(self, resource: str, namespace: str, name: str) -> Obj | None: ...

    def objects(self, resource: str, namespace: str = "") -> list[Obj]: ...

    def create(self, resource: str, obj: Obj, *, actor: str | None = None) -> Obj: ...

    def update(
        self, resource: str, namespace: str, name: str, edit: Callable[[Obj], None], *, actor: str | None = None
    ) -> Obj: ...

    def delete(self, resource: str, namespace: str, name: str, *, actor: str | None = None) -> Obj: ...

    def evict(self, namespace: str, name: str, *, actor: str | None = None) -> None: ...


@value_class
class Target:
    """The object or the list that a request path names; without a name it is a list."""

    resource: str
    namespace: str
    name: str
    subresource: str


def parse_target(path: str) -> Target:
    found = _PATH.match(path)
    if not found or found["resource"] not in RESOURCES or RESOURCES[found["resource"]].group != (found["group"] or ""):
        raise ApiError(code=404, reason="NotFound", message="the server could not find the requested resource")
    return Target(
        resource=found["resource"],
        namespace=found["namespace"] or "",
        name=found["name"] or "",
        subresource=found["subresource"] or "",
    )


def merge_patch(target: Any, patch: Any) -> Any:
    """JSON merge patch (RFC 7386): null removes a field. `target` stays as it is."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


class ApiVerbs:
    """Requests of one actor, which every stored change names."""

    def __init__(self, cluster: Cluster, actor: str) -> None:
        self._cluster = cluster
        self._actor = actor

    def read(self, url: str) -> Obj:
        """The answer to a GET request: one object, or a list that `fieldSelector` in the query narrows."""
        address = urlsplit(url)
        target = parse_target(address.path)
        if target.name:
            return self.get(target.resource, target.namespace, target.name)
        entry, selector = RESOURCES[target.resource], parse_qs(address.query).get("fieldSelector", [""])[0]
        return {
            "kind": f"{entry.kind}List",
            "apiVersion": entry.api_version,
            "metadata": {"resourceVersion": str(self._cluster.store.version)},
            "items": self.list(target.resource, target.namespace, selector),
        }

    def get(self, resource: str, namespace: str, name: str) -> Obj:
        found = self._cluster.find(resource, namespace, name)
        if found is None:
            raise not_found(resource, name, RESOURCES[resource].group)
        return found

    def list(self, resource: str, namespace: str = "", field_selector: str = "") -> list[Obj]:
        """In the order of the API server: by namespace and name."""
        unknown = [path for path in fields_of(field_selector) if path not in _SELECTABLE.get(resource, _BY_NAME)]
        if unknown:
            selector = f'label selector "", field selector "{field_selector}"'
            raise bad_request(
                f'Unable to find "{resource}" that match {selector}: field label not supported: {unknown[0]}'
            )
        found = [obj for obj in self._cluster.objects(resource, namespace) if matches_fields(field_selector, obj)]
        return sorted(found, key=lambda obj: (obj["metadata"].get("namespace", ""), obj["metadata"]["name"]))

    def create(self, resource: str, namespace: str, obj: Obj) -> Obj:
        """Store a new object of a namespace."""
        if obj["metadata"].get("namespace", "") != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        if resource == "events":
            check_event(obj)
        return self._cluster.create(resource, obj, actor=self._actor)

    def replace(self, resource: str, namespace: str, name: str, obj: Obj) -> Obj:
        """Store another content of an object; one that carries a resourceVersion fails when the object has another."""
        current, wanted = self.get(resource, namespace, name), copy_of(obj)
        wanted["metadata"].setdefault("resourceVersion", "0")
        return self._store(resource, namespace, name, current, wanted)

    def patch(self, resource: str, namespace: str, name: str, patch: Any) -> Obj:
        """Apply a merge patch; one that carries a resourceVersion fails when the object has another."""
        if not isinstance(patch, dict):
            raise bad_request("a merge patch must be a JSON object")
        current = self.get(resource, namespace, name)
        return self._store(resource, namespace, name, current, merge_patch(copy_of(current), patch))

    def _store(self, resource: str, namespace: str, name: str, current: Obj, wanted: Obj) -> Obj:
        have, want = current["metadata"], wanted["metadata"]
        if version_of(want["resourceVersion"]) not in (0, int(have["resourceVersion"])):  # 0 is no precondition
            why = "the object has been modified; please apply your changes to the latest version and try again"
            raise conflict(resource, name, why)

        check_update(resource, current, wanted)

        def edit(fresh: Obj) -> None:
            fresh.clear()
            fresh.update(wanted)
            fresh["metadata"].update({key: have[key] for key in _READ_ONLY if key in have})
            if not fresh["metadata"].get("annotations", True):
                del fresh["metadata"]["annotations"]

        self._cluster.update(resource, namespace, name, edit, actor=self._actor)
        return self.get(resource, namespace, name)

    def delete(self, resource: str, namespace: str, name: str) -> Obj:
        """The object as it was, or as it terminates."""
        return self._cluster.delete(resource, namespace, name, actor=self._actor)

    def evict(self, namespace: str, name: str) -> None:
        self._cluster.evict(namespace, name, actor=self._actor)
