"""Which instance types are a choice for the workers: size, price and pods of each type, and why another is excluded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cli.live_prices import CurrentPrices
from node_fleet.domain.cost.cpu_credits import mixed_hour
from node_fleet.domain.cost.prices import HOURS_PER_MONTH, Price
from node_fleet.domain.cost.tariff import Tariff
from node_fleet.domain.model.instance_requirements import InstanceRequirements
from node_fleet.domain.model.instance_types import (
    PODS_PER_NODE,
    architecture_of,
    baseline_percent,
    capacity,
    facts_of,
    offered,
)
from node_fleet.domain.model.value_class import value_class
from node_fleet.settings import Settings


@value_class
class TypeLine:
    """One type. Prices are USD for an hour; spot: by zone, or under "" for the whole region.

    usd_a_month: a worker at the wanted Spot share with volume and address, without CPU credits. None: not known.
    pods: equal pods that fit on an empty worker. excluded: why the type is no choice; empty when it is one.
    """

    instance_type: str
    vcpus: int | None
    memory_gib: float | None
    baseline_percent: float | None
    on_demand: float | None
    spot: dict[str, float]
    usd_a_month: float | None
    pods: int
    excluded: str


@value_class
class Choice:
    """What decides which types are a choice. pod: the requests of a pod, CPU milli and MiB.

    requirements: what a type must meet; None: the list of the settings decides. selected: the types that EC2 selects
    for the requirements; None: EC2 was not asked, and the name of a type gives its facts.
    """

    settings: Settings
    current: CurrentPrices
    zones: tuple[str, ...]
    requirements: InstanceRequirements | None
    selected: frozenset[str] | None
    pod: tuple[int, int]

    def lines(self, candidates: Iterable[str]) -> list[TypeLine]:
        """One line for each candidate: first those that are a choice, the cheapest first."""
        tariff = self.settings.tariff(self.current.prices)
        lines = sorted((self._line(kind, tariff) for kind in candidates), key=_order)
        if self.requirements is None:
            return lines
        count, most = sum(not line.excluded for line in lines), self.requirements.max_types
        beyond = [replace(line, excluded=f"{most} are cheaper") for line in lines[most:count]]
        return [*lines[: min(most, count)], *beyond, *lines[count:]]

    def _line(self, kind: str, tariff: Tariff) -> TypeLine:
        size, free = capacity(kind), offered(kind)
        on_demand = tariff.prices.instance(kind, "on-demand")
        hour = mixed_hour(tariff, kind, 0.0, self.settings.spot_percent).known_usd
        pods = min(PODS_PER_NODE, *(have // need for have, need in zip(free, self.pod, strict=True))) if free else 0
        line = TypeLine(
            instance_type=kind,
            vcpus=size[0] if size else None,
            memory_gib=size[1] / 1024 if size else None,
            baseline_percent=baseline_percent(kind),
            on_demand=on_demand.usd if on_demand else None,
            spot={zone: price.usd for zone, price in self._spot_prices(kind).items()},
            usd_a_month=None if hour is None else hour * HOURS_PER_MONTH,
            pods=pods,
            excluded="",
        )
        return replace(line, excluded=self._why_excluded(line))

    def _spot_prices(self, kind: str) -> dict[str, Price]:
        prices = self.current.prices
        by_zone = {zone: prices.spot_pools[kind, zone] for zone in self.zones if (kind, zone) in prices.spot_pools}
        everywhere = prices.instance(kind, "spot")
        return by_zone or ({"": everywhere} if everywhere else {})

    def _why_excluded(self, line: TypeLine) -> str:
        if refusal := self._refusal(line.instance_type):
            return refusal
        if not line.pods:
            return "the pod does not fit"
        is_priced = line.usd_a_month is not None if self.requirements else line.on_demand is not None or line.spot
        if not is_priced:
            return f"no price in {self.settings.region}"
        is_listed = self.requirements is not None or line.instance_type in self.settings.instance_types
        return "" if is_listed else "not configured"

    def _refusal(self, kind: str) -> str:
        """Why the type does not meet the requirements or does not suit the image; empty when it does."""
        facts, wanted = facts_of(kind), architecture_of(self.settings.instance_types[0])
        if self.requirements is None and architecture_of(kind) != wanted:
            return f"{architecture_of(kind)}, not {wanted}"
        if facts is None:
            return "its size is not known"
        if self.requirements is None or (self.selected is not None and kind in self.selected):
            return ""
        return self.requirements.refusal(facts) or ("" if self.selected is None else "EC2 does not select it")


def _order(line: TypeLine) -> tuple[bool, float, str]:
    usd = float("inf") if line.usd_a_month is None else line.usd_a_month
    return bool(line.excluded), usd, line.instance_type
