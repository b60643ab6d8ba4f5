"""The simulated Systems Manager: a command's delivery, its statuses, its limits and its cancellation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from simulator.aws import Cloud
from simulator.aws.moto_patches.ssm import STDOUT_LIMIT, CommandResult
from simulator.clock import VirtualClock

IMAGE = "ami-12345678"


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(VirtualClock()) as cloud:
        yield cloud


def launch(cloud: Cloud, **changes: Any) -> str:
    arguments = {"ImageId": IMAGE, "InstanceType": "t3.small", "MinCount": 1, "MaxCount": 1, **changes}
    return str(once(cloud).run_instances(**arguments)["Instances"][0]["InstanceId"])


def once(cloud: Cloud) -> Any:
    """An EC2 client that does not retry, as the launcher's."""
    config = Config(retries={"total_max_attempts": 1})
    return boto3.client("ec2", region_name=cloud.region, config=config)


def code_of(failure: pytest.ExceptionInfo[ClientError]) -> tuple[str, int]:
    response = failure.value.response
    return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]


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
    with pytest.raises(ClientError) as failure:
        commands.look(command)
    assert code_of(failure)[0] == "InvocationDoesNotExist"
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
    with pytest.raises(ClientError, match=message) as failure:
        commands.ssm.send_command(DocumentName="fleet-Say", InstanceIds=[commands.server], Parameters=parameters)
    assert code_of(failure)[0] == "InvalidParameters"


def test_an_unmanaged_instance_and_an_unknown_document_are_refused(cloud: Cloud, commands: Commands) -> None:
    with pytest.raises(ClientError) as failure:
        commands.ssm.send_command(DocumentName="fleet-None", InstanceIds=[commands.server])
    assert code_of(failure)[0] == "InvalidDocument"
    cloud.client("ec2").terminate_instances(InstanceIds=[commands.server])
    with pytest.raises(ClientError) as failure:
        commands.send()
    assert code_of(failure)[0] == "InvalidInstanceId"


def test_a_script_that_exits_with_an_error_has_failed(cloud: Cloud, commands: Commands) -> None:
    commands.result = CommandResult(exit_code=3, stdout="half", stderr="error: no")
    command = commands.send()
    cloud.clock.advance(10)
    found = commands.look(command)
    assert (found["Status"], found["ResponseCode"], found["StandardErrorContent"]) == ("Failed", 3, "error: no")


def test_output_is_cut_at_its_limit(cloud: Cloud, commands: Commands) -> None:
    commands.result = CommandResult(exit_code=0, stdout="x" * 30_000)
    command = commands.send()
    cloud.clock.advance(10)
    output = commands.look(command)["StandardOutputContent"]
    assert len(output) == STDOUT_LIMIT
    assert output.endswith("---Output truncated---")


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


def test_an_agent_that_comes_back_in_time_runs_the_command(cloud: Cloud, commands: Commands) -> None:
    cloud.commands.offline.add(commands.server)
    command = commands.send()
    cloud.clock.at(cloud.clock.now() + 20, cloud.commands.offline.clear)
    cloud.clock.advance(60)
    assert commands.status(command)[0] == "Success"


def test_an_agent_that_stays_away_times_the_delivery_out(cloud: Cloud, commands: Commands) -> None:
    cloud.commands.offline.add(commands.server)
    command = commands.send()
    cloud.clock.advance(30)
    assert commands.status(command) == ("TimedOut", "DeliveryTimedOut")
    assert commands.started == []


def test_a_command_can_still_arrive_after_its_delivery_timed_out(cloud: Cloud, commands: Commands) -> None:
    cloud.commands.offline.add(commands.server)
    cloud.commands.delays.late_delivery_seconds = 45
    command = commands.send()
    cloud.clock.advance(100)
    assert commands.status(command) == ("TimedOut", "DeliveryTimedOut")
    assert len(commands.started) == 1


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
