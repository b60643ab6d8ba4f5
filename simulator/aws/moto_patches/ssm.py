"""Systems Manager's Run Command: documents, parameters, delivery, and every end that a command can have.

The `command_runner` runs the script text of the document; time passes on the virtual clock.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol
from unittest import mock

from node_fleet.domain.model.value_class import value_class
from simulator.aws.moto_patches import PatchError, expect, swapped
from simulator.clock import Handle, ThreadKilledError, VirtualClock, VirtualThread

STDOUT_LIMIT = 24_000
STDERR_LIMIT = 8_000
TRUNCATED = "\n---Output truncated---"
DEFAULT_EXECUTION_SECONDS = 3600.0
PLUGIN = "aws:runShellScript"
FINAL = frozenset({"Success", "Cancelled", "TimedOut", "Failed"})
PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z0-9_.]+)\s*\}\}")


@value_class
class CommandResult:
    """How a script ended."""

    exit_code: int
    stdout: str = ""
    stderr: str = ""


class CommandRunner(Protocol):
    """Runs a script on an instance, waiting on the virtual clock; a ThreadKilledError there means: stop it."""

    def __call__(self, script: str, *, instance_id: str, execution_timeout: float) -> CommandResult: ...


class CommandStoppedError(ThreadKilledError):
    """The agent kills the script: it was cancelled or took too long."""


class SsmError(Exception):
    """An error that the API answers with its code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(slots=True, kw_only=True)
class SsmDelays:
    """How long Systems Manager takes, in seconds. Above 0, late_delivery runs an undelivered script all the same."""

    delivery_seconds: float = 1.0
    unknown_seconds: float = 0.5
    cancel_seconds: float = 2.0
    delayed_seconds: float = 0.0
    late_delivery_seconds: float = 0.0


@dataclass(slots=True, kw_only=True, eq=False)
class CommandRun:
    """One command on one instance."""

    command_id: str
    instance_id: str
    document: str
    parameters: Mapping[str, list[str]]
    script: str
    execution_seconds: float
    sent_at: float
    delivery_limit: float
    status: str = "Pending"
    details: str = "Pending"
    exit_code: int = -1
    stdout: str = ""
    stderr: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    thread: VirtualThread | None = None
    timers: list[Handle] = field(default_factory=list)

    @property
    def final(self) -> bool:
        return self.status in FINAL


