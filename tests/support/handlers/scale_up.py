"""A small fleet on the simulated AWS for tests of single steps: real adapters, fake Prometheus and server."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from node_fleet import services as services_module
from node_fleet.adapters.server import ServerCommands
from node_fleet.domain.model.errors import MetricsUnavailableError, ServerUnreachableError
from node_fleet.domain.model.fleet_state import FleetState
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.run import Run
from node_fleet.domain.model.snapshot import Instance, NodeReading, PodShape, Snapshot
from node_fleet.domain.scale_down.drain import CommandResult
from node_fleet.payload import from_payload, to_payload
from node_fleet.services import Services
from node_fleet.settings import Settings
from simulator.aws.cloud import Cloud
from simulator.clock import VirtualClock

START = 1_790_000_000
MOTO_IMAGE = "ami-12c6146b"
ZONES = ("eu-central-1a", "eu-central-1b", "eu-central-1c")


class FakePrometheus:
    """Returns the given nodes and pods; `down` makes every query fail as the real reader does."""

    def __init__(self) -> None:
        self.down = False
        self.known_nodes: tuple[NodeReading, ...] = ()
        self.shapes: tuple[PodShape, ...] | None = ()
        self.questions = 0

    def nodes(self, now: int) -> tuple[NodeReading, ...]:
        self.questions += 1
        if self.down:
            raise MetricsUnavailableError("Prometheus at http://10.0.0.1:30090 does not answer")
        return self.known_nodes

    def pending(self, now: int) -> tuple[PodShape, ...] | None:
        if self.down:
            raise MetricsUnavailableError("Prometheus at http://10.0.0.1:30090 does not answer")
        return self.shapes


class FakeServer(ServerCommands):
    """Records the commands; returns the given text of each, or is unreachable. A drain takes `drain_seconds`."""

    def __init__(self, clock: VirtualClock | None = None) -> None:  # nothing of SSM is used
        self.clock = clock
        self.unreachable = True
        self.drain_seconds = 0.0
        self.ends_at: dict[str, float] = {}
        self.sent_at: list[float] = []
        self.answers: dict[str, CommandResult] = {}
        self.commands: list[tuple[str, dict[str, str]]] = []

    def run(self, document: str, parameters: dict[str, str]) -> CommandResult:
        return self.result(self.send(document, parameters))

    def send(self, document: str, parameters: dict[str, str]) -> str:
        if self.unreachable:
            raise ServerUnreachableError("the K3s server is not managed by SSM")
        self.commands.append((document, dict(parameters)))
        if self.clock is not None:
            self.sent_at.append(self.clock.now())
            if document == "DrainNode":
                self.ends_at[document] = self.clock.now() + self.drain_seconds
        return document

    def result(self, command_id: str) -> CommandResult:
        if self.clock is not None and self.clock.now() < self.ends_at.get(command_id, 0):
            return CommandResult(status="InProgress", command_id=command_id)
        return self.answers[command_id]

    def cancel(self, command_id: str) -> None:
        self.commands.append(("cancel", {"CommandId": command_id}))

    def says(self, document: str, stdout: str) -> None:
        self.unreachable = False
        self.answers[document] = CommandResult(
            status="Success", exit_code=0, stdout=stdout, stderr="", final=True, known=True, command_id=document
        )


class FakePublisher:
    def __init__(self) -> None:
        self.messages: list[tuple[str, Any]] = []

    def publish(self, subject: str, message: Any) -> None:
        self.messages.append((subject, message))


class FakeRecords:
    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []
        self.snapshot: Snapshot | None = None

    def latest_snapshot(self) -> Snapshot | None:
        return self.snapshot

    def put_event(self, kind: str, at: int, data: Any, *, key: str = "") -> None:
        self.events.append((kind, data))


@dataclass(slots=True, kw_only=True)
class Bench:
    """The tools of one test."""

    cloud: Cloud
    clock: VirtualClock
    settings: Settings
    prometheus: FakePrometheus = field(default_factory=FakePrometheus)
    server: FakeServer
    publisher: FakePublisher = field(default_factory=FakePublisher)
    records: FakeRecords = field(default_factory=FakeRecords)

    def environment(self) -> dict[str, str]:
        return {**self.settings.to_env(), "AWS_REGION": self.cloud.region}

    @property
    def tools(self) -> Services:
        return services_module.load_services()

    def begin(self, execution_id: str = "exec-1", **changes: Any) -> Run:
        """A run that holds the lock."""
        run = Run(execution_id=execution_id, trigger="manual", scheduled_at=0, started_at=int(self.clock.now()))
        acquired = self.tools.state.acquire(run)
        assert acquired.status == "acquired", acquired
        fields = {**to_payload(run), "fence": acquired.state.fence, **changes}
        return from_payload(Run, fields)  # type: ignore[no-any-return]

    def event(self, run: Run, count: int, **more: Any) -> dict[str, Any]:
        """The payload as Decide leaves it."""
        decision = {"action": "scale_up", "count": count, "sentence": f"pods wait -> +{count}"}
        base = {"run": to_payload(run), "memory": to_payload(Memory()), "decision": decision, "operation": None}
        return {**base, "notes": [], "alerts": [], **more}

    def state(self) -> FleetState:
        return self.tools.state.load()

    def instances(self) -> tuple[Instance, ...]:
        return self.tools.ec2.instances()

    def ready(self, *instance_ids: str, taints: tuple[str, ...] = ()) -> None:
        """These workers' nodes are Ready in Prometheus."""
        known = {node.instance_id: node for node in self.prometheus.known_nodes}
        for instance_id in instance_ids:
            known[instance_id] = node_of(instance_id, taints=taints)
        self.prometheus.known_nodes = tuple(known.values())

    def operation(self, payload: dict[str, Any]) -> Operation:
        return from_payload(Operation, payload["operation"])  # type: ignore[no-any-return]


