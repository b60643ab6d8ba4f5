"""EC2: the fleet's instances by tag, the K3s server, launching and terminating. Decides nothing.

The tags in EC2 define which instances exist. ClientError and BotoCoreError do not leave this module.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from node_fleet.adapters.ec2_instances import impaired_since, instance_of, tags_of
from node_fleet.adapters.fleet_request import MANAGED_BY, WORKER_ROLE, fleet_request
from node_fleet.domain.model.errors import (
    Ec2Error,
    ServerNotFoundError,
    TerminationRefusedError,
)
from node_fleet.domain.model.operation import LaunchRequest
from node_fleet.domain.model.snapshot import STATUS_CHECK, SYSTEM_CHECK, Instance
from node_fleet.domain.model.standby import STOPPED_STATES
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.scale_up.launch import RUNNING_STATES
from node_fleet.domain.scale_up.placement import Pool
from node_fleet.domain.scale_up.refusals import NO_ANSWER, Refusal
from node_fleet.domain.scale_up.requests import LaunchAnswer, refusals_of
from node_fleet.settings import Settings

TERMINATION_REFUSALS = ("OperationNotPermitted", "UnauthorizedOperation", "AccessDenied", "AuthFailure")
"""The same request fails again until an operator changes something."""
FILTER_VALUES = 200
"""EC2 takes at most 200 values in one filter."""


@value_class
class Server:
    """The K3s server as EC2 shows it."""

    instance_id: str
    private_ip: str


@value_class
class ServerMachine:
    """The instance of the K3s server: pending, running, stopping or stopped."""

    instance_id: str
    state: str


class Ec2Fleet:
    """The fleet of one cluster. `launcher` is a client that does not repeat requests by itself; default: `client`."""

    def __init__(self, client: Any, settings: Settings, *, launcher: Any = None) -> None:
        self._client = client
        self._launcher = launcher or client
        self._settings = settings

    # reading ---------------------------------------------------------------------------------------------------

    def instances(self) -> tuple[Instance, ...]:
        """The workers that are pending or running, all pages, by id. Raises Ec2Error."""
        filters = {**self._fleet_tags(), "instance-state-name": RUNNING_STATES}
        return tuple(sorted(self._read(filters), key=lambda i: i.instance_id))

    def with_standby(self) -> tuple[tuple[Instance, ...], tuple[Instance, ...]]:
        """The same workers, and the standby workers, which are stopped: one listing. Raises Ec2Error."""
        filters = {**self._fleet_tags(), "instance-state-name": (*RUNNING_STATES, *STOPPED_STATES)}
        found = sorted(self._read(filters), key=lambda i: i.instance_id)
        running = tuple(i for i in found if i.state in RUNNING_STATES)
        return running, tuple(i for i in found if i.is_standby)

    def find_worker(self, instance_id: str) -> Instance | None:
        """That worker in whatever state; None for an unknown instance and for one of another owner."""
        found = self._read({**self._fleet_tags(), "instance-id": (instance_id,)})
        return next(found, None)

    def states(self, instance_ids: Iterable[str]) -> dict[str, str]:
        """State of each id; "gone" for an id that EC2 does not list. One unknown id does not fail the others."""
        wanted = list(dict.fromkeys(instance_ids))
        known = {raw["InstanceId"]: raw["State"]["Name"] for raw in self._described(wanted)}
        return {instance_id: known.get(instance_id, "gone") for instance_id in wanted}

    def find(self, instance_ids: Iterable[str]) -> dict[str, Instance]:
        """These instances in whatever state, by id, without those that EC2 does not list. Raises Ec2Error."""
        rule = self._settings.node_name_rule
        return {raw["InstanceId"]: instance_of(raw, rule) for raw in self._described(instance_ids)}

    def end_reasons(self, instance_ids: Iterable[str]) -> dict[str, tuple[str, str]]:
        """Code and message of the state reason of each ended instance that EC2 still lists. Raises Ec2Error."""
        found = (raw.get("StateReason", {}) | {"id": raw["InstanceId"]} for raw in self._described(instance_ids))
        return {reason["id"]: (reason["Code"], reason.get("Message", "")) for reason in found if reason.get("Code")}

    def _described(self, instance_ids: Iterable[str]) -> Iterator[dict[str, Any]]:
        wanted = list(dict.fromkeys(instance_ids))
        for start in range(0, len(wanted), FILTER_VALUES):
            yield from self._describe({"instance-id": wanted[start : start + FILTER_VALUES]})

    def launch_image(self, version: str) -> str:
        """The image that a version of the launch template gives now; empty when the template names none.

        A template may name its image by a public parameter, which EC2 resolves. Raises Ec2Error.
        """
        with _ec2_errors(f"read version {version} of the launch template {self._settings.launch_template_id}"):
            answer = self._client.describe_launch_template_versions(
                LaunchTemplateId=self._settings.launch_template_id, Versions=[version], ResolveAlias=True
            )
        image = next((one["LaunchTemplateData"].get("ImageId", "") for one in answer["LaunchTemplateVersions"]), "")
        return "" if image.startswith("resolve:") else image

    def impaired(self, before: int) -> dict[str, str]:
        """Instances of the region whose status check is impaired since `before` (epoch) or longer, with the condition.

        That of the system, where both are. EC2 has no filter by tag here, and lists impaired instances only. Raises
        Ec2Error.
        """
        found: dict[str, str] = {}
        statuses = self._client.get_paginator("describe_instance_status")
        for check, condition in (("instance-status.status", STATUS_CHECK), ("system-status.status", SYSTEM_CHECK)):
            filters = [{"Name": check, "Values": ["impaired"]}]
            with _ec2_errors("read the status checks of instances"):
                for page in statuses.paginate(Filters=filters):
                    long = (one for one in page["InstanceStatuses"] if impaired_since(one) <= before)
                    found |= {one["InstanceId"]: condition for one in long}
        return found

    def console_output(self, instance_id: str) -> str:
        """What the instance has written to its console, decoded by boto3; empty when EC2 has none. Raises Ec2Error."""
        output = ""
        with _ec2_errors(f"read the console of {instance_id}", unless="InvalidInstanceID.NotFound"):
            output = str(self._client.get_console_output(InstanceId=instance_id).get("Output", ""))
        return output

    def unattached_volumes(self) -> tuple[tuple[str, int], ...]:
        """The fleet's volumes that are attached to no instance, each with its GiB. Raises Ec2Error."""
        filters = {**self._fleet_tags(), "status": ("available",)}
        wanted = [{"Name": name, "Values": list(values)} for name, values in filters.items()]
        with _ec2_errors("list volumes"):
            pages = self._client.get_paginator("describe_volumes").paginate(Filters=wanted)
            return tuple((one["VolumeId"], int(one["Size"])) for page in pages for one in page["Volumes"])

    def launched_by(self, operation_id: str) -> tuple[Instance, ...]:
        """The instances that an operation launched, in whatever state: a repeated step continues with them."""
        return tuple(self._read({**self._fleet_tags(), "tag:Operation": (operation_id,)}))

    def server(self) -> Server:
        """The running K3s server.

        Raises:
            ServerNotFoundError: no instance carries the tag, or several do and Cluster tags do not tell them apart, or
            the server does not run.
        """
        found = self._server_of(("running",))
        return Server(instance_id=found["InstanceId"], private_ip=found.get("PrivateIpAddress", ""))

    def _server_of(self, states: tuple[str, ...]) -> dict[str, Any]:
        role, cluster = self._settings.server_role_tag, self._settings.cluster_id
        found = list(self._describe({"tag:Role": (role,), "instance-state-name": states}))
        ours = [raw for raw in found if tags_of(raw).get("Cluster") == cluster]
        ours = ours or [raw for raw in found if "Cluster" not in tags_of(raw)]
        kind = "running " if states == ("running",) else ""
        if not ours and kind:
            server = self.server_machine()
            raise ServerNotFoundError(f"the K3s server {server.instance_id} is {_NOT_RUNNING[server.state]}")
        if not ours:
            raise ServerNotFoundError(f"no instance carries the tag Role={role}; add it to the K3s server")
        if len(ours) > 1:
            ids = ", ".join(sorted(raw["InstanceId"] for raw in ours))
            raise ServerNotFoundError(
                f"{len(ours)} {kind}instances carry the tag Role={role}: {ids}; tag the server Cluster={cluster}"
            )
        return ours[0]

    def server_machine(self) -> ServerMachine:
        """The K3s server in whatever state but ended, by its tag.

        Raises:
            ServerNotFoundError: as server(). Ec2Error.
        """
        found = self._server_of(("pending", "running", "stopping", "stopped"))
        return ServerMachine(instance_id=found["InstanceId"], state=found["State"]["Name"])

    # changing --------------------------------------------------------------------------------------------------

    def launch(self, request: LaunchRequest, *, operation_id: str, template_version: str = "") -> LaunchAnswer:
        """One CreateFleet of type instant, never repeated by boto. The same request again launches nothing.

        template_version: of the launch template; empty: the configured one.

        Raises:
            LaunchConfigurationError: the launch template is not set.
        """
        wanted = fleet_request(self._settings, request, operation_id, template_version)
        try:
            answer = self._launcher.create_fleet(**wanted)
        except ClientError as error:
            problem = error.response.get("Error", {})
            return LaunchAnswer(code=problem.get("Code", "Unknown"), message=problem.get("Message", ""))
        except BotoCoreError as error:
            return LaunchAnswer(code=NO_ANSWER, message=str(error))
        launched = {i: part["InstanceType"] for part in answer.get("Instances", ()) for i in part["InstanceIds"]}
        refusals = (refusal for error in answer.get("Errors", ()) for refusal in _refusals(request, error))
        return LaunchAnswer(launched=launched, refusals=tuple(dict.fromkeys(refusals)))

    def terminate(self, instance_ids: Iterable[str]) -> None:
        """Terminate each instance; one that does not exist counts as terminated.

        Raises:
            TerminationRefusedError: the same request can never succeed. Ec2Error: any other refusal.
        """
        for instance_id in instance_ids:
            action = f"terminate {instance_id}"
            with _ec2_errors(action, unless="InvalidInstanceID.NotFound", final=TERMINATION_REFUSALS):
                self._client.terminate_instances(InstanceIds=[instance_id])

    def stop_worker(self, instance_id: str) -> None:
        """Stop a worker and keep its volume; the same request again changes nothing. Raises Ec2Error."""
        with _ec2_errors(f"stop {instance_id}"):
            self._client.stop_instances(InstanceIds=[instance_id])

    def start_worker(self, instance_id: str) -> LaunchAnswer:
        """Start a stopped worker; the same request again changes nothing. The answer has EC2's refusal, if any.

        A refusal of an instance that runs is none: an earlier try of the request has started it. Raises Ec2Error when
        EC2 does not answer.
        """
        try:
            self._client.start_instances(InstanceIds=[instance_id])
        except ClientError as error:
            problem = error.response.get("Error", {})
            if self.states([instance_id])[instance_id] in RUNNING_STATES:
                return LaunchAnswer()
            return LaunchAnswer(code=problem.get("Code", "Unknown"), message=problem.get("Message", ""))
        except BotoCoreError as error:
            raise Ec2Error(f"EC2: cannot start {instance_id}: {error}") from error
        return LaunchAnswer()

    def reboot(self, instance_id: str) -> None:
        """Ask EC2 to reboot a worker: it shuts down cleanly, or after a few minutes without that. Raises Ec2Error.

        The request is never repeated by boto: the second reboot could hit a worker that has just started again.
        """
        with _ec2_errors(f"reboot {instance_id}"):
            self._launcher.reboot_instances(InstanceIds=[instance_id])

    def stop(self, instance_id: str) -> None:
        """Ask EC2 to stop the server; it keeps its volume and its private address. Raises Ec2Error."""
        with _ec2_errors(f"stop the server {instance_id}"):
            self._client.stop_instances(InstanceIds=[instance_id])

    def start(self, instance_id: str) -> None:
        """Ask EC2 to start the stopped server. Raises Ec2Error, for example when EC2 has no capacity for its type."""
        with _ec2_errors(f"start the server {instance_id}"):
            self._launcher.start_instances(InstanceIds=[instance_id])

    def tag(self, instance_ids: Iterable[str], tags: Mapping[str, str]) -> None:
        """Add tags; an instance that does not exist needs none. Raises Ec2Error."""
        pairs = [{"Key": key, "Value": value[:256]} for key, value in tags.items()]
        for instance_id in instance_ids:
            with _ec2_errors(f"tag {instance_id}", unless="InvalidInstanceID.NotFound"):
                self._client.create_tags(Resources=[instance_id], Tags=pairs)

    def _fleet_tags(self) -> dict[str, Iterable[str]]:
        return {"tag:ManagedBy": (MANAGED_BY,), "tag:Role": (WORKER_ROLE,), "tag:Cluster": (self._settings.cluster_id,)}

    @cached_property
    def _listing(self) -> Any:
        """Made once: botocore makes a class of its own for each paginator."""
        return self._client.get_paginator("describe_instances")

    def _read(self, filters: Mapping[str, Iterable[str]]) -> Iterator[Instance]:
        return (instance_of(raw, self._settings.node_name_rule) for raw in self._describe(filters))

    def _describe(self, filters: Mapping[str, Iterable[str]]) -> Iterator[dict[str, Any]]:
        wanted = [{"Name": name, "Values": list(values)} for name, values in filters.items()]
        with _ec2_errors("list instances"):
            for page in self._listing.paginate(Filters=wanted):
                for reservation in page["Reservations"]:
                    yield from reservation["Instances"]


