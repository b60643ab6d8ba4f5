"""The settings that rules obey, in groups by concern. Policy is all that decisions obey; settings/ adds the others.

A preset changes decisions, never safety: minimum, maximum, live data and the projection hold for every preset.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from node_fleet.domain.model.budget import Budget, RemovalWindow
from node_fleet.domain.model.chosen_headroom import HeadroomPods
from node_fleet.domain.model.custom_metric import BUILT_IN, CustomMetric
from node_fleet.domain.model.local_time import DailyWindow
from node_fleet.domain.model.setting import setting
from node_fleet.domain.model.value_class import value_class

ScaleDownOrder = Literal["balance", "fewest-pods", "oldest"]
PlacementOrder = Literal["fewest", "round-robin"]
CooldownBy = Literal["next", "last"]
SpotLearning = Literal["off", "avoid", "return"]
DriftMode = Literal["replace", "report", "off"]
StrategyName = Literal["thresholds", "adaptive"]
PresetName = Literal["node-fleet", "algorithm", "flowchart", "sequence", "readme", "adaptive"]


@value_class
class ScheduleWindow(DailyWindow):
    """A minimum number of workers while the window is open: local times in the configured zone."""

    minimum: int


@dataclass(frozen=True, kw_only=True)
class FleetSize:
    """Fleet size and strategy"""

    preset: PresetName = setting("PRESET", "node-fleet", choices=get_args(PresetName))
    """A named set of defaults for the other settings. A setting that you give overrides its preset."""
    strategy: StrategyName = setting(
        "STRATEGY", "thresholds", choices=get_args(StrategyName), old_env="SIZING", old_choices={"steps": "thresholds"}
    )
    """How the number of workers is decided: by thresholds in steps, or by pod requests and learned headroom."""
    min_workers: int = setting("MIN_NODES", 2, 0, 1000)
    """The smallest number of workers. A fleet below it is filled up before any other rule applies."""
    max_workers: int = setting("MAX_NODES", 10, 1, 1000)
    """The largest number of workers. node-fleet never exceeds it."""
    max_usd_per_hour: float = setting("MAX_USD_PER_HOUR", 0.0, 0, 100_000, "USD")
    """The most that all workers together may cost in an hour, at the shipped prices; 0: no limit."""
    max_vcpu: int = setting("MAX_VCPU", 0, 0, 100_000)
    """The most vCPUs that all workers together may have; 0: no limit."""
    instance_types: tuple[str, ...] = setting("INSTANCE_TYPES", ("t3.small",))
    """Instance types of workers, comma-separated. Spot: by price and capacity; on-demand: the first with capacity."""
    subnets: tuple[str, ...] = setting("SUBNETS", ())
    """Subnets of the workers as zone=subnet-id, comma-separated."""
    spot_percent: int = setting("SPOT_PERCENTAGE", 70, 0, 100, "%")
    """The wanted share of Spot instances in the whole fleet. With 0 node-fleet launches no Spot instance."""
    on_demand_minimum: int = setting("ON_DEMAND_MINIMUM", 0, 0, 1000, old_env="ON_DEMAND_FLOOR")
    """So many workers are on-demand instances before spot_percent applies; of idle workers they are removed last."""
    spot_learning: SpotLearning = setting("SPOT_LEARNING", "off", choices=get_args(SpotLearning))
    """Whether new workers avoid noisy Spot pools, and with return also whether On-Demand workers return to Spot."""
    spot_noisy_per_100_hours: float = setting("SPOT_NOISY_PER_100_HOURS", 1.0, 0.05, 100)
    """A Spot pool with more interruptions per 100 worker-hours than this is noisy."""
    step_normal: int = setting("STEP_NORMAL", 1, 1, 100)
    """Workers that one scale-up adds."""
    step_urgent: int = setting("STEP_URGENT", 2, 1, 100)
    """Workers that one urgent scale-up adds."""
    headroom_workers: int = setting("HEADROOM_WORKERS", 0, 0, 100)
    """Free capacity, in workers, that the strategy thresholds always keeps; 0: none."""
    headroom_pods: HeadroomPods | None = setting("HEADROOM_PODS", None)
    """In place of headroom_workers, pods that must always fit: {"count": 3, "cpu_milli": 500, "memory_mib": 512}."""
    standby_workers: int = setting("STANDBY_WORKERS", 0, 0, 100)
    """On-Demand workers that joined once and are stopped: a scale-up starts them before it launches others. 0: none."""
    max_targets: int = setting("MAX_TARGETS", 1, 1, 10)
    """The largest number of workers that one scale-down removes."""

    @property
    def zone_names(self) -> list[str]:
        """The zones of the workers, in the configured order."""
        return [entry.partition("=")[0] for entry in self.subnets]


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Thresholds"""

    cpu_up_percent: float = setting("SCALE_UP_THRESHOLD_CPU", 70.0, 1, 100, "%")
    """Mean CPU above which a scale-up adds workers."""
    cpu_urgent_percent: float = setting("URGENT_THRESHOLD_CPU", 85.0, 1, 100, "%")
    """Mean CPU above which a scale-up is urgent."""
    cpu_down_percent: float = setting("SCALE_DOWN_THRESHOLD_CPU", 30.0, 0, 100, "%")
    """Mean CPU below which a scale-down is possible."""
    cpu_readings: int = setting("CPU_READINGS", 2, 1, 30)
    """Readings in a row above the threshold before CPU causes a scale-up."""
    use_memory: bool = setting("USE_MEMORY", True)
    """Whether memory takes part in decisions."""
    memory_up_percent: float = setting("SCALE_UP_THRESHOLD_MEMORY", 75.0, 1, 100, "%")
    """Memory use above which a scale-up adds workers."""
    memory_down_percent: float = setting("SCALE_DOWN_THRESHOLD_MEMORY", 50.0, 0, 100, "%")
    """Memory use below which a scale-down is possible."""
    memory_readings: int = setting("MEMORY_READINGS", 2, 1, 30)
    """Readings in a row above the threshold before memory causes a scale-up."""
    pending_readings: int = setting("PENDING_READINGS", 1, 1, 30)
    """Readings in a row with unschedulable pods before they cause a scale-up."""
    pending_urgent: int = setting("PENDING_URGENT", 5, 0, 10000)
    """A scale-up is urgent with more unschedulable pods than this."""
    custom_metrics: tuple[CustomMetric, ...] = setting("CUSTOM_METRICS", BUILT_IN)
    """Custom metrics as a JSON list; a built-in metric needs only its name."""


