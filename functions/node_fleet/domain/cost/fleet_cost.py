"""The cost of a fleet: an hour of its running workers, a period of their lifetimes, and a fixed fleet to compare with.

Arithmetic over a Tariff. What has no price or no measured CPU makes a sum "at least"; it never counts as 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from node_fleet.domain.cost.prices import HOURS_PER_MONTH
from node_fleet.domain.cost.tariff import Cost, CostLine, Tariff
from node_fleet.domain.model.instance_types import vcpus_of
from node_fleet.domain.model.value_class import value_class

STANDBY_LINE = "standby worker, stopped"


class Sized(Protocol):
    """An instance of a type."""

    @property
    def instance_type(self) -> str: ...


class Priced(Protocol):
    """A type that is billed as one instance: an Instance, a Worker, a slot."""

    @property
    def instance_type(self) -> str: ...

    @property
    def market(self) -> str: ...

    @property
    def zone(self) -> str: ...


@value_class
class BilledInstance:
    """The billed lifetime of one worker. Times are epoch seconds; cpu_percent is the mean of that time."""

    instance_id: str
    instance_type: str
    market: str
    begun_at: float
    ended_at: float
    cpu_percent: float | None = None

    @property
    def hours(self) -> float:
        """Billed time; EC2 bills Linux by the second, at least 60 s."""
        return max(60.0, self.ended_at - self.begun_at) / 3600


@value_class
class BillLine:
    """One line of a month's bill. usd: at full price; usd_after_free: with the always-free tier; None: not known."""

    name: str
    quantity: float
    unit: str
    usd: float | None
    usd_after_free: float | None
    basis: str


def fleet_hour(tariff: Tariff, workers: Iterable[Priced], cpu_percent: float | None) -> Cost:
    """The cost of these workers for an hour, all at the fleet's mean CPU."""
    return Cost.total(tariff.hour(one.instance_type, one.market, cpu_percent, zone=one.zone) for one in workers)


def standby_hour(tariff: Tariff, count: int) -> Cost:
    """The cost of so many stopped standby workers for an hour."""
    return Cost.of(tariff.stopped_lines(), count)


def standby_monthly_lines(tariff: Tariff, count: int) -> tuple[BillLine, ...]:
    """The month's bill of so many stopped standby workers; empty without one."""
    lines = tariff.stopped_lines() if count else ()
    return tuple(monthly_line(f"{STANDBY_LINE}: {line.name}", line, count) for line in lines)


def fleet_vcpus(workers: Iterable[Sized]) -> float:
    """The vCPUs of these workers together."""
    return sum(vcpus_of(one.instance_type) for one in workers)


def monthly_lines(tariff: Tariff, workers: Iterable[Priced], cpu_percent: float | None) -> tuple[BillLine, ...]:
    """The month's bill of these workers if they always run: the lines of each kind, in the order of types.

    Spot workers of different zones are one kind, unless their zones have prices of their own.
    """
    pools = tariff.prices.spot_pools
    kinds = Counter(
        (one.instance_type, one.market, one.zone if (one.instance_type, one.zone) in pools else "") for one in workers
    )
    return tuple(
        monthly_line(f"{instance_type}{zone and ' in ' + zone}: {line.name}", line, count)
        for (instance_type, market, zone), count in sorted(kinds.items())
        for line in tariff.lines(instance_type, market, cpu_percent, zone=zone)
    )


def monthly_line(name: str, line: CostLine, count: int) -> BillLine:
    """A line of so many machines for a month."""
    usd = None if line.usd is None else line.usd * count * HOURS_PER_MONTH
    return BillLine(
        name=name, quantity=count * HOURS_PER_MONTH, unit="hours", usd=usd, usd_after_free=usd, basis=line.basis
    )


def lines_total(lines: Iterable[BillLine], *, after_free: bool = False) -> Cost:
    """The sum of a bill at full price, or with the always-free tier."""
    every = tuple(lines)
    known = sum((line.usd_after_free if after_free else line.usd) or 0.0 for line in every)
    return Cost(usd=known, missing=tuple(dict.fromkeys(line.basis for line in every if line.usd is None)))


def lives_cost(tariff: Tariff, instances: Iterable[BilledInstance]) -> Cost:
    """The cost of these lifetimes. A life of at most 24 hours is exact; see docs/cost.md for longer ones."""
    return Cost.total(
        Cost.of(tariff.lines(one.instance_type, one.market, one.cpu_percent), one.hours) for one in instances
    )


def instances_usd(tariff: Tariff, instances: Iterable[BilledInstance]) -> float | None:
    """The part of these lifetimes that the instances alone cost; None when one has no price."""
    prices = [(tariff.instance_usd(one.instance_type, one.market), one.hours) for one in instances]
    known = [usd * hours for usd, hours in prices if usd is not None]
    return sum(known) if len(known) == len(prices) else None


def fixed_fleet(tariff: Tariff, instance_type: str, cpu_percent: float | None, *, workers: int, hours: float) -> Cost:
    """The cost of a fixed number of On-Demand workers of that type for that time."""
    return Cost.of(tariff.lines(instance_type, "on-demand", cpu_percent), workers * hours)


def headroom_month(tariff: Tariff, instance_type: str, spot_percent: int, workers: float) -> Cost:
    """A month of so many idle workers of that type, so many per cent of them Spot."""
    return idle_workers(tariff, instance_type, spot_percent, workers, HOURS_PER_MONTH)


def idle_workers(tariff: Tariff, instance_type: str, spot_percent: int, workers: float, hours: float) -> Cost:
    """So many hours of so many idle workers of that type, so many per cent of them Spot."""
    shares = (("spot", spot_percent / 100), ("on-demand", 1 - spot_percent / 100))
    return Cost.total(
        Cost.of(tariff.lines(instance_type, market, 0.0), workers * share * hours) for market, share in shares if share
    )


def spread_cpu(cpu_percent: float | None, workers: Iterable[Sized], instance_type: str, count: int) -> float | None:
    """The mean CPU of `count` workers of that type that carry what these workers carry; at most 100 %."""
    vcpus = count * vcpus_of(instance_type)
    if cpu_percent is None or not vcpus:
        return None
    return min(100.0, cpu_percent * fleet_vcpus(workers) / vcpus)
