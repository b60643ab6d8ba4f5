"""A small fleet on the simulated AWS for tests of single steps: real adapters, fake Prometheus and server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from handlers.launch_nodes import handler as launch_nodes
from node_fleet import services as services_module
from node_fleet.adapters.launcher import placement_from
from node_fleet.domain.interruption.announcement import Announcement
from node_fleet.domain.interruption.response import Interruption, plan_response, replacement_slot
from node_fleet.domain.model.fleet_state import FleetState, Notice, Pause
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.run import Run
from node_fleet.domain.model.snapshot import Instance, NodeReading
from node_fleet.payload import from_payload, to_payload
from node_fleet.services import Services
from node_fleet.settings import Settings
from simulator.aws.cloud import Cloud
from simulator.aws.moto_patches.fleet import TOKEN_SECONDS
from simulator.clock import VirtualClock
from tests.support.handlers.fakes import Prometheus, Publisher, Records, Server, inspection_text, worker_line
from tests.support.launches import request
from tests.support.simulated_aws import create_table

START = 1_790_000_000
MOTO_IMAGE = "ami-12c6146b"
ZONES = ("eu-central-1a", "eu-central-1b", "eu-central-1c")


@dataclass(slots=True, kw_only=True)
class Bench:
    """The tools of one test."""

    cloud: Cloud
    clock: VirtualClock
    settings: Settings
    prometheus: Prometheus = field(default_factory=Prometheus)
    server: Server
    publisher: Publisher = field(default_factory=Publisher)
    records: Records = field(default_factory=Records)

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

    def launched(self, count: int = 2, seconds: float = 60, **run: Any) -> tuple[dict[str, Any], list[str]]:
        """The payload as LaunchNodes leaves it, some seconds later, and the ids of the new workers."""
        payload = launch_nodes(self.event(self.begin(**run), count), None)
        self.clock.advance(seconds)
        return payload, [slot.instance_id for slot in self.operation(payload).slots]

    def running(self, number: int = 1, *, zone: str = ZONES[0], operation_id: str = "up-before") -> Instance:
        """One running Spot worker."""
        wanted = request(number, zone=zone, subnet_id=self.settings.zones[zone], attempt=int(self.clock.now()))
        (instance_id,) = self.tools.ec2.launch(wanted, operation_id=operation_id).launched
        self.clock.advance(70)
        found = self.tools.ec2.find_worker(instance_id)
        assert found is not None
        return found

    def noticed(self, instance: Instance, *, claimed_by: str = "exec") -> Interruption:
        """The claim and the plan for a Spot warning that comes now."""
        now = int(self.clock.now())
        announcement = Announcement(instance_ids=(instance.instance_id,), kind="spot", at=now, deadline=now + 120)
        self.tools.state.add_notice(
            Notice(instance_id=instance.instance_id, kind="spot", at=now, deadline=now + 120, claimed_by=claimed_by)
        )
        slot = replacement_slot(instance, self.instances(), self.state(), placement_from(self.settings), now=now)
        planned = plan_response(
            announcement,
            instance,
            claimed_by=claimed_by,
            now=now,
            times=self.settings,
            join_limit_seconds=self.settings.join_limit_seconds,
        )
        return planned.with_slot(slot)

    def interrupted(self, instance: Instance | None = None, **more: Any) -> dict[str, Any]:
        """The payload of the interruption workflow for one worker, by default a new one."""
        return {"interruption": to_payload(self.noticed(instance or self.running())), **more}

    def pause(self, seconds: int = 600) -> None:
        now = int(self.clock.now())
        self.tools.state.set_pause(Pause(reason="sale", by="ann", since=now, until=now + seconds))

    def clear(self) -> None:
        """No workers and no state item, so long after those that were there that EC2 has forgotten their tokens."""
        self.clock.advance(1200)
        self.tools.ec2.terminate(self.ids())
        self.clock.advance(TOKEN_SECONDS)
        key = {"cluster_id": {"S": self.settings.cluster_id}}
        self.cloud.client("dynamodb").delete_item(TableName=self.settings.state_table, Key=key)

    def state(self) -> FleetState:
        return self.tools.state.load()

    def instances(self) -> tuple[Instance, ...]:
        return self.tools.ec2.instances()

    def ids(self) -> set[str]:
        return {instance.instance_id for instance in self.instances()}

    def listed(self, flags: dict[str, str]) -> None:
        """What the server lists from now: instances and the flags of their nodes."""
        self.inspected(*(self.line(instance_id, shown) for instance_id, shown in flags.items()))

    def line(self, instance_id: str, flags: str = "RWJ", cordon: str = "-") -> str:
        """The line of a node in the zone of its instance."""
        return worker_line(instance_id, flags, cordon, zone=ZONES.index(self._zone_of(instance_id)))

    def inspected(self, *lines: str) -> str:
        """The server answers these lines from now on, and they are returned as it prints them."""
        text = inspection_text(*lines, at=int(self.clock.now()), zones=ZONES)
        self.server.says("InspectNodes", text)
        return text

    def _zone_of(self, instance_id: str) -> str:
        return next((i.zone for i in self.instances() if i.instance_id == instance_id), ZONES[0])

    def ready(self, *instance_ids: str, taints: tuple[str, ...] = ()) -> None:
        """These workers' nodes are Ready in Prometheus."""
        known = {node.instance_id: node for node in self.prometheus.known_nodes}
        for instance_id in instance_ids:
            known[instance_id] = node_of(instance_id, taints=taints, zone=self._zone_of(instance_id))
        self.prometheus.known_nodes = tuple(known.values())

    def operation(self, payload: dict[str, Any]) -> Operation:
        return from_payload(Operation, payload["operation"])  # type: ignore[no-any-return]