@dataclass(frozen=True, kw_only=True)
class Readings:
    """Ticks and readings"""

    interval_seconds: int = setting("INTERVAL_SECONDS", 120, 60, 3600, "s")
    """Time between two scheduled runs."""
    interval_jitter_seconds: int = setting("INTERVAL_JITTER_SECONDS", 30, 0, 600, "s")
    """A run that starts up to this much before the interval is over still counts as a full interval."""
    reading_gap_seconds: int = setting("READING_GAP_SECONDS", 300, 60, 7200, "s")
    """A longer pause between two readings starts the count of readings in a row again."""
    cached_reading_seconds: int = setting("CACHED_READING_SECONDS", 300, 0, 3600, "s")
    """The greatest age at which a stored reading still justifies a scale-up while Prometheus does not answer."""
    live_share_percent: int = setting("LIVE_SHARE", 50, 1, 100, "%")
    """The share of usable workers whose CPU and memory must be known; below it the fleet's value counts as missing."""
    missing_readings: int = setting("METRICS_MISSING_READINGS", 2, 1, 30)
    """Readings in a row with missing values before node-fleet sends an alert."""
    readings_kept: int = setting("READINGS_KEPT", 10, 1, 60)
    """Past readings that the state item keeps."""


@dataclass(frozen=True, kw_only=True)
class ScaleDownConditions:
    """Scale-down"""

    idle_seconds: int = setting("IDLE_SECONDS", 600, 0, 86400, "s")
    """How long every value must stay low before a worker is removed."""
    projection_margin_percent: float = setting("PROJECTION_MARGIN", 10.0, 0, 50, "%")
    """The distance below the scale-up thresholds that the load expected after a removal must keep."""
    scale_down_order: ScaleDownOrder = setting("SCALE_DOWN_ORDER", "balance", choices=get_args(ScaleDownOrder))
    """Which worker is removed first: the one that keeps the zones balanced, with the fewest pods, or the oldest."""
    not_ready_replace_seconds: int = setting("NOT_READY_REPLACE_SECONDS", 1200, 300, 86400, "s")
    """How long a worker may be NotReady before node-fleet replaces it."""
    set_aside_limit: int = setting("SET_ASIDE_LIMIT", 2, 1, 20)
    """Removals that cannot be finished and are set aside before node-fleet removes no further worker."""
    not_ready_one_in: int = setting("NOT_READY_ONE_IN", 3, 1, 1000)
    """A NotReady worker is replaced only while at most one worker in this many is NotReady."""