class RunCommand:
    """Commands and their invocations. Set `command_runner`, take agents off line, or change the delays."""

    def __init__(self, clock: VirtualClock) -> None:
        self.delays = SsmDelays()
        self.runs: list[CommandRun] = []
        self.offline: set[str] = set()
        self.undeliverable: set[str] = set()
        self.lost: set[str] = set()
        self.command_runner: CommandRunner = _no_runner
        self.is_managed: Callable[[str], bool] = lambda instance_id: True
        self._clock = clock
        self._documents: dict[str, dict[str, Any]] = {}

    def add_document(self, name: str, content: Mapping[str, Any]) -> None:
        self._documents[name] = dict(content)

    def prepare(
        self, *, document: str | None, instance_ids: list[str], parameters: Mapping[str, list[str]]
    ) -> tuple[str, float]:
        """Checks what SendCommand checks; the script with its parameters put in, and its time limit."""
        content = self._documents.get(document or "")
        if content is None:
            raise SsmError("InvalidDocument", f"document {document!r} does not exist")
        unmanaged = [instance_id for instance_id in instance_ids if not self.is_managed(instance_id)]
        if unmanaged or not instance_ids:
            raise SsmError("InvalidInstanceId", f"Instances {unmanaged} not in a valid state for account")
        values = _checked_parameters(content, parameters)
        inputs = content["mainSteps"][0]["inputs"]
        script = "\n".join(_filled(line, values) for line in inputs["runCommand"])
        seconds = float(_filled(str(inputs.get("timeoutSeconds", DEFAULT_EXECUTION_SECONDS)), values))
        return script, seconds

    def send(
        self,
        *,
        command_id: str,
        document: str,
        instance_ids: list[str],
        parameters: Mapping[str, list[str]],
        timeout_seconds: float,
        prepared: tuple[str, float],
    ) -> None:
        """Puts a checked command on its way to its instances."""
        for instance_id in instance_ids:
            run = CommandRun(
                command_id=command_id,
                instance_id=instance_id,
                document=document,
                parameters=dict(parameters),
                script=prepared[0],
                execution_seconds=prepared[1],
                sent_at=self._clock.now(),
                delivery_limit=self._clock.now() + timeout_seconds,
            )
            self.runs.append(run)
            self._post(run)

    def invocation(self, command_id: str, instance_id: str) -> CommandRun:
        """The invocation as GetCommandInvocation finds it: not at all in the first moments."""
        runs = [run for run in self.runs if run.command_id == command_id]
        if not runs:
            raise SsmError("InvalidCommandId", f"no command {command_id!r}")
        for run in runs:
            if run.instance_id == instance_id and self._clock.now() >= run.sent_at + self.delays.unknown_seconds:
                return run
        raise SsmError("InvocationDoesNotExist", f"no invocation of {command_id!r} on {instance_id!r}")

    def cancel(self, command_id: str, instance_ids: list[str] | None = None) -> None:
        """CancelCommand: what has not started never will; what runs is killed a moment later."""
        for run in self.of(command_id):
            if run.final or (instance_ids and run.instance_id not in instance_ids):
                continue
            if run.status in ("Pending", "Delayed"):
                self._end(run, "Cancelled", "Cancelled")
            elif run.status == "InProgress":
                run.status = run.details = "Cancelling"
                self._after(run, self.delays.cancel_seconds, partial(self._stop, run, "Cancelled", "Cancelled"))

    def ping(self, instance_id: str) -> str:
        """PingStatus: an agent that went off line counts as Online until AWS has noticed (put it into `lost`)."""
        return "ConnectionLost" if instance_id in self.lost else "Online"

    def of(self, command_id: str) -> list[CommandRun]:
        return [run for run in self.runs if run.command_id == command_id]

    def response(self, run: CommandRun) -> dict[str, Any]:
        """One invocation as the API shows it."""
        answer = {
            "CommandId": run.command_id,
            "InstanceId": run.instance_id,
            "DocumentName": run.document,
            "PluginName": PLUGIN,
            "ResponseCode": run.exit_code,
            "ExecutionStartDateTime": _iso(run.started_at),
            "ExecutionEndDateTime": _iso(run.ended_at),
            "ExecutionElapsedTime": _elapsed(run),
            "Status": run.status,
            "StatusDetails": run.details,
            "StandardOutputContent": _cut(run.stdout, STDOUT_LIMIT) if run.final else "",
            "StandardErrorContent": _cut(run.stderr, STDERR_LIMIT) if run.final else "",
            "StandardOutputUrl": "",
            "StandardErrorUrl": "",
        }
        return answer

    def _post(self, run: CommandRun) -> None:
        if run.instance_id in self.undeliverable:
            self._after(run, self.delays.delivery_seconds, lambda: self._end(run, "Failed", "Undeliverable"))
            return
        self._after(run, run.delivery_limit - self._clock.now(), lambda: self._give_up(run))
        self._after(run, self.delays.delivery_seconds + self.delays.delayed_seconds, lambda: self._deliver(run))
        if self.delays.delayed_seconds:
            self._after(run, self.delays.delivery_seconds, lambda: self._delay(run))

    def _delay(self, run: CommandRun) -> None:
        if run.status == "Pending":
            run.status = run.details = "Delayed"

    def _deliver(self, run: CommandRun) -> None:
        if run.status not in ("Pending", "Delayed"):
            return
        if run.instance_id in self.offline:
            self._after(run, 1.0, lambda: self._deliver(run))
            return
        run.status = run.details = "InProgress"
        self._begin(run)

    def _give_up(self, run: CommandRun) -> None:
        if run.status not in ("Pending", "Delayed"):
            return
        self._end(run, "TimedOut", "DeliveryTimedOut")
        if self.delays.late_delivery_seconds:
            at = self._clock.now() + self.delays.late_delivery_seconds
            self._clock.at(at, lambda: self._begin(run))

    def _begin(self, run: CommandRun) -> None:
        run.started_at = self._clock.now()
        run.thread = self._clock.spawn(lambda: self._run(run), name=f"command {run.document} on {run.instance_id}")
        self._after(run, run.execution_seconds, lambda: self._stop(run, "TimedOut", "ExecutionTimedOut"))

    def _run(self, run: CommandRun) -> None:
        result = self.command_runner(run.script, instance_id=run.instance_id, execution_timeout=run.execution_seconds)
        run.stdout, run.stderr = result.stdout, result.stderr
        if not run.final:
            run.exit_code = result.exit_code
            status = "Success" if result.exit_code == 0 else "Failed"
            self._end(run, status, status)

    def _stop(self, run: CommandRun, status: str, details: str) -> None:
        if run.final:
            return
        if run.thread is not None:
            run.thread.kill(CommandStoppedError(details))
        self._end(run, status, details)

    def _end(self, run: CommandRun, status: str, details: str) -> None:
        run.status, run.details = status, details
        run.ended_at = self._clock.now()
        for timer in run.timers:
            self._clock.cancel(timer)
        run.timers.clear()

    def _after(self, run: CommandRun, seconds: float, act: Callable[[], object]) -> None:
        run.timers.append(self._clock.at(self._clock.now() + seconds, act))


def _no_runner(script: str, *, instance_id: str, execution_timeout: float) -> CommandResult:
    return CommandResult(exit_code=127, stderr="this cloud has no command runner")


def _checked_parameters(content: Mapping[str, Any], given: Mapping[str, list[str]]) -> dict[str, str]:
    declared: Mapping[str, Mapping[str, Any]] = content.get("parameters", {})
    unknown = sorted(set(given) - set(declared))
    if unknown:
        raise SsmError("InvalidParameters", f"parameters {unknown} are not defined in the document")
    return dict(_values(declared, given))


