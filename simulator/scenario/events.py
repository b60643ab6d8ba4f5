"""Injects a scenario's events into a simulation at their times: outages, interruptions, dry pools, user actions.

Each event takes the path of the real one: EC2's own events, a fault of an API, a change in the cluster.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from node_fleet.adapters.state_store import StateStore
from node_fleet.domain.model.fleet_state import Pause
from node_fleet.domain.model.hibernation import Order, OrderKind
from node_fleet.domain.model.timed_minimum import TimedMinimum, not_ended
from node_fleet.settings import Settings
from simulator.aws.faults import FaultRule
from simulator.cluster.load.curves import constant
from simulator.cluster.machines import machine_type
from simulator.cluster.model import SimulatedCluster
from simulator.fakes.server_machine import checksum
from simulator.fakes.shell import ServerShell
from simulator.local_deployment import LocalDeployment
from simulator.scenario.model import Event

USER: Final = "mira"
ORDER_SECONDS: Final = 8 * 3600
FOREVER_SECONDS: Final = 10 * 365 * 86_400
QUOTA_CODES: Final = {"vcpus": "VcpuLimitExceeded", "spot": "MaxSpotInstanceCountExceeded"}


class EventInjector:
    """Injects events. `shells` are the server's shells, which an outage of the Kubernetes API cuts off."""

    def __init__(self, deployment: LocalDeployment, cluster: SimulatedCluster, shells: list[ServerShell]) -> None:
        self._deployment = deployment
        self._cluster = cluster
        self._shells = shells
        self._actions: Mapping[str, Callable[[Event], object]] = {
            "prometheus_down": lambda event: self._set_prometheus_fault("down"),
            "prometheus_up": lambda event: self._set_prometheus_fault(""),
            "ssm_down": lambda event: deployment.cloud.commands.offline.add(deployment.server_id),
            "ssm_up": lambda event: deployment.cloud.commands.offline.discard(deployment.server_id),
            "api_down": lambda event: self._set_api(reachable=False),
            "api_up": lambda event: self._set_api(reachable=True),
            "slack_down": lambda event: deployment.transport.slack_answers.extend([(500, {})] * 1000),
            "slack_up": lambda event: deployment.transport.slack_answers.clear(),
            "exporter_down": lambda event: self._set_exporters(event, up=False),
            "spot_interruption": self._interrupt_spot,
            "rebalance": self._rebalance,
            "scheduled_change": self._schedule_change,
            "dry_pool": self._dry_pool,
            "quota": self._limit_quota,
            "throttle": self._throttle,
            "kill_worker": self._kill_workers,
            "impair_worker": self._impair_workers,
            "cordon": self._cordon,
            "uncordon": self._uncordon,
            "pause": self._pause,
            "resume": lambda event: self._store().clear_pause(),
            "scale": self._scale,
            "sleep": lambda event: self._order("sleep", event),
            "wake": lambda event: self._order("wake", event),
            "start_server": lambda event: self._start_server(),
            "load": self._change_load,
            "alert": lambda event: deployment.start_workflow({"trigger": "alert"}),
            "new_image": self._deploy_image,
            "new_k3s": self._deploy_k3s,
            "upgrade_server": lambda event: self._upgrade_server(),
            "broken_k3s": lambda event: self._break_k3s(event.k3s),
        }

    def schedule(self, events: tuple[Event, ...], start: float) -> None:
        """Put every event, and its end where it has one, on the clock; `start` is the scenario's second 0."""
        for event in events:
            due = start + event.at_seconds
            self._deployment.clock.at(due, lambda event=event: self.inject(event))  # type: ignore[misc]
            end = self._end_of(event)
            if end is not None and event.for_seconds is not None:
                self._deployment.clock.at(due + event.for_seconds, end)

    def inject(self, event: Event) -> None:
        """Make one event happen now."""
        self._actions[event.action](event)

    def _end_of(self, event: Event) -> Callable[[], object] | None:
        """What ends an outage; the other events end by the time limit that they set themselves."""
        if event.action == "exporter_down":
            return lambda: self._set_exporters(event, up=True)
        opposite = self._actions.get(event.action.replace("_down", "_up"))
        return None if opposite is None or not event.action.endswith("_down") else lambda: opposite(event)

    def _until(self, event: Event) -> float | None:
        return None if event.for_seconds is None else self._deployment.clock.now() + event.for_seconds

    def _set_prometheus_fault(self, fault: Any) -> None:
        self._deployment.transport.fault = fault

    def _set_api(self, *, reachable: bool) -> None:
        for shell in self._shells:
            shell.double.reachable = reachable

    def _set_exporters(self, event: Event, *, up: bool) -> None:
        for instance_id in self._chosen(event):
            self._cluster.set_exporter(instance_id, up)

    def _interrupt_spot(self, event: Event) -> None:
        for instance_id in self._chosen(event, market="spot"):
            self._deployment.cloud.ec2.warn_spot(instance_id, notice_seconds=event.notice_seconds)

    def _rebalance(self, event: Event) -> None:
        for instance_id in self._chosen(event, market="spot"):
            self._deployment.cloud.ec2.recommend_rebalance(instance_id)

    def _schedule_change(self, event: Event) -> None:
        for instance_id in self._chosen(event):
            not_before = self._deployment.clock.now() + event.notice_seconds
            self._deployment.cloud.ec2.schedule_change(instance_id, not_before=not_before)

    def _dry_pool(self, event: Event) -> None:
        self._deployment.cloud.ec2.dry_pool(
            az=event.az, instance_type=event.instance_type, market=event.market, until=self._until(event)
        )

    def _limit_quota(self, event: Event) -> None:
        ec2 = self._deployment.cloud.ec2
        spot_only = event.kind == "spot"

        def used() -> int:
            running = [one for one in ec2.instances() if one.state in ("pending", "running")]
            if spot_only:
                return sum(one.lifecycle == "spot" for one in running)
            return sum(machine_type(one.instance_type).vcpus for one in running if one.lifecycle != "spot")

        def over(parameters: Mapping[str, Any]) -> bool:
            pool = ec2.pool_of(parameters)
            more = 1 if spot_only else machine_type(pool.instance_type).vcpus
            return (pool.market == "spot") == spot_only and used() + more > event.limit

        self._deployment.cloud.faults.inject(
            FaultRule(
                service="ec2",
                operation="RunInstances",
                code=QUOTA_CODES[event.kind],
                when=over,
                until=self._until(event),
            )
        )

    def _throttle(self, event: Event) -> None:
        rule = FaultRule(operation=event.call, code="RequestLimitExceeded", status=503, until=self._until(event))
        self._deployment.cloud.faults.inject(rule)

    def _kill_workers(self, event: Event) -> None:
        for instance_id in self._chosen(event):
            if event.how == "kubelet":
                self._cluster.fail_node(instance_id)
            else:
                self._deployment.cloud.ec2.reclaim(instance_id)

    def _impair_workers(self, event: Event) -> None:
        """A status check of EC2 fails; with `how: kubelet` the kubelet stops too."""
        for instance_id in self._chosen(event):
            self._deployment.cloud.ec2.impair(instance_id, check=event.check, heals=event.reboot == "heals")
            if event.how == "kubelet":
                self._cluster.fail_node(instance_id)

    def _pause(self, event: Event) -> None:
        now = int(self._deployment.clock.now())
        until = now + int(event.for_seconds or FOREVER_SECONDS)
        self._store().set_pause(Pause(reason=event.reason, by=USER, since=now, until=until))

    def _scale(self, event: Event) -> None:
        """What `node-fleet scale` stores."""
        now = int(self._deployment.clock.now())
        until = now + int(event.for_seconds or FOREVER_SECONDS)
        order = TimedMinimum(
            name=f"{now:x}", workers=event.workers, since=now, until=until, by=USER, reason=event.reason
        )
        self._store().change_timed_minimums(lambda state: (*not_ended(state.timed_minimums, now), order))

    def _order(self, kind: OrderKind, event: Event) -> None:
        """What `node-fleet sleep` and `wake` store; the next tick follows it."""
        now = int(self._deployment.clock.now())
        until = now + int(event.for_seconds or ORDER_SECONDS)
        self._store().set_hibernate_order(Order(kind=kind, by=USER, since=now, until=until))

    def _start_server(self) -> None:
        server = self._deployment.cloud.ec2.instance(self._deployment.server_id)
        if server.state == "stopped":  # EC2 refuses it for one that is still being stopped
            self._deployment.cloud.ec2.start(server)

    def _store(self) -> StateStore:
        resources = self._deployment.resources
        settings = Settings.from_mapping(
            {
                "cluster_id": resources.setting("CLUSTER_ID", "node-fleet-prod"),
                "state_table": resources.setting("DYNAMODB_TABLE", Settings().state_table),
            }
        )
        return StateStore(self._deployment.cloud.client("dynamodb"), settings, self._deployment.clock)

    def _change_load(self, event: Event) -> None:
        """The curve of the event counts from the event, a curve in the cluster from the application's start."""
        application = self._cluster.application(event.application)
        begun = self._deployment.clock.now() - application.started_at
        curve = event.load.curve if event.load else constant(0.0)
        self._cluster.set_load(event.application, lambda seconds: curve(max(0.0, seconds - begun)))

    def _deploy_image(self, event: Event) -> None:
        """A deployment with a new version of the launch template, which differs by its image."""
        self._deploy_template({"ImageId": event.image})

    def _deploy_k3s(self, event: Event) -> None:
        """A deployment with another k3s_version: the parameter of the server, and the user data of the workers."""
        resources, client = self._deployment.resources, self._deployment.cloud.client
        name = f"/node-fleet/{resources.setting('CLUSTER_ID')}/k3s"
        value = f"{event.k3s} {checksum(event.k3s)}"
        client("ssm").put_parameter(Name=name, Value=value, Type="String", Overwrite=True)
        answer = client("ec2").describe_launch_template_versions(
            LaunchTemplateId=resources.setting("LAUNCH_TEMPLATE_ID"),
            Versions=[resources.setting("LAUNCH_TEMPLATE_VERSION")],
        )
        before = base64.b64decode(answer["LaunchTemplateVersions"][0]["LaunchTemplateData"]["UserData"]).decode()
        text = re.sub(r'(?m)^K3S_VERSION=".*"$', f'K3S_VERSION="{event.k3s}"', before)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        user_data = base64.b64encode(text.encode()).decode()
        self._deploy_template({"UserData": user_data}, {"K3S_VERSION": event.k3s, "BOOTSTRAP_HASH": digest})

    def _deploy_template(self, change: dict[str, Any], environment: Mapping[str, str] | None = None) -> None:
        resources = self._deployment.resources
        answer = self._deployment.cloud.client("ec2").create_launch_template_version(
            LaunchTemplateId=resources.setting("LAUNCH_TEMPLATE_ID"),
            SourceVersion=resources.setting("LAUNCH_TEMPLATE_VERSION"),
            LaunchTemplateData=change,
        )
        version = str(answer["LaunchTemplateVersion"]["VersionNumber"])
        resources.override_environment({"LAUNCH_TEMPLATE_VERSION": version, **(environment or {})})

    def _break_k3s(self, release: str) -> None:
        for shell in self._shells:
            shell.machine.broken.add(release)

    def _upgrade_server(self) -> None:
        """What `node-fleet upgrade` sends to the server."""
        resources, client = self._deployment.resources, self._deployment.cloud.client
        name = f"/node-fleet/{resources.setting('CLUSTER_ID')}/k3s"
        release, digest = client("ssm").get_parameter(Name=name)["Parameter"]["Value"].split()
        values = {
            "Mode": "upgrade",
            "FromRelease": self._cluster.server_version,
            "ToRelease": release,
            "Checksum": digest,
            "ExecutionTimeoutSeconds": "1800",
        }
        client("ssm").send_command(
            InstanceIds=[self._deployment.server_id],
            DocumentName=resources.setting("DOCUMENT_PREFIX", "node-fleet-") + "UpgradeServer",
            Parameters={key: [value] for key, value in values.items()},
        )

    def _cordon(self, event: Event) -> None:
        for name in self._node_names(event):
            self._cluster.cordon(name, actor=USER)

    def _uncordon(self, event: Event) -> None:
        for name in self._node_names(event):
            self._cluster.uncordon(name, actor=USER)

    def _node_names(self, event: Event) -> list[str]:
        chosen = set(self._chosen(event))
        return [node.name for node in self._cluster.nodes() if node.instance_id in chosen]

    def _chosen(self, event: Event, *, market: str = "") -> list[str]:
        """The oldest running workers: as many as the event names, or its share of them."""
        running = [
            one
            for one in self._deployment.cloud.ec2.instances()
            if one.state == "running"
            and one.id != self._deployment.server_id
            and (not market or one.lifecycle == market)
            and event.az in (None, one.placement.zone)
        ]
        running.sort(key=lambda one: (one.launch_time, one.id))
        count = event.workers
        if event.share_percent is not None:
            count = round(len(running) * event.share_percent / 100)
        return [one.id for one in running[:count]]
