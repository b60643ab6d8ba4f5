"""The state of a cluster as status and top show it: read once from the state item, EC2 and the records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from cli.target import Target
from cli.times import ago
from node_fleet.adapters.launcher import launch_facts
from node_fleet.adapters.records import Event
from node_fleet.domain.cost.fleet_cost import fleet_hour, standby_hour
from node_fleet.domain.cost.tariff import Cost
from node_fleet.domain.disruption.drift import differences, expires_at
from node_fleet.domain.model.fleet_state import FleetState
from node_fleet.domain.model.snapshot import Instance
from node_fleet.domain.model.value_class import value_class
from node_fleet.settings import Settings

LOOK_BACK_SECONDS = 2 * 3600


@value_class
class ClusterStatus:
    """Everything that status shows."""

    place: str
    now: int
    state: FleetState
    instances: tuple[Instance, ...]
    last: Event | None
    settings: Settings
    cpu_percent: float | None = None
    kubelets: dict[str, str] = field(default_factory=dict)
    """The version of K3s that each worker's node states, in the last reading."""
    standby: tuple[Instance, ...] = ()

    @property
    def launch_version(self) -> str:
        """The version of the launch template that new workers get."""
        settings = self.settings
        return self.state.memory.roll_out.launch_version(settings.launch_template_version, settings.k3s_version)

    @property
    def hourly_cost(self) -> Cost:
        """The workers at the shipped prices and the last recorded CPU, and the volumes of the standby workers."""
        tariff = self.settings.tariff()
        running = fleet_hour(tariff, self.instances, self.cpu_percent)
        return Cost.total((running, standby_hour(tariff, len(self.standby))))


def read_status(target: Target) -> ClusterStatus:
    """Read the state item, the instances and the last decision."""
    services = target.services
    now = services.clock.now()
    decisions = services.records.events(now - LOOK_BACK_SECONDS, now + 1, kind="decision")
    readings = services.records.readings(now - LOOK_BACK_SECONDS, now + 1)
    snapshot = services.records.latest_snapshot(now - LOOK_BACK_SECONDS)
    instances, standby = services.ec2.with_standby()
    return ClusterStatus(
        place=target.place,
        now=now,
        state=services.state.load(),
        instances=instances,
        last=decisions[-1] if decisions else None,
        settings=services.settings,
        cpu_percent=readings[-1].get("cpu_percent") if readings else None,
        kubelets={w.instance_id: w.kubelet_version for w in snapshot.workers} if snapshot else {},
        standby=standby,
    )


def worker_versions(instances: Iterable[Instance], kubelets: Mapping[str, str]) -> dict[str, str]:
    """The version of K3s of each worker: what its node states, else the tag of its launch, else empty."""
    return {one.instance_id: kubelets.get(one.instance_id) or one.k3s_version for one in instances}


def outdated_words(found: ClusterStatus, instance: Instance) -> str:
    """Why the worker is to be replaced; empty for a current one."""
    today = launch_facts(found.settings, found.state.memory.launch_image, found.launch_version)
    words = "; ".join(differences(instance, today, found.kubelets.get(instance.instance_id, "")))
    if words:
        return f"drifted: {words}"
    at = expires_at(instance.instance_id, instance.launched_at, found.settings.policy())
    return f"expired {ago(found.now - at)}" if at and at <= found.now else ""
