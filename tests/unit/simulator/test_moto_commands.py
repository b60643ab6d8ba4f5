"""The simulated Systems Manager: a command's delivery, its statuses, its limits and its cancellation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from simulator.aws import Cloud
from simulator.aws.moto_patches.ssm import STDOUT_LIMIT, CommandResult
from tests.support.simulated_aws import launch, refused

DOCUMENT = {
    "schemaVersion": "2.2",
    "parameters": {
        "NodeName": {"type": "String", "allowedPattern": "^[a-z0-9-]{1,63}$"},
        "Seconds": {"type": "String", "default": "60", "allowedPattern": "^[0-9]+$"},
    },
    "mainSteps": [
        {
            "action": "aws:runShellScript",
            "name": "Say",
            "inputs": {
                "timeoutSeconds": "{{ Seconds }}",
                "runCommand": ["NODE_NAME='{{ NodeName }}'", 'echo "node/$NODE_NAME drained"', "exit ${CODE:-0}"],
            },
        }
    ],
}


class Commands:
    """A server with a document and a runner with given answers."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.ssm = cloud.client("ssm")
        self.ssm.create_document(
            Name="fleet-Say", Content=json.dumps(DOCUMENT), DocumentType="Command", DocumentFormat="JSON"
        )
        self.server = launch(cloud)
        cloud.clock.advance(10)
        self.started: list[tuple[str, str, float]] = []
        self.finished: list[float] = []
        self.takes = 5.0
        self.result = CommandResult(exit_code=0, stdout="done")
        cloud.commands.command_runner = self.run

    def run(self, script: str, *, instance_id: str, execution_timeout: float) -> CommandResult:
        self.started.append((script, instance_id, execution_timeout))
        self.cloud.clock.wait(self.takes)
        self.finished.append(self.cloud.clock.now())
        return self.result

    def send(self, node: str = "i-1", **parameters: list[str]) -> str:
        return str(
            self.ssm.send_command(
                DocumentName="fleet-Say",
                InstanceIds=[self.server],
                Parameters={"NodeName": [node], **parameters},
                TimeoutSeconds=30,
            )["Command"]["CommandId"]
        )

    def look(self, command_id: str) -> Any:
        return self.ssm.get_command_invocation(CommandId=command_id, InstanceId=self.server)

    def status(self, command_id: str) -> tuple[str, str]:
        found = self.look(command_id)
        return found["Status"], found["StatusDetails"]


@pytest.fixture
def commands(cloud: Cloud) -> Commands:
    return Commands(cloud)


def test_a_command_is_unknown_then_pending_then_in_progress_then_over(cloud: Cloud, commands: Commands) -> None:
    command = commands.send()
    with refused("InvocationDoesNotExist"):
        commands.look(command)
    seen = []
    for _ in range(4):
        cloud.clock.advance(0.5 if not seen else 2)
        seen.append(commands.status(command)[0])
    assert seen == ["Pending", "InProgress", "InProgress", "Success"]
    found = commands.look(command)
    assert (found["ResponseCode"], found["StandardOutputContent"]) == (0, "done")
    assert len(commands.ssm.list_command_invocations(CommandId=command)["CommandInvocations"]) == 1


def test_parameters_go_into_the_script_and_its_time_limit(cloud: Cloud, commands: Commands) -> None:
    commands.send("i-0abc", Seconds=["90"])
    cloud.clock.advance(2)
    ((script, instance_id, limit),) = commands.started
    assert script.splitlines()[0] == "NODE_NAME='i-0abc'"
    assert (instance_id, limit) == (commands.server, 90.0)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"NodeName": ["a'; reboot; '"]}, "does not match"),
        ({}, "is required"),
        ({"NodeName": ["a"], "Extra": ["b"]}, "not defined"),
    ],
)
def test_wrong_parameters_are_refused(commands: Commands, parameters: dict[str, list[str]], message: str) -> None:
    with refused("InvalidParameters", message=message):
        commands.ssm.send_command(DocumentName="fleet-Say", InstanceIds=[commands.server], Parameters=parameters)