@dataclass(frozen=True, kw_only=True)
class Replacements:
    """Replacement of workers"""

    drift: DriftMode = setting("DRIFT", "replace", choices=get_args(DriftMode))
    """Whether a worker that differs from one launched today is replaced, only reported, or not compared."""
    expire_after_seconds: int = setting("EXPIRE_AFTER_SECONDS", 0, 0, 31536000, "s")
    """The age at which a worker is replaced; 0: no limit."""
    expire_jitter_percent: float = setting("EXPIRE_JITTER", 10.0, 0, 50, "%")
    """How much earlier than expire_after_seconds a worker may expire, so that a fleet does not end together."""
    repair: bool = setting("REPAIR", True)
    """Whether a worker that runs but has been unhealthy for unhealthy_seconds is replaced."""
    unhealthy_seconds: int = setting("UNHEALTHY_SECONDS", 1800, 300, 86400, "s")
    """How long a bad condition of a Node or an impaired status check of EC2 must last before a worker is unhealthy."""
    repair_max_percent: float = setting("REPAIR_MAX", 20.0, 0, 100, "%")
    """With more unhealthy workers than this, and at least two, none is repaired: the cause is likely shared."""
    repair_reboot: bool = setting("REPAIR_REBOOT", False)
    """Whether an unhealthy or NotReady worker is drained and rebooted once before it is replaced."""
    reboot_wait_seconds: int = setting("REBOOT_WAIT_SECONDS", 600, 300, 3600, "s")
    """How long a rebooted worker has to become healthy before it is replaced."""
    bake_seconds: int = setting("BAKE_SECONDS", 300, 0, 86400, "s")
    """How long a replacement must stay Ready before the worker that it replaces is removed."""


@dataclass(frozen=True, kw_only=True)
class Cooldowns:
    """Cooldowns"""

    cooldown_up_seconds: int = setting("COOLDOWN_SCALE_UP", 300, 0, 86400, "s")
    """Minimum time between the last scaling action and a scale-up."""
    cooldown_down_seconds: int = setting("COOLDOWN_SCALE_DOWN", 600, 0, 86400, "s")
    """Minimum time between the last scaling action and a scale-down."""
    cooldown_by: CooldownBy = setting("COOLDOWN_BY", "next", choices=get_args(CooldownBy))
    """Which cooldown applies: that of the next action or that of the last action."""
    pending_bypasses_cooldown: bool = setting("PENDING_BYPASSES_COOLDOWN", True)
    """Whether a scale-up for unschedulable pods ignores the cooldown."""


