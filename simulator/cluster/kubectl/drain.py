"""`kubectl drain` of kubectl 1.37 in virtual time: the selection of pods, eviction with retries, the wait for each pod.

Every pod is a task of its own, as in kubectl; all waiting goes through the `sleep` handed in. DaemonSet pods are
always ignored and emptyDir data is always deleted, since every drain of node-fleet sets both flags.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Final

from node_fleet.domain.model.value_class import value_class
from simulator.cluster.api.errors import ApiError
from simulator.cluster.api.verbs import ApiVerbs
from simulator.cluster.kubectl.command_line import go_duration
from simulator.cluster.objects import Obj, controller_of, epoch_of, is_finished, is_mirror, is_terminating

RETRY_SECONDS: Final = 5.0
POLL_SECONDS: Final = 1.0
_NAMESPACE_TERMINATING: Final = "NamespaceTerminating"

DAEMON_WARNING: Final = "ignoring DaemonSet-managed Pods"
BARE_FATAL: Final = "Pods that declare no controller (use --force to override)"
BARE_WARNING: Final = "deleting Pods that declare no controller"


@value_class
class DrainFlags:
    """The flags of one drain. A timeout of 0 never ends; a skip_wait_seconds of 0 waits for every pod."""

    timeout_seconds: float
    force: bool = False
    disable_eviction: bool = False
    skip_wait_seconds: int = 0


@dataclass(slots=True, kw_only=True)
class Selection:
    """The pods of a node that are removed, and the names of others by the warning or the fatal reason."""

    pods: list[Obj] = field(default_factory=list)
    warnings: dict[str, list[str]] = field(default_factory=dict)
    fatal: dict[str, list[str]] = field(default_factory=dict)

    def warning_line(self) -> str:
        return "; ".join(f"{what}: {', '.join(names)}" for what, names in self.warnings.items())


class Drain:
    """The drain of one node for one command."""

    def __init__(
        self,
        *,
        api: Callable[[], ApiVerbs],
        now: Callable[[], float],
        sleep: Callable[[float], None],
        flags: DrainFlags,
        out: Callable[[str], None],
        err: Callable[[str], None],
    ) -> None:
        self._api = api
        self._now = now
        self._sleep = sleep
        self._flags = flags
        self._out = out
        self._err = err

    def run(self, node: str) -> int:
        """Cordon the node, remove its pods, and report as kubectl does; the exit status."""
        self._cordon(node)
        errors = self._empty(node)
        if not errors:
            self._out(f"node/{node} drained")
            return 0
        self._err(f'error: unable to drain node "{node}" due to error: {_joined(errors)}, continuing command...')
        self._err("There are pending nodes to be drained:")
        self._err(f" {node}")
        for error in errors:
            self._err(f"error: {error}" if self._flags.disable_eviction else error)
        return 1

    def _cordon(self, node: str) -> None:
        if self._api().get("nodes", "", node)["spec"].get("unschedulable"):
            self._out(f"node/{node} already cordoned")
            return
        self._api().patch("nodes", "", node, {"spec": {"unschedulable": True}})
        self._out(f"node/{node} cordoned")

    def _empty(self, node: str) -> list[str]:
        """Remove the node's pods; the errors, none when no pod is left."""
        selection = self._select(node)
        if selection.fatal:
            return [f"cannot delete {reason}: {', '.join(names)}" for reason, names in selection.fatal.items()]
        if selection.warnings:
            self._err(f"Warning: {selection.warning_line()}")
        errors = self._delete_all(selection.pods) if self._flags.disable_eviction else self._evict_all(selection.pods)
        if errors and (pods := self._select(node).pods):
            self._err(f'There are pending pods in node "{node}" when an error occurred: {_joined(errors)}')
            for pod in pods:
                self._err(f"pod/{pod['metadata']['name']}")
        return errors

    def _select(self, node: str) -> Selection:
        selection = Selection()
        for pod in self._api().list("pods", field_selector=f"spec.nodeName={node}"):
            self._sort_pod(pod, selection)
        return selection

    def _sort_pod(self, pod: Obj, selection: Selection) -> None:
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        if self._is_skipped(pod) or is_mirror(pod):
            return
        owner, finished = controller_of(pod), is_finished(pod)
        if owner is not None and owner["kind"] == "DaemonSet" and not finished:
            missing = self._missing_daemon_set(pod["metadata"]["namespace"], owner["name"])
            if not missing:
                selection.warnings.setdefault(DAEMON_WARNING, []).append(name)
                return
            if self._is_refused(missing, missing, name, selection):
                return
        elif owner is None and not finished and self._is_refused(BARE_FATAL, BARE_WARNING, name, selection):
            return
        selection.pods.append(pod)

    def _is_refused(self, fatal: str, warning: str, name: str, selection: Selection) -> bool:
        """Record a pod that only --force removes."""
        kind, text = (selection.warnings, warning) if self._flags.force else (selection.fatal, fatal)
        kind.setdefault(text, []).append(name)
        return not self._flags.force

    def _missing_daemon_set(self, namespace: str, name: str) -> str:
        """The API's error about a DaemonSet of the group apps that does not exist; empty when it does."""
        try:
            self._api().get("daemonsets", namespace, name)
        except ApiError as error:
            if error.code == 404:
                return error.message
            raise
        return ""

    def _is_skipped(self, pod: Obj) -> bool:
        """Whether the pod has been terminating for so long that drain does not wait for it."""
        limit = self._flags.skip_wait_seconds
        if limit <= 0 or not is_terminating(pod):
            return False
        return int(self._now() - epoch_of(pod["metadata"]["deletionTimestamp"])) > limit

    def _deadline(self) -> float:
        return self._now() + (self._flags.timeout_seconds or math.inf)

    def _evict_all(self, pods: list[Obj]) -> list[str]:
        deadline, errors = self._deadline(), []
        tasks = [(self._now(), place, self._evict(pod, deadline)) for place, pod in enumerate(pods)]
        heapq.heapify(tasks)
        while tasks:
            due, place, task = heapq.heappop(tasks)
            if due > self._now():
                self._sleep(due - self._now())
            try:
                heapq.heappush(tasks, (self._now() + next(task), place, task))
            except StopIteration as end:
                if end.value:
                    errors.append(end.value)
        return errors

    def _evict(self, pod: Obj, deadline: float) -> Generator[float, None, str]:
        """Yields the seconds until it continues; returns its error, or an empty text."""
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        what, current = f'pods/"{name}" -n "{namespace}"', pod
        while True:
            self._out(f"evicting pod {namespace}/{name}")
            if self._now() >= deadline:
                limit = go_duration(self._flags.timeout_seconds)
                return f"error when evicting {what}: global timeout reached: {limit}"
            try:
                self._api().evict(namespace, name)
                break
            except ApiError as error:
                if error.code == 404:
                    return ""
                ending = error.code == 403 and error.has_cause(_NAMESPACE_TERMINATING)
                if ending and is_terminating(current):
                    break
                if not ending and error.code != 429:
                    return f"error when evicting {what}: {error.message}"
                self._err(_retry_line(what, name, namespace, error, ending))
            yield RETRY_SECONDS
            current = self._find(namespace, name) or current
        return (yield from self._await_removal(current, deadline))

    def _await_removal(self, pod: Obj, deadline: float) -> Generator[float, None, str]:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        while not self._is_done_with(pod, "evicted"):
            if self._now() >= deadline:
                return (
                    f'error when waiting for pod "{name}" in namespace "{namespace}" to terminate: '
                    "context deadline exceeded"
                )
            yield min(POLL_SECONDS, deadline - self._now())
        return ""

    def _is_done_with(self, pod: Obj, verb: str) -> bool:
        """Whether drain stops waiting for the pod: removed, replaced or skipped. It prints which."""
        current = self._find(pod["metadata"]["namespace"], pod["metadata"]["name"])
        if current is None or current["metadata"]["uid"] != pod["metadata"]["uid"]:
            self._out(f"pod/{pod['metadata']['name']} {verb}")
            return True
        if self._is_skipped(current):
            self._out(
                f'pod "{pod["metadata"]["name"]}" has DeletionTimestamp older than '
                f"{self._flags.skip_wait_seconds} seconds, skipping"
            )
            return True
        return False

    def _find(self, namespace: str, name: str) -> Obj | None:
        try:
            return self._api().get("pods", namespace, name)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def _delete_all(self, pods: list[Obj]) -> list[str]:
        deadline = self._deadline()
        for pod in pods:
            try:
                metadata = pod["metadata"]
                self._api().delete("pods", metadata["namespace"], metadata["name"])
            except ApiError as error:
                if error.code != 404:
                    return [error.message]
        waiting = pods
        while waiting := [pod for pod in waiting if not self._is_done_with(pod, "deleted")]:
            if self._now() >= deadline:
                return ["context deadline exceeded"]
            self._sleep(min(POLL_SECONDS, deadline - self._now()))
        return []


def _joined(errors: list[str]) -> str:
    return errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"


def _retry_line(what: str, name: str, namespace: str, error: ApiError, ending: bool) -> str:
    if ending:
        subject = f'error when evicting pod "{name}" from terminating namespace "{namespace}"'
    else:
        subject = f"error when evicting {what}"
    return f"{subject} (will retry after 5s): {error.message}"
