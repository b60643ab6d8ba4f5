"""Commands on the K3s server through SSM Run Command: our own documents only, never free text.

What an answer means for a worker is domain/scale_down/drain.py's matter. ClientError goes no further than this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from node_fleet.domain.model.errors import InvalidInputError, ServerUnreachableError
from node_fleet.domain.model.operation import Target
from node_fleet.domain.scale_down.drain import CommandResult
from node_fleet.settings import Settings

__all__ = ["CommandResult", "ServerCommands", "checked", "stop_and_uncordon"]

POLL_SECONDS = 1.0
SHORT_EXECUTION_SECONDS = 60
PATTERNS: dict[str, re.Pattern[str]] = {
    "NodeName": re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"),
    "InstanceId": re.compile(r"i-[0-9a-f]{8,17}"),
    "OperationId": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}"),
    "NotAfter": re.compile(r"[0-9]{1,11}"),
    "DrainTimeoutSeconds": re.compile(r"[0-9]{1,5}"),
    "DrainMode": re.compile(r"voluntary|not-ready|deadline"),
    "ExecutionTimeoutSeconds": re.compile(r"[0-9]{1,4}"),
}
"""The same patterns as in cluster/commands/parameters.json: SSM, this module and the scripts each refuse the rest."""

_WAITING = frozenset({"Pending", "InProgress", "Delayed", "Cancelling", "InvocationDoesNotExist"})
_RAN_TO_ITS_END = frozenset({"Success", "Failed"})


class ServerCommands:
    """Sends our documents to the one server. `ec2` finds it, `clock` tells time and sleeps between polls."""

    def __init__(self, ssm: Any, ec2: Any, settings: Settings, clock: Any) -> None:
        self._ssm = ssm
        self._ec2 = ec2
        self._settings = settings
        self._clock = clock
        self._found: tuple[str, int] | None = None

    def send(self, document: str, parameters: Mapping[str, str]) -> str:
        """Start a document, for example "DrainNode", and answer the command's id. Does not wait.

        Raises:
            InvalidInputError: a parameter does not match its pattern; nothing was sent.
            ServerUnreachableError: the server is not managed by SSM, or SSM refused the command.
            ServerNotFoundError: no server carries the tag.
        """
        values = {"ExecutionTimeoutSeconds": str(SHORT_EXECUTION_SECONDS), **parameters}
        checked(values)
        server = self._server_id()
        self._require_managed(server)
        with _ssm_errors(f"send {document}", server):
            answer = self._ssm.send_command(
                InstanceIds=[server],
                DocumentName=self._settings.document_prefix + document,
                TimeoutSeconds=self._settings.delivery_timeout_seconds,
                Parameters={name: [value] for name, value in values.items()},
            )
        command_id: str = answer["Command"]["CommandId"]
        return command_id

    def result(self, command_id: str) -> CommandResult:
        """How a command stands. One that SSM does not show (yet) has the status InvocationDoesNotExist."""
        server = self._server_id()
        try:
            with _ssm_errors("ask for a command's result", server, passing="InvocationDoesNotExist"):
                answer = self._ssm.get_command_invocation(CommandId=command_id, InstanceId=server)
        except ClientError:
            return CommandResult(status="InvocationDoesNotExist", command_id=command_id)
        return _result(answer, command_id)

    def run(self, document: str, parameters: Mapping[str, str]) -> CommandResult:
        """A short command and its result; the last answer, not final, when it takes longer than the setting allows."""
        return self.wait(self.send(document, parameters))

    def wait(self, command_id: str) -> CommandResult:
        """Poll a command until it is final or the time for short commands is up."""
        until = self._clock.now() + self._settings.command_wait_seconds
        while True:
            self._clock.sleep(POLL_SECONDS)
            result = self.result(command_id)
            if result.final or self._clock.now() >= until:
                return result

    def cancel(self, command_id: str) -> None:
        """Ask SSM to stop a command; one that has ended, or that SSM does not know, needs no stopping."""
        server = self._server_id()
        try:
            with _ssm_errors("cancel a command", server, passing="InvalidCommandId"):
                self._ssm.cancel_command(CommandId=command_id, InstanceIds=[server])
        except ClientError:
            return

    def _server_id(self) -> str:
        """The server's instance id, looked up once a minute: polls must not double the calls."""
        now = self._clock.now()
        if self._found is None or now - self._found[1] >= SHORT_EXECUTION_SECONDS:
            self._found = (self._ec2.server().instance_id, now)
        return self._found[0]

    def _require_managed(self, server: str) -> None:
        with _ssm_errors("ask whether the server is managed", server):
            answer = self._ssm.describe_instance_information(Filters=[{"Key": "InstanceIds", "Values": [server]}])
        pings = [one.get("PingStatus", "") for one in answer.get("InstanceInformationList", ())]
        if "Online" not in pings:
            found = pings[0] if pings else "not registered"
            self._found = None
            raise ServerUnreachableError(_not_managed(server, f"its SSM agent is {found}"))


def stop_and_uncordon(server: ServerCommands, target: Target, operation_id: str) -> CommandResult:
    """End the target's drain for certain, then take back that operation's cordon; answers the UncordonNode command.

    The order matters: a drain that still runs would evict on, or cordon again.
    """
    if target.command_id and not server.result(target.command_id).final:
        server.cancel(target.command_id)
        server.wait(target.command_id)
    return server.run("UncordonNode", {"NodeName": target.node_name, "OperationId": operation_id})


def checked(parameters: Mapping[str, str]) -> None:
    """Refuse every value that a command line must not see. Raises InvalidInputError naming the parameter."""
    for name, value in parameters.items():
        pattern = PATTERNS.get(name)
        if pattern is None:
            raise InvalidInputError(f"{name} is no parameter of our documents, expected one of {', '.join(PATTERNS)}")
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise InvalidInputError(f"{name} is {value!r:.80}, expected {pattern.pattern}")


def _result(answer: Mapping[str, Any], command_id: str) -> CommandResult:
    """SSM says more in StatusDetails ("Execution Timed Out") than in Status ("TimedOut"); spaces differ by call."""
    status = str(answer.get("Status") or "")
    details = str(answer.get("StatusDetails") or status).replace(" ", "")
    return CommandResult(
        status=details or "no status",
        exit_code=int(answer.get("ResponseCode", -1)),
        stdout=answer.get("StandardOutputContent") or "",
        stderr=answer.get("StandardErrorContent") or "",
        final=status not in _WAITING,
        known=status in _RAN_TO_ITS_END and details in _RAN_TO_ITS_END,
        command_id=command_id,
    )


def _not_managed(server: str, why: str) -> str:
    return (
        f"server_not_managed: the K3s server {server} runs, but SSM cannot reach it ({why});"
        " check its SSM agent, instance profile and route to the ssm endpoints"
    )


@contextmanager
def _ssm_errors(action: str, server: str, *, passing: str = "") -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        problem = error.response.get("Error", {})
        code = problem.get("Code", "")
        if passing and code == passing:
            raise
        if code == "InvalidInstanceId":
            raise ServerUnreachableError(_not_managed(server, "SendCommand answers InvalidInstanceId")) from error
        raise ServerUnreachableError(f"SSM: cannot {action}: {code}: {problem.get('Message', '')}") from error
    except BotoCoreError as error:
        raise ServerUnreachableError(f"SSM: cannot {action}: {error}") from error