def test_an_unmanaged_instance_and_an_unknown_document_are_refused(cloud: Cloud, commands: Commands) -> None:
    with refused("InvalidDocument"):
        commands.ssm.send_command(DocumentName="fleet-None", InstanceIds=[commands.server])
    cloud.client("ec2").terminate_instances(InstanceIds=[commands.server])
    with refused("InvalidInstanceId"):
        commands.send()


def test_a_script_that_exits_with_an_error_has_failed_and_its_output_is_cut_at_its_limit(
    cloud: Cloud, commands: Commands
) -> None:
    commands.result = CommandResult(exit_code=3, stdout="x" * 30_000, stderr="error: no")
    command = commands.send()
    cloud.clock.advance(10)
    found = commands.look(command)
    assert (found["Status"], found["ResponseCode"], found["StandardErrorContent"]) == ("Failed", 3, "error: no")
    assert len(found["StandardOutputContent"]) == STDOUT_LIMIT
    assert found["StandardOutputContent"].endswith("---Output truncated---")


def test_a_script_beyond_its_limit_is_killed(cloud: Cloud, commands: Commands) -> None:
    commands.takes = 500
    command = commands.send(Seconds=["60"])
    cloud.clock.advance(600)
    assert commands.status(command) == ("TimedOut", "ExecutionTimedOut")
    assert commands.finished == []


def test_cancelling_stops_a_running_script(cloud: Cloud, commands: Commands) -> None:
    commands.takes = 50
    command = commands.send()
    cloud.clock.advance(5)
    commands.ssm.cancel_command(CommandId=command)
    assert commands.status(command)[0] == "Cancelling"
    cloud.clock.advance(100)
    assert commands.status(command)[0] == "Cancelled"
    assert commands.finished == []


def test_cancelling_before_delivery_starts_nothing(cloud: Cloud, commands: Commands) -> None:
    cloud.commands.offline.add(commands.server)
    command = commands.send()
    cloud.clock.advance(2)
    commands.ssm.cancel_command(CommandId=command)
    cloud.commands.offline.clear()
    cloud.clock.advance(100)
    assert commands.status(command)[0] == "Cancelled"
    assert commands.started == []


@pytest.mark.parametrize(
    ("back_after", "late_delivery", "status", "runs"),
    [(20, None, "Success", 1), (999, None, "DeliveryTimedOut", 0), (999, 45, "DeliveryTimedOut", 1)],
)
def test_an_agent_that_is_away_too_long_times_the_delivery_out_and_the_command_may_still_arrive(
    commands: Commands, back_after: int, late_delivery: float | None, status: str, runs: int
) -> None:
    cloud = commands.cloud
    cloud.commands.offline.add(commands.server)
    if late_delivery:
        cloud.commands.delays.late_delivery_seconds = late_delivery
    command = commands.send()
    cloud.clock.at(cloud.clock.now() + back_after, cloud.commands.offline.clear)
    cloud.clock.advance(100)
    assert (commands.status(command)[1], len(commands.started)) == (status, runs)


def test_a_command_can_be_delayed_or_undeliverable(cloud: Cloud, commands: Commands) -> None:
    cloud.commands.delays.delayed_seconds = 10
    command = commands.send()
    cloud.clock.advance(5)
    assert commands.status(command)[0] == "Delayed"
    cloud.commands.undeliverable.add(commands.server)
    other = commands.send()
    cloud.clock.advance(60)
    assert commands.status(command)[0] == "Success"
    assert commands.status(other) == ("Failed", "Undeliverable")


def test_the_agents_connection_can_be_asked_for(cloud: Cloud, commands: Commands) -> None:
    filters = [{"Key": "InstanceIds", "Values": [commands.server]}]

    def pings() -> list[str]:
        found = commands.ssm.describe_instance_information(Filters=filters)["InstanceInformationList"]
        return [one["PingStatus"] for one in found]

    assert pings() == ["Online"]
    cloud.commands.lost.add(commands.server)
    assert pings() == ["ConnectionLost"]
    cloud.client("ec2").terminate_instances(InstanceIds=[commands.server])
    assert pings() == []
