"""What would save money: changes of settings, each with its monthly saving at the load of the recorded week.

A recommendation changes no setting.
"""

from __future__ import annotations

import math

from node_fleet.domain.cost.cpu_credits import cheapest_type, mixed_hour
from node_fleet.domain.cost.prices import HOURS_PER_MONTH
from node_fleet.domain.cost.week import HOUR_SECONDS, ReportInputs, Spans, idle_hours, mean_cpu
from node_fleet.domain.model.text import count_of
from node_fleet.domain.model.value_class import value_class

DAY_HOURS = 24
LEAST_SAVING_USD = 1.0
"""The least monthly saving that is worth a recommendation."""
SAFE_SPOT_PERCENT = 90
SHORT_SECONDS = 300
"""The idle time and the cooldown that are recommended; shorter ones stay."""


@value_class
class Recommendation:
    """A change of a setting, and its monthly saving at the load of this week."""

    text: str
    setting: str
    usd_per_month: float


def recommend(spans: Spans, known: float, inputs: ReportInputs) -> tuple[Recommendation, ...]:
    """The recommendations that are worth it, the largest saving first. known: the hours that the samples cover."""
    if not known:
        return ()
    week = (inputs.until - inputs.since) / HOUR_SECONDS
    month = HOURS_PER_MONTH * max(inputs.hours_on, known) / week / known
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
    hours = sum(len(sample.workers) * span for sample, span in spans)
    on_demand_hours = sum(sum(one.market != "spot" for one in sample.workers) * span for sample, span in spans)
    on_demand, spot = _prices(inputs)
    excess = on_demand_hours - hours * (1 - SAFE_SPOT_PERCENT / 100)
    if excess <= 0 or on_demand is None or spot is None or inputs.spot_percent >= SAFE_SPOT_PERCENT:
        return None
    if inputs.interruptions > (inputs.until - inputs.since) / (DAY_HOURS * HOUR_SECONDS):
        return None
    return Recommendation(
        text=f"raise the Spot share from {inputs.spot_percent} % to {SAFE_SPOT_PERCENT} % "
        f"({inputs.interruptions} interruptions this week)",
        setting=f"spot_percent={SAFE_SPOT_PERCENT}",
        usd_per_month=excess * (on_demand - spot) * month,
    )


def _minimum(spans: Spans, month: float, inputs: ReportInputs) -> Recommendation | None:
    """A lower minimum for the hours that never need the present one, which stays as a schedule for the other hours.

    The text names what it was made from: the records do not show every rule of placement.
    """
    minimum = inputs.policy.min_workers
    needed = _needed_by_hour(spans, inputs)
    idle_hours = {hour for hour, workers in needed.items() if workers < minimum}
    window = _longest_window(idle_hours)
    if not window or minimum < 2:
        return None
    lower = max(1, *(needed[hour] for hour in window))
    freed = sum(
        max(0, min(len(sample.workers), minimum) - lower) * span for sample, span in spans if sample.hour in window
    )
    price = _prices(inputs)[1]
    if price is None:
        return None
    first, after = window[0], (window[-1] + 1) % DAY_HOURS
    enough = "is enough" if lower == 1 else "are enough"
    if len(window) == DAY_HOURS:
        text, setting = f"no hour needed {minimum} workers, {lower} {enough}", f"min_workers={lower}"
    else:
        text = f"from {first:02d}:00 to {after:02d}:00 {count_of(lower, 'worker')} {enough} instead of {minimum}"
        setting = f"min_workers={lower}, schedules=Mon-Sun {after:02d}:00-{first:02d}:00: {minimum}"
    has_requests = all(sample.requested_workers is not None for sample, _ in spans if sample.workers)
    used = "CPU, memory" if inputs.policy.use_memory else "CPU"
    used += ", requests of the pods" if has_requests else "; some requests are unknown"
    text += f" (by {used}; check anti-affinity and topology spread, which are not recorded)"
    return Recommendation(text=text, setting=setting, usd_per_month=freed * price * month)


def _needed_by_hour(spans: Spans, inputs: ReportInputs) -> dict[int, int]:
    """Hour of the day -> workers that its highest load needs.

    Use stays ten points below the scale-up threshold, and requests below what a removal would allow.
    """
    policy = inputs.policy
    needed: dict[int, int] = {}
    for sample, _ in spans:
        if sample.cpu_percent is None or not sample.workers:
            continue
        shares = [sample.cpu_percent / max(1.0, policy.cpu_up_percent - 10)]
        if policy.use_memory and sample.memory_percent is not None:
            shares.append(sample.memory_percent / max(1.0, policy.memory_up_percent - 10))
        requested = (sample.requested_workers or 0.0) / (1 - policy.projection_margin_percent / 100)
        workers = math.ceil(max(requested, max(shares) * len(sample.workers)) - 1e-6)
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
    """The type that carries the measured load at the lowest cost, CPU credits included."""
    kind, tariff = inputs.instance_type, inputs.tariff
    hours = sum(sum(one.instance_type == kind for one in sample.workers) * span for sample, span in spans)
    spot = sum(
        sum(one.instance_type == kind and one.market == "spot" for one in sample.workers) * span
        for sample, span in spans
    )
    cpu = mean_cpu(spans, kind)
    if not hours or cpu is None:
        return None
    spot_percent = 100 * spot / hours
    now = mixed_hour(tariff, kind, cpu, spot_percent).usd
    found = cheapest_type(tariff, kind, cpu, spot_percent)
    if found is None:
        return None
    other, usd = found
    return Recommendation(
        text=f"{other} has the capacity of {kind} and costs {(1 - usd / now) * 100:.0f} % less at a CPU of {cpu:.0f} %",
        setting=f"instance_types={other},{kind}",
        usd_per_month=hours * (now - usd) * month,
    )


def _idle(spans: Spans, month: float, inputs: ReportInputs) -> Recommendation | None:
    """Half of the idle time above the minimum, which a shorter idle time and cooldown would save."""
    price = _prices(inputs)[1]
    clocks = ("idle_seconds", "cooldown_down_seconds")
    longer = [name for name in clocks if getattr(inputs.policy, name) > SHORT_SECONDS]
    if price is None or not longer:
        return None
    idle = idle_hours(spans, inputs)
    return Recommendation(
        text=f"{idle:.0f} worker hours were idle above the minimum; half of the waiting time is enough",
        setting=", ".join(f"{name}={SHORT_SECONDS}" for name in longer),
        usd_per_month=idle / 2 * price * month,
    )


def _volumes(inputs: ReportInputs) -> Recommendation | None:
    price = inputs.tariff.prices.gp3_gib_month
    if not inputs.volumes or price is None:
        return None
    gib = sum(volume.gib for volume in inputs.volumes)
    names = ", ".join(volume.volume_id for volume in inputs.volumes[:5])
    more = f" and {len(inputs.volumes) - 5} more" if len(inputs.volumes) > 5 else ""
    return Recommendation(
        text=f"unattached volumes: {len(inputs.volumes)} with {gib} GiB: {names}{more}",
        setting=f"aws ec2 delete-volume --volume-id {inputs.volumes[0].volume_id}",
        usd_per_month=gib * price.usd,
    )


def _prices(inputs: ReportInputs) -> tuple[float | None, float | None]:
    """An hour of the first instance type, On-Demand and Spot, with its volume and address."""
    on_demand, spot = (inputs.tariff.without_credits(inputs.instance_type, m) for m in ("on-demand", "spot"))
    return on_demand.known_usd, spot.known_usd