def node_of(instance_id: str, *, ready: bool = True, taints: tuple[str, ...] = (), zone: str = ZONES[0]) -> NodeReading:
    return NodeReading(
        node_name=instance_id, provider_id=f"aws:///{zone}/{instance_id}", ready=ready, blocking_taints=taints
    )


@contextlib.contextmanager
def bench(*, zones: int = len(ZONES), **settings: Any) -> Iterator[Bench]:
    """A virtual AWS with a subnet in each zone, a launch template and the state table; functions read `settings`."""
    clock = VirtualClock(START)
    with Cloud(clock) as cloud:
        ec2 = cloud.client("ec2")
        subnets = _subnets(ec2, ZONES[:zones])
        wanted = Settings.from_mapping(
            {
                "cluster_id": "test",
                "subnets": subnets,
                "launch_template_id": _template(ec2),
                "region": cloud.region,
                **settings,
            }
        )
        create_table(cloud.client("dynamodb"), wanted.state_table, "cluster_id")
        services_module._services_for.cache_clear()
        made = Bench(cloud=cloud, clock=clock, settings=wanted, server=Server(clock, unreachable=True))
        with (
            mock.patch.dict("os.environ", made.environment()),
            mock.patch.multiple(
                Services,
                prometheus=made.prometheus,
                server=made.server,
                reports=made.server,
                publisher=made.publisher,
                records=made.records,
            ),
        ):
            yield made
        services_module._services_for.cache_clear()


def _subnets(ec2: Any, zones: tuple[str, ...]) -> str:
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    made = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.9.{16 * n}.0/20", AvailabilityZone=zone)["Subnet"]["SubnetId"]
        for n, zone in enumerate(zones)
    ]
    return ",".join(f"{zone}={subnet}" for zone, subnet in zip(zones, made, strict=True))


def _template(ec2: Any) -> str:
    data = {"ImageId": MOTO_IMAGE, "InstanceType": "t3.small"}
    answer = ec2.create_launch_template(LaunchTemplateName="workers", LaunchTemplateData=data)
    template_id: str = answer["LaunchTemplate"]["LaunchTemplateId"]
    return template_id