@dataclass(frozen=True, kw_only=True)
class Planning:
    """Schedules and predictions"""

    timezone: str = setting("TIMEZONE", "UTC")
    """IANA time zone of schedules and predictions, such as Asia/Dhaka."""
    schedules: tuple[ScheduleWindow, ...] = setting("SCHEDULES", ())
    """A minimum number of workers by time of day: "Mon-Sat 09:00-21:00: 4; 2026-11-27 18:00-24:00: 8"."""
    predictive: bool = setting("ENABLE_PREDICTIVE_SCALING", False)
    """Whether to add one worker before an hour that is usually busy."""
    predictive_minute: int = setting("PREDICTIVE_MINUTE", 50, 0, 59)
    """The minute of the hour from which the next hour is predicted; hours begin with those of UTC."""
    predictive_min_days: int = setting("PREDICTIVE_MIN_DAYS", 7, 1, 30)
    """Days of history that a prediction needs."""
    predictive_min_samples: int = setting("PREDICTIVE_MIN_SAMPLES", 3, 1, 30)
    """Past hours of the same kind of day that a prediction needs."""
    weekend_days: tuple[str, ...] = setting("WEEKEND_DAYS", ("sat", "sun"))
    """Days that predictions treat as weekend, such as fri,sat."""


HibernateLimit = Literal["terminate", "stay-on"]


@dataclass(frozen=True, kw_only=True)
class OffTimes:
    """Off at night"""

    hibernate: tuple[DailyWindow, ...] = setting("HIBERNATE", ())
    """When workers and server are off, in local time: "Sun-Fri 20:00-07:00; Sat-Sun". They are on again at the end."""
    hibernate_lead_seconds: int = setting("HIBERNATE_LEAD_SECONDS", 600, 120, 3600, "s")
    """How long before that end the server is started; a last start that took longer makes it earlier."""
    hibernate_drain_seconds: int = setting("HIBERNATE_DRAIN_SECONDS", 1800, 0, 14400, "s")
    """How long workers are drained under PodDisruptionBudgets before the rest is ended; 0: they are not drained."""
    hibernate_at_limit: HibernateLimit = setting("HIBERNATE_AT_LIMIT", "terminate", choices=get_args(HibernateLimit))
    """What happens then to a worker that could not be drained: it is ended, or the fleet stays on for that time off."""
    hibernate_jobs: bool = setting("HIBERNATE_JOBS", True)
    """Whether a running Job keeps the fleet on. A namespace labelled node-fleet.io/hibernate=never always does."""
    hibernate_unless: str = setting("HIBERNATE_UNLESS", "")
    """A PromQL query that keeps the fleet on while a value is above 0, or it has no answer before the drain begins."""


@dataclass(frozen=True, kw_only=True)
class Disruption:
    """Disruption budgets"""

    disruption_budgets: tuple[Budget, ...] = setting("DISRUPTION_BUDGETS", ())
    """How many workers may be removed or replaced at once, as a JSON list: [{"nodes": "20%", "reasons": ["idle"]}]."""
    removal_windows: tuple[RemovalWindow, ...] = setting("REMOVAL_WINDOWS", ())
    """When workers may be removed or replaced: "only: Mon-Fri 09:00-17:00; never: 2026-11-27 00:00-24:00"."""


