"""Acts out one scenario in the simulator, with the template that would be deployed, and keeps the timeline.

It composes; the workflow that runs is the shipped one, and nothing here decides for it.
"""

from __future__ import annotations

import contextlib
import gc
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from node_fleet.settings import Settings
from simulator.aws.moto_patches.ssm import CommandResult
from simulator.aws.template import Template
from simulator.clock import VirtualClock
from simulator.cluster.model import SimulatedCluster
from simulator.cluster.views import SnapshotLine
from simulator.fakes.alertmanager import FakeAlertmanager
from simulator.fakes.image_service import start_image_service
from simulator.fakes.prometheus import FakePrometheus
from simulator.fakes.scrapes import Scrapes
from simulator.fakes.shell import ServerShell
from simulator.local_deployment import CREDENTIALS, LocalDeployment
from simulator.runner import Execution
from simulator.scenario.events import EventInjector
from simulator.scenario.files import build_cluster
from simulator.scenario.model import Scenario

SAMPLE_SECONDS = 30.0
SETTLE_LIMIT_SECONDS = 3600.0
OBJECTS_BETWEEN_COLLECTIONS = (3_000, 10, 10)
"""A simulation makes few cycles of objects: to look for them as often as Python does takes a twentieth of its time.

The two other numbers are Python's: with higher ones, 40 MiB of cycles from the start of a simulation stay in memory.
With 20,000 for the first one, 5,000 executions leave 5 MiB more, and a simulated day is not faster.
"""

Progress = Callable[[float, SnapshotLine], None]


def synthesised_template(context: Mapping[str, Any] | None = None) -> Template:
    """The template that `node-fleet synth` writes, made once for each state of the sources."""
    from cdk_app.synth import synthesise

    return Template.load(synthesise(context=context))


