"""Follows the pods of a real cluster change by change, in the form that `BudgetChecker` reads.

A watch does not name who deleted a pod. Use it while only node-fleet deletes pods.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from simulator.cluster.api.store import CLUSTER_ACTOR, Change
from simulator.cluster.model import OUR_ACTOR
from simulator.cluster.objects import Obj, is_terminating, key_of
from simulator.cluster.state import Machine
from tests.support.real_plane.cluster import RealCluster


class Observation:
    """Begins with the pods that exist; `close` ends it."""

    def __init__(self, cluster: RealCluster) -> None:
        self._cluster = cluster
        self._pods: dict[tuple[str, str], Obj] = {}
        self._listeners: list[Callable[[Change], None]] = []
        self._stopping = threading.Event()
        self._known = threading.Event()
        self.end_listeners: list[Callable[[Machine, bool], None]] = []
        threading.Thread(target=self._follow, daemon=True).start()
        self._known.wait(timeout=30)

    def on_change(self, listener: Callable[[Change], None]) -> None:
        self._listeners.append(listener)

    def now(self) -> float:
        return time.time()

    def objects(self, resource: str) -> list[Obj]:
        return list(self._pods.values()) if resource == "pods" else self._cluster.objects(resource)

    def find(self, resource: str, namespace: str, name: str) -> Obj | None:
        return self._cluster.find(resource, namespace, name) if name else None

    def close(self) -> None:
        self._stopping.set()

    def _follow(self) -> None:
        for kind, pod in self._cluster.plane.api("person").watch("pods", self._stopping):
            if self._stopping.is_set():
                return
            self._note(pod, is_gone=kind == "DELETED")
            self._known.set()

    def _note(self, pod: Obj, *, is_gone: bool) -> None:
        before, after = self._pods.get(key_of(pod)), None if is_gone else pod
        if after is None:
            self._pods.pop(key_of(pod), None)
        else:
            self._pods[key_of(pod)] = after
        is_deleted = is_gone or is_terminating(pod)
        actor = OUR_ACTOR if is_deleted and before and not is_terminating(before) else CLUSTER_ACTOR
        change = Change(resource="pods", before=before, after=after, actor=actor)
        for listener in self._listeners:
            listener(change)
