"""A fake of the kubectl verbs that node-fleet's scripts use, acting on the simulated cluster in virtual time.

Output and exit status are those of kubectl 1.37: a conformance test compares the two. Waiting goes through the
`sleep` handed in, so that minutes of a drain pass without a second of the wall clock.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from node_fleet.domain.model.value_class import value_class
from simulator.cluster.api.errors import ApiError
from simulator.cluster.api.store import RESOURCES, Resource
from simulator.cluster.api.verbs import ApiVerbs, parse_target
from simulator.cluster.control.controllers import RESTARTED_AT
from simulator.cluster.kubectl.command_line import UsageError, parse_command_line
from simulator.cluster.kubectl.drain import Drain, DrainFlags
from simulator.cluster.model import OUR_ACTOR, SimulatedCluster
from simulator.cluster.objects import Obj, iso

Sleep = Callable[[float], None]
_REFUSED: Final = "The connection to the server 127.0.0.1:6443 was refused - did you specify the right host or port?"


@value_class
class CommandResult:
    """How a command ended and what it printed."""

    exit_code: int
    stdout: str
    stderr: str


class ServerUnreachableError(Exception):
    """Nothing listens on the address of the API server."""


@dataclass(slots=True)
class _Output:
    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)


class FakeKubectl:
    """`run(argv)` is one kubectl command; `argv` leaves out the program's own name."""

    def __init__(self, cluster: SimulatedCluster, sleep: Sleep, *, actor: str = OUR_ACTOR) -> None:
        self.cluster = cluster
        self.actor = actor
        self.reachable = True
        self.commands: list[list[str]] = []
        self._sleep = sleep
        self._verbs = ApiVerbs(cluster, actor)

    def run(self, argv: list[str]) -> CommandResult:
        """Run one command line. It reads no standard input: none of its verbs does."""
        self.commands.append(list(argv))
        output = _Output()
        code = 1
        try:
            line = parse_command_line(argv)
            code = _VERBS[line.verb](self, line, output)
        except (UsageError, ServerUnreachableError) as error:
            output.err.append(f"{error}\n")
        except ApiError as error:
            output.err.append(f"Error from server ({error.reason}): {error.message}\n")
        return CommandResult(exit_code=code, stdout="".join(output.out), stderr="".join(output.err))

    def _api(self) -> ApiVerbs:
        """The API server, asked anew for each request: it can become unreachable during a command."""
        if not self.reachable:
            raise ServerUnreachableError(_REFUSED)
        return self._verbs

    def _get(self, line: argparse.Namespace, output: _Output) -> int:
        if line.raw == "/readyz":
            self._api()
            output.out.append("ok")
            return 0
        if line.raw:
            output.out.append(json.dumps(self._api().read(line.raw)))
            return 0
        if not line.output:
            raise UsageError("error: the fake kubectl prints objects with -o json or -o name only")
        entry = _resource_named(line.resource)
        namespace = line.namespace if entry.namespaced else ""
        if not line.name:
            objects = self._api().list(entry.name, namespace)
        else:
            try:
                objects = [self._api().get(entry.name, namespace, line.name)]
            except ApiError as error:
                if error.code != 404 or not line.ignore_not_found:
                    raise
                return 0
        output.out += [_printed(entry, obj, line.output) for obj in objects]
        return 0

    def _create(self, line: argparse.Namespace, output: _Output) -> int:
        target, obj = parse_target(line.raw), json.loads(line.filename.read_text())
        output.out.append(json.dumps(self._api().create(target.resource, target.namespace, obj)))
        return 0

    def _replace(self, line: argparse.Namespace, output: _Output) -> int:
        target, obj = parse_target(line.raw), json.loads(line.filename.read_text())
        output.out.append(json.dumps(self._api().replace(target.resource, target.namespace, target.name, obj)))
        return 0

    def _delete(self, line: argparse.Namespace, output: _Output) -> int:
        entry = _resource_named(line.resource)
        namespace = line.namespace if entry.namespaced else ""
        try:
            self._api().delete(entry.name, namespace, line.name)
        except ApiError as error:
            if error.code != 404 or not line.ignore_not_found:
                raise
            return 0
        where = f" from {namespace} namespace" if namespace else ""
        output.out.append(f'{entry.singular} "{line.name}" deleted{where}\n')
        return 0

    def _patch(self, line: argparse.Namespace, output: _Output) -> int:
        entry = _resource_named(line.resource)
        namespace = line.namespace if entry.namespaced else ""
        try:
            change = json.loads(line.patch)
        except ValueError:
            raise UsageError(f"error: this patch is not JSON: {line.patch}") from None
        before = self._api().get(entry.name, namespace, line.name)
        after = self._api().patch(entry.name, namespace, line.name, change)
        unchanged = before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]
        output.out.append(f"{_kind_of(entry)}/{line.name} patched{' (no change)' if unchanged else ''}\n")
        return 0

    def _rollout(self, line: argparse.Namespace, output: _Output) -> int:
        name = line.target.removeprefix("deployment/")
        if line.step == "restart":
            mark = {RESTARTED_AT: iso(self.cluster.now())}
            change = {"spec": {"template": {"metadata": {"annotations": mark}}}}
            self._api().patch("deployments", line.namespace, name, change)
            output.out.append(f"deployment.apps/{name} restarted\n")
            return 0
        until, shown = self.cluster.now() + (line.timeout or math.inf), ""
        while text := _roll_out_waits(self._api().get("deployments", line.namespace, name)):
            if text != shown:
                output.out.append(f'Waiting for deployment "{name}" rollout to finish: {text}...\n')
            if self.cluster.now() >= until:
                output.err.append("error: timed out waiting for the condition\n")
                return 1
            shown = text
            self._sleep(min(1.0, until - self.cluster.now()))
        output.out.append(f'deployment "{name}" successfully rolled out\n')
        return 0

    def _drain(self, line: argparse.Namespace, output: _Output) -> int:
        flags = DrainFlags(
            force=line.force,
            disable_eviction=line.disable_eviction,
            timeout_seconds=line.timeout,
            skip_wait_seconds=line.skip_wait_for_delete_timeout,
        )
        drain = Drain(
            api=self._api,
            now=self.cluster.now,
            sleep=self._sleep,
            flags=flags,
            out=lambda text: output.out.append(f"{text}\n"),
            err=lambda text: output.err.append(f"{text}\n"),
        )
        return drain.run(line.node)


