"""A study as a sentence, as rows and as plain data: the same figures for the terminal, for JSON and for the page."""

from __future__ import annotations

from typing import Any

from backtest.compare import Study
from backtest.measures import Measures
from backtest.tune import Tuned, waiting_per_day
from node_fleet.domain.cost.tariff import Cost

COLUMNS = (
    *("policy", "hours", "USD", "instances", "saved", "/ bound"),
    *("pending", "avoidable/d", "overload", "actions", "changes/d"),
)
"""Worker-hours, USD, the part of it for the instances alone, the saving against five On-Demand workers (with fixed-5),
worker-hours as a multiple of the bound, pending pod-minutes, avoidable ones a day, minutes of overload, completed
actions, changes of direction a day."""


def answer(study: Study) -> str:
    """The cost and waiting of the configuration, and the cheapest policy with no more waiting, in one sentence."""
    best = study.cheapest_without_more_pending
    text = f"{study.configured.policy}: {_costs(study, study.configured)}"
    if len(study.results) == 1:
        return f"{text}; lower bound, with the load known beforehand: {_costs(study, study.bound)}"
    if best is study.configured:
        return f"{text}; no compared policy is cheaper without more pending pod-minutes"
    return f"{text}; cheapest without more pending pod-minutes: {best.policy}, {_costs(study, best)}"


def rows(study: Study) -> list[tuple[object, ...]]:
    """One row for each policy in the given order, the lower bound last."""
    return [_row(study, measures) for measures in (*study.results, study.bound)]


def as_data(study: Study) -> dict[str, Any]:
    """The whole study for JSON; hours, minutes and USD as numbers."""
    return {
        "trace": study.load.name,
        "days": round(study.load.seconds / 86400, 3),
        "answer": answer(study),
        "left_out": study.left_out,
        "usd_per_worker_hour": study.hourly_cost.known_usd,
        "workers": [study.load.min_workers, study.load.max_workers],
        "pods_per_worker": study.load.pods_per_worker,
        "cpu_milli_per_unit": round(study.load.milli_per_unit, 6),
        "policies": [_data(study, measures) for measures in (*study.results, study.bound)],
    }


def tuned_data(tuned: Tuned) -> dict[str, Any]:
    """The result of a search for JSON."""
    return {
        "changes": dict(tuned.changes),
        "limit_pending_pod_minutes_per_day": tuned.limit_per_day,
        "tries": tuned.tries,
        "searched_part": {
            "worker_hours": round(tuned.searched.worker_hours, 2),
            "pending_pod_minutes_per_day": round(tuned.searched.waiting_per_day, 2),
        },
        "other_part": {
            name: {
                "worker_hours": round(measures.worker_hours, 2),
                "pending_pod_minutes_per_day": round(waiting_per_day(measures), 2),
                "changes_of_direction_per_day": round(measures.changes_per_day, 2),
            }
            for name, measures in (("before", tuned.before), ("after", tuned.after))
        },
        "within_limit": tuned.within_limit,
    }


def tuned_sentence(tuned: Tuned) -> str:
    """The result of a search in one sentence; the figures are those of the part that was not searched."""
    changes = ", ".join(f"{name}={value:g}" for name, value in tuned.changes.items()) or "no change"
    saved = 100 * (1 - tuned.after.worker_hours / tuned.before.worker_hours)
    kept = "kept" if tuned.within_limit else "NOT kept"
    hours = f"{tuned.after.worker_hours:.0f} worker-hours instead of {tuned.before.worker_hours:.0f}"
    after, before = waiting_per_day(tuned.after), waiting_per_day(tuned.before)
    waiting = f"{after:.1f} pending pod-minutes a day instead of {before:.1f}"
    return (
        f"{changes}: on the part that was not searched {hours} ({saved:+.1f} % saved), {waiting}; "
        f"the limit of {tuned.limit_per_day:g} is {kept}"
    )


def _costs(study: Study, measures: Measures) -> str:
    money = f"{usd_text(study.cost(measures))} USD, "
    return f"{measures.worker_hours:.0f} worker-hours, {money}{measures.pending_pod_minutes:.0f} pending pod-minutes"


def usd_text(cost: Cost) -> str:
    """USD with "at least" before a sum in which something is missing; three digits below 1 USD."""
    return f"{'' if cost.is_complete else 'at least '}{cost.usd:.{2 if cost.usd >= 1 else 3}f}"


def instances_text(usd: float | None) -> str:
    """The same of the instances alone."""
    return "unknown" if usd is None else usd_text(Cost(usd=usd))


def _row(study: Study, measures: Measures) -> tuple[object, ...]:
    saved = study.saved_percent(measures)
    return (
        measures.policy,
        f"{measures.worker_hours:.1f}",
        usd_text(study.cost(measures)),
        instances_text(study.instances_usd(measures)),
        "" if saved is None else f"{saved:.0f} %",
        f"{study.times_bound(measures):.3f}",
        f"{measures.pending_pod_minutes:.0f}",
        f"{measures.avoidable_per_day:.1f}",
        f"{measures.overload_minutes:.0f}",
        len(measures.actions),
        f"{measures.changes_per_day:.1f}",
    )


def _data(study: Study, measures: Measures) -> dict[str, Any]:
    cost, instances, saved = study.cost(measures), study.instances_usd(measures), study.saved_percent(measures)
    return {
        "policy": measures.policy,
        "worker_hours": round(measures.worker_hours, 3),
        "standby_hours": round(measures.standby_hours, 3),
        "usd": round(cost.usd, 4),
        "usd_missing": list(cost.missing),
        "instances_usd": None if instances is None else round(instances, 4),
        "saved_percent": None if saved is None else round(saved, 2),
        "charged_vcpu_hours": round(measures.charged_vcpu_hours, 3),
        "missing_vcpu_hours": round(measures.missing_vcpu_hours, 3),
        "times_bound": round(study.times_bound(measures), 4),
        "pending_pod_minutes": round(measures.pending_pod_minutes, 2),
        "avoidable_pod_minutes_per_day": round(measures.avoidable_per_day, 3),
        "overload_minutes": round(measures.overload_minutes, 2),
        "actions": len(measures.actions),
        "changes_of_direction": measures.changes_of_direction,
        "changes_of_direction_per_day": round(measures.changes_per_day, 3),
    }
