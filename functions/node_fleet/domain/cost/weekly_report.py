"""The weekly cost report: the cost of the workers, of a fixed fleet, and the settings that would save money.

Arithmetic over the samples of a week.
"""

from __future__ import annotations

from collections.abc import Sequence

from node_fleet.domain.cost.cpu_credits import LARGE_SHARE, CreditAccount
from node_fleet.domain.cost.fleet_cost import fixed_fleet, spread_cpu
from node_fleet.domain.cost.recommendations import Recommendation, recommend
from node_fleet.domain.cost.tariff import Cost, Currency, saved_percent
from node_fleet.domain.cost.week import (
    HOUR_SECONDS,
    FleetSample,
    ReportInputs,
    Spans,
    idle_hours,
    mean_cpu,
    spans_of,
)
from node_fleet.domain.model.instance_types import vcpus_of
from node_fleet.domain.model.value_class import value_class

LEAST_SHARE_KNOWN = 0.5


@value_class
class WeeklyReport:
    """The report as data. known_hours: the hours of the week that the samples cover."""

    known_hours: float
    worker_hours: float
    spot_hours: float
    idle_hours: float
    unmeasured_hours: float
    spent: Cost
    instances_usd: float
    credits_usd: float
    fixed: Cost
    recommendations: tuple[Recommendation, ...]

    @property
    def saved_percent(self) -> float | None:
        """The saving against the fixed fleet over the same hours; None when a part is not known."""
        return saved_percent(self.spent, self.fixed)

    @property
    def has_costly_credits(self) -> bool:
        """Whether the credits cost more than a tenth of the instances."""
        return self.credits_usd > LARGE_SHARE * self.instances_usd


def summarise(samples: Sequence[FleetSample], inputs: ReportInputs) -> WeeklyReport:
    """Evaluate a week. Each sample counts until the next, at most for two intervals: a gap stays unknown."""
    spans = spans_of(samples, inputs)
    known = sum(hours for _, hours in spans)
    machines, credits = _machines(spans, inputs), _credits(spans, inputs)
    return WeeklyReport(
        known_hours=known,
        worker_hours=sum(len(sample.billed) * hours for sample, hours in spans),
        spot_hours=sum(sum(one.market == "spot" for one in sample.billed) * hours for sample, hours in spans),
        idle_hours=idle_hours(spans, inputs),
        unmeasured_hours=_unmeasured_hours(spans),
        spent=Cost.total((machines, credits)),
        instances_usd=sum(
            (inputs.tariff.instance_usd(one.instance_type, one.market) or 0.0) * hours
            for sample, hours in spans
            for one in sample.billed
        ),
        credits_usd=credits.usd,
        fixed=_fixed(spans, known, inputs),
        recommendations=recommend(spans, known, inputs),
    )


def lines(week: WeeklyReport, inputs: ReportInputs, money: Currency) -> tuple[str, ...]:
    """The report's sentences, the recommendations last."""
    sentences = [
        f"{week.worker_hours:.0f} worker hours, {_share(week.spot_hours, week.worker_hours)} of them Spot, "
        f"{_share(week.idle_hours, week.worker_hours)} above the minimum while the fleet was idle",
        f"scale-ups: {inputs.scale_ups}, scale-downs: {inputs.scale_downs}, failed runs: {inputs.failures}, "
        f"interruptions: {inputs.interruptions}",
    ]
    if week.known_hours < LEAST_SHARE_KNOWN * inputs.hours_on:
        sentences.append(
            f"only {week.known_hours:.0f} hours of the week were recorded; the figures cover only those hours"
        )
    if week.spent.missing:
        sentences.append(f"the cost is at least this: not known is {', '.join(week.spent.missing)}")
    if week.unmeasured_hours and not week.spent.missing:
        sentences.append(
            f"CPU was not measured in {week.unmeasured_hours:.0f} worker hours; their CPU credits are estimated from "
            "the other hours"
        )
    if week.has_costly_credits:
        cheaper = any(one.setting.startswith("instance_types=") for one in week.recommendations)
        sentences.append(
            f"CPU credits: CPU above the baseline of the instances cost {money.text(week.credits_usd)}, "
            f"{_share(week.credits_usd, week.instances_usd)} of the price of the instances"
            + ("" if cheaper else "; no type with this capacity is cheaper at this load")
        )
    sentences += [f"{r.text}: saves {money.text(r.usd_per_month)} a month [{r.setting}]" for r in week.recommendations]
    return tuple(sentences)