_VERBS: Final[dict[str, Callable[[FakeKubectl, argparse.Namespace, _Output], int]]] = {
    "get": FakeKubectl._get,
    "create": FakeKubectl._create,
    "replace": FakeKubectl._replace,
    "delete": FakeKubectl._delete,
    "patch": FakeKubectl._patch,
    "drain": FakeKubectl._drain,
    "rollout": FakeKubectl._rollout,
}


def _roll_out_waits(deployment: Obj) -> str:
    """What a roll-out waits for, in kubectl's words; empty when it is complete."""
    wanted, counts = deployment["spec"]["replicas"], deployment["status"]
    updated = counts.get("updatedReplicas", 0)
    if updated < wanted:
        return f"{updated} out of {wanted} new replicas have been updated"
    if counts["replicas"] > updated:
        return f"{counts['replicas'] - updated} old replicas are pending termination"
    if counts["availableReplicas"] < updated:
        return f"{counts['availableReplicas']} of {updated} updated replicas are available"
    return ""


def _resource_named(word: str) -> Resource:
    for entry in RESOURCES.values():
        if word in (entry.name, entry.singular):
            return entry
    raise UsageError(f'error: the server doesn\'t have a resource type "{word}"')


def _printed(entry: Resource, obj: Obj, style: str) -> str:
    if style == "json":
        return f"{json.dumps(obj, indent=4, sort_keys=True)}\n"
    return f"{_kind_of(entry)}/{obj['metadata']['name']}\n"


def _kind_of(entry: Resource) -> str:
    return f"{entry.singular}.{entry.group}" if entry.group else entry.singular
