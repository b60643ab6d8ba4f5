"""One simulated deployment: a clock, moto as AWS, the fakes, and the template that CDK synthesises.

It owns what AWS does by itself: schedules, events to their targets, messages to their subscribers. It decides nothing.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, Self

from node_fleet.settings import Settings
from simulator.aws import eventbridge
from simulator.aws.cloud import Cloud
from simulator.aws.deployment import DeployedResources
from simulator.aws.lambdas import LambdaReply
from simulator.aws.moto_patches.ec2 import InstanceListener
from simulator.aws.moto_patches.expiry import EXPIRY_SECONDS, delete_expired
from simulator.aws.moto_patches.ssm import CommandRunner
from simulator.aws.recorder import AwsCall, current_function
from simulator.aws.template import RuleSpec, Template
from simulator.clock import DEFAULT_START, VirtualClock
from simulator.fakes.http import PrometheusHandler, Transport
from simulator.runner import RUNNING, Execution

CREDENTIALS = ("node-fleet", "simulator-password")
SLACK_URL = "https://hooks.slack.com/services/T000/B000/simulator"
ASYNC_RETRIES = (60.0, 120.0)
ZONES = ("a", "b", "c")


class ClusterSide(InstanceListener, Protocol):
    """The cluster, as far as the deployment needs it."""

    def add_server(self, instance_id: str, az: str) -> None: ...


@dataclass(slots=True, kw_only=True)
class LocalDeploymentOptions:
    """How the simulator starts: time, seed, and the functions that make the cluster and its fakes from a clock.

    clock: another clock than a virtual one that begins at `start`.
    """

    start: float = DEFAULT_START
    clock: VirtualClock | None = None
    seed: int = 0
    settings_overrides: Mapping[str, str] = field(default_factory=dict)
    cluster: Callable[[VirtualClock], ClusterSide] | None = None
    prometheus: Callable[[Any, VirtualClock], PrometheusHandler] | None = None
    commands: Callable[[Any, VirtualClock], CommandRunner] | None = None


class LocalDeployment:
    """A context manager around one simulated deployment. Everything public works in virtual time."""

    def __init__(self, template: Template, options: LocalDeploymentOptions | None = None) -> None:
        self.options = options or LocalDeploymentOptions()
        self.clock = self.options.clock or VirtualClock(self.options.start)
        self.cloud = Cloud(self.clock, region=template.region, account=template.account, seed=self.options.seed)
        self.template = template
        self.resources = DeployedResources(self.cloud, template, environment=self.options.settings_overrides)
        self.transport = Transport(clock=self.clock, credentials=CREDENTIALS)
        self.cluster: Any = None
        self.server_id = ""
        self.server_ip = ""
        self.events: list[dict[str, Any]] = []
        self.messages: list[dict[str, Any]] = []
        self.ticks: list[float] = []
        self._stack = contextlib.ExitStack()

    @classmethod
    def from_template(cls, template: Template | Path | Iterable[Path], **options: Any) -> Self:
        """From a template, a *.template.json or a cdk.out directory; options are those of LocalDeploymentOptions."""
        loaded = template if isinstance(template, Template) else Template.load(template)
        return cls(loaded, LocalDeploymentOptions(**options))

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.cloud)
            stack.enter_context(self.transport.installed())
            self._start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends everything that runs and gives real time back. Harmless twice."""
        self._stack.close()

    @property
    def executions(self) -> list[Execution]:
        return self.cloud.runner.executions

    @property
    def interval_seconds(self) -> float:
        """The period of the schedule that starts the workflow."""
        periods = [eventbridge.period_seconds(rule.schedule) for rule in self.resources.rules if rule.schedule]
        return float(min((period for period in periods if period), default=120))

    def run_until(self, when: float | Callable[[], bool], *, limit_seconds: float = 86_400.0) -> bool:
        """Runs to an epoch, or until a condition holds (False when the limit comes first)."""
        if callable(when):
            return self.clock.run_until(when, limit=self.clock.now() + limit_seconds)
        self.clock.advance_to(when)
        return True

    def run_ticks(self, count: int) -> list[Execution]:
        """Runs until so many more scheduled ticks have come and no execution runs; the executions of that time."""
        known, wanted = len(self.executions), len(self.ticks) + count
        self.run_until(lambda: len(self.ticks) >= wanted, limit_seconds=self.interval_seconds * (count + 2))
        self.settle()
        return self.executions[known:]

    def settle(self, limit_seconds: float = 86_400.0) -> None:
        """Runs until no execution runs."""
        self.run_until(lambda: not self.cloud.runner.running(), limit_seconds=limit_seconds)

    def start_workflow(self, input: Any, name: str | None = None) -> Execution:
        """Starts the autoscaler by hand."""
        return self.cloud.runner.start(input, name, machine=self.machine("autoscaler"))

    def machine(self, part: str) -> str:
        """The ARN of the state machine whose name contains part; with only one machine, that one."""
        found = [arn for name, arn in self.resources.machines.items() if part.lower() in name.lower()]
        if len(found) != 1 and len(self.resources.machines) != 1:
            raise LookupError(f"{part!r} names {len(found)} of the state machines {list(self.resources.machines)}")
        return found[0] if found else next(iter(self.resources.machines.values()))

    def settings(self) -> Settings:
        """Those of cdk.json under the overrides. Raises InvalidSettingsError where they contradict each other."""
        return Settings.from_env(self.cloud.lambdas.environment_of(next(iter(self.resources.functions.values()))))

    def subnets(self) -> dict[str, str]:
        """Zone -> subnet of the workers."""
        return dict(entry.split("=", 1) for entry in self.resources.setting("SUBNETS").split(","))

    def tick(self, scheduled_at: float | None = None) -> None:
        """Delivers one more scheduled event now, as EventBridge sometimes does twice or late."""
        for rule in self.resources.rules:
            if rule.schedule and eventbridge.period_seconds(rule.schedule):
                self._fire(rule, self.clock.now() if scheduled_at is None else scheduled_at)

    def put_event(self, source: str, detail_type: str, detail: Mapping[str, Any], resources: list[str]) -> None:
        """An event on the default bus, delivered to the targets of every rule that matches.

        It is kept, but for those of executions: `executions` has the same, and there are thousands.
        """
        event = self._event(source, detail_type, detail, resources=resources)
        if source != "aws.states":
            self.events.append(event)
        for rule in self.resources.rules:
            if rule.pattern is not None and eventbridge.matches(rule.pattern, event):
                self._deliver(rule, event)

    def publish(self, topic_arn: str, message: str, subject: str = "", attributes: Any = None) -> None:
        """A message on a topic: kept, and delivered to the functions that subscribe."""
        record = {"TopicArn": topic_arn, "Message": message, "Subject": subject, "at": self.clock.now()}
        self.messages.append(record)
        for one in self.resources.subscriptions:
            if one.topic_arn == topic_arn and one.protocol == "lambda":
                self._invoke_later(one.endpoint, _sns_event(record, attributes))

    def _start(self) -> None:
        options = self.options
        if options.cluster is not None:
            self.cluster = options.cluster(self.clock)
            self.cloud.ec2.listeners.append(self.cluster)
        self.cloud.ec2.tracked = _is_worker
        self.cloud.ec2.events.append(self.put_event)
        self.cloud.runner.on_change.append(self._announce)
        self.cloud.recorder.after_effect.append(self._forward)
        self.resources.create()
        self.settings()  # contradictions fail here, not in every execution
        self._place_network()
        self._place_server()
        self._place_secrets()
        if options.prometheus is not None:
            self.transport.prometheus = options.prometheus(self.cluster, self.clock)
        if options.commands is not None:
            self.cloud.commands.command_runner = options.commands(self.cluster, self.clock)
        self._start_schedules()

    def _place_network(self) -> None:
        """Create a network where the template attaches to one that exists elsewhere, and note it."""
        ec2 = self.cloud.client("ec2")
        overrides: dict[str, str] = {}
        known = {subnet["SubnetId"] for subnet in ec2.describe_subnets()["Subnets"]}
        wanted = [entry.partition("=")[2] for entry in self.resources.setting("SUBNETS").split(",") if entry]
        if not wanted or not set(wanted) <= known:
            overrides["SUBNETS"] = ",".join(self._made_subnets(ec2))
        templates = {one["LaunchTemplateId"] for one in ec2.describe_launch_templates()["LaunchTemplates"]}
        if self.resources.setting("LAUNCH_TEMPLATE_ID") not in templates:
            overrides["LAUNCH_TEMPLATE_ID"] = self._made_launch_template(ec2)
            overrides["LAUNCH_TEMPLATE_VERSION"] = "1"
        if overrides:
            self.resources.override_environment({**overrides, **self.options.settings_overrides})

    def _made_subnets(self, ec2: Any) -> list[str]:
        vpc_id = ec2.create_vpc(CidrBlock="10.42.0.0/16")["Vpc"]["VpcId"]
        made = []
        for number, letter in enumerate(ZONES):
            zone = f"{self.cloud.region}{letter}"
            reply = ec2.create_subnet(VpcId=vpc_id, CidrBlock=f"10.42.{number * 16}.0/20", AvailabilityZone=zone)
            made.append(f"{zone}={reply['Subnet']['SubnetId']}")
        return made

    @staticmethod
    def _made_launch_template(ec2: Any) -> str:
        data = {"ImageId": "ami-12345678", "InstanceType": "t3.small"}
        reply = ec2.create_launch_template(LaunchTemplateName="simulator-worker", LaunchTemplateData=data)
        return str(reply["LaunchTemplate"]["LaunchTemplateId"])

    def _place_server(self) -> None:
        role = self.resources.setting("SERVER_ROLE_TAG", "k3s-master")
        servers = [one for one in self.cloud.ec2.instances() if _tags(one).get("Role") == role]
        server_id = servers[0].id if servers else self._made_server(role)
        server = self.cloud.ec2.instance(server_id)
        self.clock.advance(self.cloud.ec2.delays.pending_seconds)
        self.server_id, self.server_ip = server.id, str(server.private_ip)
        port = self.resources.setting("PROMETHEUS_PORT", "30090")
        self.transport.is_prometheus = lambda netloc: netloc == f"{self.server_ip}:{port}"
        if self.cluster is not None:
            self.cluster.add_server(server.id, server.placement.zone)

    def _made_server(self, role: str) -> str:
        subnet = self.resources.setting("SUBNETS").split(",")[0].partition("=")[2]
        tags = {
            "Project": "node-fleet",
            "Role": role,
            "Name": "k3s-server",
            "Cluster": self.resources.setting("CLUSTER_ID", "node-fleet-prod"),
        }
        reply = self.cloud.client("ec2").run_instances(
            ImageId="ami-12345678",
            InstanceType="t3.medium",
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[
                {"ResourceType": "instance", "Tags": [{"Key": key, "Value": text} for key, text in tags.items()]}
            ],
            **({"SubnetId": subnet} if subnet else {}),
        )
        return str(reply["Instances"][0]["InstanceId"])

    def _place_secrets(self) -> None:
        user, password = CREDENTIALS
        self._put_secret(
            self.resources.setting("PROMETHEUS_SECRET", "node-fleet/prometheus-auth"),
            {"username": user, "password": password},
        )
        self._put_secret(self.resources.setting("SLACK_SECRET", "node-fleet/slack-webhook"), {"webhook_url": SLACK_URL})

    def _put_secret(self, name: str, value: Mapping[str, str]) -> None:
        client = self.cloud.client("secretsmanager")
        text = json.dumps(value)
        try:
            client.put_secret_value(SecretId=name, SecretString=text)
        except client.exceptions.ResourceNotFoundException:
            client.create_secret(Name=name, SecretString=text)

    def _start_schedules(self) -> None:
        self.clock.every(EXPIRY_SECONDS, self._delete_expired)
        for rule in self.resources.rules:
            if rule.schedule is None:
                continue
            period = eventbridge.period_seconds(rule.schedule)
            step = float(period or 60)
            first = (self.clock.now() // step + 1) * step
            self.clock.every(step, _Due(self, rule, counted=period is not None), first=first)

    def _delete_expired(self) -> None:
        delete_expired(self.cloud.account, self.cloud.region, self.clock.now())

    def _fire(self, rule: RuleSpec, scheduled_at: float) -> None:
        self._deliver(rule, self._event("aws.events", "Scheduled Event", {}, at=scheduled_at))

    def _event(
        self,
        source: str,
        detail_type: str,
        detail: Mapping[str, Any],
        *,
        at: float | None = None,
        resources: list[str] | None = None,
    ) -> dict[str, Any]:
        return eventbridge.event(
            source,
            detail_type,
            detail,
            now=self.clock.now() if at is None else at,
            region=self.cloud.region,
            account=self.cloud.account,
            resources=resources or [],
        )

    def _deliver(self, rule: RuleSpec, event: Mapping[str, Any]) -> None:
        for target in rule.targets:
            value = eventbridge.target_input(target, event)
            if ":states:" in target["Arn"]:
                caller = current_function.set(None)  # EventBridge starts it, not whoever made the event
                self.cloud.runner.start(value, machine=target["Arn"])
                current_function.reset(caller)
            elif ":lambda:" in target["Arn"]:
                self._invoke_later(target["Arn"], value)

    def _invoke_later(self, reference: str, value: Any) -> None:
        """An asynchronous invocation, tried again after one and after two more minutes, as Lambda does.

        When the last try has failed, the function's destination receives a record of it.
        """
        payload, function = json.dumps(value).encode(), reference.split(":")[6]

        def run() -> None:
            for pause in (*ASYNC_RETRIES, 0.0):
                reply = self.cloud.lambdas.invoke(reference, payload)
                if reply.function_error is None:
                    return
                self.clock.wait(pause)
            if topic := self.resources.given_up.get(function):
                self.publish(topic, json.dumps(self._given_up(reference, value, reply)))

        self.clock.spawn(run, name=f"async {function}")

    def _given_up(self, reference: str, value: Any, reply: LambdaReply) -> dict[str, Any]:
        """What Lambda sends to a destination. Source: AWS Lambda Developer Guide, "Configuring destinations"."""
        tries = len(ASYNC_RETRIES) + 1
        context = {"functionArn": reference, "condition": "RetriesExhausted", "approximateInvokeCount": tries}
        return {
            "version": "1.0",
            "timestamp": datetime.fromtimestamp(self.clock.now(), UTC).isoformat(),
            "requestContext": context,
            "requestPayload": value,
            "responseContext": {"statusCode": 200, "functionError": reply.function_error},
            "responsePayload": reply.payload,
        }

    def _announce(self, execution: Execution) -> None:
        detail: dict[str, Any] = {
            "executionArn": execution.arn,
            "stateMachineArn": self.resources.machines.get(execution.machine, execution.machine),
            "name": execution.name,
            "status": execution.status,
            "startDate": int(execution.started_at * 1000),
            "stopDate": None if execution.ended_at is None else int(execution.ended_at * 1000),
            "input": json.dumps(execution.input),
            "output": None if execution.status == RUNNING else json.dumps(execution.output),
        }
        if execution.error is not None:
            detail |= {"error": execution.error, "cause": execution.cause}
        self.put_event("aws.states", "Step Functions Execution Status Change", detail, [execution.arn])

    def _forward(self, call: AwsCall) -> None:
        """Delivers the messages and events that a function sends to their subscribers and rules."""
        if call.service == "sns" and call.operation == "Publish":
            given = call.parameters
            self.publish(given["TopicArn"], given["Message"], given.get("Subject", ""), given.get("MessageAttributes"))
        elif call.service == "events" and call.operation == "PutEvents":
            for entry in call.parameters["Entries"]:
                self.put_event(
                    entry["Source"], entry["DetailType"], json.loads(entry["Detail"]), entry.get("Resources", [])
                )


class _Due:
    """One schedule: fires its rule at every period, or in each minute that its cron expression names."""

    def __init__(self, deployment: LocalDeployment, rule: RuleSpec, *, counted: bool) -> None:
        self._deployment = deployment
        self._rule = rule
        self._counted = counted

    def __call__(self) -> None:
        now = self._deployment.clock.now()
        if self._counted:
            self._deployment.ticks.append(now)
        elif not eventbridge.cron_due(str(self._rule.schedule), now):
            return
        self._deployment._fire(self._rule, now)


def _tags(instance: Any) -> dict[str, str]:
    return {tag["key"]: tag["value"] for tag in instance.get_tags()}


def _is_worker(instance: Any) -> bool:
    return _tags(instance).get("Role") == "k3s-worker"


def _sns_event(record: Mapping[str, Any], attributes: Any) -> dict[str, Any]:
    message = {
        "Type": "Notification",
        "MessageId": f"{int(record['at'])}",
        "TopicArn": record["TopicArn"],
        "Subject": record["Subject"] or None,
        "Message": record["Message"],
        "Timestamp": eventbridge.iso(record["at"]),
        "MessageAttributes": attributes or {},
    }
    return {"Records": [{"EventSource": "aws:sns", "EventVersion": "1.0", "Sns": message}]}
