"""Puts policies side by side on one load: the configuration at hand, the presets, the references, the lower bound.

It composes; each policy's rules stand elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from backtest.bound import clairvoyant
from backtest.deployed import Deployed, Workflow
from backtest.load import Load, plan_load, unit_of
from backtest.measures import Measures
from backtest.model import Capacity, Scaling
from backtest.references import ClusterAutoscaler, FixedFleet, Karpenter, TargetTracking
from backtest.replay import Sizer, replay
from backtest.trace import Trace
from node_fleet.domain.cost.fleet_cost import usd_per_hour
from node_fleet.domain.model.policy import Policy
from node_fleet.settings import Settings
from node_fleet.settings.presets import PRESETS

MINE = "this configuration"
FIXED = 5
REFERENCES: dict[str, Callable[[], Sizer]] = {
    f"fixed-{FIXED}": lambda: FixedFleet(FIXED),
    "target-tracking-50": TargetTracking,
    "cluster-autoscaler": ClusterAutoscaler,
    "karpenter": Karpenter,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """The model of one study, beside the settings."""

    capacity: Capacity = field(default_factory=Capacity)
    scaling: Scaling = field(default_factory=Scaling)
    workflow: Workflow = field(default_factory=Workflow)

    def fixed_to(self, trace: Trace) -> Assumptions:
        """The same with the trace's unit stated outright, so that parts of the trace keep the whole one's scale."""
        scaling = replace(self.scaling, milli_per_unit=unit_of(trace, self.capacity, self.scaling))
        return replace(self, scaling=scaling)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Policies on one trace. usd_per_hour: one worker at the configured share of Spot; None without a price."""

    load: Load
    assumptions: Assumptions
    bound: Measures
    results: tuple[Measures, ...]
    usd_per_hour: float | None

    @property
    def mine(self) -> Measures:
        """The configuration that was asked about."""
        return self.results[0]

    def usd(self, measures: Measures) -> float | None:
        return None if self.usd_per_hour is None else measures.worker_hours * self.usd_per_hour

    def times_bound(self, measures: Measures) -> float:
        """Worker-hours against the clairvoyant fleet's."""
        return measures.worker_hours / self.bound.worker_hours

    @property
    def cheapest_without_more_pending(self) -> Measures:
        """The cheapest policy whose pods wait no longer than those of the configuration that was asked about."""
        mine = self.mine
        fair = [m for m in self.results if m.pending_pod_minutes <= mine.pending_pod_minutes]
        return min(fair, key=lambda m: m.worker_hours)


def policy_names() -> tuple[str, ...]:
    """Everything that can be put beside the configuration."""
    return (*PRESETS, *REFERENCES)


def study(
    trace: Trace,
    settings: Settings,
    assumptions: Assumptions,
    names: Iterable[str] = (),
    *,
    configurations: Mapping[str, Settings] | None = None,
    chart_seconds: int = 0,
) -> Study:
    """Replay the trace under the settings, under other configurations by their names, and under each policy named.

    Everybody moves between the minimum and maximum of the settings that were asked about.
    """
    capacity = assumptions.capacity
    load = plan_load(
        trace, capacity, assumptions.scaling, least_workers=settings.min_workers, most_workers=settings.max_workers
    )
    workflow = replace(assumptions.workflow, spot_percent=settings.spot_percent)
    sizers: list[Sizer] = [
        Deployed(_between(one.policy(), settings), capacity, workflow, name=name)
        for name, one in {MINE: settings, **(configurations or {})}.items()
    ]
    sizers += [_sizer(name, settings, capacity, workflow) for name in names]
    return Study(
        load=load,
        assumptions=assumptions,
        bound=clairvoyant(load, capacity),
        results=tuple(replay(load, capacity, sizer, chart_seconds=chart_seconds) for sizer in sizers),
        usd_per_hour=mixed_price(settings, capacity.instance_type),
    )


def mixed_price(settings: Settings, instance_type: str) -> float | None:
    """USD per hour of one worker at the configured share of Spot; None when the price table lacks one of the two."""
    spot = usd_per_hour(settings.region, instance_type, "spot")
    on_demand = usd_per_hour(settings.region, instance_type, "on-demand")
    if spot is None or on_demand is None:
        return None
    return (settings.spot_percent * spot + (100 - settings.spot_percent) * on_demand) / 100


def preset_settings(name: str, settings: Settings) -> Settings:
    """That preset between the same minimum and maximum, in the same region and zone."""
    kept = ("min_workers", "max_workers", "region", "timezone", "instance_types", "spot_percent")
    return Settings.from_mapping({"preset": name, **{field: getattr(settings, field) for field in kept}})


def _between(policy: Policy, settings: Settings) -> Policy:
    return replace(policy, min_workers=settings.min_workers, max_workers=settings.max_workers)


def _sizer(name: str, settings: Settings, capacity: Capacity, workflow: Workflow) -> Sizer:
    if name in REFERENCES:
        return REFERENCES[name]()
    return Deployed(preset_settings(name, settings).policy(), capacity, workflow, name=name)
