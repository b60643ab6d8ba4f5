"""Replays one load on fleets of several instance types, one fleet for each type, with the bill of each.

The load is that of the configured type: the CPU of one unit of the trace and the most replicas are the same for all.
The largest fleet of a smaller type has more workers, so that it holds the same pods.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from backtest.compare import Assumptions, Study, study
from backtest.model import Capacity
from backtest.trace import Trace
from node_fleet.domain.cost.prices import HOURS_PER_MONTH
from node_fleet.domain.cost.tariff import Tariff
from node_fleet.settings import Settings

COLUMNS = ("type", "vCPU", "GiB", "pods", "max", "hours", "USD", "instances", "pending")
"""pods: that fit on one worker. max: the largest fleet. USD: instances, volumes, addresses and CPU credits; the column
"instances" is the part for the instances alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeStudy:
    """The same load on a fleet of each type; the configured type comes first."""

    studies: tuple[Study, ...]

    @property
    def configured(self) -> Study:
        """The fleet of the configured type."""
        return self.studies[0]

    @property
    def cheapest(self) -> Study:
        """The cheapest with known prices, and no more pending pods and missing CPU than the configured type has."""
        own = self.configured.configured
        found = [
            one
            for one in self.studies
            if one.cost(one.configured).is_complete
            and one.configured.pending_pod_minutes <= own.pending_pod_minutes
            and one.configured.missing_vcpu_hours <= own.missing_vcpu_hours
        ]
        return min(found, key=lambda one: one.cost(one.configured).usd, default=self.configured)


def study_types(
    trace: Trace, settings: Settings, assumptions: Assumptions, types: Iterable[str], tariff: Tariff
) -> TypeStudy:
    """Replay the trace under the settings on a fleet of the configured type and on one of each other type."""
    own = assumptions.capacity
    most_pods = settings.max_workers * own.pods_per_worker
    scaling = assumptions.with_unit_of(trace).scaling
    scaling = replace(scaling, max_replicas=scaling.max_replicas or most_pods)
    studies = []
    for kind in dict.fromkeys((own.instance_type, *types)):
        worker = Capacity.of_type(
            kind, boot_seconds=own.boot_seconds, drain_seconds=own.drain_seconds, alert_seconds=own.alert_seconds
        )
        one = replace(assumptions, capacity=worker, scaling=scaling)
        most = max(settings.max_workers, -(-most_pods // worker.pods_per_worker))
        studies.append(replace(study(trace, replace(settings, max_workers=most), one), tariff=tariff))
    return TypeStudy(studies=tuple(studies))


def answer(found: TypeStudy) -> str:
    """The configured type and the cheapest that carries the load as well, in one sentence."""
    best, own = found.cheapest, found.configured
    if best is own:
        return f"{_summary(own)}; no compared type is cheaper without more pending pod-minutes"
    text = f"{_summary(own)}; cheapest without more pending pod-minutes: {_summary(best)}"
    own_usd, best_usd = own.cost(own.configured).known_usd, best.cost(best.configured).usd
    return f"{text}, {100 * (1 - best_usd / own_usd):.0f} % less" if own_usd else text


def rows(found: TypeStudy) -> list[tuple[object, ...]]:
    """One row for each type in the given order."""
    return [_row(one) for one in found.studies]


def as_data(found: TypeStudy) -> dict[str, Any]:
    """The comparison for JSON; hours, minutes and USD as numbers."""
    return {"trace": found.configured.load.name, "answer": answer(found), "types": list(map(_data, found.studies))}


def _summary(one: Study) -> str:
    measures = one.configured
    usd = _usd(one)
    hours, pending = measures.worker_hours, measures.pending_pod_minutes
    return f"{_type(one)}: {hours:.0f} worker-hours, {usd} USD, {pending:.0f} pending pod-minutes"


def _type(one: Study) -> str:
    return one.assumptions.capacity.instance_type


def _usd(one: Study) -> str:
    cost = one.cost(one.configured)
    return f"{'' if cost.is_complete else 'at least '}{cost.usd:.2f}"


def _row(one: Study) -> tuple[object, ...]:
    capacity, measures, instances = one.assumptions.capacity, one.configured, one.instances_usd(one.configured)
    return (
        capacity.instance_type,
        capacity.vcpus,
        f"{capacity.memory_mib / 1024:g}",
        capacity.pods_per_worker,
        one.load.max_workers,
        f"{measures.worker_hours:.1f}",
        _usd(one),
        "unknown" if instances is None else f"{instances:.2f}",
        f"{measures.pending_pod_minutes:.0f}",
    )


def _data(one: Study) -> dict[str, Any]:
    capacity, measures, cost = one.assumptions.capacity, one.configured, one.cost(one.configured)
    return {
        "type": capacity.instance_type,
        "vcpus": capacity.vcpus,
        "memory_mib": capacity.memory_mib,
        "pods_per_worker": capacity.pods_per_worker,
        "max_workers": one.load.max_workers,
        "worker_hours": round(measures.worker_hours, 3),
        "usd": round(cost.usd, 4),
        "usd_a_month": round(cost.usd / measures.days * HOURS_PER_MONTH / 24, 4),
        "usd_missing": list(cost.missing),
        "charged_vcpu_hours": round(measures.charged_vcpu_hours, 3),
        "missing_vcpu_hours": round(measures.missing_vcpu_hours, 3),
        "pending_pod_minutes": round(measures.pending_pod_minutes, 2),
        "overload_minutes": round(measures.overload_minutes, 2),
    }
