"""Replays one load on fleets of other instance types, each of one type or of a list of types, with the bill of each.

The load is that of the configured fleet: the CPU of one unit of the trace and the most replicas are the same for all.
The largest fleet of a smaller type has more workers, so that it holds the same pods.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from backtest.compare import Assumptions, Study, study
from backtest.deployed import Workflow
from backtest.summary import instances_text, usd_text
from backtest.trace import Trace
from node_fleet.domain.cost.prices import HOURS_PER_MONTH
from node_fleet.domain.cost.tariff import Tariff
from node_fleet.domain.model.value_class import value_class
from node_fleet.settings import Settings

COLUMNS = ("types", "vCPU", "GiB", "pods", "hours", "USD", "instances", "pending")
"""pods: that fit on one worker. hours: of workers. USD: instances, volumes, addresses and CPU credits; the column
"instances" is the part for the instances alone."""
NAMED = 3
"""So many types of a list are named in a line of text."""


@value_class
class TypeStudy:
    """The same load on each fleet; the configured one comes first."""

    studies: tuple[Study, ...]

    @property
    def configured(self) -> Study:
        """The configured fleet."""
        return self.studies[0]

    @property
    def cheapest(self) -> Study:
        """The cheapest with known prices, and no more pending pods and missing CPU than the configured fleet has."""
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
    trace: Trace, settings: Settings, assumptions: Assumptions, fleets: Iterable[tuple[str, ...]], tariff: Tariff
) -> TypeStudy:
    """Replay the trace under the settings on each fleet, named by its types; the first one is the configured fleet.

    The assumptions are those of the first type of the configured fleet.
    """
    own = assumptions.capacity
    most_pods = settings.max_workers * own.pods_per_worker
    scaling = assumptions.with_unit_of(trace).scaling
    scaling = replace(scaling, max_replicas=scaling.max_replicas or most_pods)
    studies = []
    for types in dict.fromkeys(fleets):
        first, *further = (own.as_type(kind) for kind in dict.fromkeys(types))
        one = replace(
            assumptions,
            capacity=first,
            further=tuple(further),
            scaling=scaling,
            workflow=_workflow(assumptions.workflow, types, settings, tariff),
        )
        most = max(settings.max_workers, -(-most_pods // min(kind.pods_per_worker for kind in (first, *further))))
        studies.append(replace(study(trace, replace(settings, max_workers=most), one), tariff=tariff))
    return TypeStudy(studies=tuple(studies))


def _workflow(workflow: Workflow, types: tuple[str, ...], settings: Settings, tariff: Tariff) -> Workflow:
    """With the prices by which a fleet of several types chooses among them."""
    if len(types) == 1:
        return workflow
    prices = {kind: tariff.instance_usd(kind, "spot") for kind in types}
    known = {kind: usd for kind, usd in prices.items() if usd is not None}
    return replace(workflow, region=settings.region, spot_usd=known)


def answer(found: TypeStudy) -> str:
    """The configured fleet and the cheapest that carries the load as well, in one sentence."""
    best, own = found.cheapest, found.configured
    if best is own:
        return f"{_summary(own)}; no compared fleet is cheaper without more pending pod-minutes"
    text = f"{_summary(own)}; cheapest without more pending pod-minutes: {_summary(best)}"
    own_usd, best_usd = own.cost(own.configured).known_usd, best.cost(best.configured).usd
    return f"{text}, {100 * (1 - best_usd / own_usd):.0f} % less" if own_usd else text


def rows(found: TypeStudy) -> list[tuple[object, ...]]:
    """One row for each fleet in the given order."""
    return [_row(one) for one in found.studies]


def as_data(found: TypeStudy) -> dict[str, Any]:
    """The comparison for JSON; hours, minutes and USD as numbers."""
    return {"trace": found.configured.load.name, "answer": answer(found), "fleets": list(map(_data, found.studies))}


def _summary(one: Study) -> str:
    measures = one.configured
    usd = usd_text(one.cost(measures))
    hours, pending = measures.worker_hours, measures.pending_pod_minutes
    return f"{name_of(one)}: {hours:.0f} worker-hours, {usd} USD, {pending:.0f} pending pod-minutes"


def types_of(one: Study) -> tuple[str, ...]:
    """The types of the fleet, in order of preference."""
    return tuple(kind.instance_type for kind in (one.assumptions.capacity, *one.assumptions.further))


def name_of(one: Study) -> str:
    """For example: t3.small+t3.medium, or t3.small+9 more."""
    first, *rest = types_of(one)
    return "+".join((first, *rest)) if len(rest) < NAMED else f"{first}+{len(rest)} more"


def _row(one: Study) -> tuple[object, ...]:
    kinds, measures = (one.assumptions.capacity, *one.assumptions.further), one.configured
    return (
        name_of(one),
        _span(kind.vcpus for kind in kinds),
        _span(kind.memory_mib / 1024 for kind in kinds),
        _span(kind.pods_per_worker for kind in kinds),
        f"{measures.worker_hours:.0f}",
        usd_text(one.cost(measures)),
        instances_text(one.instances_usd(measures)),
        f"{measures.pending_pod_minutes:.0f}",
    )


def _span(values: Iterable[float]) -> str:
    """One value, or the smallest and the largest of several."""
    ends = sorted(set(values))
    return f"{ends[0]:g}" if len(ends) == 1 else f"{ends[0]:g}-{ends[-1]:g}"


def _data(one: Study) -> dict[str, Any]:
    measures, cost = one.configured, one.cost(one.configured)
    return {
        "types": [
            {
                "type": kind.instance_type,
                "vcpus": kind.vcpus,
                "memory_mib": kind.memory_mib,
                "pods_per_worker": kind.pods_per_worker,
                "worker_hours": round(
                    sum(u.worker_hours for u in measures.usage if u.instance_type == kind.instance_type), 3
                ),
            }
            for kind in (one.assumptions.capacity, *one.assumptions.further)
        ],
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