def _values(declared: Mapping[str, Mapping[str, Any]], given: Mapping[str, list[str]]) -> Iterator[tuple[str, str]]:
    for name, rule in declared.items():
        if name not in given and "default" not in rule:
            raise SsmError("InvalidParameters", f"parameter {name!r} is required")
        value = ",".join(given[name]) if name in given else str(rule["default"])
        pattern = rule.get("allowedPattern")
        if pattern and not re.search(pattern, value):
            raise SsmError("InvalidParameters", f"parameter {name!r}: {value!r} does not match {pattern!r}")
        allowed = rule.get("allowedValues")
        if allowed and value not in allowed:
            raise SsmError("InvalidParameters", f"parameter {name!r}: {value!r} is none of {allowed}")
        yield name, value


def _filled(text: str, values: Mapping[str, str]) -> str:
    return PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - len(TRUNCATED)] + TRUNCATED


def _iso(epoch: float | None) -> str:
    return "" if epoch is None else dt.datetime.fromtimestamp(epoch, tz=dt.UTC).isoformat().replace("+00:00", "Z")


def _elapsed(run: CommandRun) -> str:
    if run.started_at is None or run.ended_at is None:
        return ""
    return f"PT{run.ended_at - run.started_at:.3f}S"


def parse_document(content: str | Mapping[str, Any]) -> dict[str, Any]:
    """The content of a Command document, from JSON text or as CloudFormation holds it."""
    parsed: dict[str, Any] = json.loads(content) if isinstance(content, str) else dict(content)
    return parsed


@contextlib.contextmanager
def real_commands(commands: RunCommand) -> Iterator[None]:
    """Systems Manager runs the scripts; moto keeps the documents and answers the requests."""
    from moto.core.responses import ActionResult, EmptyResult
    from moto.ssm.exceptions import SSMException
    from moto.ssm.models import SimpleSystemManagerBackend as Backend
    from moto.ssm.responses import SimpleSystemManagerResponse as Response

    send = expect(Backend, "send_command")
    create = expect(Backend, "create_document")
    expect(Backend, "get_command_invocation", "self", "command_id", "instance_id", "plugin_name")

    def send_command(this: Any, **kwargs: Any) -> Any:
        name, ids, parameters = kwargs["document_name"], list(kwargs["instance_ids"]), kwargs["parameters"]
        with _answered(SSMException):
            prepared = commands.prepare(document=name, instance_ids=ids, parameters=parameters)
        command = send(this, **kwargs)
        command.status, command.instance_ids = "Pending", ids
        commands.send(
            command_id=command.command_id,
            document=name,
            instance_ids=ids,
            parameters=parameters,
            timeout_seconds=kwargs["timeout_seconds"] or 3600,
            prepared=prepared,
        )
        return command

    def create_document(this: Any, **kwargs: Any) -> Any:
        documents = create(this, **kwargs)
        commands.add_document(kwargs["name"], parse_document(kwargs["content"]))
        return documents

    def get_command_invocation(this: Any, command_id: str, instance_id: str, plugin_name: str | None) -> Any:
        with _answered(SSMException):
            return commands.response(commands.invocation(command_id, instance_id))

    def list_command_invocations(this: Any) -> Any:
        found = commands.of(this._get_param("CommandId"))
        return ActionResult({"CommandInvocations": [commands.response(run) for run in found]})

    def cancel_command(this: Any) -> Any:
        commands.cancel(this._get_param("CommandId"), this._get_param("InstanceIds", []))
        return EmptyResult()

    def describe_instance_information(this: Any) -> Any:
        asked = [i for f in this._get_param("Filters", []) if f["Key"] == "InstanceIds" for i in f["Values"]]
        known = [{"InstanceId": i, "PingStatus": commands.ping(i)} for i in asked if commands.is_managed(i)]
        return ActionResult({"InstanceInformationList": known})

    _expect_none_of(Response, "cancel_command", "list_command_invocations", "describe_instance_information")
    with (
        swapped(Backend, "send_command", send_command),
        swapped(Backend, "create_document", create_document),
        swapped(Backend, "get_command_invocation", get_command_invocation),
        mock.patch.object(Response, "cancel_command", cancel_command, create=True),
        mock.patch.object(Response, "list_command_invocations", list_command_invocations, create=True),
        mock.patch.object(Response, "describe_instance_information", describe_instance_information, create=True),
    ):
        yield


def _expect_none_of(owner: type, *names: str) -> None:
    """Raises PatchError when moto has gained one of these methods."""
    for name in names:
        if hasattr(owner, name):
            raise PatchError(f"patch SSM: moto now has {name}; use its own")


@contextlib.contextmanager
def _answered(error: type[Exception]) -> Iterator[None]:
    try:
        yield
    except SsmError as refused:
        raise error(refused.code, refused.message) from None
