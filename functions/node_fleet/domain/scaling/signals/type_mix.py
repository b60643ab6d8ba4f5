"""The types of the workers that pending pods need: the cheapest mix of the configured types that holds them.

It packs the pods once for each configured type, with that type preferred, and then gives each worker the cheapest type
that holds its pods. With one type, or without the price of each type, the configured order decides.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from node_fleet.domain.fit.placement import Node, Placement
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import NewWorker, PodShape
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.scaling.signals.new_workers import OpenedNode, pack, pool_name, type_of


@value_class
class _Mix:
    """New workers of several types, what an hour of them costs, and the number of pods that fit on none of them."""

    workers: tuple[NewWorker, ...]
    usd: float
    unplaced: int


def type_prices(policy: Policy, region: str) -> dict[str, float]:
    """USD for an hour of a worker of each configured type, at the wanted share of Spot; empty when one is not known.

    By the shipped prices, with the volume and the public address, and without CPU credits.
    """
    from node_fleet.domain.cost.prices import PriceList  # most fleets have one type, and compare no prices
    from node_fleet.domain.cost.tariff import Tariff

    tariff, share = Tariff(prices=PriceList.shipped(region)), policy.spot_percent / 100
    found = {}
    for kind in policy.instance_types:
        spot = tariff.without_credits(kind, "spot").known_usd
        on_demand = tariff.without_credits(kind, "on-demand").known_usd
        if spot is None or on_demand is None:
            return {}
        found[kind] = share * spot + (1 - share) * on_demand
    return found


def choose_new_workers(
    shapes: Iterable[PodShape], nodes: Sequence[Node], kinds: Sequence[Node], policy: Policy
) -> tuple[NewWorker, ...]:
    """The workers that hold what does not fit on `nodes`: of the mix that leaves the fewest pods and costs least."""
    pods, types = list(shapes), tuple(dict.fromkeys(map(type_of, kinds)))
    prices = type_prices(policy, kinds[0].labels["topology.kubernetes.io/region"]) if len(types) > 1 else {}
    mixes = []
    for first in types if prices else types[:1]:
        preferred = sorted(kinds, key=lambda kind: (type_of(kind) != first, prices.get(type_of(kind), 0.0)))
        opened, unplaced = pack(pods, [_copied(node) for node in nodes], preferred, policy.max_workers)
        mixes.append(_mix(opened, unplaced, kinds, prices))
    return min(mixes, key=lambda mix: (mix.unplaced, round(mix.usd, 6), len(mix.workers))).workers


def _copied(node: Node) -> Node:
    same = copy.copy(node)
    same.free, same.pods = dict(node.free), list(node.pods)
    return same


def _mix(opened: Sequence[OpenedNode], unplaced: int, kinds: Sequence[Node], prices: Mapping[str, float]) -> _Mix:
    every = tuple(dict.fromkeys(map(type_of, kinds)))
    workers, usd = [], 0.0
    known: dict[Any, tuple[tuple[str, ...], tuple[str, ...]]] = {}
    for one in opened:
        configured = [kind for kind in kinds if kind in one.accepting]
        alike = (frozenset(Counter(one.node.pods).items()), one.accepting)  # most workers of a burst hold the same pods
        if alike not in known:
            known[alike] = _types_in_order(one, configured, prices)
        holding, smaller = known[alike]
        workers.append(
            NewWorker(
                pools=() if len(configured) == len(kinds) else tuple(map(pool_name, configured)),
                types=() if holding == every else holding,
                smaller_types=smaller,
            )
        )
        usd += prices.get(holding[0], 0.0)
    return _Mix(workers=tuple(workers), usd=usd, unplaced=unplaced)


def _types_in_order(
    one: OpenedNode, accepting: Sequence[Node], prices: Mapping[str, float]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The types that hold every pod of the worker, and those that hold its first pod only; the cheapest come first."""
    holding = {type_of(one.accepting[0])}  # the worker was packed as one of these
    for kind in accepting:
        if type_of(kind) not in holding and _holds_all(kind, one.node):
            holding.add(type_of(kind))
    order = sorted(dict.fromkeys(map(type_of, accepting)), key=lambda kind: prices.get(kind, 0.0))
    return tuple(k for k in order if k in holding), tuple(k for k in order if k not in holding)


def _holds_all(kind: Node, packed: Node) -> bool:
    """Whether an empty worker of the kind holds every pod of the packed one."""
    placement = Placement([_copied(kind)])
    return all(placement.fill(pod, placement.nodes[0], count) == count for pod, count in Counter(packed.pods).items())
