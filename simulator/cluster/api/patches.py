"""The three patch kinds of the Kubernetes API: merge, strategic merge and JSON patch.

Pure: an object and a patch in, a new object out. The strategic kind knows the merge keys that node-fleet meets.
"""

from __future__ import annotations

from typing import Any, Final

from simulator.cluster.api.errors import bad_request, invalid
from simulator.cluster.api.store import copy_of
from simulator.cluster.objects import Obj

MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"

_MERGE_KEYS: Final = {
    "taints": "key",
    "conditions": "type",
    "addresses": "type",
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "ownerReferences": "uid",
    "imagePullSecrets": "name",
}
_DIRECTIVES: Final = ("$patch", "$retainKeys")


def apply_patch(obj: Obj, kind: str, patch: Any) -> Obj:
    """The patched copy; the object handed in stays as it is."""
    if kind == JSON_PATCH:
        return _json_patch(copy_of(obj), patch)
    if not isinstance(patch, dict):
        raise bad_request("a merge patch must be a JSON object")
    merged = _strategic(copy_of(obj), patch) if kind == STRATEGIC else _merge(copy_of(obj), patch)
    assert isinstance(merged, dict)
    return merged


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = target if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge(result.get(key), value)
    return result


def _strategic(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key not in _DIRECTIVES}
    result = target if isinstance(target, dict) else {}
    for key, value in patch.items():
        if key in _DIRECTIVES or key.startswith("$setElementOrder/"):
            continue
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            result[name] = [item for item in result.get(name, ()) if item not in value]
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, list) and key in _MERGE_KEYS:
            result[key] = _merge_list(result.get(key) or [], value, _MERGE_KEYS[key])
        else:
            result[key] = _strategic(result.get(key), value)
    return result


def _merge_list(target: list[Any], patch: list[Any], merge_key: str) -> list[Any]:
    result = list(target)
    for item in patch:
        if item.get("$patch") == "replace":
            return [other for other in patch if "$patch" not in other]
        places = [place for place, old in enumerate(result) if old.get(merge_key) == item.get(merge_key)]
        if item.get("$patch") == "delete":
            result = [old for place, old in enumerate(result) if place not in places]
        elif places:
            result[places[0]] = _strategic(result[places[0]], item)
        else:
            result.append(item)
    return result


def _json_patch(obj: Obj, operations: Any) -> Obj:
    if not isinstance(operations, list):
        raise bad_request("a JSON patch must be a list of operations")
    for operation in operations:
        _apply_operation(obj, operation)
    return obj


def _apply_operation(obj: Obj, operation: dict[str, Any]) -> None:
    steps = [step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]]
    name, path = str(obj["metadata"]["name"]), operation["path"]
    parent: Any = obj
    for step in steps[:-1]:
        parent = _child(parent, step, name, path)
    verb, last = operation["op"], steps[-1]
    if verb == "test":
        if not _has(parent, last) or _child(parent, last, name, path) != operation["value"]:
            raise invalid(obj["kind"], name, f"testing path {path} value failed: test failed")
    elif verb == "remove":
        _child(parent, last, name, path)
        del parent[int(last) if isinstance(parent, list) else last]
    elif verb in ("add", "replace"):
        if verb == "replace":
            _child(parent, last, name, path)
        _put(parent, last, operation["value"], insert=verb == "add")
    else:
        raise bad_request(f"unknown JSON patch operation {verb!r}")


def _has(parent: Any, step: str) -> bool:
    if isinstance(parent, list):
        return step.isdigit() and int(step) < len(parent)
    return isinstance(parent, dict) and step in parent


def _child(parent: Any, step: str, name: str, path: str) -> Any:
    if not _has(parent, step):
        raise invalid("object", name, f"the path {path} does not exist: doc is missing key")
    return parent[int(step) if isinstance(parent, list) else step]


def _put(parent: Any, step: str, value: Any, *, insert: bool) -> None:
    if not isinstance(parent, list):
        parent[step] = value
    elif step == "-":
        parent.append(value)
    elif insert:
        parent.insert(int(step), value)
    else:
        parent[int(step)] = value
