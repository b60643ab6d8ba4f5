"""Where the next workers go: zone, type and market of each. Values in, values out; launches nothing.

The whole fleet is looked at for every choice, those still in flight included, never only the batch at hand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from node_fleet.domain.model.memory import PoolBackOff
from node_fleet.domain.model.operation import LaunchSlot
from node_fleet.domain.model.policy import PlacementOrder
from node_fleet.domain.model.snapshot import Instance, Market


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The user's wishes. zones: zone -> subnet id in the configured order; instance_types in order of preference."""

    zones: dict[str, str]
    instance_types: tuple[str, ...]
    spot_percent: int = 70
    on_demand_floor: int = 0
    order: PlacementOrder = "fewest"


@dataclass(frozen=True, slots=True, order=True)
class Pool:
    """One capacity pool of EC2: each runs dry on its own."""

    zone: str
    instance_type: str
    market: Market


@dataclass(slots=True)
class FleetDistribution:
    """How the fleet stands while a plan grows: counted once, then kept up to date slot by slot."""

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
    """The fleet as it counts for balance: pending and running workers that nobody has announced to take."""
    layout = FleetDistribution()
    staying = [i for i in instances if not i.under_notice]
    for instance in staying:
        layout.add(instance.zone, instance.market)
    layout.last_zone = _zone_of_newest(staying, zones)
    return layout


def choose_market(*, spot: int, total: int, spot_percent: int, on_demand_floor: int = 0) -> Market:
    """The market of the next worker: the one that brings the whole fleet nearest to the wanted share of Spot.

    Whole numbers only, so that no rounding decides. A tie goes to Spot, which costs less.
    """
    if total - spot < on_demand_floor:
        return "on-demand"
    wanted = spot_percent * (total + 1)
    if spot_percent == 0:
        return "on-demand"
    return "spot" if abs(100 * (spot + 1) - wanted) <= abs(100 * spot - wanted) else "on-demand"


def pools_in_order(
    market: Market, placement: Placement, zones: Sequence[str], *, avoid: Iterable[Pool] = ()
) -> tuple[Pool, ...]:
    """Every pool a worker may come from, first choice first: next zone, then next type, then On-Demand.

    Pools in `avoid` come last within their market: a replacement should not stand where one was just taken.
    """
    avoided = set(avoid)
    markets: tuple[Market, ...] = ("spot", "on-demand") if market == "spot" else ("on-demand",)
    found: list[Pool] = []
    for each in markets:
        pools = [Pool(zone, kind, each) for kind in placement.instance_types for zone in zones]
        found += sorted(pools, key=lambda pool: pool in avoided)
    return tuple(found)


def zone_order(layout: FleetDistribution, placement: Placement) -> tuple[str, ...]:
    """Zones, best first: fewest workers first (ties as configured), or round after the zone used last."""
    names = list(placement.zones)
    if placement.order == "round-robin":
        start = names.index(layout.last_zone) + 1 if layout.last_zone in names else 0
        return tuple(names[start:] + names[:start])
    return tuple(sorted(names, key=lambda zone: layout.per_zone[zone]))


def plan_slots(
    count: int,
    instances: Iterable[Instance],
    placement: Placement,
    *,
    dry: Iterable[PoolBackOff] = (),
    now: int,
    avoid: Iterable[Pool] = (),
) -> tuple[LaunchSlot, ...]:
    """Slots for `count` workers, in pools that are not known to be dry. Fewer when no such pool is left."""
    layout = distribution_of(instances, list(placement.zones))
    closed = pools_in_back_off(dry, now)
    slots: list[LaunchSlot] = []
    for number in range(1, count + 1):
        pool = _best_pool(layout, placement, closed, tuple(avoid))
        if pool is None:
            break
        layout.add(pool.zone, pool.market)
        slots.append(slot_in(pool, number, placement))
    return tuple(slots)


def slot_in(pool: Pool, number: int, placement: Placement) -> LaunchSlot:
    """A planned slot in that pool."""
    return LaunchSlot(
        number=number,
        zone=pool.zone,
        subnet_id=placement.zones[pool.zone],
        instance_type=pool.instance_type,
        market=pool.market,
    )


def pools_in_back_off(dry: Iterable[PoolBackOff], now: int) -> frozenset[Pool]:
    """The pools that are still to be left alone."""
    return frozenset(Pool(d.zone, d.instance_type, d.market) for d in dry if d.until > now)


def _best_pool(
    layout: FleetDistribution, placement: Placement, closed: frozenset[Pool], avoid: tuple[Pool, ...]
) -> Pool | None:
    market = choose_market(
        spot=layout.spot,
        total=layout.total,
        spot_percent=placement.spot_percent,
        on_demand_floor=placement.on_demand_floor,
    )
    order = pools_in_order(market, placement, zone_order(layout, placement), avoid=avoid)
    return next((pool for pool in order if pool not in closed), None)


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
