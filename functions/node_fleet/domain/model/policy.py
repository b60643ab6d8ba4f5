"""The numbers a decision obeys, and the presets: named sets of them taken from the documents people know.

A preset changes decisions, never safety. Values come from settings.py, which checks their ranges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

WhenAbsent = Literal["ignore", "hold"]
ScaleDownOrder = Literal["balance", "fewest-pods", "oldest"]
PlacementOrder = Literal["fewest", "round-robin"]
CooldownBy = Literal["next", "last"]
SIZINGS = ("steps", "adaptive")
"""The rule sets by name; what each is stands in rule_sets.py, which settings do not need."""
DAY_NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomMetric:
    """A metric of the user's own. `high` asks for a worker after `readings`; under `low`, one may go.

    when_absent: "ignore" leaves the metric out, "hold" forbids scale-down. traffic_query with minimum_traffic guards
    ratios: below that traffic the metric counts as quiet, neither high nor blocking.
    """

    name: str
    query: str
    high: float
    low: float
    readings: int = 2
    when_absent: WhenAbsent = "ignore"
    traffic_query: str = ""
    minimum_traffic: float = 0.0
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleWindow:
    """A floor under the worker count while the window is open: local times in the configured zone.

    days: 0 = Monday .. 6 = Sunday, empty when `date` (ISO) names one day. end_minute < start_minute runs past midnight.
    """

    minimum: int
    start_minute: int
    end_minute: int
    days: tuple[int, ...] = ()
    date: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Everything decide() weighs against the snapshot. Percent are 0 to 100, times are seconds.

    sizing names the rule set that says how many workers are wanted. cooldown_by: whose cooldown counts, that of the
    next action or that of the last one. In worker-minutes, wait_cost: a pod that waits one minute, change_cost: one
    change of direction. learning_days: after so many, what was learned counts half.
    """

    preset: str = "node-fleet"
    min_workers: int = 2
    max_workers: int = 10
    cpu_up_percent: float = 70.0
    cpu_urgent_percent: float = 85.0
    cpu_down_percent: float = 30.0
    cpu_readings: int = 2
    memory_up_percent: float = 75.0
    memory_down_percent: float = 50.0
    memory_readings: int = 2
    live_share_percent: int = 50
    use_memory: bool = True
    pending_readings: int = 1
    pending_urgent: int = 5
    step_normal: int = 1
    step_urgent: int = 2
    idle_seconds: int = 600
    projection_margin_percent: float = 10.0
    cooldown_up_seconds: int = 300
    cooldown_down_seconds: int = 600
    pending_bypasses_cooldown: bool = True
    interval_seconds: int = 120
    reading_gap_seconds: int = 300
    cached_reading_seconds: int = 300
    join_limit_seconds: int = 300
    scheduling_grace_seconds: int = 30
    not_ready_replace_seconds: int = 1200
    predictive: bool = False
    predictive_minute: int = 50
    predictive_min_days: int = 7
    timezone: str = "UTC"
    schedules: tuple[ScheduleWindow, ...] = ()
    custom_metrics: tuple[CustomMetric, ...] = ()
    scale_down_order: ScaleDownOrder = "balance"
    max_targets: int = 1
    join_failures_to_open: int = 3
    join_back_off_seconds: int = 900
    join_back_off_most_seconds: int = 3600
    scale_up_back_off_seconds: int = 120
    scale_up_back_off_most_seconds: int = 1800
    drain_back_off_seconds: int = 600
    drain_back_off_most_seconds: int = 86400
    sizing: str = "steps"
    wait_cost: float = 2.0
    change_cost: float = 115.0
    learning_days: float = 3.0
    cooldown_by: CooldownBy = "next"
    interval_jitter_seconds: int = 30
    not_helped_launches: int = 2
    not_helped_seconds: int = 3600
    not_ready_one_in: int = 3
    missing_readings: int = 2
    alert_quiet_seconds: int = 3600
    readings_kept: int = 10
    predictive_min_samples: int = 3
    weekend_days: tuple[str, ...] = ("sat", "sun")
    instance_types: tuple[str, ...] = ("t3.small",)
