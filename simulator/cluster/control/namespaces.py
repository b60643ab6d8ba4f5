"""Deletion of namespaces: their pods stop, and the namespace is removed after its last pod."""

from __future__ import annotations

from collections.abc import Callable

from simulator.cluster.objects import Obj, is_terminating, iso
from simulator.cluster.state import ClusterState


class Namespaces:
    """Empties terminating namespaces."""

    def __init__(self, state: ClusterState, delete_pod: Callable[[str, str], Obj]) -> None:
        self._state = state
        self._store = state.store
        self._delete_pod = delete_pod
        state.reconcilers.append(self.run_if_needed)

    def terminate(self, name: str) -> Obj:
        now = self._state.now()

        def edit(fresh: Obj) -> None:
            fresh["metadata"].setdefault("deletionTimestamp", iso(now))
            fresh["status"] = {"phase": "Terminating"}

        return self._store.update("namespaces", "", name, edit)

    def run_if_needed(self) -> bool:
        if not self._state.work.namespaces:
            return False
        self._state.work.namespaces = False
        ending = [obj for obj in self._store.all("namespaces") if is_terminating(obj)]
        for namespace in ending:
            self._empty(namespace)
        return bool(ending)

    def _empty(self, namespace: Obj) -> None:
        name = namespace["metadata"]["name"]
        if namespace["metadata"].get("annotations", {}).get("simulator.node-fleet.io/holds-pods"):
            return
        pods = [pod for pod in self._store.all("pods") if pod["metadata"]["namespace"] == name]
        for pod in pods:
            if not is_terminating(pod):
                self._delete_pod(name, pod["metadata"]["name"])
        if any(self._store.find("pods", name, pod["metadata"]["name"]) for pod in pods):
            return
        for resource in ("deployments", "replicasets", "statefulsets", "daemonsets", "poddisruptionbudgets"):
            for obj in self._store.all(resource):
                if obj["metadata"].get("namespace") == name:
                    self._store.remove(resource, name, obj["metadata"]["name"])
        self._store.remove("namespaces", "", name)
