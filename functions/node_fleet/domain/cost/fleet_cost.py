"""The cost of a fleet: an hour of its running workers, a period of their lifetimes, and a fixed fleet to compare with.

Arithmetic over the dated price table. A price that is missing there is reported as unknown; it never counts as 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from node_fleet.domain.cost.prices import DATED, USD_PER_HOUR

HOURS_PER_MONTH = 730.0

__all__ = [
    "DATED",
    "HOURS_PER_MONTH",
    "BilledInstance",
    "Currency",
    "FleetCost",
    "fixed_usd",
    "fleet_cost",
    "saved_percent",
    "spent_usd",
    "usd_per_hour",
]


class Priced(Protocol):
    """A type that is billed as one instance: an Instance, a Worker, a slot."""

    @property
    def instance_type(self) -> str: ...

    @property
    def market(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetCost:
    """The hourly cost of the running workers. `unpriced`: those without a price, as 'TYPE MARKET in REGION'."""

    usd_per_hour: float
    unpriced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledInstance:
    """The billed lifetime of one worker. Times are epoch seconds."""

    instance_id: str
    instance_type: str
    market: str
    begun_at: float
    ended_at: float

    @property
    def hours(self) -> float:
        """Billed time; EC2 bills Linux by the second, at least 60 s."""
        return max(60.0, self.ended_at - self.begun_at) / 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Currency:
    """The currency of reports. All arithmetic is in USD; only the text is converted."""

    currency: str = "USD"
    per_usd: float = 1.0

    def text(self, usd: float, *, digits: int = 2) -> str:
        """'$0.0528' for USD, '6.49 BDT' for any other currency."""
        amount = usd * self.per_usd
        if self.currency == "USD":
            return f"{'-' if amount < 0 else ''}${abs(amount):,.{digits}f}"
        return f"{amount:,.{digits}f} {self.currency}"


def usd_per_hour(region: str, instance_type: str, market: str) -> float | None:
    """The price of the table; None when it has none."""
    return USD_PER_HOUR.get((region, instance_type, market))


def fleet_cost(region: str, workers: Iterable[Priced]) -> FleetCost:
    """The price of the workers for an hour; workers without a price are listed and not counted."""
    total, unpriced = 0.0, []
    for worker in workers:
        price = usd_per_hour(region, worker.instance_type, worker.market)
        if price is None:
            unpriced.append(f"{worker.instance_type} {worker.market} in {region}")
        else:
            total += price
    return FleetCost(usd_per_hour=round(total, 6), unpriced=tuple(dict.fromkeys(unpriced)))


def spent_usd(region: str, instances: Iterable[BilledInstance]) -> float | None:
    """The cost of these instances; None when one of them has no price."""
    total = 0.0
    for instance in instances:
        price = usd_per_hour(region, instance.instance_type, instance.market)
        if price is None:
            return None
        total += price * instance.hours
    return total


def fixed_usd(region: str, instance_type: str, market: str, *, workers: int, hours: float) -> float | None:
    """The cost of a fixed number of workers that run for that time; None without a price."""
    price = usd_per_hour(region, instance_type, market)
    return None if price is None else price * workers * hours


def saved_percent(spent: float, fixed: float) -> float:
    """The saving against the fixed fleet, in percent of its cost; negative when more was spent."""
    return 0.0 if fixed <= 0 else (1 - spent / fixed) * 100
