"""The simulator around a small template: schedules, events, messages, clean-up, the server, Prometheus and Slack."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
import requests

from node_fleet.domain.model.errors import InvalidSettingsError
from simulator.aws import FaultRule
from simulator.aws.template import Template
from simulator.local_deployment import CREDENTIALS, LocalDeployment
from tests.support import toy_template
from tests.support.simulated_aws import create_table

START = 1_780_300_830.0


class Prometheus:
    """Answers every query with what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []

    def handle(
        self, path: str, params: Mapping[str, str], headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        self.asked.append((path, dict(params)))
        return 200, {"Content-Type": "application/json"}, json.dumps({"status": "success"}).encode()


class SimulatedCluster:
    """Records what EC2 tells the cluster."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def add_server(self, instance_id: str, az: str) -> None:
        self.calls.append(("server", az))

    def instance_started(self, *, instance_id: str, instance_type: str, az: str, market: str, address: str) -> None:
        self.calls.append(("started", instance_type, az, market, bool(address)))

    def instance_ended(self, instance_id: str) -> None:
        self.calls.append(("gone",))


class Handlers:
    """The three functions of the toy template; each test gives them what to do."""

    def __init__(self) -> None:
        self.look: Callable[[Any, Any], Any] = lambda event, context: event
        self.slack: list[Any] = []
        self.cleaned: list[Any] = []

    def call_look(self, event: Any, context: Any) -> Any:
        return self.look(event, context)

    def modules(self) -> dict[str, SimpleNamespace]:
        return {
            "handlers.toy_look": SimpleNamespace(handler=self.call_look),
            "handlers.toy_slack": SimpleNamespace(handler=lambda event, context: self.slack.append(event)),
            "handlers.toy_clean_up": SimpleNamespace(handler=lambda event, context: self.cleaned.append(event)),
        }


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> Handlers:
    handlers = Handlers()
    for name, module in handlers.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    return handlers


@pytest.fixture
def deployment(handlers: Handlers) -> Iterator[LocalDeployment]:
    cluster = SimulatedCluster()
    with LocalDeployment.from_template(
        Template(stacks={"Toy": toy_template.stack()}),
        start=START,
        cluster=lambda clock: cluster,
        prometheus=lambda cluster, clock: Prometheus(),
    ) as deployment:
        yield deployment


def ask_prometheus(deployment: LocalDeployment, **settings: Any) -> requests.Response:
    url = f"http://{deployment.server_ip}:30090/api/v1/query"
    return requests.post(url, data={"query": "up"}, auth=settings.pop("auth", CREDENTIALS), timeout=10)


def test_the_schedule_starts_the_workflow_every_two_minutes_with_its_input(deployment: LocalDeployment) -> None:
    runs = deployment.run_ticks(3)
    assert [run.input for run in runs] == [
        {"trigger": "schedule", "scheduled_at": f"2026-06-01T08:0{minute}:00Z"} for minute in (2, 4, 6)
    ]
    assert [run.status for run in runs] == ["SUCCEEDED"] * 3
    assert deployment.interval_seconds == 120
    deployment.tick(deployment.ticks[-1])
    deployment.settle()
    assert deployment.executions[-1].input == runs[-1].input, "a tick can be delivered twice"


def test_a_failed_execution_reaches_the_clean_up_function(deployment: LocalDeployment, handlers: Handlers) -> None:
    def broken(event: Any, context: Any) -> Any:
        raise ValueError("no")

    handlers.look = broken
    (run,) = deployment.run_ticks(1)
    deployment.run_until(deployment.clock.now() + 1)
    (event,) = handlers.cleaned
    assert event["detail"]["status"] == "FAILED"
    assert event["detail"]["executionArn"] == run.arn
    assert event["detail"]["error"] == "LookFailed"


def test_a_stopped_execution_reaches_the_clean_up_function(deployment: LocalDeployment, handlers: Handlers) -> None:
    handlers.look = lambda event, context: deployment.clock.wait(20)
    run = deployment.start_workflow({"trigger": "manual"})
    deployment.run_until(deployment.clock.now() + 5)
    deployment.cloud.runner.stop(run)
    deployment.settle()
    deployment.run_until(deployment.clock.now() + 1)
    assert [event["detail"]["status"] for event in handlers.cleaned] == ["ABORTED"]


def test_a_published_message_reaches_the_subscribed_function(deployment: LocalDeployment, handlers: Handlers) -> None:
    def publish(event: Any, context: Any) -> Any:
        import os

        boto3.client("sns").publish(TopicArn=os.environ["SNS_TOPIC_ARN"], Message="grown", Subject="node-fleet")
        return {}

    handlers.look = publish
    deployment.run_ticks(1)
    deployment.run_until(deployment.clock.now() + 1)
    (event,) = handlers.slack
    assert event["Records"][0]["Sns"]["Message"] == "grown"
    assert [message["Subject"] for message in deployment.messages] == ["node-fleet"]


def test_an_asynchronous_function_that_fails_is_tried_twice_more(
    deployment: LocalDeployment, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[float] = []

    def fail(event: Any, context: Any) -> Any:
        times.append(deployment.clock.now())
        raise ValueError("not yet")

    deployment.cloud.lambdas.register("SlackMessageFunction", fail)
    deployment.publish(deployment.resources.setting("SNS_TOPIC_ARN"), "x")
    deployment.run_until(deployment.clock.now() + 600)
    assert [at - times[0] for at in times] == [0, 60, 180]


def test_the_cluster_learns_of_workers_and_not_of_other_instances(deployment: LocalDeployment) -> None:
    ec2 = deployment.cloud.client("ec2")
    subnet = deployment.resources.setting("SUBNETS").split(",")[1].partition("=")[2]
    for role in ("k3s-worker", "something-else"):
        ec2.run_instances(
            LaunchTemplate={"LaunchTemplateId": deployment.resources.setting("LAUNCH_TEMPLATE_ID"), "Version": "1"},
            MinCount=1,
            MaxCount=1,
            SubnetId=subnet,
            InstanceMarketOptions={"MarketType": "spot"},
            TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": "Role", "Value": role}]}],
        )
    deployment.run_until(deployment.clock.now() + 60)
    ec2.terminate_instances(InstanceIds=deployment.cloud.ec2.live_ids()[1:])
    assert deployment.cluster.calls == [
        ("server", "ap-southeast-1a"),
        ("started", "t3.small", "ap-southeast-1b", "spot", True),
        ("gone",),
    ]


def test_prometheus_answers_on_the_server_with_basic_auth(deployment: LocalDeployment) -> None:
    assert ask_prometheus(deployment).json() == {"status": "success"}
    assert deployment.transport.prometheus.asked == [("/api/v1/query", {"query": "up"})]  # type: ignore[union-attr]
    assert ask_prometheus(deployment, auth=("node-fleet", "wrong")).status_code == 401


@pytest.mark.parametrize(
    ("fault", "status", "start"),
    [("unauthorized", 401, b"Unauth"), ("html", 200, b"<html>"), ("query_error", 400, b'{"status":"error"'),
     ("empty", 200, b'{"status":"success","data":{"resultType":"vector","result":[]}}')],
)  # fmt: skip
def test_prometheus_can_answer_wrongly(deployment: LocalDeployment, fault: Any, status: int, start: bytes) -> None:
    deployment.transport.fault = fault
    response = ask_prometheus(deployment)
    assert (response.status_code, response.content[: len(start)]) == (status, start)


def test_prometheus_can_refuse_or_be_slow_in_virtual_time(deployment: LocalDeployment) -> None:
    deployment.transport.fault = "down"
    with pytest.raises(requests.ConnectionError, match="refused"):
        ask_prometheus(deployment)
    deployment.transport.fault = "slow"
    before = deployment.clock.now()
    with pytest.raises(requests.ReadTimeout):
        ask_prometheus(deployment)
    assert deployment.clock.now() == before + 10


def test_slack_takes_messages_and_can_ask_to_wait(deployment: LocalDeployment) -> None:
    deployment.transport.slack_answers.append((429, {"Retry-After": "3"}))
    url = "https://hooks.slack.com/services/T/B/x"
    assert requests.post(url, json={"text": "a"}, timeout=5).headers["Retry-After"] == "3"
    assert requests.post(url, json={"text": "b"}, timeout=5).status_code == 200
    assert [json.loads(body) for body in deployment.transport.slack] == [{"text": "b"}]


def test_no_other_host_is_reached(deployment: LocalDeployment) -> None:
    with pytest.raises(requests.ConnectionError, match=r"no route to example\.com"):
        requests.get("http://example.com/", timeout=5)


def test_events_that_a_function_puts_go_to_the_rules(deployment: LocalDeployment, handlers: Handlers) -> None:
    machine = deployment.resources.machines["toy-autoscaler"]
    entry = {
        "Source": "aws.states",
        "DetailType": "Step Functions Execution Status Change",
        "Detail": json.dumps({"status": "TIMED_OUT", "stateMachineArn": machine}),
    }
    deployment.cloud.client("events").put_events(Entries=[entry])
    deployment.run_until(deployment.clock.now() + 1)
    assert [event["detail"]["status"] for event in handlers.cleaned] == ["TIMED_OUT"]


def test_the_server_is_found_by_its_tag_and_its_login_in_the_secret(deployment: LocalDeployment) -> None:
    filters = [{"Name": "tag:Role", "Values": ["k3s-master"]}, {"Name": "instance-state-name", "Values": ["running"]}]
    (reservation,) = deployment.cloud.client("ec2").describe_instances(Filters=filters)["Reservations"]
    assert reservation["Instances"][0]["PrivateIpAddress"] == deployment.server_ip
    client = deployment.cloud.client("secretsmanager")
    value = json.loads(client.get_secret_value(SecretId="node-fleet/prometheus-auth")["SecretString"])
    assert (value["username"], value["password"]) == CREDENTIALS


def test_settings_can_be_overridden_for_every_function(handlers: Handlers) -> None:
    with LocalDeployment.from_template(
        Template(stacks={"Toy": toy_template.stack()}), settings_overrides={"MIN_NODES": "3"}
    ) as deployment:
        assert {f.environment["MIN_NODES"] for f in deployment.resources.functions.values()} == {"3"}


def test_settings_that_contradict_each_other_are_refused_before_anything_runs(handlers: Handlers) -> None:
    deployment = LocalDeployment.from_template(
        Template(stacks={"Toy": toy_template.stack()}), settings_overrides={"MIN_NODES": "5", "MAX_NODES": "3"}
    )
    with pytest.raises(InvalidSettingsError, match="min_workers=5 must be at most max_workers=3"), deployment:
        pass


def test_a_template_that_attaches_to_another_network_gets_one_made(handlers: Handlers) -> None:
    stack = toy_template.stack()
    variables = stack["Resources"]["LookFunction"]["Properties"]["Environment"]["Variables"]
    variables |= {"SUBNETS": "ap-southeast-1a=subnet-0123456789abcdef0", "LAUNCH_TEMPLATE_ID": "lt-0123456789abcdef0"}
    with LocalDeployment.from_template(Template(stacks={"Toy": stack})) as deployment:
        subnets = deployment.resources.setting("SUBNETS").split(",")
        assert [entry.partition("=")[0] for entry in subnets] == [f"ap-southeast-1{zone}" for zone in "abc"]
        assert deployment.cloud.ec2.pool_of({"SubnetId": subnets[2].partition("=")[2]}).az == "ap-southeast-1c"


def test_the_same_seed_gives_the_same_day(handlers: Handlers) -> None:
    def day() -> list[tuple[Any, ...]]:
        with LocalDeployment.from_template(Template(stacks={"Toy": toy_template.stack()}), start=START) as deployment:
            deployment.cloud.faults.inject(
                FaultRule(operation="DescribeInstances", code="RequestLimitExceeded", status=503, count=2)
            )
            handlers.look = lambda event, context: [
                boto3.client("ec2").describe_instances()["Reservations"][0]["Instances"][0]["InstanceId"],
                context.aws_request_id,
            ]
            return [(run.started_at, run.ended_at, run.input) for run in deployment.run_ticks(4)]

    assert day() == day()


def test_items_are_deleted_some_hours_after_their_time_to_live_where_the_table_has_one(
    deployment: LocalDeployment,
) -> None:
    dynamodb, now = deployment.cloud.client("dynamodb"), deployment.clock.now()
    for table, specification in (("kept", False), ("expiring", True)):
        create_table(dynamodb, table, "id", "sk")
        if specification:
            wanted = {"Enabled": True, "AttributeName": "until"}
            dynamodb.update_time_to_live(TableName=table, TimeToLiveSpecification=wanted)
        for name, until in (("past", now + 60), ("later", now + 86_400)):
            item = {"id": {"S": "a"}, "sk": {"S": name}, "until": {"N": str(until)}}
            dynamodb.put_item(TableName=table, Item=item)
        dynamodb.put_item(TableName=table, Item={"id": {"S": "a"}, "sk": {"S": "without"}})

    def left(table: str) -> list[str]:
        return sorted(item["sk"]["S"] for item in dynamodb.scan(TableName=table)["Items"])

    deployment.run_until(now + 3600)
    assert left("expiring") == ["later", "past", "without"]  # a function may still find it
    deployment.run_until(now + 7 * 3600)
    assert left("expiring") == ["later", "without"]
    deployment.run_until(now + 2 * 86_400)
    assert (left("expiring"), left("kept")) == (["without"], ["later", "past", "without"])
