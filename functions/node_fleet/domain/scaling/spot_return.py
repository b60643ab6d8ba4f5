"""Noisy Spot pools as a check of the decision, and On-Demand workers that return to Spot in quiet time.

A return is a step of the roll-out: it obeys its holds, the disruption budgets and the maximum.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from node_fleet.domain.model import back_off
from node_fleet.domain.model.memory import Replacement
from node_fleet.domain.model.snapshot import Worker
from node_fleet.domain.model.spot_pools import last_loss, noisy_pools, spot_pools_for
from node_fleet.domain.model.text import count_of, utc
from node_fleet.domain.scaling.check import Check
from node_fleet.domain.scaling.tick import Tick

SPOT_CHECK = "spot_pools"
"""The check of a decision while a Spot pool is noisy."""
QUIET_SECONDS = 3600
"""A worker returns to Spot only after so much time without a scaling action and without an interruption."""


def spot_checks(tick: Tick) -> list[Check]:
    """One check that names the noisiest pool, what new workers use instead, and what that costs."""
    noisy = noisy_pools(tick.memory, tick.policy.spot_noisy_per_100_hours, tick.now)
    if not noisy:
        return []
    first = noisy[0]
    zone, instance_type = first.pool.split("/")
    saved = saved_usd_per_hour(zone, instance_type)
    price = "" if saved is None else f", which costs {saved:.4f} USD an hour more"
    text = (
        f"{count_of(len(noisy), 'noisy Spot pool')}, first {first.sentence}, used again from {utc(first.until)}: "
        f"new workers use quieter Spot pools, then On-Demand{price}"
    )
    limit = tick.policy.spot_noisy_per_100_hours
    return [
        Check(
            name=SPOT_CHECK,
            verdict="ok",
            text=text,
            value=first.per_100_hours,
            threshold=limit,
            setting="spot_noisy_per_100_hours",
            aside=True,
        )
    ]


def returning_workers(tick: Tick) -> Iterator[tuple[Worker, str]]:
    """Each On-Demand worker that may return to Spot, with the share of the fleet and the saving in words.

    While a return is in progress it is that worker alone, although its replacement has restored the share.
    """
    counted, policy, current = tick.snapshot.counted, tick.policy, tick.memory.roll_out.current
    spot, total = sum(w.market == "spot" for w in counted), len(counted)
    on_demand = [w for w in counted if w.market == "on-demand"]
    if is_return(current):
        chosen = [w for w in on_demand if current is not None and w.instance_id == current.worker]
    elif is_below_share(spot, total, policy.spot_percent) and len(on_demand) > policy.on_demand_minimum:
        noisy = {one.pool for one in noisy_pools(tick.memory, policy.spot_noisy_per_100_hours, tick.now)}
        zones = set(policy.zone_names)
        open_pools = {
            (zone, kind): spot_pools_for(
                zone, kind, policy.instance_types, noisy=noisy, back_offs=tick.memory.dry_pools, now=tick.now
            )
            for zone, kind in {(w.zone, w.instance_type) for w in on_demand if w.zone in zones}
        }
        chosen = [w for w in on_demand if open_pools.get((w.zone, w.instance_type))]
    else:
        chosen = []
    for worker in chosen:
        words = f"{spot} of {count_of(total, 'worker')} Spot, {policy.spot_percent} % wanted"
        saved = saved_usd_per_hour(worker.zone, worker.instance_type)
        yield worker, words if saved is None else f"{words}, Spot costs {saved:.4f} USD an hour less"


def is_return(current: Replacement | None) -> bool:
    """Whether this step of the roll-out brings an On-Demand worker back to Spot."""
    return current is not None and current.reason == "on-demand"


def is_below_share(spot: int, total: int, spot_percent: int) -> bool:
    """Whether one On-Demand worker less and one Spot worker more is nearer to the wanted share; not on a tie."""
    wanted = spot_percent * total
    return abs(100 * (spot + 1) - wanted) < abs(100 * spot - wanted)


def return_hold(tick: Tick) -> str:
    """Why no return to Spot is begun now; empty when one may be, and for one that has been begun."""
    if is_return(tick.memory.roll_out.current):
        return ""
    if not tick.headroom:
        return f"{tick.launchable(()).against}, and a return launches before it removes"
    if failed := back_off.active(tick.memory.back_offs, back_off.SPOT, tick.now):
        return f"the last return could not begin, next try in {failed.until - tick.now} s"
    if len(tick.snapshot.workers) > tick.counted:
        return "a worker is under interruption notice"
    seconds = tick.now - max(tick.memory.last_action_at, last_loss(tick.memory))
    if seconds < QUIET_SECONDS:
        return f"a scaling action or an interruption {seconds} s ago, {QUIET_SECONDS} s of quiet needed"
    return ""


@functools.cache
def saved_usd_per_hour(zone: str, instance_type: str) -> float | None:
    """What Spot costs less than On-Demand, by the shipped prices of the zone's region; None when one is not known."""
    from node_fleet.domain.cost.prices import PriceList  # only a noisy pool or a return needs prices

    prices = PriceList.shipped(zone[:-1])
    on_demand, spot = prices.instance(instance_type, "on-demand"), prices.instance(instance_type, "spot")
    return on_demand.usd - spot.usd if on_demand and spot else None
