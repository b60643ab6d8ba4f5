"""`kubectl drain` in virtual time: which pods go, eviction with its retries, the wait for each to be gone.

Every pod is a small line of work of its own, as in kubectl; all waiting goes through the `sleep` handed in.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Final

from simulator.cluster.api.errors import ApiError
from simulator.cluster.api.verbs import ApiVerbs, Query
from simulator.cluster.kubectl.command_line import go_duration
from simulator.cluster.objects import Obj, controller_of, epoch_of, is_finished, is_mirror, is_terminating

RETRY_SECONDS: Final = 5.0
POLL_SECONDS: Final = 1.0
_NAMESPACE_TERMINATING: Final = "NamespaceTerminating"

DAEMON_FATAL: Final = "DaemonSet-managed Pods (use --ignore-daemonsets to ignore)"
DAEMON_WARNING: Final = "ignoring DaemonSet-managed Pods"
LOCAL_FATAL: Final = "Pods with local storage (use --delete-emptydir-data to override)"
BARE_FATAL: Final = "Pods that declare no controller (use --force to override)"
BARE_WARNING: Final = "deleting Pods that declare no controller"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainFlags:
    """The flags of one drain; a timeout of 0 means without end."""

    ignore_daemonsets: bool = False
    delete_emptydir_data: bool = False
    force: bool = False
    disable_eviction: bool = False
    timeout_seconds: float = 0.0
    grace_seconds: float | None = None
    skip_wait_seconds: int = 0
    pod_selector: str = ""


@dataclass(slots=True)
class Output:
    """What a command has printed so far."""

    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Selection:
    """The pods of a node that go, and what was said about the others."""

    pods: list[Obj] = field(default_factory=list)
    warnings: dict[str, list[str]] = field(default_factory=dict)
    errors: dict[str, list[str]] = field(default_factory=dict)

    def error_lines(self) -> list[str]:
        return [f"cannot delete {why}: {', '.join(names)}" for why, names in self.errors.items()]

    def warning_line(self) -> str:
        return "; ".join(f"{what}: {', '.join(names)}" for what, names in self.warnings.items())


class Drain:
    """One node's drain on behalf of one command."""

    def __init__(
        self,
        *,
        verbs: ApiVerbs,
        now: Callable[[], float],
        sleep: Callable[[float], None],
        flags: DrainFlags,
        output: Output,
    ) -> None:
        self._verbs = verbs
        self._now = now
        self._sleep = sleep
        self._flags = flags
        self._output = output

    def run(self, node: str) -> list[str]:
        """Empty the node; the errors, none when it is drained."""
        selection = self.select(node)
        if selection.errors:
            return selection.error_lines()
        if selection.warnings:
            self._output.err.append(f"Warning: {selection.warning_line()}")
        errors = self._delete_all(selection.pods) if self._flags.disable_eviction else self._evict_all(selection.pods)
        if errors:
            self._tell_pending(node, errors)
        return errors

    def select(self, node: str) -> Selection:
        query = Query(
            resource="pods",
            field_selector=f"spec.nodeName={node}",
            label_selector=self._flags.pod_selector,
        )
        selection = Selection()
        for pod in self._verbs.list(query):
            self._sort_pod(pod, selection)
        return selection

    def _sort_pod(self, pod: Obj, selection: Selection) -> None:
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        if self._is_skipped(pod) or is_mirror(pod):
            return
        finished, flags = is_finished(pod), self._flags
        owner = controller_of(pod)
        if owner is not None and owner["kind"] == "DaemonSet" and not finished:
            where = selection.warnings if flags.ignore_daemonsets else selection.errors
            where.setdefault(DAEMON_WARNING if flags.ignore_daemonsets else DAEMON_FATAL, []).append(name)
            return
        has_local_data = any("emptyDir" in volume for volume in pod["spec"].get("volumes", ()))
        if has_local_data and not finished and not flags.delete_emptydir_data:
            selection.errors.setdefault(LOCAL_FATAL, []).append(name)
            return
        if owner is None and not finished:
            if not flags.force:
                selection.errors.setdefault(BARE_FATAL, []).append(name)
                return
            selection.warnings.setdefault(BARE_WARNING, []).append(name)
        selection.pods.append(pod)

    def _is_skipped(self, pod: Obj) -> bool:
        """Told to stop so long ago that drain no longer waits for it."""
        limit = self._flags.skip_wait_seconds
        if limit <= 0 or not is_terminating(pod):
            return False
        return int(self._now() - epoch_of(pod["metadata"]["deletionTimestamp"])) > limit

    def _deadline(self) -> float:
        return self._now() + self._flags.timeout_seconds if self._flags.timeout_seconds > 0 else math.inf

    def _evict_all(self, pods: list[Obj]) -> list[str]:
        deadline, errors = self._deadline(), []
        lines = [(self._now(), place, self._evict(pod, deadline)) for place, pod in enumerate(pods)]
        heapq.heapify(lines)
        while lines:
            due, place, line = heapq.heappop(lines)
            if due > self._now():
                self._sleep(due - self._now())
            try:
                heapq.heappush(lines, (self._now() + next(line), place, line))
            except StopIteration as end:
                if end.value:
                    errors.append(end.value)
        return errors

    def _evict(self, pod: Obj, deadline: float) -> Generator[float, None, str]:
        """Yields the seconds until it wants to go on; returns its error, or nothing."""
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        what, current = f'pods/"{name}" -n "{namespace}"', pod
        while True:
            self._output.out.append(f"evicting pod {namespace}/{name}")
            if self._now() >= deadline:
                limit = go_duration(self._flags.timeout_seconds)
                return f"error when evicting {what}: global timeout reached: {limit}"
            try:
                self._verbs.evict(namespace, name, grace_seconds=self._flags.grace_seconds)
                break
            except ApiError as error:
                if error.code == 404:
                    return ""
                ending = error.code == 403 and error.has_cause(_NAMESPACE_TERMINATING)
                if ending and is_terminating(current):
                    break
                if not ending and error.code != 429:
                    return f"error when evicting {what}: {error.message}"
                self._output.err.append(_retry_line(what, name, namespace, error, ending))
            yield RETRY_SECONDS
            current = self._find(namespace, name) or current
        return (yield from self._await_gone(current, deadline))

    def _await_gone(self, pod: Obj, deadline: float) -> Generator[float, None, str]:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        while not self._is_gone(pod, "evicted"):
            if self._now() >= deadline:
                return (
                    f'error when waiting for pod "{name}" in namespace "{namespace}" to terminate: '
                    "context deadline exceeded"
                )
            yield min(POLL_SECONDS, deadline - self._now())
        return ""

    def _is_gone(self, pod: Obj, verb: str) -> bool:
        """Gone, replaced, or no longer waited for; says so."""
        current = self._find(pod["metadata"]["namespace"], pod["metadata"]["name"])
        if current is None or current["metadata"]["uid"] != pod["metadata"]["uid"]:
            self._output.out.append(f"pod/{pod['metadata']['name']} {verb}")
            return True
        if self._is_skipped(current):
            self._output.out.append(
                f'pod "{pod["metadata"]["name"]}" has DeletionTimestamp older than '
                f"{self._flags.skip_wait_seconds} seconds, skipping"
            )
            return True
        return False

    def _find(self, namespace: str, name: str) -> Obj | None:
        try:
            return self._verbs.get("pods", namespace, name)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def _delete_all(self, pods: list[Obj]) -> list[str]:
        deadline = self._deadline()
        for pod in pods:
            try:
                metadata = pod["metadata"]
                self._verbs.delete(
                    "pods", metadata["namespace"], metadata["name"], grace_seconds=self._flags.grace_seconds
                )
            except ApiError as error:
                if error.code != 404:
                    return [error.message]
        waiting = pods
        while waiting := [pod for pod in waiting if not self._is_gone(pod, "deleted")]:
            if self._now() >= deadline:
                return ["context deadline exceeded"]
            self._sleep(min(POLL_SECONDS, deadline - self._now()))
        return []

    def _tell_pending(self, node: str, errors: list[str]) -> None:
        pods = self.select(node).pods
        if pods:
            said = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
            self._output.err.append(f'There are pending pods in node "{node}" when an error occurred: {said}')
            self._output.err += [f"pod/{pod['metadata']['name']}" for pod in pods]


def _retry_line(what: str, name: str, namespace: str, error: ApiError, ending: bool) -> str:
    if ending:
        subject = f'error when evicting pod "{name}" from terminating namespace "{namespace}"'
    else:
        subject = f"error when evicting {what}"
    return f"{subject} (will retry after 5s): {error.message}"