def _refusals(request: LaunchRequest, error: Mapping[str, Any]) -> tuple[Refusal, ...]:
    """An error of CreateFleet: of the type that it names, else of the whole request."""
    code, message = error.get("ErrorCode", "Unknown"), error.get("ErrorMessage", "")
    named = error.get("LaunchTemplateAndOverrides", {}).get("Overrides", {}).get("InstanceType")
    if not named:
        return refusals_of(request, code, message)
    return (Refusal(pool=Pool(request.zone, named, request.market), code=code, message=message),)


_NOT_RUNNING = {
    "stopped": "stopped, not running; start it in EC2, or with node-fleet wake when the fleet is off",
    "stopping": "stopping, not running; start it in EC2 when it is stopped",
    "pending": "pending, not running; EC2 starts it, and the next run asks again",
    "running": "running again; the next run asks again",
}


@contextmanager
def _ec2_errors(action: str, *, unless: str = "", final: Collection[str] = ()) -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        problem = error.response.get("Error", {})
        if unless and problem.get("Code") == unless:
            return
        kind = TerminationRefusedError if problem.get("Code") in final else Ec2Error
        raise kind(f"EC2: cannot {action}: {problem.get('Code')}: {problem.get('Message')}") from error
    except BotoCoreError as error:
        raise Ec2Error(f"EC2: cannot {action}: {error}") from error
