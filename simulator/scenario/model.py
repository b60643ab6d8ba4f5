"""What a scenario is: frozen data, and the names that a scenario file may use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from simulator.cluster.load.applications import ApplicationSpec
from simulator.cluster.load.curves import Curve
from simulator.cluster.model import BootRule
from simulator.cluster.state import ClusterSettings
from simulator.scenario.yaml_reading import Problem

NAME: Final = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
AZ: Final = r"[a-z]{2}(-[a-z]+)+-\d[a-z]"
DEFAULT_AZS: Final = ("ap-southeast-1a", "ap-southeast-1b", "ap-southeast-1c")
MARKETS: Final = ("on-demand", "spot")

# What each event may carry. "for" undoes it after that time; without it, it lasts until its opposite.
EVENT_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "prometheus_down": ("for",),
    "prometheus_up": (),
    "ssm_down": ("for",),
    "ssm_up": (),
    "api_down": ("for",),
    "api_up": (),
    "slack_down": ("for",),
    "slack_up": (),
    "exporter_down": ("workers", "for"),
    "spot_interruption": ("workers", "share_percent", "notice"),
    "rebalance": ("workers", "share_percent"),
    "scheduled_change": ("workers", "notice"),
    "dry_pool": ("az", "instance_type", "market", "for"),
    "quota": ("kind", "limit", "for"),
    "throttle": ("call", "for"),
    "kill_worker": ("workers", "how"),
    "cordon": ("workers",),
    "uncordon": ("workers",),
    "pause": ("reason", "for"),
    "resume": (),
    "load": ("application", "load"),
    "alert": (),
}
QUOTA_KINDS: Final = ("vcpus", "spot")
KILL_WAYS: Final = ("instance", "kubelet")


class ScenarioError(ValueError):
    """A scenario file with mistakes: `problems` holds them all, the message lists them."""

    def __init__(self, source: str, problems: list[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line))
        lines = [f"{source} has {len(problems)} mistake{'s' if len(problems) != 1 else ''}:"]
        super().__init__("\n  ".join([*lines, *map(str, self.problems)]))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerGroup:
    """Workers that are there at the start, spread over the zones in turn."""

    count: int
    instance_type: str = "t3.small"
    market: str = "on-demand"
    azs: tuple[str, ...] = DEFAULT_AZS


@dataclass(frozen=True, slots=True, kw_only=True)
class BarePod:
    """A pod that no controller would bring back."""

    name: str
    namespace: str = "default"
    cpu_request_milli: int = 100
    memory_request_mib: int = 64
    annotations: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happens at a time; which fields mean something depends on the action (EVENT_KEYS)."""

    at_seconds: float
    action: str
    for_seconds: float | None = None
    workers: int | None = None
    share_percent: float | None = None
    notice_seconds: float = 120.0
    az: str = ""
    instance_type: str = ""
    market: str = ""
    kind: str = ""
    limit: int | None = None
    call: str = ""
    how: str = "instance"
    reason: str = ""
    application: str = ""
    load: Curve | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One story for the simulator, ready to be acted out."""

    name: str
    description: str
    duration_seconds: float
    seed: int
    start_at: float
    server_type: str
    workers: tuple[WorkerGroup, ...]
    settings: dict[str, Any]
    cluster: ClusterSettings
    boot_rules: tuple[BootRule, ...]
    applications: tuple[ApplicationSpec, ...]
    pods: tuple[BarePod, ...]
    events: tuple[Event, ...]

    @property
    def worker_count(self) -> int:
        return sum(group.count for group in self.workers)

    @property
    def azs(self) -> tuple[str, ...]:
        """Every zone that the start workers use, in order, each once."""
        return tuple(dict.fromkeys(az for group in self.workers for az in group.azs))
