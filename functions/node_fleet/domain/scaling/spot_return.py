"""Noisy Spot pools as a check of the decision, and On-Demand workers that return to Spot in quiet time.

A return is a step of the roll-out: it obeys its holds, the disruption budgets and the maximum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from node_fleet.domain.cost.tariff import cheaper_as_spot, saved_usd_per_hour
from node_fleet.domain.model import back_off
from node_fleet.domain.model.memory import Replacement
from node_fleet.domain.model.snapshot import Worker
from node_fleet.domain.model.spot_pools import last_loss, noisy_pools, spot_pools_for
from node_fleet.domain.model.text import count_of, span, utc
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
    """Each On-Demand worker that may return to Spot, with the share of the fleet and the least saving in words.

    The oldest first, but each failed return lets one zone more come last: a zone without Spot capacity holds no other.
    While a return is in progress it is that worker alone, although its replacement has restored the share. None is
    there while no more On-Demand workers are usable than on_demand_minimum.
    """
    counted, policy, current = tick.workers, tick.policy, tick.memory.roll_out.current
    spot, total = sum(w.market == "spot" for w in counted), len(counted)
    on_demand = sorted((w for w in counted if w.market == "on-demand"), key=lambda w: (w.launched_at, w.instance_id))
    kinds: dict[str, tuple[str, ...]] = {}
    if sum(w.phase == "usable" for w in on_demand) <= policy.on_demand_minimum:
        return
    if is_return(current) and current is not None:
        launched = tuple(w.instance_type for w in counted if w.instance_id == current.replacement)
        kinds = {w.instance_id: launched for w in on_demand if w.instance_id == current.worker}
    elif is_below_share(spot, total, policy.spot_percent):
        kinds = _types_of_returns(tick, on_demand)
    chosen = [w for w in on_demand if w.instance_id in kinds]
    zones = list(dict.fromkeys(w.zone for w in chosen))
    failures = next((b.failures for b in tick.memory.back_offs if b.key == back_off.SPOT), 0)
    last = zones[: failures % len(zones)] if zones else []
    for worker in sorted(chosen, key=lambda w: w.zone in last):
        words = f"{spot} of {count_of(total, 'worker')} Spot, {policy.spot_percent} % wanted"
        saved = [saved_usd_per_hour(worker.zone, worker.instance_type, kind) for kind in kinds[worker.instance_id]]
        known = [usd for usd in saved if usd is not None]
        is_priced = known and len(known) == len(saved)
        yield worker, f"{words}, Spot costs {min(known):.4f} USD an hour less" if is_priced else words


def _types_of_returns(tick: Tick, workers: Sequence[Worker]) -> dict[str, tuple[str, ...]]:
    """By instance id the types of the Spot pools to which each of these workers may return; without those of none."""
    policy, found = tick.policy, dict[str, tuple[str, ...]]()
    noisy = {one.pool for one in noisy_pools(tick.memory, policy.spot_noisy_per_100_hours, tick.now)}
    pools: dict[tuple[str, str], tuple[str, ...]] = {}
    for worker in workers:
        pool = worker.zone, worker.instance_type
        if worker.zone not in policy.zone_names:
            continue
        if pool not in pools:
            types = cheaper_as_spot(*pool, policy.instance_types)
            pools[pool] = spot_pools_for(*pool, types, noisy=noisy, back_offs=tick.memory.dry_pools, now=tick.now)
        if pools[pool]:
            found[worker.instance_id] = tuple(name.split("/")[1] for name in pools[pool])
    return found


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
        return f"the last return could not begin, next try in {span(failed.until - tick.now)}"
    if len(tick.snapshot.workers) > tick.counted:
        return "a worker is under interruption notice"
    seconds = tick.now - max(tick.memory.last_action_at, last_loss(tick.memory))
    if seconds < QUIET_SECONDS:
        return f"a scaling action or an interruption {seconds} s ago, {QUIET_SECONDS} s of quiet needed"
    return ""