def headline(week: WeeklyReport, inputs: ReportInputs, money: Currency) -> str:
    """The week in one sentence."""
    words = f"workers cost {money.cost(week.spent)} this week"
    if week.saved_percent is None:
        return words
    more = "less" if week.saved_percent >= 0 else "more"
    fixed = f"{inputs.baseline_workers} fixed workers ({money.cost(week.fixed)})"
    return f"{words}, {abs(week.saved_percent):.0f} % {more} than {fixed}"


def _machines(spans: Spans, inputs: ReportInputs) -> Cost:
    """The workers' instances, volumes and addresses, and the volumes of stopped standby workers."""
    hours: dict[tuple[str, str], float] = {}
    for sample, span in spans:
        for one in sample.billed:
            kind = (one.instance_type, one.market)
            hours[kind] = hours.get(kind, 0.0) + span
    running = (Cost.of(inputs.tariff.lines(*kind, 0.0), span) for kind, span in hours.items())
    standby = sum(sample.standby * span for sample, span in spans)
    return Cost.total((*running, Cost.of(inputs.tariff.stopped_lines() if standby else (), standby)))


def _credits(spans: Spans, inputs: ReportInputs) -> Cost:
    """The CPU credits of each worker by its own account, which begins with the week."""
    accounts: dict[str, CreditAccount] = {}
    rates: dict[str, float] = {}
    missing: dict[str, None] = {}
    mean = mean_cpu(spans)
    for sample, span in spans:
        for one in sample.billed:
            rate = inputs.tariff.credit_usd_per_vcpu_hour(one.instance_type)
            cpu = next((cpu for cpu in (one.cpu_percent, sample.cpu_percent, mean) if cpu is not None), None)
            if rate is None:
                continue
            if cpu is None:
                missing[f"the CPU credits of {one.instance_type}, whose CPU was not measured"] = None
                continue
            if one.instance_id not in accounts:
                accounts[one.instance_id] = CreditAccount(one.instance_type, inputs.tariff.cpu_credits)
                rates[one.instance_id] = rate
            seconds = span * HOUR_SECONDS
            accounts[one.instance_id].use(cpu / 100 * vcpus_of(one.instance_type) * seconds, seconds)
    usd = sum(account.charged_at_end * rates[name] for name, account in accounts.items())
    return Cost(usd=usd, missing=tuple(missing))


def _fixed(spans: Spans, known: float, inputs: ReportInputs) -> Cost:
    """The fixed fleet over the same hours, with the CPU that these workers used."""
    tariff, kind, count = inputs.tariff, inputs.instance_type, inputs.baseline_workers
    mean, rate = mean_cpu(spans), tariff.credit_usd_per_vcpu_hour(kind)
    if rate is None or (mean is None and known):
        return fixed_fleet(tariff, kind, None, workers=count, hours=known)
    account = CreditAccount(kind, tariff.cpu_credits)
    for sample, span in spans:
        cpu = mean if sample.cpu_percent is None else sample.cpu_percent
        spread, seconds = spread_cpu(cpu, sample.workers, kind, count) or 0.0, span * HOUR_SECONDS
        account.use(spread / 100 * vcpus_of(kind) * seconds, seconds)
    machines = fixed_fleet(tariff, kind, 0.0, workers=count, hours=known)
    return Cost.total((machines, Cost(usd=account.charged_at_end * rate * count)))


def _unmeasured_hours(spans: Spans) -> float:
    """Worker hours of samples in which the CPU of the fleet was not measured."""
    return sum(len(sample.billed) * span for sample, span in spans if sample.cpu_percent is None)


def _share(part: float, whole: float) -> str:
    return f"{part / whole * 100:.0f} %" if whole else "0 %"
