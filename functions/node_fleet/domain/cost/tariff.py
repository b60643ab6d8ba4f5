"""What an hour of one worker costs, line by line: instance, volume, public address, surplus CPU credits.

Every figure about money goes through Tariff. A price that is not known makes a sum "at least"; it never counts as 0.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from node_fleet.domain.cost.prices import HOURS_PER_MONTH, SURPLUS_CREDIT_HOURS, PriceList
from node_fleet.domain.model.instance_types import CpuCredits, baseline_percent, family_of, vcpus_of
from node_fleet.domain.model.value_class import value_class


@value_class
class CostLine:
    """One line of a worker's hour. usd is None when it is not known, and basis says why or where it is from."""

    name: str
    usd: float | None
    basis: str


@value_class
class Cost:
    """USD of what is known, and the names of what is not known. With names, the whole costs at least `usd`."""

    usd: float = 0.0
    missing: tuple[str, ...] = ()

    @classmethod
    def of(cls, lines: Iterable[CostLine], times: float = 1.0) -> Cost:
        """The sum of the lines, so many times."""
        every = tuple(lines)
        missing = dict.fromkeys(line.basis for line in every if line.usd is None)
        return cls(usd=sum(line.usd or 0.0 for line in every) * times, missing=tuple(missing))

    @classmethod
    def total(cls, parts: Iterable[Cost]) -> Cost:
        """The sum of several."""
        every = tuple(parts)
        missing = dict.fromkeys(name for one in every for name in one.missing)
        return cls(usd=sum(one.usd for one in every), missing=tuple(missing))

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing

    @property
    def known_usd(self) -> float | None:
        """The sum; None when something is missing, for a figure that must not be too small."""
        return self.usd if self.is_complete else None


@value_class
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

    def cost(self, cost: Cost, *, digits: int = 2) -> str:
        """The same, with "at least" before a sum in which something is missing."""
        return f"{'' if cost.is_complete else 'at least '}{self.text(cost.usd, digits=digits)}"


@value_class
class Tariff:
    """The prices and the form of a worker. volume_gib 0: no volume of its own."""

    prices: PriceList
    volume_gib: int = 20
    public_address: bool = True
    cpu_credits: CpuCredits = "unlimited"

    def lines(
        self, instance_type: str, market: str, cpu_percent: float | None, *, zone: str = ""
    ) -> tuple[CostLine, ...]:
        """An hour of a worker whose mean CPU is cpu_percent (None: not measured)."""
        found = [self._instance(instance_type, market, zone)]
        if self.volume_gib:
            found.append(self._volume())
        if self.public_address:
            address = self.prices.public_ipv4_hour
            found.append(CostLine(name="public IPv4 address", usd=address.usd, basis=address.source))
        if (rate := self.credit_usd_per_vcpu_hour(instance_type)) is not None:
            found.append(self._credits(instance_type, cpu_percent, rate))
        return tuple(found)

    def hour(self, instance_type: str, market: str, cpu_percent: float | None, *, zone: str = "") -> Cost:
        """The sum of these lines."""
        return Cost.of(self.lines(instance_type, market, cpu_percent, zone=zone))

    def stopped_lines(self) -> tuple[CostLine, ...]:
        """An hour of a stopped worker: EC2 bills its volume only. Its public address is released."""
        return (self._volume(),) if self.volume_gib else ()

    def without_credits(self, instance_type: str, market: str) -> Cost:
        """An hour of a worker, without its CPU credits."""
        return self.hour(instance_type, market, 0.0)

    def instance_usd(self, instance_type: str, market: str) -> float | None:
        """An hour of the instance alone."""
        price = self.prices.instance(instance_type, market)
        return None if price is None else price.usd

    def credit_usd_per_vcpu_hour(self, instance_type: str) -> float | None:
        """What EC2 charges for a vCPU-hour above the baseline; None for a type or a mode without such a charge."""
        if self.cpu_credits == "standard" or baseline_percent(instance_type) is None:
            return None
        return SURPLUS_CREDIT_HOURS[family_of(instance_type)]

    def _instance(self, instance_type: str, market: str, zone: str) -> CostLine:
        price = self.prices.instance(instance_type, market, zone)
        if price is None:
            reason = f"the price of {instance_type or 'an unknown type'} {market} in {self.prices.region}"
            return CostLine(name=f"instance, {market}", usd=None, basis=reason)
        return CostLine(name=f"instance, {market}", usd=price.usd, basis=price.source)

    def _volume(self) -> CostLine:
        name, price = f"volume, {self.volume_gib} GiB gp3", self.prices.gp3_gib_month
        if price is None:
            return CostLine(name=name, usd=None, basis=f"the price of a gp3 volume in {self.prices.region}")
        return CostLine(name=name, usd=self.volume_gib * price.usd / HOURS_PER_MONTH, basis=price.source)

    def _credits(self, instance_type: str, cpu_percent: float | None, rate: float) -> CostLine:
        if cpu_percent is None:
            reason = f"the CPU credits of {instance_type}, whose CPU is not measured"
            return CostLine(name="CPU credits", usd=None, basis=reason)
        baseline = baseline_percent(instance_type) or 0.0
        surplus = max(0.0, cpu_percent - baseline) / 100 * vcpus_of(instance_type)
        basis = f"CPU {cpu_percent:.0f} % over a baseline of {baseline:g} %, {rate:g} USD a vCPU-hour"
        return CostLine(name="CPU credits", usd=surplus * rate, basis=basis)


def saved_percent(spent: Cost, fixed: Cost) -> float | None:
    """The saving against the fixed fleet in percent of its cost, negative when more was spent; None when not known."""
    if not (spent.is_complete and fixed.is_complete):
        return None
    return 0.0 if fixed.usd <= 0 else (1 - spent.usd / fixed.usd) * 100


@functools.cache
def saved_usd_per_hour(zone: str, instance_type: str, spot_type: str = "") -> float | None:
    """What a Spot worker costs less than this On-Demand one, by the shipped prices; None when one is not known.

    spot_type: of the Spot worker, by default the same.
    """
    prices = PriceList.shipped(zone[:-1])
    on_demand, spot = prices.instance(instance_type, "on-demand"), prices.instance(spot_type or instance_type, "spot")
    return on_demand.usd - spot.usd if on_demand and spot else None


def cheaper_as_spot(zone: str, instance_type: str, types: Iterable[str]) -> tuple[str, ...]:
    """The types that cost less as Spot than this one as On-Demand; without a known price only itself."""
    saved = {kind: saved_usd_per_hour(zone, instance_type, kind) or 0.0 for kind in types}
    return tuple(kind for kind, usd in saved.items() if kind == instance_type or usd > 0)