class Simulation:
    """A scenario with its deployment and its cluster; a context manager. `run` acts it out to its end.

    overrides: environment variables that go over the template's and the scenario's settings. alerts: whether the
    alert rule watches the pods as deployed; without it only ticks and people start runs.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        template: Template | Path | None = None,
        overrides: Mapping[str, str] | None = None,
        progress: Progress | None = None,
        alerts: bool = True,
    ) -> None:
        self.scenario = scenario
        self.points: list[SnapshotLine] = []
        self.shells: list[ServerShell] = []
        self.starting_ids: list[str] = []
        self._progress = progress
        self._watched = alerts
        self._stack = contextlib.ExitStack()
        self.deployment = LocalDeployment.from_template(
            template or synthesised_template(),
            start=scenario.start_at,
            seed=scenario.seed,
            settings_overrides={**environment_of(scenario), **(overrides or {})},
            cluster=lambda clock: build_cluster(clock, scenario),
            prometheus=self._prometheus,
            commands=self._commands,
        )

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(_seldom_collected())
            stack.enter_context(self.deployment)
            stack.callback(self._close_shells)
            self.cluster.image_of = lambda instance_id: str(self.deployment.cloud.ec2.instance(instance_id).image_id)
            self.cluster.version_of = self._version_of
            self._prepare_images()
            self.deployment.cloud.ec2.power_listeners.append(self._switch_server)
            is_prometheus = self.deployment.transport.is_prometheus
            self.deployment.transport.is_prometheus = lambda netloc: self._server_serves() and is_prometheus(netloc)
            self._place_workers()
            clock = self.deployment.clock
            self.events = EventInjector(self.deployment, self.cluster, self.shells)
            self.events.schedule(self.scenario.events, clock.now())
            self.alerts = FakeAlertmanager(self.deployment, self.cluster)
            if self._watched:
                self.alerts.start()
            clock.every(SAMPLE_SECONDS, self._sample, first=clock.now())
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def cluster(self) -> SimulatedCluster:
        """The cluster side."""
        cluster: SimulatedCluster = self.deployment.cluster
        return cluster

    @property
    def executions(self) -> list[Execution]:
        """Every execution of every machine, in the order they started."""
        return self.deployment.executions

    def run(self) -> list[Execution]:
        """Act the scenario out to its end, then let what still runs finish."""
        self.deployment.run_until(self.scenario.start_at + self.scenario.duration_seconds)
        self.deployment.settle(SETTLE_LIMIT_SECONDS)
        return self.executions

    def _close_shells(self) -> None:
        for shell in self.shells:
            shell.close()

    def _sample(self) -> None:
        line = self.cluster.snapshot_line()
        self.points.append(line)
        if self._progress is not None:
            self._progress((line.at - self.scenario.start_at) / self.scenario.duration_seconds, line)

    def _prometheus(self, cluster: SimulatedCluster, clock: VirtualClock) -> FakePrometheus:
        username, password = CREDENTIALS
        return FakePrometheus(Scrapes(cluster, clock), username=username, password=password)

    def _commands(self, cluster: SimulatedCluster, clock: VirtualClock) -> Any:
        shell = ServerShell(cluster, clock.wait)
        self.shells.append(shell)

        def run(script: str, *, instance_id: str, execution_timeout: float) -> CommandResult:
            ended = shell.run(script, limit_seconds=execution_timeout)
            return CommandResult(exit_code=ended.exit_code, stdout=ended.stdout, stderr=ended.stderr)

        return run

    def _prepare_images(self) -> None:
        """New workers pull images when the deployment says so, and report it in a tag, as their bootstrap does."""
        self.cluster.image_wait_seconds = int(self.deployment.resources.setting("IMAGE_WAIT_SECONDS", "0"))
        if self.cluster.image_wait_seconds:
            self.cluster.on_images = self._tag_images
            start_image_service(self.cluster, self.deployment.clock)

    def _tag_images(self, instance_id: str, pulled: str) -> None:
        tags = [{"Key": "ImagePull", "Value": pulled}]
        self.deployment.cloud.client("ec2").create_tags(Resources=[instance_id], Tags=tags)

    def _switch_server(self, instance_id: str, on: bool) -> None:
        """The server stops or starts: its API and Prometheus, which runs on it, follow."""
        if instance_id != self.deployment.server_id:
            return
        for shell in self.shells:
            shell.machine.power(on=on, after=self.cluster.state.after)

    def _server_serves(self) -> bool:
        return all(shell.machine.serves for shell in self.shells)

    def _version_of(self, instance_id: str) -> str:
        """The version of K3s that the user data of an instance installs; empty when it has none."""
        found = re.search(r'^K3S_VERSION="(.+)"$', self.deployment.cloud.ec2.user_data(instance_id), re.MULTILINE)
        return found[1] if found else ""

    def _place_workers(self) -> None:
        """The workers that are there at the start: launched as the fleet would have, and already joined."""
        subnets = self.deployment.subnets()
        zones = list(subnets)
        groups = [group for group in self.scenario.workers for _ in range(group.count)]
        with self.cluster.changing():  # all are there before the first pod looks for a place
            for number, group in enumerate(groups):
                zone = zones[number % len(zones)]
                instance_id = launch_worker(
                    self.deployment,
                    instance_type=group.instance_type,
                    market=group.market,
                    subnet_id=subnets[zone],
                )
                self.cluster.add_worker(
                    instance_id,
                    instance_type=group.instance_type,
                    az=zone,
                    market=group.market,
                    address=self.deployment.cloud.ec2.instance(instance_id).private_ip,
                )
                self.starting_ids.append(instance_id)


@contextlib.contextmanager
def _seldom_collected() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*map(max, before, OBJECTS_BETWEEN_COLLECTIONS))
    try:
        yield
    finally:
        gc.set_threshold(*before)


def launch_worker(deployment: LocalDeployment, *, instance_type: str, market: str, subnet_id: str) -> str:
    """Launch an instance with the tags of a worker, as the fleet would have; returns its id."""
    tags = {
        "Project": "node-fleet",
        "Role": "k3s-worker",
        "ManagedBy": "node-fleet",
        "Cluster": deployment.resources.setting("CLUSTER_ID", "node-fleet-prod"),
        "Operation": "scenario-start",
        "Name": "k3s-worker",
        "TemplateVersion": deployment.resources.setting("LAUNCH_TEMPLATE_VERSION", "1"),
        "K3sVersion": deployment.resources.setting("K3S_VERSION"),
    }
    request: dict[str, Any] = {
        "ImageId": "ami-12345678",
        "InstanceType": instance_type,
        "SubnetId": subnet_id,
        "MinCount": 1,
        "MaxCount": 1,
        "TagSpecifications": [
            {"ResourceType": "instance", "Tags": [{"Key": key, "Value": text} for key, text in tags.items()]}
        ],
    }
    if market == "spot":
        request["InstanceMarketOptions"] = {"MarketType": "spot"}
    reply = deployment.cloud.client("ec2").run_instances(**request)
    return str(reply["Instances"][0]["InstanceId"])


def environment_of(scenario: Scenario) -> dict[str, str]:
    """The environment variables that the scenario's settings amount to."""
    return Settings.from_mapping(scenario.settings).env_of(scenario.settings)
