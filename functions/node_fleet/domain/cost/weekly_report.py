"""The weekly cost report: what the workers cost, what a fixed fleet would have, and which setting saves more money.

Pure arithmetic over the week's samples. Each recommendation names the money and the setting; it changes neither.
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

DAY_HOURS = 24
HOUR_SECONDS = 3600
LEAST_SAVING_USD = 1.0
"""A recommendation that saves less than this in a month is not worth anybody's time."""
SAFE_SPOT_PERCENT = 90
GP3_USD_PER_GIB_MONTH = 0.096
LEAST_SHARE_KNOWN = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSample:
    """The fleet as one run saw it. kinds: (instance type, market) of each worker; hour: of the day, local."""

    at: int
    hour: int
    kinds: tuple[tuple[str, str], ...]
    cpu_percent: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A volume of ours that hangs on no instance."""

    volume_id: str
    gib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportInputs:
    """What the week is judged by. Times are epoch seconds."""

    since: int
    until: int
    region: str
    min_workers: int
    spot_percent: int
    baseline_workers: int
    instance_type: str
    cpu_up_percent: float
    cpu_down_percent: float
    interval_seconds: int
    scale_ups: int = 0
    scale_downs: int = 0
    failures: int = 0
    interruptions: int = 0
    volumes: tuple[Volume, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """What to change, and what that saves in a month at this week's load."""

    text: str
    setting: str
    usd_per_month: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WeeklyReport:
    """The report as data. known_hours: how much of the week the samples cover."""

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
        """Against the fixed fleet over the same hours."""
        return None if self.fixed_usd is None else saved_percent(self.spent_usd, self.fixed_usd)


def summarise(samples: Sequence[FleetSample], facts: ReportInputs) -> WeeklyReport:
    """Judge a week. Each sample stands until the next, at most for two intervals: a gap is not made up."""
    spans = _spans(samples, facts)
    known = sum(hours for _, hours in spans)
    spent, unpriced = 0.0, dict[str, None]()
    for sample, hours in spans:
        for kind, market in sample.kinds:
            price = usd_per_hour(facts.region, kind, market)
            if price is None:
                unpriced[f"{kind} {market} in {facts.region}"] = None
            spent += (price or 0.0) * hours
    return WeeklyReport(
        known_hours=known,
        worker_hours=sum(len(sample.kinds) * hours for sample, hours in spans),
        spot_hours=sum(sum(m == "spot" for _, m in sample.kinds) * hours for sample, hours in spans),
        idle_hours=_idle_hours(spans, facts),
        spent_usd=spent,
        fixed_usd=fixed_usd(
            facts.region, facts.instance_type, "on-demand", workers=facts.baseline_workers, hours=known
        ),
        unpriced=tuple(unpriced),
        recommendations=_recommendations(spans, known, facts),
    )


def lines(week: WeeklyReport, facts: ReportInputs, money: Currency) -> tuple[str, ...]:
    """The report's sentences, the recommendations last."""
    told = [
        f"{week.worker_hours:.0f} worker hours, {_share(week.spot_hours, week.worker_hours)} of them Spot, "
        f"{_share(week.idle_hours, week.worker_hours)} above the minimum while the fleet idled",
        f"{facts.scale_ups} scale-ups, {facts.scale_downs} scale-downs, {facts.failures} failed runs, "
        f"{facts.interruptions} interruptions",
    ]
    if week.known_hours < LEAST_SHARE_KNOWN * (facts.until - facts.since) / HOUR_SECONDS:
        told.append(f"only {week.known_hours:.0f} hours of the week were recorded; the figures are of those")
    if week.unpriced:
        told.append(f"no price is known for {', '.join(week.unpriced)}: not counted")
    told += [f"{r.text}: saves {money.text(r.usd_per_month)} a month [{r.setting}]" for r in week.recommendations]
    return tuple(told)


