"""The scenario format as pydantic models: keys, types, ranges, defaults, and the JSON Schema that follows from them.

A scenario is frozen data. The keys of a file are the aliases; code uses the field names, which carry their unit.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    StrictBool,
    ValidationInfo,
    field_validator,
    model_validator,
)

from node_fleet.settings import Settings, spec_of
from simulator.clock import DEFAULT_START
from simulator.cluster.boot import BootKind, BootRule
from simulator.cluster.load import curves
from simulator.cluster.load.applications import ApplicationSpec, Autoscale
from simulator.cluster.state import ClusterSettings
from simulator.scenario.values import (
    DEFAULT_AZS,
    Az,
    ImageId,
    InstanceType,
    K3sRelease,
    LongSeconds,
    Market,
    Name,
    Number,
    Points,
    Seconds,
    Share,
    StartTime,
    Whole,
    one_of,
)

SETTING_NAMES: Final = {spec_of(entry).env: entry.name for entry in fields(Settings)}
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
    "spot_interruption": ("workers", "share_percent", "az", "notice"),
    "rebalance": ("workers", "share_percent"),
    "scheduled_change": ("workers", "notice"),
    "dry_pool": ("az", "instance_type", "market", "for"),
    "quota": ("kind", "limit", "for"),
    "throttle": ("call", "for"),
    "kill_worker": ("workers", "how"),
    "impair_worker": ("workers", "check", "how", "reboot"),
    "cordon": ("workers",),
    "uncordon": ("workers",),
    "pause": ("reason", "for"),
    "resume": (),
    "scale": ("workers", "for", "reason"),
    "sleep": ("for",),
    "wake": ("for",),
    "start_server": (),
    "load": ("application", "load"),
    "alert": (),
    "new_image": ("image",),
    "new_k3s": ("k3s",),
    "upgrade_server": (),
    "broken_k3s": ("k3s",),
}
"""What each event may carry besides `at` and `do`. `for` ends it; without it, it lasts until its opposite."""
REQUIRED_EVENT_KEYS: Final = ("limit", "reason", "application", "load", "image", "k3s")


def by_field_name(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings by field name; a file may also give the name of the environment variable."""
    return {SETTING_NAMES.get(key, key): value for key, value in settings.items()}


