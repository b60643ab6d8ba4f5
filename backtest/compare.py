"""Replays one load under several policies: a configuration, the presets, the references, and the lower bound.

The rules of each policy are in other modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace

from backtest.bound import clairvoyant
from backtest.deployed import Deployed, Workflow
from backtest.load import Load, cpu_milli_per_unit, plan_load
from backtest.measures import Measures, TypeUsage
from backtest.model import Capacity, Scaling
from backtest.references import ClusterAutoscaler, FixedFleet, Karpenter, TargetTracking
from backtest.replay import Sizer, replay
from backtest.trace import Trace
from node_fleet.domain.cost.cpu_credits import mixed_hour
from node_fleet.domain.cost.limits import Limits
from node_fleet.domain.cost.tariff import Cost, Tariff, saved_percent
from node_fleet.domain.model.hibernation import off_minutes
from node_fleet.domain.model.value_class import value_class
from node_fleet.settings import Settings
from node_fleet.settings.presets import PRESETS

CONFIGURED = "this configuration"
FIXED = 5
FIXED_FLEET = f"fixed-{FIXED}"
REFERENCES: dict[str, Callable[[], Sizer]] = {
    FIXED_FLEET: lambda: FixedFleet(FIXED),
    "target-tracking-50": TargetTracking,
    "target-tracking-50-warm-120": lambda: TargetTracking(warm_up_seconds=120),
    "cluster-autoscaler": ClusterAutoscaler,
    "karpenter": Karpenter,
    "karpenter-balanced": lambda: Karpenter(balanced=True, consolidate_after=60),
}


@value_class
class Assumptions:
    """The model of one study, in addition to the settings. further: the other types of a fleet of several types."""

    capacity: Capacity = field(default_factory=Capacity)
    scaling: Scaling = field(default_factory=Scaling)
    workflow: Workflow = field(default_factory=Workflow)
    further: tuple[Capacity, ...] = ()

    def with_unit_of(self, trace: Trace) -> Assumptions:
        """The same assumptions with the CPU of one unit of this trace, so that parts of the trace keep its scale."""
        scaling = replace(self.scaling, milli_per_unit=cpu_milli_per_unit(trace, self.capacity, self.scaling))
        return replace(self, scaling=scaling)


@value_class
class Study:
    """Policies on one trace. Every policy has the Spot share of the configuration, except in `fixed_cost`.

    left_out: what of the configuration no replay applies; empty when it applies everything.
    """

    load: Load
    assumptions: Assumptions
    bound: Measures
    results: tuple[Measures, ...]
    tariff: Tariff
    spot_percent: int
    left_out: str = ""

    @property
    def configured(self) -> Measures:
        """The measures of the configuration that the study is about."""
        return self.results[0]

    @property
    def hourly_cost(self) -> Cost:
        """An hour of one worker of the configured type at the configured Spot share, without CPU credits."""
        return mixed_hour(self.tariff, self.assumptions.capacity.instance_type, 0.0, self.spot_percent)

    def usage(self, measures: Measures) -> tuple[TypeUsage, ...]:
        """What the workers of each type are billed for."""
        whole = TypeUsage(
            instance_type=self.assumptions.capacity.instance_type,
            worker_hours=measures.worker_hours,
            charged_vcpu_hours=measures.charged_vcpu_hours,
        )
        return measures.usage or (whole,)

    def cost(self, measures: Measures) -> Cost:
        """Instances, volumes, addresses and CPU credits, and the volumes of stopped standby workers."""
        return self._cost(measures, self.spot_percent)

    @property
    def fixed_cost(self) -> Cost | None:
        """The fixed fleet of On-Demand workers; None when it is not compared."""
        return next((self._cost(one, 0) for one in self.results if one.policy == FIXED_FLEET), None)

    def saved_percent(self, measures: Measures) -> float | None:
        """The saving against the fixed fleet of On-Demand workers; None when it is not compared or not known."""
        return None if self.fixed_cost is None else saved_percent(self.cost(measures), self.fixed_cost)

    def instances_usd(self, measures: Measures) -> float | None:
        """The instances alone; None when a price is not known."""
        total = 0.0
        for one in self.usage(measures):
            spot, on_demand = (self.tariff.instance_usd(one.instance_type, market) for market in ("spot", "on-demand"))
            if spot is None or on_demand is None:
                return None
            total += one.worker_hours * (self.spot_percent * spot + (100 - self.spot_percent) * on_demand) / 100
        return total

    def _cost(self, measures: Measures, spot_percent: int) -> Cost:
        standby = Cost.of(self.tariff.stopped_lines(), measures.standby_hours)
        return Cost.total((*(self._type_cost(one, spot_percent) for one in self.usage(measures)), standby))

    def _type_cost(self, usage: TypeUsage, spot_percent: int) -> Cost:
        hour = mixed_hour(self.tariff, usage.instance_type, 0.0, spot_percent)
        rate = self.tariff.credit_usd_per_vcpu_hour(usage.instance_type) or 0.0
        return Cost(usd=usage.worker_hours * hour.usd + usage.charged_vcpu_hours * rate, missing=hour.missing)

    def times_bound(self, measures: Measures) -> float:
        """Worker-hours as a multiple of those of the clairvoyant fleet."""
        return measures.worker_hours / self.bound.worker_hours

    @property
    def cheapest_without_more_pending(self) -> Measures:
        """The policy with the lowest bill and at most as many pending pod-minutes as the configuration.

        Credits are part of the bill, so that it is not always the one with the fewest worker-hours.
        """
        limit = self.configured.pending_pod_minutes
        return min(
            (m for m in self.results if m.pending_pod_minutes <= limit),
            key=lambda m: (self.cost(m).usd, m.worker_hours),
        )


def policy_names() -> tuple[str, ...]:
    """Every policy that a configuration can be compared with."""
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
    """Replay the trace under the settings, under other configurations by name, and under each named policy.

    Every policy keeps the minimum and the maximum of `settings`.
    """
    load, capacity = load_of(trace, settings, assumptions), assumptions.capacity
    policies = [
        *(
            deployed(name, one, settings, assumptions)
            for name, one in {CONFIGURED: settings, **(configurations or {})}.items()
        ),
        *(policy_of(name, settings, assumptions) for name in names),
    ]
    return Study(
        load=load,
        assumptions=assumptions,
        bound=clairvoyant(load, capacity, settings.cpu_credits),
        results=_replay_each(
            policies,
            lambda policy: replay(
                load, capacity, policy, cpu_credits=settings.cpu_credits, chart_seconds=chart_seconds
            ),
        ),
        tariff=settings.tariff(),
        spot_percent=settings.spot_percent,
        left_out=left_out(settings, capacity.instance_type),
    )


def _replay_each(policies: Sequence[Sizer], replayed: Callable[[Sizer], Measures]) -> tuple[Measures, ...]:
    """The measures of every policy. A configuration and a preset that decide alike are replayed once."""
    found: list[Measures] = []
    for policy in policies:
        alike = [known for other, known in zip(policies, found, strict=False) if _decide_alike(policy, other)]
        found.append(replace(alike[0], policy=policy.name) if alike else replayed(policy))
    return tuple(found)


def _decide_alike(one: Sizer, other: Sizer) -> bool:
    return isinstance(one, Deployed) and isinstance(other, Deployed) and one.decides_by == other.decides_by


def left_out(settings: Settings, instance_type: str) -> str:
    """What of these settings no replay with workers of that type applies, in sentences; empty for nothing."""
    said, limits = [], settings.limits()
    if limits:
        fewest, most = (_workers_within(limits, settings, instance_type, market) for market in ("on-demand", "spot"))
        if fewest < settings.max_workers:
            names = [name for name in ("max_usd_per_hour", "max_vcpu") if getattr(settings, name)]
            said.append(
                f"Not replayed: {' and '.join(names)}, with which the fleet has at most {fewest} On-Demand or {most} "
                f"Spot workers of type {instance_type}; lower max_workers to replay that."
            )
    if hours := off_minutes(settings.hibernate) / 60:
        said.append(f"Not replayed: hibernate switches the fleet off for {hours:.0f} of 168 h a week.")
    return " ".join(said)


def _workers_within(limits: Limits, settings: Settings, instance_type: str, market: str) -> int:
    weight, most = limits.weight(instance_type, market), limits.most
    pairs = ((most.micro_usd, weight.micro_usd), (most.vcpu, weight.vcpu))
    return min((limit // own for limit, own in pairs if limit and own), default=settings.max_workers)


def load_of(trace: Trace, settings: Settings, assumptions: Assumptions) -> Load:
    """The demand of the trace on fleets between the minimum and the maximum of the settings."""
    return plan_load(
        trace,
        assumptions.capacity,
        assumptions.scaling,
        min_workers=settings.min_workers,
        max_workers=settings.max_workers,
    )


def deployed(name: str, one: Settings, settings: Settings, assumptions: Assumptions) -> Sizer:
    """node-fleet with its own settings, and with the minimum, the maximum and the Spot share of `settings`."""
    policy = replace(one.policy(), min_workers=settings.min_workers, max_workers=settings.max_workers)
    workflow = replace(assumptions.workflow, spot_percent=settings.spot_percent)
    return Deployed(policy, assumptions.capacity, workflow, name=name, further=assumptions.further)


def policy_of(name: str, settings: Settings, assumptions: Assumptions) -> Sizer:
    """The configuration, a preset or a reference, by its name."""
    if name in REFERENCES:
        return REFERENCES[name]()
    if name == CONFIGURED:
        return deployed(name, settings, settings, assumptions)
    return deployed(name, preset_settings(name, settings), settings, replace(assumptions, further=()))


def preset_settings(name: str, settings: Settings) -> Settings:
    """The preset with the same minimum, maximum, region, time zone, instance types and Spot share."""
    kept = ("min_workers", "max_workers", "region", "timezone", "instance_types", "spot_percent")
    return Settings.from_mapping({"preset": name, **{field: getattr(settings, field) for field in kept}})