def headline(week: WeeklyReport, facts: ReportInputs, money: Currency) -> str:
    """The week in one sentence."""
    words = f"workers cost {money.text(week.spent_usd)} this week"
    if week.saved_percent is None or week.fixed_usd is None:
        return words
    more = "less" if week.saved_percent >= 0 else "more"
    fixed = f"{facts.baseline_workers} fixed workers ({money.text(week.fixed_usd)})"
    return f"{words}, {abs(week.saved_percent):.0f} % {more} than {fixed}"


Spans = list[tuple[FleetSample, float]]


def _spans(samples: Sequence[FleetSample], facts: ReportInputs) -> Spans:
    """Each sample with the hours that it stands for."""
    ordered = sorted(samples, key=lambda one: one.at)
    ends = [*(one.at for one in ordered[1:]), facts.until][: len(ordered)]
    longest = 2 * facts.interval_seconds
    return [
        (sample, max(0, min(end - sample.at, longest)) / HOUR_SECONDS)
        for sample, end in zip(ordered, ends, strict=True)
    ]


def _idle_hours(spans: Spans, facts: ReportInputs) -> float:
    """Worker hours above the minimum while the CPU was under the mark at which a worker may go."""
    return sum(
        max(0, len(sample.kinds) - facts.min_workers) * hours
        for sample, hours in spans
        if sample.cpu_percent is not None and sample.cpu_percent < facts.cpu_down_percent
    )


def _recommendations(spans: Spans, known: float, facts: ReportInputs) -> tuple[Recommendation, ...]:
    if not known:
        return ()
    month = HOURS_PER_MONTH / known
    found = [
        _spot_share(spans, month, facts),
        _minimum(spans, month, facts),
        _instance_type(spans, month, facts),
        _idle(spans, month, facts),
        _volumes(facts),
    ]
    worthy = [one for one in found if one is not None and one.usd_per_month >= LEAST_SAVING_USD]
    return tuple(sorted(worthy, key=lambda one: -one.usd_per_month))


def _spot_share(spans: Spans, month: float, facts: ReportInputs) -> Recommendation | None:
    """More Spot, unless interruptions came about daily."""
    hours = sum(len(sample.kinds) * span for sample, span in spans)
    steady = sum(sum(m != "spot" for _, m in sample.kinds) * span for sample, span in spans)
    dear, cheap = _pair(facts)
    excess = steady - hours * (1 - SAFE_SPOT_PERCENT / 100)
    if excess <= 0 or dear is None or cheap is None or facts.spot_percent >= SAFE_SPOT_PERCENT:
        return None
    if facts.interruptions > (facts.until - facts.since) / (DAY_HOURS * HOUR_SECONDS):
        return None
    return Recommendation(
        text=f"raise the Spot share from {facts.spot_percent} % to {SAFE_SPOT_PERCENT} % "
        f"({facts.interruptions} interruptions this week)",
        setting=f"SPOT_PERCENTAGE={SAFE_SPOT_PERCENT}",
        usd_per_month=excess * (dear - cheap) * month,
    )


def _minimum(spans: Spans, month: float, facts: ReportInputs) -> Recommendation | None:
    """A lower minimum in the hours that never needed it, with the old one as a floor for the others."""
    needed = _needed_by_hour(spans, facts)
    quiet = {hour for hour, workers in needed.items() if workers < facts.min_workers}
    window = _longest_window(quiet)
    if not window or facts.min_workers < 2:
        return None
    lower = max(1, *(needed[hour] for hour in window))
    freed = sum(
        max(0, min(len(sample.kinds), facts.min_workers) - lower) * span
        for sample, span in spans
        if sample.hour in window
    )
    price = _pair(facts)[1]
    if price is None:
        return None
    first, after = window[0], (window[-1] + 1) % DAY_HOURS
    if len(window) == DAY_HOURS:
        text, setting = f"no hour needed {facts.min_workers} workers, {lower} are enough", f"MIN_NODES={lower}"
    else:
        text = f"from {first:02d}:00 to {after:02d}:00 {lower} workers are enough instead of {facts.min_workers}"
        setting = f"MIN_NODES={lower}, SCHEDULES=Mon-Sun {after:02d}:00-{first:02d}:00: {facts.min_workers}"
    return Recommendation(text=text, setting=setting, usd_per_month=freed * price * month)