class Model(BaseModel):
    """One mapping of a scenario file. Every unknown key is a mistake."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_by_name=True, validate_by_alias=True)


class WorkerGroup(Model):
    """Workers that exist at the start, spread over the zones in turn."""

    count: Whole = Field(ge=1, le=1000)
    instance_type: InstanceType = "t3.small"
    market: Market = "on-demand"
    azs: tuple[Az, ...] = Field(DEFAULT_AZS, min_length=1)


class Boot(Model):
    """How matching instances boot."""

    kind: BootKind
    seconds: Seconds | None = None
    ready_after_seconds: Seconds | None = Field(None, alias="ready_after")
    first: Whole = Field(1, ge=1)
    count: Whole | None = Field(None, ge=1)
    instance_type: InstanceType | None = None
    az: Az | None = None
    market: Market | None = None
    image: ImageId | None = None

    def rule(self) -> BootRule:
        """The rule that the simulated cluster takes."""
        values = self.model_dump(exclude_none=True)
        return BootRule(**({"seconds": 240.0} if self.kind == "slow" else {}) | values)


class ClusterModel(Model):
    """How fast the simulated cluster reacts."""

    boot_seconds: Seconds = Field(60.0, alias="boot")
    start_seconds: Seconds = Field(25.0, alias="start")
    container_start_seconds: Seconds = Field(5.0, alias="container_start")
    image_pull_seconds: Seconds = Field(20.0, alias="image_pull")
    shutdown_seconds: Seconds = Field(2.0, alias="shutdown")
    pod_eviction_timeout_seconds: Seconds = Field(300.0, alias="pod_eviction_timeout")
    load_step_seconds: LongSeconds = Field(60.0, alias="load_step")
    server_is_tainted: StrictBool = True


class Diurnal(Model):
    """A day between two request rates."""

    low: Number = Field(ge=0)
    high: Number = Field(ge=0)
    peak_hour: Number = Field(14.0, ge=0, le=24)
    start_hour: Number = Field(0.0, ge=0, le=24)


class FlashSale(Model):
    """A quiet rate, a ramp to the peak, and a ramp back."""

    base: Number = Field(ge=0)
    peak: Number = Field(ge=0)
    start_seconds: Seconds = Field(alias="start")
    ramp_seconds: LongSeconds = Field(alias="ramp")
    hold_seconds: LongSeconds = Field(alias="hold")
    fall_seconds: LongSeconds = Field(alias="fall")


class Series(Model):
    """The last column of a CSV file beside the scenario, one row per step."""

    file: str
    scale: Number = Field(1.0, ge=0)
    step_seconds: LongSeconds = Field(60.0, alias="step")


class Load(Model):
    """Requests per second over time, as exactly one kind of curve."""

    constant: Number | None = Field(None, ge=0)
    steps: Points | None = None
    linear: Points | None = None
    diurnal: Diurnal | None = None
    flash_sale: FlashSale | None = None
    series: Series | None = None
    _curve: curves.Curve = PrivateAttr()

    @property
    def curve(self) -> curves.Curve:
        """Requests per second at each second of the scenario."""
        return self._curve

    @model_validator(mode="after")
    def _build_curve(self, info: ValidationInfo) -> Load:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"expected exactly one of {', '.join(type(self).model_fields)}, found {given}")
        value = getattr(self, given[0])
        if isinstance(value, Series):
            path = (info.context or {}).get("directory", Path()) / value.file
            if not path.is_file():
                raise ValueError(f"there is no file {path}")
            self._curve = curves.series(path, scale=value.scale, step_seconds=value.step_seconds)
        else:
            build = getattr(curves, given[0])
            self._curve = build(**value.model_dump()) if isinstance(value, Model) else build(value)
        return self


class AutoscaleModel(Model):
    """A HorizontalPodAutoscaler: its range, its target and its timing."""

    min_replicas: Whole = Field(ge=1, le=10_000, alias="min")
    max_replicas: Whole = Field(le=10_000, alias="max")
    target_percent: Number = Field(70.0, ge=1, le=400)
    evaluation_seconds: LongSeconds = Field(15.0, alias="every")
    scale_down_stabilisation_seconds: Seconds = Field(300.0, alias="stabilisation")

    @field_validator("max_replicas")
    @classmethod
    def _not_below_the_minimum(cls, value: int, info: ValidationInfo) -> int:
        low = info.data.get("min_replicas", 1)
        if value < low:
            raise ValueError(f"expected {low} to 10000, found {value}")
        return value


class Budget(Model):
    """A PodDisruptionBudget."""

    min_available: Share | None = None
    max_unavailable: Share | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Budget:
        if (self.min_available is None) == (self.max_unavailable is None):
            raise ValueError("expected exactly one of min_available and max_unavailable")
        return self


class ApplicationModel(Model):
    """One workload with its load, its autoscaler and its budget."""

    name: Name
    namespace: Name = "shop"
    kind: Literal["Deployment", "StatefulSet"] = "Deployment"
    cpu_request_milli: Whole = Field(250, ge=1, le=128_000, alias="cpu_milli")
    memory_request_mib: Whole = Field(128, ge=1, le=1_000_000, alias="memory_mib")
    cpu_limit_milli: Whole | None = Field(None, ge=1, le=128_000)
    replicas: Whole = Field(1, ge=0, le=10_000)
    load: Load | None = None
    cpu_milli_per_request: Number = Field(10.0, ge=0.001)
    autoscale: AutoscaleModel | None = None
    base_latency_ms: Number = Field(40.0, ge=0.1)
    queues: StrictBool = False
    memory_usage_mib: Number | None = Field(None, ge=1)
    budget: Budget | None = None
    grace_seconds: Whole = Field(30, ge=0, le=3600)
    shutdown_seconds: Seconds | None = Field(None, alias="shutdown")
    start_seconds: Seconds | None = Field(None, alias="start")
    volume: Literal["none", "emptyDir", "local-path"] = "none"
    restart_before_drain: StrictBool = False
    annotations: dict[str, str] = {}
    node_selector: dict[str, str] = {}

    def spec(self) -> ApplicationSpec:
        """The application that the simulated cluster takes."""
        values = self.model_dump(exclude={"load", "autoscale", "budget"}) | {
            "cpu_limit_milli": self.cpu_limit_milli or 2 * self.cpu_request_milli,
            "autoscale": self.autoscale and Autoscale(**self.autoscale.model_dump()),
        }
        if self.load is not None:
            values["curve"] = self.load.curve
        return ApplicationSpec(**values, **(self.budget.model_dump() if self.budget else {}))


class BarePod(Model):
    """A pod that no controller creates again."""

    name: Name
    namespace: Name = "default"
    cpu_request_milli: Whole = Field(100, ge=1, alias="cpu_milli")
    memory_request_mib: Whole = Field(64, ge=1, alias="memory_mib")
    annotations: dict[str, str] = {}


def _event_schema(schema: dict[str, Any]) -> None:
    schema["allOf"] = [
        {
            "if": {"properties": {"do": {"const": action}}},
            "then": {
                "propertyNames": {"enum": ["at", "do", *keys]},
                "required": [key for key in keys if key in REQUIRED_EVENT_KEYS],
            },
        }
        for action, keys in EVENT_KEYS.items()
    ]


class Event(Model):
    """Something that happens at a time; EVENT_KEYS says which keys each action takes."""

    model_config = ConfigDict(json_schema_extra=_event_schema)

    at_seconds: Seconds = Field(alias="at")
    action: Annotated[str, one_of(EVENT_KEYS)] = Field(alias="do", json_schema_extra={"enum": list(EVENT_KEYS)})
    for_seconds: LongSeconds | None = Field(None, alias="for")
    workers: Whole = Field(1, ge=1)
    share_percent: Number | None = Field(None, ge=0, le=100)
    notice_seconds: Seconds = Field(120.0, alias="notice")
    az: Az | None = None
    instance_type: InstanceType | None = None
    market: Market | None = None
    kind: Literal["vcpus", "spot"] = "vcpus"
    limit: Whole = Field(0, ge=0)
    call: str = "CreateFleet"
    how: Literal["instance", "kubelet"] = "instance"
    check: Literal["instance", "system"] = "instance"
    reboot: Literal["heals", "fails"] = "heals"
    reason: str = ""
    application: str = ""
    load: Load | None = None
    image: ImageId | None = None
    k3s: K3sRelease = "v1.35.5+k3s1"


class Scenario(Model):
    """One scenario: what the simulation starts with, its load, and its events in the order of time."""

    name: Name
    description: str
    duration_seconds: Seconds = Field(ge=60.0, alias="duration")
    seed: Whole = Field(1, ge=0)
    start_at: StartTime = Field(DEFAULT_START, alias="start")
    workers: tuple[WorkerGroup, ...]
    settings: dict[str, Any] = {}
    cluster: ClusterModel = Field(default_factory=lambda: ClusterModel.model_validate({}))
    boot_rules: tuple[Boot, ...] = Field((), alias="boot")
    applications: tuple[ApplicationModel, ...] = ()
    pods: tuple[BarePod, ...] = ()
    events: tuple[Event, ...] = ()

    @field_validator("settings")
    @classmethod
    def _by_field_name(cls, given: dict[str, Any]) -> dict[str, Any]:
        return by_field_name(given)

    @field_validator("events")
    @classmethod
    def _in_order_of_time(cls, events: tuple[Event, ...]) -> tuple[Event, ...]:
        return tuple(sorted(events, key=lambda event: event.at_seconds))

    @property
    def worker_count(self) -> int:
        return sum(group.count for group in self.workers)

    @property
    def azs(self) -> tuple[str, ...]:
        """Every zone that the first workers use, in order, each once."""
        return tuple(dict.fromkeys(az for group in self.workers for az in group.azs))

    def cluster_settings(self) -> ClusterSettings:
        """The settings of the simulated cluster, with the scenario's seed."""
        return ClusterSettings(seed=self.seed, **self.cluster.model_dump())
