"""A double of the kubectl verbs that node-fleet uses, acting on the world in virtual time.

It says what kubectl 1.37 says and exits as it exits; a conformance test holds it to the real one. Waiting goes
through the `sleep` handed in, so that minutes of a drain pass without a second of the wall clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import yaml

from simulator.cluster.api.discovery import document
from simulator.cluster.api.errors import ApiError
from simulator.cluster.api.https_server import parse_target
from simulator.cluster.api.patches import JSON_PATCH, MERGE, STRATEGIC
from simulator.cluster.api.store import RESOURCES
from simulator.cluster.api.verbs import ApiVerbs, Query
from simulator.cluster.control.kubelets import K3S_VERSION
from simulator.cluster.kubectl.command_line import CommandLine, UsageError, parse_command_line, seconds_of
from simulator.cluster.kubectl.drain import Drain, DrainFlags, Output
from simulator.cluster.kubectl.jsonpath import JsonPathError, find, text_of
from simulator.cluster.kubectl.printing import OutputStyleError, Verbatim, printed
from simulator.cluster.model import OUR_ACTOR, SimulatedCluster
from simulator.cluster.objects import Obj, condition

Sleep = Callable[[float], None]
CLIENT_VERSION: Final = "v1.37.1"
_PATCH_KINDS: Final = {"": STRATEGIC, "strategic": STRATEGIC, "merge": MERGE, "json": JSON_PATCH}
_REFUSED: Final = "The connection to the server 127.0.0.1:6443 was refused - did you specify the right host or port?"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """How a command ended and what it printed."""

    exit_code: int
    stdout: str
    stderr: str


class ServerUnreachableError(Exception):
    """Nobody listens where the API server should be."""


class _Failed(Exception):
    """The command failed with this text on stderr."""


class _ReachableVerbs(ApiVerbs):
    """The verbs of a server that can be away."""

    def __init__(self, fake: FakeKubectl) -> None:
        super().__init__(fake.cluster, fake.actor)
        self._fake = fake

    def __getattribute__(self, name: str) -> Any:
        if name in ("get", "list", "create", "patch", "replace", "delete", "evict"):
            object.__getattribute__(self, "_fake").check_reachable()
        return super().__getattribute__(name)


class FakeKubectl:
    """`run(argv)` is one kubectl command, with argv not counting the program's own name."""

    def __init__(self, cluster: SimulatedCluster, sleep: Sleep, *, actor: str = OUR_ACTOR) -> None:
        self.cluster = cluster
        self.actor = actor
        self.reachable = True
        self.commands: list[list[str]] = []
        self._sleep = sleep
        self._verbs = _ReachableVerbs(self)

    def check_reachable(self) -> None:
        if not self.reachable:
            raise ServerUnreachableError(_REFUSED)

    def run(self, argv: list[str]) -> CommandResult:
        """Runs one command line, without the word kubectl. It reads no standard input: none of its verbs does."""
        self.commands.append(list(argv))
        output = Output()
        code = 1
        try:
            line = parse_command_line(argv)
            if line.verb != "version":
                self.check_reachable()
            code = _VERBS[line.verb](self, line, output)
        except (UsageError, OutputStyleError, _Failed, ServerUnreachableError) as error:
            output.err.append(str(error))
        except ApiError as error:
            output.err.append(f"Error from server ({error.reason}): {error.message}")
        except JsonPathError as error:
            output.err.append(f"error: error parsing jsonpath: {error}")
        return CommandResult(exit_code=code, stdout=_joined(output.out), stderr=_joined(output.err))

    # Reading -----------------------------------------------------------------------------------------------

    def _get(self, line: CommandLine, output: Output) -> int:
        raw = line.text("raw")
        if raw:
            output.out.append(Verbatim(self._raw(raw)))
            return 0
        resource, names = _resource_and_names(line.words)
        objects = self._objects(line, resource, names, line.on("ignore-not-found"))
        style = line.text("output")
        if names and not objects:
            return 0
        if not objects and style in ("", "wide"):
            where = f" in {line.namespace} namespace" if line.namespace and RESOURCES[resource].namespaced else ""
            if not line.on("ignore-not-found"):
                output.err.append(f"No resources found{where}{'.' if where else ''}")
            return 0
        output.out += printed(self.cluster.now(), line, resource, objects, single=len(names) == 1)
        return 0

    def _raw(self, path: str) -> str:
        address = urlsplit(path)
        if address.path in ("/readyz", "/livez", "/healthz"):
            return "ok"
        found = document(address.path)
        if found is not None:
            return json.dumps(found)
        target = parse_target(address.path)
        if target is None:
            raise ApiError(code=404, reason="NotFound", message="the server could not find the requested resource")
        if target.name:
            return json.dumps(self._verbs.get(target.resource, target.namespace, target.name))
        parameters = {key: values[-1] for key, values in parse_qs(address.query).items()}
        query = Query(
            resource=target.resource,
            namespace=target.namespace,
            label_selector=parameters.get("labelSelector", ""),
            field_selector=parameters.get("fieldSelector", ""),
        )
        entry = RESOURCES[target.resource]
        metadata = {"resourceVersion": str(self.cluster.store.version)}
        items = self._verbs.list(query)
        return json.dumps(
            {"kind": f"{entry.kind}List", "apiVersion": entry.api_version, "metadata": metadata, "items": items}
        )

    def _objects(self, line: CommandLine, resource: str, names: list[str], forgiving: bool = False) -> list[Obj]:
        namespace = line.namespace if RESOURCES[resource].namespaced else ""
        if not names:
            query = Query(
                resource=resource,
                namespace=namespace,
                label_selector=line.text("selector"),
                field_selector=line.text("field-selector"),
            )
            return self._verbs.list(query)
        found = []
        for name in names:
            try:
                found.append(self._verbs.get(resource, namespace, name))
            except ApiError as error:
                if error.code != 404 or not forgiving:
                    raise
        return found

    def _wait(self, line: CommandLine, output: Output) -> int:
        wanted = line.text("for")
        limit = seconds_of(line.text("timeout", "30s"), "timeout")
        resource, names = _resource_and_names(line.words)
        namespace = line.namespace if RESOURCES[resource].namespaced else ""
        if not names:
            names = [obj["metadata"]["name"] for obj in self._objects(line, resource, [])]
            if not names:
                raise _Failed("error: no matching resources found")
        if wanted != "delete":
            self._objects(line, resource, names)
        deadline = self.cluster.now() + limit
        singular = RESOURCES[resource].singular
        for name in names:
            if wanted == "delete" and self.cluster.find(resource, namespace, name) is None:
                continue
            while not _met(self.cluster.find(resource, namespace, name), wanted):
                if self.cluster.now() >= deadline:
                    raise _Failed(f"error: timed out waiting for the condition on {resource}/{name}")
                self._sleep(min(1.0, deadline - self.cluster.now()))
            output.out.append(f"{singular}/{name} condition met")
        return 0

    def _version(self, line: CommandLine, output: Output) -> int:
        output.out += [f"Client Version: {CLIENT_VERSION}", "Kustomize Version: v5.8.1"]
        if not line.on("client"):
            self.check_reachable()
            output.out.append(f"Server Version: {K3S_VERSION}")
        return 0

    # Changing ----------------------------------------------------------------------------------------------

    def _set_cordon(self, line: CommandLine, output: Output, *, wanted: bool) -> list[str]:
        names = line.words or [obj["metadata"]["name"] for obj in self._objects(line, "nodes", [])]
        nodes = [self._verbs.get("nodes", "", name) for name in names]
        word = "cordoned" if wanted else "uncordoned"
        for node in nodes:
            name = node["metadata"]["name"]
            if bool(node["spec"].get("unschedulable")) is wanted:
                output.out.append(f"node/{name} already {word}")
                continue
            self._verbs.patch("nodes", "", name, MERGE, {"spec": {"unschedulable": True if wanted else None}})
            output.out.append(f"node/{name} {word}")
        return names

    def _cordon(self, line: CommandLine, output: Output) -> int:
        self._set_cordon(line, output, wanted=True)
        return 0

    def _uncordon(self, line: CommandLine, output: Output) -> int:
        self._set_cordon(line, output, wanted=False)
        return 0

    def _drain(self, line: CommandLine, output: Output) -> int:
        flags = _drain_flags(line)
        drain = Drain(verbs=self._verbs, now=self.cluster.now, sleep=self._sleep, flags=flags, output=output)
        fatal, pending = [], []
        for name in self._set_cordon(line, output, wanted=True):
            errors = drain.run(name)
            if not errors:
                output.out.append(f"node/{name} drained")
                continue
            said = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
            output.err.append(f'error: unable to drain node "{name}" due to error: {said}, continuing command...')
            fatal += [f"error: {error}" for error in errors] if flags.disable_eviction else errors
            pending.append(name)
        if pending:
            output.err += ["There are pending nodes to be drained:", *(f" {name}" for name in pending), *fatal]
        return 1 if fatal else 0

    def _delete(self, line: CommandLine, output: Output) -> int:
        resource, names = _resource_and_names(line.words)
        if not names and not line.text("selector") and not line.on("all"):
            raise _Failed("error: resource(s) were provided, but no name was specified")
        grace = 1.0 if line.on("now") else None
        if line.text("grace-period"):
            grace = float(line.text("grace-period"))
        grace = 0.0 if line.on("force") and grace is None else grace
        missing, gone = [], []
        namespace = line.namespace if RESOURCES[resource].namespaced else ""
        where = f" from {namespace} namespace" if namespace else ""
        for name in names or [obj["metadata"]["name"] for obj in self._objects(line, resource, [])]:
            try:
                found = self._verbs.get(resource, namespace, name)
                self._verbs.delete(resource, namespace, name, grace_seconds=grace)
            except ApiError as error:
                if error.code != 404:
                    raise
                if not line.on("ignore-not-found"):
                    missing.append(f"Error from server (NotFound): {error.message}")
                continue
            gone.append(found)
            shown = f'{RESOURCES[resource].singular} "{name}"'
            output.out.append(f"{shown} {'force ' if line.on('force') else ''}deleted{where}")
        if line.on("wait", default=True):
            self._await_deleted(resource, gone, seconds_of(line.text("timeout", "0"), "timeout"))
        output.err += missing
        return 1 if missing else 0

    def _await_deleted(self, resource: str, objects: list[Obj], limit: float) -> None:
        deadline = self.cluster.now() + limit if limit else None
        for obj in objects:
            metadata = obj["metadata"]
            while True:
                current = self.cluster.find(resource, metadata.get("namespace", ""), metadata["name"])
                if current is None or current["metadata"]["uid"] != metadata["uid"]:
                    break
                if deadline is not None and self.cluster.now() >= deadline:
                    raise _Failed(f"error: timed out waiting for the condition on {resource}/{metadata['name']}")
                self._sleep(1.0)

    def _patch(self, line: CommandLine, output: Output) -> int:
        resource, names = _resource_and_names(line.words)
        namespace = line.namespace if RESOURCES[resource].namespaced else ""
        kind = _PATCH_KINDS.get(line.text("type"))
        if kind is None:
            raise _Failed(f'error: --type must be one of [json merge strategic], not "{line.text("type")}"')
        for name in names:
            before = self._verbs.get(resource, namespace, name)
            try:
                patch = yaml.safe_load(line.text("patch"))
            except yaml.YAMLError as error:
                raise _Failed(f"error: unable to parse {line.text('patch')!r}: {error}") from error
            after = self._verbs.patch(resource, namespace, name, kind, patch)
            same = before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]
            self._say(line, output, resource, after, f"patched{' (no change)' if same else ''}")
        return 0

    def _say(self, line: CommandLine, output: Output, resource: str, obj: Obj, verb: str) -> None:
        if line.text("output") in ("", "name"):
            tail = f" {verb}" if not line.text("output") else ""
            output.out.append(f"{RESOURCES[resource].singular}/{obj['metadata']['name']}{tail}")
        else:
            output.out += printed(self.cluster.now(), line, resource, [obj], single=True)

    def _annotate(self, line: CommandLine, output: Output) -> int:
        return self._set_marks(line, output, "annotations", "annotation")

    def _label(self, line: CommandLine, output: Output) -> int:
        return self._set_marks(line, output, "labels", "label")

    def _set_marks(self, line: CommandLine, output: Output, where: str, what: str) -> int:
        marks = [word for word in line.words[1:] if "=" in word or word.endswith("-")]
        resource, names = _resource_and_names([word for word in line.words if word not in marks])
        namespace = line.namespace if RESOURCES[resource].namespaced else ""
        wanted = dict(_mark(word) for word in marks)
        for obj in self._objects(line, resource, names):
            have, name = obj["metadata"].get(where, {}), obj["metadata"]["name"]
            for key, value in wanted.items():
                if value is not None and have.get(key, value) != value and not line.on("overwrite"):
                    raise _Failed(_overwrite_refused(what, key, have[key]))
            after = self._verbs.patch(resource, namespace, name, MERGE, {"metadata": {where: wanted}})
            changed = after["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]
            self._say(line, output, resource, after, _mark_verb(what, wanted, changed))
        return 0

    def _taint(self, line: CommandLine, output: Output) -> int:
        marks = [word for word in line.words[1:] if ":" in word or word.endswith("-")]
        _, names = _resource_and_names([word for word in line.words if word not in marks])
        for name in names:
            node = self._verbs.get("nodes", "", name)
            taints = list(node["spec"].get("taints", ()))
            for mark in marks:
                taints = _tainted(taints, mark)
            self._verbs.patch("nodes", "", name, MERGE, {"spec": {"taints": taints or None}})
            added = any(not mark.endswith("-") for mark in marks)
            output.out.append(f"node/{name} {'tainted' if added else 'untainted'}")
        return 0


_VERBS: Final[dict[str, Callable[[FakeKubectl, CommandLine, Output], int]]] = {
    "get": FakeKubectl._get,
    "wait": FakeKubectl._wait,
    "version": FakeKubectl._version,
    "cordon": FakeKubectl._cordon,
    "uncordon": FakeKubectl._uncordon,
    "drain": FakeKubectl._drain,
    "delete": FakeKubectl._delete,
    "patch": FakeKubectl._patch,
    "annotate": FakeKubectl._annotate,
    "label": FakeKubectl._label,
    "taint": FakeKubectl._taint,
}


def _joined(lines: list[str]) -> str:
    return "".join(line if isinstance(line, Verbatim) else f"{line}\n" for line in lines)


def _resource_and_names(words: list[str]) -> tuple[str, list[str]]:
    if not words:
        raise _Failed("error: You must specify the type of resource")
    if "/" in words[0]:
        pairs = [word.split("/", 1) for word in words]
        return _resource_named(pairs[0][0]), [pair[1] for pair in pairs]
    return _resource_named(words[0]), words[1:]


def _resource_named(word: str) -> str:
    plain = word.split(".", maxsplit=1)[0].lower()
    for entry in RESOURCES.values():
        if plain in (entry.name, entry.singular, *entry.short_names):
            return entry.name
    raise _Failed(f'error: the server doesn\'t have a resource type "{word}"')


def _drain_flags(line: CommandLine) -> DrainFlags:
    grace = line.text("grace-period")
    return DrainFlags(
        ignore_daemonsets=line.on("ignore-daemonsets"),
        delete_emptydir_data=line.on("delete-emptydir-data"),
        force=line.on("force"),
        disable_eviction=line.on("disable-eviction"),
        timeout_seconds=seconds_of(line.text("timeout", "0"), "timeout"),
        grace_seconds=float(grace) if grace and float(grace) >= 0 else None,
        skip_wait_seconds=int(line.text("skip-wait-for-delete-timeout", "0")),
        pod_selector=line.text("pod-selector"),
    )


def _met(obj: Obj | None, wanted: str) -> bool:
    if wanted == "delete" or obj is None:
        return obj is None
    kind, _, rest = wanted.partition("=")
    name, _, value = rest.partition("=")
    if kind == "condition":
        entry = condition(obj, name)
        return entry is not None and str(entry["status"]).lower() == (value or "true").lower()
    found = find(name.strip("{}"), obj)
    return bool(found) and (not value or text_of(found[0]) == value)


def _mark(word: str) -> tuple[str, str | None]:
    key, equals, value = word.partition("=")
    return (key, value) if equals else (word.removesuffix("-"), None)


def _mark_verb(what: str, wanted: dict[str, str | None], changed: bool) -> str:
    if what == "annotation":
        return "annotated"
    if not changed:
        return "not labeled"
    return "unlabeled" if all(value is None for value in wanted.values()) else "labeled"


def _overwrite_refused(what: str, key: str, value: str) -> str:
    if what == "annotation":
        return (
            f"error: --overwrite is false but found the following declared annotation(s): "
            f"'{key}' already has a value ({value})"
        )
    return f"error: '{key}' already has a value ({value}), and --overwrite is false"


def _tainted(taints: list[Obj], mark: str) -> list[Obj]:
    if mark.endswith("-"):
        key, _, effect = mark[:-1].partition(":")
        return [taint for taint in taints if taint["key"] != key or (effect and taint["effect"] != effect)]
    pair, _, effect = mark.rpartition(":")
    key, _, value = pair.partition("=")
    kept = [taint for taint in taints if (taint["key"], taint["effect"]) != (key, effect)]
    fresh = {"key": key, "effect": effect, **({"value": value} if value else {})}
    return [*kept, fresh]
