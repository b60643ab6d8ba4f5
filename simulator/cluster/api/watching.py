"""What a watch of the API server sends: the present, the bookmark that kubectl 1.37 waits for, then every change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from simulator.clock import real_monotonic
from simulator.cluster.api.store import RESOURCES, Change
from simulator.cluster.api.verbs import Query
from simulator.cluster.model import SimulatedCluster
from simulator.cluster.objects import Obj

LONGEST_WATCH_SECONDS: Final = 600.0


def watch_events(
    cluster: SimulatedCluster, parameters: Mapping[str, str], query: Query, ended: Callable[[], bool]
) -> Iterator[tuple[str, Obj]]:
    """(event type, object) pairs: what is there, the bookmark that 1.37 waits for, then every change."""
    limit = float(parameters.get("timeoutSeconds") or LONGEST_WATCH_SECONDS)
    end = real_monotonic() + min(limit, LONGEST_WATCH_SECONDS)
    since = parameters.get("resourceVersion", "")
    with cluster.state.lock:
        position = cluster.store.version
        present = [obj for obj in cluster.objects(query.resource) if query.matches(obj)]
    initial = parameters.get("sendInitialEvents") == "true"
    if initial or since in ("", "0"):
        yield from (("ADDED", obj) for obj in present)
    else:
        position = int(since)
    if initial:
        yield "BOOKMARK", _bookmark(query.resource, position)
    while real_monotonic() < end and not ended():
        changes, position = _changes_since(cluster, position, end)
        for change in changes:
            event = _event_for(change, query)
            if event is not None:
                yield event


def _changes_since(cluster: SimulatedCluster, position: int, end: float) -> tuple[list[Change], int]:
    with cluster.state.lock:
        if cluster.store.version == position:
            cluster.state.changed.wait(timeout=max(0.0, min(0.5, end - real_monotonic())))
        changes = [change for change in cluster.store.history if change.version > position]
        return changes, cluster.store.version


def _event_for(change: Change, query: Query) -> tuple[str, Obj] | None:
    """A change as this watch sees it: an object that enters or leaves its selector is added or deleted."""
    if change.resource != query.resource:
        return None
    was = change.before is not None and query.matches(change.before)
    now_matches = change.after is not None and query.matches(change.after)
    if now_matches:
        return ("MODIFIED" if was else "ADDED"), change.subject
    return ("DELETED", change.subject) if was else None


def _bookmark(resource: str, version: int) -> Obj:
    entry = RESOURCES[resource]
    metadata = {"resourceVersion": str(version), "annotations": {"k8s.io/initial-events-end": "true"}}
    return {"kind": entry.kind, "apiVersion": entry.api_version, "metadata": metadata}
