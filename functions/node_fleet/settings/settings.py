"""The one home of every setting: its environment name, default, range and meaning.

The deployment writes what to_env() gives; the functions read it back with from_env(). Secrets are named, never held.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from node_fleet.domain.model.built_in_metrics import BUILT_IN
from node_fleet.domain.model.errors import InvalidSettingsError
from node_fleet.domain.model.policy import SIZINGS, CustomMetric, Policy, ScheduleWindow
from node_fleet.settings.parsing import Spec, nearest, parsed, setting, shown, spec_of, written
from node_fleet.settings.presets import PRESETS
from node_fleet.settings.validation import contradictions

__all__ = ["Settings", "Spec", "spec_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of one cluster. Fields named as in Policy take their default from the preset."""

    # identity and places
    cluster_id: str = setting("CLUSTER_ID", "node-fleet-prod", "names the cluster: state item, tags, alarms")
    preset: str = setting("PRESET", "node-fleet", "the rule set to start from", choices=tuple(PRESETS))
    state_table: str = setting("DYNAMODB_TABLE", "k3s-autoscaler-state", "table of the state item")
    history_table: str = setting("METRICS_HISTORY_TABLE", "k3s-metrics-history", "table of readings, kept 30 days")
    events_table: str = setting(
        "EVENTS_TABLE", "k3s-autoscaler-events", "table of decisions and outcomes, kept 90 days"
    )
    server_role_tag: str = setting(
        "SERVER_ROLE_TAG", "k3s-master", "value of the Role tag by which the server is found"
    )
    prometheus_url: str = setting("PROMETHEUS_URL", "", "overrides http://SERVER:30090 when Prometheus runs elsewhere")
    prometheus_port: int = setting("PROMETHEUS_PORT", 30090, "NodePort of Prometheus on the server", low=1, high=65535)
    prometheus_secret: str = setting(
        "PROMETHEUS_SECRET", "node-fleet/prometheus-auth", "secret with username and password"
    )
    prometheus_timeout_seconds: int = setting(
        "PROMETHEUS_TIMEOUT_SECONDS", 10, "longest wait for one answer of Prometheus", low=1, high=20, unit="s"
    )
    prometheus_retries: int = setting("PROMETHEUS_RETRIES", 2, "further tries of one request", low=0, high=5)
    prometheus_budget_seconds: int = setting(
        "PROMETHEUS_BUDGET_SECONDS", 25, "time for everything asked of Prometheus in one step", low=5, high=50, unit="s"
    )
    slack_secret: str = setting("SLACK_SECRET", "node-fleet/slack-webhook", "secret with the Slack webhook URL")
    topic_arn: str = setting("SNS_TOPIC_ARN", "", "topic for messages to people")
    alert_topic_arn: str = setting("ALERT_TOPIC_ARN", "", "topic of the alert path: its messages start a run")
    state_machine_arn: str = setting("STATE_MACHINE_ARN", "", "the autoscaler's state machine, for those that start it")
    document_prefix: str = setting("SSM_DOCUMENT_PREFIX", "node-fleet-", "prefix of our SSM documents")
    launch_template_id: str = setting("LAUNCH_TEMPLATE_ID", "", "launch template of the workers")
    launch_template_version: str = setting("LAUNCH_TEMPLATE_VERSION", "1", "explicit version, a number")
    subnets: tuple[str, ...] = setting("SUBNETS", (), "worker subnets as zone=subnet-id, comma-separated")
    region: str = setting("AWS_REGION", "ap-southeast-1", "AWS region")
    # money
    currency: str = setting("CURRENCY", "USD", "currency in which people read costs, such as BDT")
    currency_per_usd: float = setting(
        "CURRENCY_PER_USD", 1.0, "how much of that currency one USD is", low=0.0001, high=1000000
    )
    baseline_workers: int = setting(
        "BASELINE_WORKERS", 5, "workers of the fixed fleet that savings are counted against", low=1, high=1000
    )
    # size
    min_workers: int = setting("MIN_NODES", 2, "fewest workers, enforced before anything else", low=0, high=1000)
    max_workers: int = setting("MAX_NODES", 10, "most workers, never exceeded", low=1, high=1000)
    instance_types: tuple[str, ...] = setting("INSTANCE_TYPES", ("t3.small",), "worker types in order of preference")
    spot_percent: int = setting(
        "SPOT_PERCENTAGE", 70, "wanted share of Spot in the whole fleet", low=0, high=100, unit="%"
    )
    on_demand_floor: int = setting("ON_DEMAND_FLOOR", 0, "workers that are always on-demand", low=0, high=1000)
    spot_max_price: str = setting(
        "SPOT_MAX_PRICE", "", "highest Spot price in USD per hour; empty: none, which interrupts least"
    )
    placement: str = setting("PLACEMENT", "fewest", "how the zone is chosen", choices=("fewest", "round-robin"))
    # thresholds
    cpu_up_percent: float = setting(
        "SCALE_UP_THRESHOLD_CPU", 70.0, "mean CPU above which a worker is added", low=1, high=100, unit="%"
    )
    cpu_urgent_percent: float = setting(
        "URGENT_THRESHOLD_CPU",
        85.0,
        "mean CPU above which the urgent step is taken",
        low=1,
        high=100,
        unit="%",
    )
    cpu_down_percent: float = setting(
        "SCALE_DOWN_THRESHOLD_CPU",
        30.0,
        "mean CPU below which the fleet may be idle",
        low=0,
        high=100,
        unit="%",
    )
    cpu_readings: int = setting("CPU_READINGS", 2, "readings in a row before CPU counts", low=1, high=30)
    memory_up_percent: float = setting(
        "SCALE_UP_THRESHOLD_MEMORY", 75.0, "memory above which a worker is added", low=1, high=100, unit="%"
    )
    memory_down_percent: float = setting(
        "SCALE_DOWN_THRESHOLD_MEMORY",
        50.0,
        "memory below which the fleet may be idle",
        low=0,
        high=100,
        unit="%",
    )
    memory_readings: int = setting("MEMORY_READINGS", 2, "readings in a row before memory counts", low=1, high=30)
    live_share_percent: int = setting(
        "LIVE_SHARE",
        50,
        "share of usable workers whose CPU and memory must be known for the fleet's figures to count",
        low=1,
        high=100,
        unit="%",
    )
    use_memory: bool = setting("USE_MEMORY", True, "whether memory takes part in decisions")
    pending_readings: int = setting(
        "PENDING_READINGS", 1, "readings in a row before unschedulable pods count", low=1, high=30
    )
    pending_urgent: int = setting(
        "PENDING_URGENT", 5, "more unschedulable pods than this take the urgent step", low=0, high=10000
    )
    step_normal: int = setting("STEP_NORMAL", 1, "workers added at once", low=1, high=100)
    step_urgent: int = setting("STEP_URGENT", 2, "workers added at once when urgent", low=1, high=100)
    idle_seconds: int = setting(
        "IDLE_SECONDS", 600, "how long all must be low before a worker goes", low=0, high=86400, unit="s"
    )
    projection_margin_percent: float = setting(
        "PROJECTION_MARGIN",
        10.0,
        "distance that the load after a removal keeps from the up-thresholds",
        low=0,
        high=50,
        unit="%",
    )
    cooldown_up_seconds: int = setting("COOLDOWN_SCALE_UP", 300, "rest before a scale-up", low=0, high=86400, unit="s")
    cooldown_down_seconds: int = setting(
        "COOLDOWN_SCALE_DOWN", 600, "rest before a scale-down", low=0, high=86400, unit="s"
    )
    pending_bypasses_cooldown: bool = setting(
        "PENDING_BYPASSES_COOLDOWN", True, "unschedulable pods do not wait for the cooldown"
    )
    custom_metrics: tuple[CustomMetric, ...] = setting(
        "CUSTOM_METRICS", BUILT_IN, "metrics of your own, a JSON list; a built-in one needs only its name"
    )
    predictive: bool = setting(
        "ENABLE_PREDICTIVE_SCALING", False, "add one worker ahead of an hour that is usually busy"
    )
    predictive_minute: int = setting(
        "PREDICTIVE_MINUTE", 50, "minute of the hour from which the coming hour is judged", low=0, high=59
    )
    predictive_min_days: int = setting(
        "PREDICTIVE_MIN_DAYS", 7, "days of history before a prediction is made", low=1, high=30
    )
    timezone: str = setting("TIMEZONE", "UTC", "IANA zone of schedules and predictions")
    schedules: tuple[ScheduleWindow, ...] = setting(
        "SCHEDULES", (), 'floors by time: "Mon-Sat 09:00-21:00: 4; 2026-11-27 18:00-24:00: 8"'
    )
    scale_down_order: str = setting(
        "SCALE_DOWN_ORDER", "balance", "which worker goes first", choices=("balance", "fewest-pods", "oldest")
    )
    max_targets: int = setting("MAX_TARGETS", 1, "workers removed in one scale-down", low=1, high=10)
    keep_unjoined: bool = setting("KEEP_UNJOINED", False, "leave an instance that never joined running, for inspection")
    max_rounds: int = setting(
        "MAX_ROUNDS", 3, "scale-ups in one execution while pods stay unschedulable", low=1, high=3
    )
    # time
    interval_seconds: int = setting("INTERVAL_SECONDS", 120, "time between ticks", low=60, high=3600, unit="s")
    reading_gap_seconds: int = setting(
        "READING_GAP_SECONDS",
        300,
        "a longer pause between readings breaks a run of them",
        low=60,
        high=7200,
        unit="s",
    )
    cached_reading_seconds: int = setting(
        "CACHED_READING_SECONDS",
        300,
        "how old a cached reading may be to justify a scale-up",
        low=0,
        high=3600,
        unit="s",
    )
    join_limit_seconds: int = setting(
        "JOIN_LIMIT_SECONDS",
        300,
        "time a launched instance has to become usable",
        low=60,
        high=3600,
        unit="s",
    )
    join_poll_seconds: int = setting(
        "JOIN_POLL_SECONDS", 10, "pause between looks at joining workers", low=2, high=60, unit="s"
    )
    scheduling_grace_seconds: int = setting(
        "SCHEDULING_GRACE_SECONDS",
        30,
        "time the scheduler gets to use new workers",
        low=0,
        high=300,
        unit="s",
    )
    drain_timeout_seconds: int = setting("DRAIN_TIMEOUT_SECONDS", 300, "time a drain has", low=30, high=3600, unit="s")
    drain_poll_seconds: int = setting(
        "DRAIN_POLL_SECONDS", 10, "pause between looks at a drain", low=2, high=60, unit="s"
    )
    drain_back_off_seconds: int = setting(
        "DRAIN_BACK_OFF_SECONDS",
        600,
        "rest for a worker whose drain failed; doubles",
        low=60,
        high=86400,
        unit="s",
    )
    terminate_poll_seconds: int = setting(
        "TERMINATE_POLL_SECONDS",
        15,
        "pause between looks at a terminating instance",
        low=2,
        high=60,
        unit="s",
    )
    terminate_limit_seconds: int = setting(
        "TERMINATE_LIMIT_SECONDS",
        600,
        "time an instance has to reach terminated",
        low=60,
        high=3600,
        unit="s",
    )
    lease_seconds: int = setting(
        "LEASE_SECONDS",
        360,
        "how long the lock outlives its owner's last sign of life",
        low=60,
        high=3600,
        unit="s",
    )
    lease_skew_seconds: int = setting(
        "LEASE_SKEW_SECONDS", 5, "margin for clocks that differ", low=0, high=60, unit="s"
    )
    operation_limit_seconds: int = setting(
        "OPERATION_LIMIT_SECONDS",
        900,
        "age at which an unfinished operation is closed",
        low=300,
        high=7200,
        unit="s",
    )
    not_ready_replace_seconds: int = setting(
        "NOT_READY_REPLACE_SECONDS",
        1200,
        "time a worker may be NotReady before it is replaced",
        low=300,
        high=86400,
        unit="s",
    )
    delivery_timeout_seconds: int = setting(
        "SSM_DELIVERY_TIMEOUT_SECONDS", 30, "time SSM has to deliver a command", low=30, high=60, unit="s"
    )
    command_wait_seconds: int = setting(
        "SSM_COMMAND_WAIT_SECONDS",
        20,
        "longest wait inside a function for a short command",
        low=5,
        high=20,
        unit="s",
    )
    dry_pool_seconds: int = setting(
        "DRY_POOL_SECONDS",
        600,
        "how long a capacity pool that ran dry is not asked again",
        low=60,
        high=7200,
        unit="s",
    )
    launch_time_seconds: int = setting(
        "LAUNCH_TIME_SECONDS", 60, "time one step may spend on asking EC2 again", low=10, high=90, unit="s"
    )
    interruption_margin_seconds: int = setting(
        "INTERRUPTION_MARGIN_SECONDS",
        15,
        "a deadline drain ends this long before the notice does",
        low=5,
        high=60,
        unit="s",
    )
    interruption_settle_seconds: int = setting(
        "INTERRUPTION_SETTLE_SECONDS",
        300,
        "an announced instance that still runs this long after its date was not taken",
        low=60,
        high=7200,
        unit="s",
    )
    handle_rebalance: bool = setting(
        "HANDLE_REBALANCE",
        False,
        "replace and cordon on a rebalance recommendation; many are never followed by a notice",
    )
    rebalance_hold_seconds: int = setting(
        "REBALANCE_HOLD_SECONDS",
        1800,
        "how long a rebalance recommendation keeps a worker cordoned",
        low=300,
        high=14400,
        unit="s",
    )
    scheduled_drain_lead_seconds: int = setting(
        "SCHEDULED_DRAIN_LEAD_SECONDS",
        3600,
        "a scheduled change is drained this long before its date",
        low=300,
        high=7200,
        unit="s",
    )
    join_failures_to_open: int = setting(
        "JOIN_FAILURES_TO_OPEN",
        3,
        "scale-ups in a row without a join that open the circuit breaker",
        low=1,
        high=20,
    )
    sizing: str = setting("SIZING", "steps", "the rule set that says how many workers are wanted", choices=SIZINGS)
    wait_cost: float = setting(
        "WAIT_COST",
        2.0,
        "adaptive: what a pod that waits one minute costs, in worker-minutes; more holds more spare room",
        low=0,
        high=1000,
    )
    change_cost: float = setting(
        "CHANGE_COST",
        115.0,
        "adaptive: what one change of direction costs, in worker-minutes; more is calmer",
        low=0,
        high=10000,
    )
    learning_days: float = setting(
        "LEARNING_DAYS", 3.0, "adaptive: after so many days what was learned counts half", low=0.1, high=60
    )
    cooldown_by: str = setting(
        "COOLDOWN_BY", "next", "whose cooldown counts: that of the next action or of the last", choices=("next", "last")
    )
    interval_jitter_seconds: int = setting(
        "INTERVAL_JITTER_SECONDS",
        30,
        "how much earlier than the interval a tick may come and still count in full",
        low=0,
        high=600,
        unit="s",
    )
    join_back_off_seconds: int = setting(
        "JOIN_BACK_OFF_SECONDS",
        900,
        "first rest of the open circuit breaker; doubles",
        low=60,
        high=86400,
        unit="s",
    )
    join_back_off_most_seconds: int = setting(
        "JOIN_BACK_OFF_MOST_SECONDS", 3600, "longest rest of the circuit breaker", low=60, high=86400, unit="s"
    )
    scale_up_back_off_seconds: int = setting(
        "SCALE_UP_BACK_OFF_SECONDS",
        120,
        "first rest after a scale-up that launched nothing; doubles",
        low=0,
        high=86400,
        unit="s",
    )
    scale_up_back_off_most_seconds: int = setting(
        "SCALE_UP_BACK_OFF_MOST_SECONDS",
        1800,
        "longest rest after scale-ups that launched nothing",
        low=0,
        high=86400,
        unit="s",
    )
    drain_back_off_most_seconds: int = setting(
        "DRAIN_BACK_OFF_MOST_SECONDS",
        86400,
        "longest rest for a worker whose drains fail",
        low=60,
        high=604800,
        unit="s",
    )
    not_helped_launches: int = setting(
        "NOT_HELPED_LAUNCHES",
        2,
        "launches in a row that did not help a pod before it stops counting",
        low=1,
        high=20,
    )
    not_helped_seconds: int = setting(
        "NOT_HELPED_SECONDS",
        3600,
        "how long a pod that launches did not help is not counted",
        low=60,
        high=604800,
        unit="s",
    )
    not_ready_one_in: int = setting(
        "NOT_READY_ONE_IN",
        3,
        "a NotReady worker is removed only while at most one worker in this many is NotReady",
        low=1,
        high=1000,
    )
    missing_readings: int = setting(
        "METRICS_MISSING_READINGS", 2, "readings with missing values before people are told", low=1, high=30
    )
    alert_quiet_seconds: int = setting(
        "ALERT_QUIET_SECONDS",
        3600,
        "how long a cause must have been gone before it is told again",
        low=0,
        high=604800,
        unit="s",
    )
    history_days: int = setting("HISTORY_DAYS", 30, "days that readings are kept", low=8, high=400)
    event_days: int = setting("EVENT_DAYS", 90, "days that events are kept", low=1, high=3650)
    readings_kept: int = setting("READINGS_KEPT", 10, "past readings kept in the state item", low=1, high=60)
    predictive_min_samples: int = setting(
        "PREDICTIVE_MIN_SAMPLES", 3, "hours alike that a prediction needs", low=1, high=30
    )
    weekend_days: tuple[str, ...] = setting(
        "WEEKEND_DAYS", ("sat", "sun"), "days that prediction treats as weekend, such as fri,sat"
    )
    cpu_source: str = setting(
        "CPU_SOURCE", "node-exporter", "which exporter measures CPU", choices=("node-exporter", "cadvisor")
    )

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Settings:
        """Read every setting from environment variables.

        Raises:
            InvalidSettingsError: lists all wrong settings, each with name, value and what is allowed.
        """
        raw = {f.name: env[spec_of(f).env] for f in fields(cls) if spec_of(f).env in env}
        return cls.from_mapping(raw)

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> Settings:
        """Read settings by field name (cdk.json, scenario files); texts are parsed as in the environment."""
        settings, problems = cls._read(raw)
        problems += contradictions(settings)
        if problems:
            raise InvalidSettingsError("; ".join(problems))
        return settings

    @classmethod
    def policy_from_env(cls, env: Mapping[str, str]) -> Policy:
        """The policy that policy_env() was written from. What binds it to other settings was checked then."""
        settings, problems = cls._read({f.name: env[e] for f in fields(cls) if (e := spec_of(f).env) in env})
        if problems:
            raise InvalidSettingsError("; ".join(problems))
        return settings.policy()

    @classmethod
    def _read(cls, raw: Mapping[str, Any]) -> tuple[Settings, list[str]]:
        problems: list[str] = []
        known = {f.name: f for f in fields(cls)}
        values: dict[str, Any] = {}
        for name, value in raw.items():
            if name not in known:
                problems.append(f"{name} is not a setting{nearest(name, known)}")
                continue
            try:
                values[name] = parsed(known[name], value)
            except ValueError as error:
                problems.append(f"{spec_of(known[name]).env}={shown(value)}: {error}")
        preset = values.get("preset", "node-fleet")
        return cls(**{**PRESETS.get(preset, {}), **values}), problems

    def to_env(self) -> dict[str, str]:
        """The environment that gives these settings back; only what differs from the preset's defaults."""
        base = Settings(**{**PRESETS[self.preset], "preset": self.preset})
        return {
            spec_of(f).env: written(getattr(self, f.name))
            for f in fields(self)
            if f.name in ("cluster_id", "preset") or getattr(self, f.name) != getattr(base, f.name)
        }

    def env_of(self, names: Iterable[str]) -> dict[str, str]:
        """The environment of just these settings, by field name, whether or not they differ from a default."""
        return {spec_of(f).env: written(getattr(self, f.name)) for f in fields(self) if f.name in names}

    def env_name(self, name: str) -> str:
        """The environment name of the field of that name."""
        return next(spec_of(f).env for f in fields(self) if f.name == name)

    def policy(self) -> Policy:
        """The numbers that decide() obeys."""
        names = {f.name for f in fields(Policy)} & {f.name for f in fields(self)}
        return Policy(**{name: getattr(self, name) for name in names})

    def policy_env(self) -> dict[str, str]:
        """The part of to_env() that decisions obey: with it the same policy can be had again."""
        names = {f.name for f in fields(Policy)}
        decisive = {spec_of(f).env for f in fields(self) if f.name in names}
        return {name: value for name, value in self.to_env().items() if name in decisive}

    @property
    def zones(self) -> dict[str, str]:
        """Availability zone -> subnet id, in the configured order."""
        return dict(entry.split("=", 1) for entry in self.subnets)
