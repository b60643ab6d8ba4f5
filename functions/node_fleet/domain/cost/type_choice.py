"""The instance types that requirements stand for: those that meet them and have a price, the cheapest first."""

from __future__ import annotations

from collections.abc import Iterable

from node_fleet.domain.cost.cpu_credits import mixed_hour
from node_fleet.domain.cost.prices import PriceList
from node_fleet.domain.cost.tariff import Tariff
from node_fleet.domain.model.instance_requirements import InstanceRequirements
from node_fleet.domain.model.instance_types import facts_of


def cheapest_first(types: Iterable[str], tariff: Tariff, spot_percent: int) -> list[str]:
    """The types with known prices by the price of a worker at the wanted Spot share, without CPU credits."""
    hours = {kind: mixed_hour(tariff, kind, 0.0, spot_percent).known_usd for kind in types}
    return sorted((kind for kind, usd in hours.items() if usd is not None), key=lambda kind: (hours[kind], kind))


def matching_types(requirements: InstanceRequirements, types: Iterable[str]) -> list[str]:
    """Those of the types that meet the requirements by the facts that their names give."""
    return [kind for kind in types if (facts := facts_of(kind)) and not requirements.refusal(facts)]


def types_meeting(requirements: InstanceRequirements, tariff: Tariff, spot_percent: int) -> tuple[str, ...]:
    """The types with a shipped price in the tariff's region that the requirements stand for; the cheapest first."""
    found = matching_types(requirements, PriceList.shipped(tariff.prices.region).types)
    return tuple(cheapest_first(found, tariff, spot_percent)[: requirements.max_types])
