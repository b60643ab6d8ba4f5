"""Zone, instance type and market of the next workers. Values in, values out; launches nothing.

Every choice considers the whole fleet, workers in flight included, never only the batch at hand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from node_fleet.domain.model.memory import PoolBackOff
from node_fleet.domain.model.operation import LaunchSlot
from node_fleet.domain.model.policy import PlacementOrder
from node_fleet.domain.model.snapshot import MARKETS, Instance, Market, NewWorker
from node_fleet.domain.model.spot_pools import pool_name, spot_pools_for
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.model.weight import NO_WEIGHT, Weight

if TYPE_CHECKING:
    from node_fleet.domain.cost.limits import Limits


@value_class
class Placement:
    """The settings of placement. zones: zone -> subnet id as configured; instance_types in order of preference.

    noisy: "zone/type" of the Spot pools that are tried after every other pool. limits: those in money and vCPUs; None
    without any.
    """

    zones: dict[str, str]
    instance_types: tuple[str, ...]
    spot_percent: int = 70
    on_demand_minimum: int = 0
    order: PlacementOrder = "fewest"
    noisy: frozenset[str] = frozenset()
    limits: Limits | None = None

    def is_noisy(self, pool: Pool) -> bool:
        """Whether AWS interrupts the Spot workers of this pool too often."""
        return pool.market == "spot" and pool_name(pool.zone, pool.instance_type) in self.noisy

    def allows(self, pool: Pool, weight: Weight) -> bool:
        """Whether a worker of that pool takes no more of the limits than was reserved; empty: nothing was."""
        if self.limits is None or weight == NO_WEIGHT:
            return True
        return self.limits.weight(pool.instance_type, pool.market).is_within(weight)


@dataclass(frozen=True, slots=True, order=True)
class Pool:
    """One capacity pool of EC2: each can lack capacity on its own."""

    zone: str
    instance_type: str
    market: Market

    @property
    def name(self) -> str:
        """For example: ap-southeast-1a/t3.small/spot."""
        return f"{self.zone}/{self.instance_type}/{self.market}"


@dataclass(slots=True)
class FleetDistribution:
    """Workers by zone and market while a plan grows: counted once, then updated slot by slot."""

    per_zone: Counter[str] = field(default_factory=Counter)
    spot: int = 0
    total: int = 0
    last_zone: str = ""

    def add(self, zone: str, market: Market) -> None:
        """Count one more worker."""
        self.per_zone[zone] += 1
        self.total += 1
        self.spot += market == "spot"
        self.last_zone = zone


def distribution_of(instances: Iterable[Instance], zones: Sequence[str]) -> FleetDistribution:
    """The distribution of the pending and running workers that are not under interruption notice."""
    fleet = FleetDistribution()
    staying = [i for i in instances if not i.under_notice]
    for instance in staying:
        fleet.add(instance.zone, instance.market)
    fleet.last_zone = _zone_of_newest(staying, zones)
    return fleet


def choose_market(*, spot: int, total: int, spot_percent: int, on_demand_minimum: int = 0) -> Market:
    """The market of the next worker: the one that brings the whole fleet nearest to the wanted share of Spot.

    Whole numbers only, so that no rounding decides. On a tie the choice is Spot, which costs less.
    """
    if total - spot < on_demand_minimum:
        return "on-demand"
    wanted = spot_percent * (total + 1)
    return "spot" if abs(100 * (spot + 1) - wanted) <= abs(100 * spot - wanted) else "on-demand"


def pools_in_order(
    market: Market,
    placement: Placement,
    zones: Sequence[str],
    *,
    avoid: Collection[str] = (),
    types: Sequence[str] = (),
    smaller_types: Sequence[str] = (),
) -> tuple[Pool, ...]:
    """Every pool in which a worker may be launched, best first: next type, then next zone, then the other market.

    With spot_percent 0 no Spot pool is among them. Noisy pools come last of all. Pools named in `avoid` come last
    within their market: a replacement should not use the pool that is interrupted. types: instead of the configured
    ones. smaller_types: their pools come after those of all other types of the market.
    """
    kinds = [*(types or placement.instance_types), *smaller_types]
    markets: tuple[Market, ...] = ("spot", "on-demand") if market == "spot" else ("on-demand", "spot")
    if placement.spot_percent == 0:
        markets = ("on-demand",)
    found: list[Pool] = []
    for each in markets:
        pools = [Pool(zone, kind, each) for zone in zones for kind in kinds]
        found += sorted(pools, key=lambda pool: (pool.name in avoid, pool.instance_type in smaller_types))
    return tuple(sorted(found, key=placement.is_noisy))


def pools_of_zone(placement: Placement, zone: str) -> tuple[str, ...]:
    """The names of the configured pools of one zone; none when the zone is not configured."""
    if zone not in placement.zones:
        return ()
    return tuple(Pool(zone, kind, market).name for kind in placement.instance_types for market in MARKETS)


def pools_of_return(
    worker: Instance, placement: Placement, back_offs: Iterable[PoolBackOff], now: int
) -> tuple[str, ...]:
    """The names of the pools in which this On-Demand worker may return to Spot."""
    from node_fleet.domain.cost.tariff import cheaper_as_spot  # only a return needs prices

    types = placement.instance_types if worker.zone in placement.zones else ()
    types = cheaper_as_spot(worker.zone, worker.instance_type, types)
    return spot_pools_for(worker.zone, worker.instance_type, types, noisy=placement.noisy, back_offs=back_offs, now=now)


def zone_order(fleet: FleetDistribution, placement: Placement) -> tuple[str, ...]:
    """Zones, best first: fewest workers first (ties as configured), or in turn after the zone used last."""
    names = list(placement.zones)
    if placement.order == "round-robin":
        start = names.index(fleet.last_zone) + 1 if fleet.last_zone in names else 0
        return tuple(names[start:] + names[:start])
    return tuple(sorted(names, key=lambda zone: fleet.per_zone[zone]))


def plan_slots(
    count: int,
    instances: Iterable[Instance],
    placement: Placement,
    *,
    back_offs: Iterable[PoolBackOff] = (),
    now: int,
    avoid: Iterable[Pool] = (),
    wanted: Sequence[NewWorker] = (),
) -> tuple[LaunchSlot, ...]:
    """Slots for `count` workers in pools that are not in back-off. Fewer when no such pool is left.

    wanted: the pools and types of the first slots, which pending pods need. avoid: pools that a slot uses last.
    """
    fleet = distribution_of(instances, list(placement.zones))
    closed = pools_in_back_off(back_offs, now)
    avoided = tuple(pool.name for pool in avoid)
    slots: list[LaunchSlot] = []
    for number in range(1, count + 1):
        worker = wanted[number - 1] if number <= len(wanted) else NewWorker()
        pool = _best_pool(fleet, placement, closed, avoided, worker)
        if pool is None:
            continue
        fleet.add(pool.zone, pool.market)
        slots.append(
            LaunchSlot(
                number=number,
                zone=pool.zone,
                subnet_id=placement.zones[pool.zone],
                instance_type=pool.instance_type,
                market=pool.market,
                pools=worker.pools,
                types=worker.types,
                smaller_types=worker.smaller_types,
                avoid=avoided,
            )
        )
    return tuple(slots)


def pools_in_back_off(back_offs: Iterable[PoolBackOff], now: int) -> frozenset[Pool]:
    """The pools that are not asked at that time."""
    return frozenset(Pool(b.zone, b.instance_type, b.market) for b in back_offs if b.until > now)


def _best_pool(
    fleet: FleetDistribution,
    placement: Placement,
    closed: frozenset[Pool],
    avoid: tuple[str, ...],
    worker: NewWorker,
) -> Pool | None:
    market = choose_market(
        spot=fleet.spot,
        total=fleet.total,
        spot_percent=placement.spot_percent,
        on_demand_minimum=placement.on_demand_minimum,
    )
    zones = zone_order(fleet, placement)
    order = pools_in_order(
        market, placement, zones, avoid=avoid, types=worker.types, smaller_types=worker.smaller_types
    )
    wanted = worker.pools
    return next((pool for pool in order if pool not in closed and (not wanted or pool.name in wanted)), None)


def _zone_of_newest(instances: Sequence[Instance], zones: Sequence[str]) -> str:
    """The zone that round-robin used last. Of a batch launched in one second, the one before the first gap."""
    if not instances:
        return ""
    newest = max(i.launched_at for i in instances)
    batch = Counter(i.zone for i in instances if i.launched_at == newest)
    for index, zone in enumerate(zones):
        if batch[zone] > batch[zones[(index + 1) % len(zones)]]:
            return zone
    return zones[-1] if zones else ""