def _needed_by_hour(spans: Spans, facts: ReportInputs) -> dict[int, int]:
    """Hour of the day -> workers that its busiest moment needed, with ten points kept under the up-threshold."""
    target = max(1.0, facts.cpu_up_percent - 10)
    needed: dict[int, int] = {}
    for sample, _ in spans:
        if sample.cpu_percent is not None and sample.kinds:
            workers = math.ceil(sample.cpu_percent * len(sample.kinds) / target)
            needed[sample.hour] = max(needed.get(sample.hour, 1), workers)
    return needed


def _longest_window(hours: set[int]) -> list[int]:
    """The longest run of these hours round the clock, in order; all 24 when it is all of them."""
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


def _instance_type(spans: Spans, month: float, facts: ReportInputs) -> Recommendation | None:
    """The cheapest x86 type that offers pods at least as much."""
    shape, price = offered(facts.instance_type), _pair(facts)[0]
    if shape is None or price is None:
        return None
    others = [
        (usd, kind)
        for (region, kind, market), usd in USD_PER_HOUR.items()
        if region == facts.region and market == "on-demand" and usd < price and _as_good(kind, shape)
    ]
    if not others:
        return None
    cheapest, kind = min(others)
    spent = sum(
        (usd_per_hour(facts.region, name, market) or 0.0) * span
        for sample, span in spans
        for name, market in sample.kinds
        if name == facts.instance_type
    )
    return Recommendation(
        text=f"{kind} offers pods as much as {facts.instance_type} for {(1 - cheapest / price) * 100:.0f} % less",
        setting=f"INSTANCE_TYPES={kind},{facts.instance_type}",
        usd_per_month=spent * (1 - cheapest / price) * month,
    )


def _as_good(kind: str, shape: tuple[int, int]) -> bool:
    family = kind.split(".", maxsplit=1)[0]
    other = offered(kind)
    arm = family.endswith("g") or "gd" in family
    return other is not None and not arm and other[0] >= shape[0] and other[1] >= shape[1]


def _idle(spans: Spans, month: float, facts: ReportInputs) -> Recommendation | None:
    """Half of the idle time above the minimum, which a shorter idle clock and cooldown would have saved."""
    price = _pair(facts)[1]
    if price is None:
        return None
    idle = _idle_hours(spans, facts)
    return Recommendation(
        text=f"{idle:.0f} worker hours idled above the minimum; half of the wait would do",
        setting="IDLE_SECONDS=300, COOLDOWN_SCALE_DOWN=300",
        usd_per_month=idle / 2 * price * month,
    )


def _volumes(facts: ReportInputs) -> Recommendation | None:
    if not facts.volumes:
        return None
    gib = sum(volume.gib for volume in facts.volumes)
    names = ", ".join(volume.volume_id for volume in facts.volumes[:5])
    more = f" and {len(facts.volumes) - 5} more" if len(facts.volumes) > 5 else ""
    return Recommendation(
        text=f"{len(facts.volumes)} forgotten volumes, {gib} GiB: {names}{more}",
        setting="aws ec2 delete-volume",
        usd_per_month=gib * GP3_USD_PER_GIB_MONTH,
    )


def _pair(facts: ReportInputs) -> tuple[float | None, float | None]:
    """The first type's price on demand and as Spot."""
    return (
        usd_per_hour(facts.region, facts.instance_type, "on-demand"),
        usd_per_hour(facts.region, facts.instance_type, "spot"),
    )


def _share(part: float, whole: float) -> str:
    return f"{part / whole * 100:.0f} %" if whole else "0 %"
