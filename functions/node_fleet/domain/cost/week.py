"""The recorded week as data: the samples of the fleet, the hours that each covers, and the settings of the report."""

from __future__ import annotations

from collections.abc import Sequence

from node_fleet.domain.cost.tariff import Tariff
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.value_class import value_class

HOUR_SECONDS = 3600


@value_class
class SampledWorker:
    """One worker in the snapshot of one run. cpu_percent is None when it was not measured."""

    instance_id: str
    instance_type: str
    market: str
    cpu_percent: float | None = None


@value_class
class FleetSample:
    """The fleet in the snapshot of one run. cpu_percent, memory_percent: its mean; hour: of the day, local.

    requested_workers: so many of its workers the requests of the pods fill; None when some requests are unknown.
    leaving: the workers under interruption notice; standby: the number of stopped ones. Both are on the bill alone.
    """

    at: int
    hour: int
    workers: tuple[SampledWorker, ...]
    cpu_percent: float | None
    memory_percent: float | None = None
    requested_workers: float | None = None
    leaving: tuple[SampledWorker, ...] = ()
    standby: int = 0

    @property
    def billed(self) -> tuple[SampledWorker, ...]:
        """Every worker that runs."""
        return self.workers + self.leaving


@value_class
class Volume:
    """A volume of the fleet that is attached to no instance."""

    volume_id: str
    gib: int


@value_class
class ReportInputs:
    """The settings and counts of the week. Times are epoch seconds."""

    since: int
    until: int
    policy: Policy
    tariff: Tariff
    spot_percent: int
    baseline_workers: int
    scale_ups: int = 0
    scale_downs: int = 0
    failures: int = 0
    interruptions: int = 0
    volumes: tuple[Volume, ...] = ()

    @property
    def hours_on(self) -> float:
        """The hours of the time of the report in which the fleet is to be on."""
        hours = (self.until - self.since) / HOUR_SECONDS
        if not self.policy.hibernate:
            return hours
        from node_fleet.domain.model.hibernation import WEEK_MINUTES, off_minutes  # few fleets are off at times

        return hours * (1 - off_minutes(self.policy.hibernate) / WEEK_MINUTES)

    @property
    def instance_type(self) -> str:
        """The preferred type, with which the fixed fleet is priced."""
        return self.policy.instance_types[0]


Spans = list[tuple[FleetSample, float]]


def spans_of(samples: Sequence[FleetSample], inputs: ReportInputs) -> Spans:
    """Each sample with the hours that it covers."""
    ordered = sorted(samples, key=lambda one: one.at)
    ends = [*(one.at for one in ordered[1:]), inputs.until][: len(ordered)]
    longest = 2 * inputs.policy.interval_seconds
    return [
        (sample, max(0, min(end - sample.at, longest)) / HOUR_SECONDS)
        for sample, end in zip(ordered, ends, strict=True)
    ]


def idle_hours(spans: Spans, inputs: ReportInputs) -> float:
    """Worker hours above the minimum while the CPU was below the scale-down threshold.

    The one of the preset adaptive is no sign of an idle fleet: it only forbids removals. The default counts instead.
    """
    policy = Policy() if inputs.policy.strategy == "adaptive" else inputs.policy
    return sum(
        max(0, len(sample.workers) - inputs.policy.min_workers) * hours
        for sample, hours in spans
        if sample.cpu_percent is not None and sample.cpu_percent < policy.cpu_down_percent
    )


def mean_cpu(spans: Spans, instance_type: str = "") -> float | None:
    """The mean CPU of the hours in which workers of this type ran and CPU was measured; by default of any type."""
    weights = [
        (sample.cpu_percent, sum(instance_type in ("", one.instance_type) for one in sample.workers) * hours)
        for sample, hours in spans
        if sample.cpu_percent is not None
    ]
    total = sum(weight for _, weight in weights)
    return sum(cpu * weight for cpu, weight in weights) / total if total else None