def node_of(instance_id: str, *, ready: bool = True, taints: tuple[str, ...] = (), zone: str = ZONES[0]) -> NodeReading:
    return NodeReading(
        node_name=instance_id, provider_id=f"aws:///{zone}/{instance_id}", ready=ready, blocking_taints=taints
    )


@contextlib.contextmanager
def bench(**settings: Any) -> Iterator[Bench]:
    """A virtual AWS with three subnets, a launch template and the state table; functions read `settings`."""
    clock = VirtualClock(START)
    with Cloud(clock) as cloud:
        ec2 = cloud.client("ec2")
        subnets = _subnets(ec2)
        wanted = Settings.from_mapping(
            {
                "cluster_id": "test",
                "subnets": subnets,
                "launch_template_id": _template(ec2),
                "region": cloud.region,
                **settings,
            }
        )
        _table(cloud.client("dynamodb"), wanted.state_table)
        services_module._services_for.cache_clear()
        services_module._client.cache_clear()
        made = Bench(cloud=cloud, clock=clock, settings=wanted, server=FakeServer(clock))
        with (
            mock.patch.dict("os.environ", made.environment()),
            mock.patch.multiple(
                Services,
                prometheus=made.prometheus,
                server=made.server,
                publisher=made.publisher,
                records=made.records,
            ),
        ):
            yield made
        services_module._services_for.cache_clear()
        services_module._client.cache_clear()


def _subnets(ec2: Any) -> str:
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    made = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.9.{n}.0/24", AvailabilityZone=zone)["Subnet"]["SubnetId"]
        for n, zone in enumerate(ZONES)
    ]
    return ",".join(f"{zone}={subnet}" for zone, subnet in zip(ZONES, made, strict=True))


def _template(ec2: Any) -> str:
    data = {"ImageId": MOTO_IMAGE, "InstanceType": "t3.small"}
    answer = ec2.create_launch_template(LaunchTemplateName="workers", LaunchTemplateData=data)
    template_id: str = answer["LaunchTemplate"]["LaunchTemplateId"]
    return template_id


def _table(dynamodb: Any, name: str) -> None:
    dynamodb.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "cluster_id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "cluster_id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )


def inspected(now: int, nodes: dict[str, str]) -> str:
    """What inspect_nodes.sh prints of these instances and their flags: R ready, C cordoned, T tainted, S server."""
    lines = [f"nf1 {now} {ZONES[0]}"]
    lines += [f"w {instance_id} = 0 {flags} 100 0/0/0/0 0/1900 - - - - 0" for instance_id, flags in nodes.items()]
    checksum = zlib.crc32("\n".join(lines).encode())
    return "\n".join([*lines, f"end {len(lines)} {checksum:08x}"])