@dataclass(frozen=True, kw_only=True)
class BackOffs:
    """Joins, back-offs and alerts"""

    join_limit_seconds: int = setting("JOIN_LIMIT_SECONDS", 300, 60, 3600, "s")
    """How long a launched instance may take to become a usable worker."""
    scheduling_grace_seconds: int = setting("SCHEDULING_GRACE_SECONDS", 30, 0, 300, "s")
    """How long the scheduler has to place pods on new workers before the result is checked."""
    join_failures_to_open: int = setting("JOIN_FAILURES_TO_OPEN", 3, 1, 20)
    """Scale-ups in a row without a joined worker that open the circuit breaker."""
    join_back_off_seconds: int = setting("JOIN_BACK_OFF_SECONDS", 900, 60, 86400, "s")
    """First back-off of the open circuit breaker; it doubles with each further failure."""
    join_back_off_max_seconds: int = setting(
        "JOIN_BACK_OFF_MAX_SECONDS", 3600, 60, 86400, "s", old_env="JOIN_BACK_OFF_MOST_SECONDS"
    )
    """Longest back-off of the circuit breaker."""
    scale_up_back_off_seconds: int = setting("SCALE_UP_BACK_OFF_SECONDS", 120, 0, 86400, "s")
    """First back-off after a scale-up that launched no instance; it doubles with each further failure."""
    scale_up_back_off_max_seconds: int = setting(
        "SCALE_UP_BACK_OFF_MAX_SECONDS", 1800, 0, 86400, "s", old_env="SCALE_UP_BACK_OFF_MOST_SECONDS"
    )
    """Longest back-off after scale-ups that launched no instance."""
    drain_back_off_seconds: int = setting("DRAIN_BACK_OFF_SECONDS", 600, 60, 86400, "s")
    """First back-off after a failed drain, doubling. When EC2 refuses a removal, all removals pause 6 times as long."""
    drain_back_off_max_seconds: int = setting(
        "DRAIN_BACK_OFF_MAX_SECONDS", 86400, 60, 604800, "s", old_env="DRAIN_BACK_OFF_MOST_SECONDS"
    )
    """Longest back-off of a worker whose drains failed."""
    not_helped_launches: int = setting("NOT_HELPED_LAUNCHES", 2, 1, 20)
    """Launches in a row that did not help a pod before node-fleet stops counting that pod."""
    not_helped_seconds: int = setting("NOT_HELPED_SECONDS", 3600, 60, 604800, "s")
    """How long a pod that launches did not help is not counted."""
    alert_quiet_seconds: int = setting("ALERT_QUIET_SECONDS", 3600, 0, 604800, "s")
    """How long a cause must have been absent before node-fleet sends the same alert again. See operations.md."""


@dataclass(frozen=True, kw_only=True)
class AdaptiveCosts:
    """Strategy adaptive"""

    wait_cost: float = setting("WAIT_COST", 4.0, 0, 1000)
    """The cost of one pod that waits one minute, in worker-minutes. A higher cost keeps more headroom."""
    change_cost: float = setting("CHANGE_COST", 21.0, 0, 10000)
    """The cost of a change of direction, in minutes of the fleet at its mean demand. Higher: workers leave later."""
    learning_days: float = setting("LEARNING_DAYS", 2.0, 0.1, 60)
    """Days after which an observation counts half."""


@dataclass(frozen=True, kw_only=True)
class InterruptionTimes:
    """Interruptions"""

    interruption_margin_seconds: int = setting("INTERRUPTION_MARGIN_SECONDS", 15, 5, 60, "s")
    """How long before the end of an interruption notice the drain must end."""
    interruption_settle_seconds: int = setting("INTERRUPTION_SETTLE_SECONDS", 300, 60, 7200, "s")
    """An instance that still runs this long after the date of its notice was not reclaimed."""
    handle_rebalance: bool = setting("HANDLE_REBALANCE", False)
    """Whether a rebalance recommendation replaces and cordons the worker. Many are never followed by a notice."""
    rebalance_hold_seconds: int = setting("REBALANCE_HOLD_SECONDS", 1800, 300, 14400, "s")
    """How long a rebalance recommendation keeps a worker cordoned."""
    scheduled_drain_lead_seconds: int = setting("SCHEDULED_DRAIN_LEAD_SECONDS", 3600, 300, 7200, "s")
    """How long before the date of a scheduled change the worker is drained."""


@dataclass(frozen=True, kw_only=True)
class Policy(
    FleetSize,
    Thresholds,
    Readings,
    ScaleDownConditions,
    Replacements,
    Cooldowns,
    Planning,
    OffTimes,
    Disruption,
    BackOffs,
    AdaptiveCosts,
):
    """Every setting that decide() weighs against the snapshot. Percentages are 0 to 100, times are seconds."""

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """Every budget with its zone, those of the removal windows first."""
        only = tuple(w for w in self.removal_windows if w.kind == "only")
        never = tuple(w for w in self.removal_windows if w.kind == "never")
        windows = [Budget(nodes="0", only=only, timezone=self.timezone)] if only else []
        windows += [Budget(nodes="0", never=never, timezone=self.timezone)] if never else []
        return (*windows, *(replace(b, timezone=b.timezone or self.timezone) for b in self.disruption_budgets))
