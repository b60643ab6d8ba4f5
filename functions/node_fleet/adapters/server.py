"""The K3s server through SSM Run Command: inspect, drain, check, uncordon and forget nodes, and write Events.

It sends the fleet's own SSM documents only, never free text. ClientError goes no further than this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from node_fleet.domain.fit.listing import PendingListing, parse_listing
from node_fleet.domain.model.errors import InvalidInputError, ServerUnreachableError
from node_fleet.domain.scale_down.drain import CommandResult
from node_fleet.domain.scale_down.inspection import (
    Inspection,
    NodeCheck,
    parse_inspection,
    parse_node_check,
    seconds_ahead,
)
from node_fleet.domain.scale_down.lost_volumes import LostVolume
from node_fleet.settings import Settings

POLL_SECONDS = 1.0
SHORT_EXECUTION_SECONDS = 60
PATTERNS: dict[str, re.Pattern[str]] = {
    "NodeName": re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"),
    "InstanceId": re.compile(r"i-[0-9a-f]{8,17}"),
    "OperationId": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}"),
    "NotAfter": re.compile(r"[0-9]{1,11}"),
    "DrainTimeoutSeconds": re.compile(r"[0-9]{1,5}"),
    "DrainMode": re.compile(r"voluntary|not-ready|deadline|hibernate"),
    "Cause": re.compile(r"none|spot|rebalance|scheduled"),
    "Mode": re.compile(r"check|upgrade"),
    "HibernateMode": re.compile(r"check|backup"),
    "FromRelease": re.compile(r"(v1[.][0-9]{1,3}[.][0-9]{1,3}(-rc[0-9]{1,3})?[+]k3s[0-9]{1,3})?"),
    "ToRelease": re.compile(r"(v1[.][0-9]{1,3}[.][0-9]{1,3}(-rc[0-9]{1,3})?[+]k3s[0-9]{1,3})?"),
    "Checksum": re.compile(r"([0-9a-f]{64})?"),
    "ExecutionTimeoutSeconds": re.compile(r"[0-9]{1,4}"),
    "Report": re.compile(r"[A-Za-z0-9_-]+"),
}
"""The same patterns as in cluster/commands/parameters.json: SSM, this module and the scripts each check them."""

_UNFINISHED = frozenset({"Pending", "InProgress", "Delayed", "Cancelling", "InvocationDoesNotExist"})
_RAN_TO_ITS_END = frozenset({"Success", "Failed"})
_UNCORDONED = ("uncordoned", "not-cordoned", "foreign-cordon", "no-node")
_FORGOTTEN = ("forgotten", "other-instance")


class ServerCommands:
    """Commands on the one K3s server. `ec2` finds it; `clock` gives the time and sleeps between polls.

    Every method may raise ServerUnreachableError, when SSM cannot reach the server or refuses the command, and
    ServerNotFoundError, when no instance carries the server's tag.
    """

    def __init__(self, ssm: Any, ec2: Any, settings: Settings, clock: Any) -> None:
        self._ssm = ssm
        self._ec2 = ec2
        self._settings = settings
        self._clock = clock
        self._found: tuple[str, int] | None = None

    def inspect(self) -> Inspection:
        """Every node with the pods that keep it; not known when the answer is missing, cut or damaged."""
        sent = self._clock.now()
        result = self.run("InspectNodes", {})
        if not result.succeeded:
            detail = f"the inspection of the nodes has no answer: SSM status {result.status}"
            error = result.stderr.strip()[:300]
            return Inspection(known=False, detail=f"{detail}: {error}" if error else detail)
        found = parse_inspection(result.stdout)
        ahead = seconds_ahead(found.at, sent, self._clock.now()) if found.known else 0
        return replace(found, seconds_ahead=ahead)

    def list_pending(self) -> PendingListing:
        """The pods that the scheduler cannot place, with what they demand; not known when the answer is missing."""
        result = self.run("ListPendingPods", {})
        if not result.succeeded:
            detail = f"the list of pending pods has no answer: SSM status {result.status}"
            return PendingListing(known=False, detail=detail)
        return parse_listing(result.stdout)

    def check(self, node_name: str) -> NodeCheck:
        """One node: its cordon, its readiness and the pods left on it."""
        result = self.run("CheckNode", {"NodeName": node_name})
        if not result.succeeded:
            detail = f"the check of node {node_name} has no answer: SSM status {result.status}"
            return NodeCheck(known=False, detail=detail)
        return parse_node_check(result.stdout, node_name)

    def start_drain(
        self,
        node_name: str,
        *,
        operation_id: str,
        mode: str,
        not_after: int,
        drain_seconds: int,
        execution_seconds: int,
        cause: str = "",
    ) -> str:
        """Start a drain and return its command id. The drain does not begin after `not_after` (epoch seconds).

        cause: the kind of the notice of EC2 that ends the instance, for the Event of the node.
        """
        parameters = {
            "NodeName": node_name,
            "OperationId": operation_id,
            "NotAfter": str(not_after),
            "DrainTimeoutSeconds": str(drain_seconds),
            "DrainMode": mode,
            "ExecutionTimeoutSeconds": str(execution_seconds),
        }
        return self.send("DrainNode", {**parameters, "Cause": cause} if cause else parameters)

    def uncordon(self, node_name: str, operation_id: str) -> CommandResult:
        """Remove that operation's cordon; the result may be unknown."""
        return self.run("UncordonNode", {"NodeName": node_name, "OperationId": operation_id})

    def ensure_uncordoned(self, node_name: str, operation_id: str, *, drain_command_id: str = "") -> CommandResult:
        """Stop the operation's drain, then remove its cordon. Safe twice. The script leaves other cordons alone.

        The drain must have ended first: one that still runs would evict pods or cordon the node again. Raises
        ServerUnreachableError when the cordon may remain.
        """
        if drain_command_id and not self.result(drain_command_id).final:
            self.cancel(drain_command_id)
            self.wait(drain_command_id)
        result = self.uncordon(node_name, operation_id)
        if not result.succeeded or result.word not in _UNCORDONED:
            raise ServerUnreachableError(
                f"node {node_name} may still be cordoned by operation {operation_id}: {result.answer}"
            )
        return result

    def forget(self, node_name: str, instance_id: str) -> CommandResult:
        """Delete the Node object and the K3s password secret of an ended instance; the result may be unknown."""
        return self.run("ForgetNode", {"NodeName": node_name, "InstanceId": instance_id})

    def ensure_forgotten(self, node_name: str, instance_id: str) -> tuple[LostVolume, ...]:
        """Delete both, or raise ServerUnreachableError, for example because the node is still Ready.

        Returns the volumes that ended with the node.

        Safe twice. A node that belongs to another instance stays. StatefulSet pods stay bound to a dead node until its
        Node object is deleted.
        """
        result = self.forget(node_name, instance_id)
        if result.word not in _FORGOTTEN:
            raise ServerUnreachableError(f"node {node_name} of {instance_id} is not deleted: {result.answer}")
        return result.volumes

    def run(self, document: str, parameters: Mapping[str, str]) -> CommandResult:
        """A short command and its result; the last result, not final, when the command takes too long."""
        return self.wait(self.send(document, parameters))

    def send(self, document: str, parameters: Mapping[str, str]) -> str:
        """Start a document, for example "DrainNode", and return the id of its command. Does not wait.

        Raises InvalidInputError when a parameter does not match its pattern; nothing was sent.
        """
        values = {"ExecutionTimeoutSeconds": str(SHORT_EXECUTION_SECONDS), **parameters}
        check_parameters(values)
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
        """The state of a command. One that SSM does not show (yet) has the status InvocationDoesNotExist."""
        server = self._server_id()
        try:
            with _ssm_errors("query a command's result", server, passing="InvocationDoesNotExist"):
                answer = self._ssm.get_command_invocation(CommandId=command_id, InstanceId=server)
        except ClientError:
            return CommandResult(status="InvocationDoesNotExist", command_id=command_id)
        return _command_result(answer, command_id)

    def wait(self, command_id: str) -> CommandResult:
        """Poll a command until it is final or the time for short commands is over."""
        until = self._clock.now() + self._settings.command_wait_seconds
        while True:
            self._clock.sleep(POLL_SECONDS)
            result = self.result(command_id)
            if result.final or self._clock.now() >= until:
                return result

    def cancel(self, command_id: str) -> None:
        """Ask SSM to stop a command; one that has ended or that SSM does not know is no error."""
        server = self._server_id()
        try:
            with _ssm_errors("cancel a command", server, passing="InvalidCommandId"):
                self._ssm.cancel_command(CommandId=command_id, InstanceIds=[server])
        except ClientError:
            return

    def _server_id(self) -> str:
        """The server's instance id, queried at most once a minute so that polls do not double the calls."""
        now = self._clock.now()
        if self._found is None or now - self._found[1] >= SHORT_EXECUTION_SECONDS:
            self._found = (self._ec2.server().instance_id, now)
        return self._found[0]

    def _require_managed(self, server: str) -> None:
        with _ssm_errors("query the server's SSM agent", server):
            answer = self._ssm.describe_instance_information(Filters=[{"Key": "InstanceIds", "Values": [server]}])
        pings = [one.get("PingStatus", "") for one in answer.get("InstanceInformationList", ())]
        if "Online" not in pings:
            found = pings[0] if pings else "not registered"
            self._found = None
            raise ServerUnreachableError(_not_managed(server, f"its SSM agent is {found}"))


def check_parameters(parameters: Mapping[str, str]) -> None:
    """Refuse every value that must not reach a command line. Raises InvalidInputError naming the parameter."""
    for name, value in parameters.items():
        pattern = PATTERNS.get(name)
        if pattern is None:
            raise InvalidInputError(f"{name} is no parameter of our documents, expected one of {', '.join(PATTERNS)}")
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise InvalidInputError(f"{name} is {value!r:.80}, expected {pattern.pattern}")


def _command_result(answer: Mapping[str, Any], command_id: str) -> CommandResult:
    """StatusDetails ("Execution Timed Out") is more exact than Status ("TimedOut"); its spaces differ by call."""
    status = str(answer.get("Status") or "")
    details = str(answer.get("StatusDetails") or status).replace(" ", "")
    return CommandResult(
        status=details or "no status",
        exit_code=int(answer.get("ResponseCode", -1)),
        stdout=answer.get("StandardOutputContent") or "",
        stderr=answer.get("StandardErrorContent") or "",
        final=status not in _UNFINISHED,
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
