"""The weekly cost report: the cost of the workers, of a fixed fleet, and the settings that would save money.

Arithmetic over the samples of a week. A recommendation names the saving and the setting; it changes no setting.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from node_fleet.domain.cost.fleet_cost import (
    HOURS_PER_MONTH,
    Currency,
    fixed_usd,
    saved_percent,
    usd_per_hour,
)
from node_fleet.domain.cost.prices import USD_PER_HOUR
from node_fleet.domain.model.instance_types import offered
from node_fleet.domain.model.policy import Policy

DAY_HOURS = 24
HOUR_SECONDS = 3600
LEAST_SAVING_USD = 1.0
"""The least monthly saving that is worth a recommendation."""
SAFE_SPOT_PERCENT = 90
GP3_USD_PER_GIB_MONTH = 0.096
LEAST_SHARE_KNOWN = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSample:
    """The fleet in the snapshot of one run. kinds: (instance type, market) of each worker; hour: of the day, local."""

    at: int
    hour: int
    kinds: tuple[tuple[str, str], ...]
    cpu_percent: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A volume of the fleet that is attached to no instance."""

    volume_id: str
    gib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportInputs:
    """The settings and counts of the week. Times are epoch seconds."""

    since: int
    until: int
    policy: Policy
    region: str
    spot_percent: int
    baseline_workers: int
    scale_ups: int = 0
    scale_downs: int = 0
    failures: int = 0
    interruptions: int = 0
    volumes: tuple[Volume, ...] = ()

    @property
    def instance_type(self) -> str:
        """The preferred type, with which the fixed fleet is priced."""
        return self.policy.instance_types[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """A change of a setting, and its monthly saving at the load of this week."""

    text: str
    setting: str
    usd_per_month: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WeeklyReport:
    """The report as data. known_hours: the hours of the week that the samples cover."""

    known_hours: float
    worker_hours: float
    spot_hours: float
    idle_hours: float
    spent_usd: float
    fixed_usd: float | None
    unpriced: tuple[str, ...]
    recommendations: tuple[Recommendation, ...]

    @property
    def saved_percent(self) -> float | None:
        """The saving against the fixed fleet over the same hours; None without its price."""
        return None if self.fixed_usd is None else saved_percent(self.spent_usd, self.fixed_usd)


def summarise(samples: Sequence[FleetSample], inputs: ReportInputs) -> WeeklyReport:
    """Evaluate a week. Each sample counts until the next, at most for two intervals: a gap stays unknown."""
    spans = _spans(samples, inputs)
    known = sum(hours for _, hours in spans)
    spent, unpriced = 0.0, dict[str, None]()
    for sample, hours in spans:
        for kind, market in sample.kinds:
            price = usd_per_hour(inputs.region, kind, market)
            if price is None:
                unpriced[f"{kind} {market} in {inputs.region}"] = None
            spent += (price or 0.0) * hours
    return WeeklyReport(
        known_hours=known,
        worker_hours=sum(len(sample.kinds) * hours for sample, hours in spans),
        spot_hours=sum(sum(m == "spot" for _, m in sample.kinds) * hours for sample, hours in spans),
        idle_hours=_idle_hours(spans, inputs),
        spent_usd=spent,
        fixed_usd=fixed_usd(
            inputs.region, inputs.instance_type, "on-demand", workers=inputs.baseline_workers, hours=known
        ),
        unpriced=tuple(unpriced),
        recommendations=_recommendations(spans, known, inputs),
    )


def lines(week: WeeklyReport, inputs: ReportInputs, money: Currency) -> tuple[str, ...]:
    """The report's sentences, the recommendations last."""
    sentences = [
        f"{week.worker_hours:.0f} worker hours, {_share(week.spot_hours, week.worker_hours)} of them Spot, "
        f"{_share(week.idle_hours, week.worker_hours)} above the minimum while the fleet was idle",
        f"scale-ups: {inputs.scale_ups}, scale-downs: {inputs.scale_downs}, failed runs: {inputs.failures}, "
        f"interruptions: {inputs.interruptions}",
    ]
    if week.known_hours < LEAST_SHARE_KNOWN * (inputs.until - inputs.since) / HOUR_SECONDS:
        sentences.append(
            f"only {week.known_hours:.0f} hours of the week were recorded; the figures cover only those hours"
        )
    if week.unpriced:
        sentences.append(f"the price table has no price for {', '.join(week.unpriced)}: not counted")
    sentences += [f"{r.text}: saves {money.text(r.usd_per_month)} a month [{r.setting}]" for r in week.recommendations]
    return tuple(sentences)


def headline(week: WeeklyReport, inputs: ReportInputs, money: Currency) -> str:
    """The week in one sentence."""
    words = f"workers cost {money.text(week.spent_usd)} this week"
    if week.saved_percent is None or week.fixed_usd is None:
        return words
    more = "less" if week.saved_percent >= 0 else "more"
    fixed = f"{inputs.baseline_workers} fixed workers ({money.text(week.fixed_usd)})"
    return f"{words}, {abs(week.saved_percent):.0f} % {more} than {fixed}"


Spans = list[tuple[FleetSample, float]]


def _spans(samples: Sequence[FleetSample], inputs: ReportInputs) -> Spans:
    """Each sample with the hours that it covers."""
    ordered = sorted(samples, key=lambda one: one.at)
    ends = [*(one.at for one in ordered[1:]), inputs.until][: len(ordered)]
    longest = 2 * inputs.policy.interval_seconds
    return [
        (sample, max(0, min(end - sample.at, longest)) / HOUR_SECONDS)
        for sample, end in zip(ordered, ends, strict=True)
    ]


def _idle_hours(spans: Spans, inputs: ReportInputs) -> float:
    """Worker hours above the minimum while the CPU was below the scale-down threshold."""
    return sum(
        max(0, len(sample.kinds) - inputs.policy.min_workers) * hours
        for sample, hours in spans
        if sample.cpu_percent is not None and sample.cpu_percent < inputs.policy.cpu_down_percent
    )


def _recommendations(spans: Spans, known: float, inputs: ReportInputs) -> tuple[Recommendation, ...]:
    if not known:
        return ()
    month = HOURS_PER_MONTH / known
    found = [
        _spot_share(spans, month, inputs),
        _minimum(spans, month, inputs),
        _instance_type(spans, month, inputs),
        _idle(spans, month, inputs),
        _volumes(inputs),
    ]
    worthwhile = [one for one in found if one is not None and one.usd_per_month >= LEAST_SAVING_USD]
    return tuple(sorted(worthwhile, key=lambda one: -one.usd_per_month))


def _spot_share(spans: Spans, month: float, inputs: ReportInputs) -> Recommendation | None:
    """A higher Spot share, unless interruptions occurred more than once a day."""
    hours = sum(len(sample.kinds) * span for sample, span in spans)
    on_demand_hours = sum(sum(m != "spot" for _, m in sample.kinds) * span for sample, span in spans)
    on_demand, spot = _prices(inputs)
    excess = on_demand_hours - hours * (1 - SAFE_SPOT_PERCENT / 100)
    if excess <= 0 or on_demand is None or spot is None or inputs.spot_percent >= SAFE_SPOT_PERCENT:
        return None
    if inputs.interruptions > (inputs.until - inputs.since) / (DAY_HOURS * HOUR_SECONDS):
        return None
    return Recommendation(
        text=f"raise the Spot share from {inputs.spot_percent} % to {SAFE_SPOT_PERCENT} % "
        f"({inputs.interruptions} interruptions this week)",
        setting=f"SPOT_PERCENTAGE={SAFE_SPOT_PERCENT}",
        usd_per_month=excess * (on_demand - spot) * month,
    )


def _minimum(spans: Spans, month: float, inputs: ReportInputs) -> Recommendation | None:
    """A lower minimum for the hours that never need the present one, which stays as a schedule for the other hours."""
    minimum = inputs.policy.min_workers
    needed = _needed_by_hour(spans, inputs)
    idle_hours = {hour for hour, workers in needed.items() if workers < minimum}
    window = _longest_window(idle_hours)
    if not window or minimum < 2:
        return None
    lower = max(1, *(needed[hour] for hour in window))
    freed = sum(
        max(0, min(len(sample.kinds), minimum) - lower) * span for sample, span in spans if sample.hour in window
    )
    price = _prices(inputs)[1]
    if price is None:
        return None
    first, after = window[0], (window[-1] + 1) % DAY_HOURS
    if len(window) == DAY_HOURS:
        text, setting = f"no hour needed {minimum} workers, {lower} are enough", f"MIN_NODES={lower}"
    else:
        text = f"from {first:02d}:00 to {after:02d}:00 {lower} workers are enough instead of {minimum}"
        setting = f"MIN_NODES={lower}, SCHEDULES=Mon-Sun {after:02d}:00-{first:02d}:00: {minimum}"
    return Recommendation(text=text, setting=setting, usd_per_month=freed * price * month)


def _needed_by_hour(spans: Spans, inputs: ReportInputs) -> dict[int, int]:
    """Hour of the day -> workers that its highest load needs, ten points below the scale-up threshold."""
    target = max(1.0, inputs.policy.cpu_up_percent - 10)
    needed: dict[int, int] = {}
    for sample, _ in spans:
        if sample.cpu_percent is not None and sample.kinds:
            workers = math.ceil(sample.cpu_percent * len(sample.kinds) / target)
            needed[sample.hour] = max(needed.get(sample.hour, 1), workers)
    return needed


def _longest_window(hours: set[int]) -> list[int]:
    """The longest unbroken run of these hours, over midnight too; all 24 when it is all of them."""
    if len(hours) == DAY_HOURS:
        return list(range(DAY_HOURS))
    best: list[int] = []
    for start in sorted(hours):
        if (start - 1) % DAY_HOURS in hours:
            continue
        run = [start]
        while (run[-1] + 1) % DAY_HOURS in hours:
            run.append((run[-1] + 1) % DAY_HOURS)
        best = max(best, run, key=len)
    return best


def _instance_type(spans: Spans, month: float, inputs: ReportInputs) -> Recommendation | None:
    """The cheapest x86 type with at least the same capacity for pods."""
    shape, price = offered(inputs.instance_type), _prices(inputs)[0]
    if shape is None or price is None:
        return None
    others = [
        (usd, kind)
        for (region, kind, market), usd in USD_PER_HOUR.items()
        if region == inputs.region and market == "on-demand" and usd < price and _has_capacity_of(kind, shape)
    ]
    if not others:
        return None
    cheapest, kind = min(others)
    spent = sum(
        (usd_per_hour(inputs.region, name, market) or 0.0) * span
        for sample, span in spans
        for name, market in sample.kinds
        if name == inputs.instance_type
    )
    return Recommendation(
        text=f"{kind} has the capacity of {inputs.instance_type} and costs {(1 - cheapest / price) * 100:.0f} % less",
        setting=f"INSTANCE_TYPES={kind},{inputs.instance_type}",
        usd_per_month=spent * (1 - cheapest / price) * month,
    )


def _has_capacity_of(kind: str, shape: tuple[int, int]) -> bool:
    family = kind.split(".", maxsplit=1)[0]
    other = offered(kind)
    arm = family.endswith("g") or "gd" in family
    return other is not None and not arm and other[0] >= shape[0] and other[1] >= shape[1]


def _idle(spans: Spans, month: float, inputs: ReportInputs) -> Recommendation | None:
    """Half of the idle time above the minimum, which a shorter idle time and cooldown would save."""
    price = _prices(inputs)[1]
    if price is None:
        return None
    idle = _idle_hours(spans, inputs)
    return Recommendation(
        text=f"{idle:.0f} worker hours were idle above the minimum; half of the waiting time is enough",
        setting="IDLE_SECONDS=300, COOLDOWN_SCALE_DOWN=300",
        usd_per_month=idle / 2 * price * month,
    )


def _volumes(inputs: ReportInputs) -> Recommendation | None:
    if not inputs.volumes:
        return None
    gib = sum(volume.gib for volume in inputs.volumes)
    names = ", ".join(volume.volume_id for volume in inputs.volumes[:5])
    more = f" and {len(inputs.volumes) - 5} more" if len(inputs.volumes) > 5 else ""
    return Recommendation(
        text=f"unattached volumes: {len(inputs.volumes)} with {gib} GiB: {names}{more}",
        setting=f"aws ec2 delete-volume --volume-id {inputs.volumes[0].volume_id}",
        usd_per_month=gib * GP3_USD_PER_GIB_MONTH,
    )


def _prices(inputs: ReportInputs) -> tuple[float | None, float | None]:
    """The on-demand and the Spot price of the first instance type."""
    return (
        usd_per_hour(inputs.region, inputs.instance_type, "on-demand"),
        usd_per_hour(inputs.region, inputs.instance_type, "spot"),
    )


def _share(part: float, whole: float) -> str:
    return f"{part / whole * 100:.0f} %" if whole else "0 %"
