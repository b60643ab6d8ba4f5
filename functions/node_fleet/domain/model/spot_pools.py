"""How often AWS interrupts the Spot workers of each pool, which pools are noisy, and until when.

Interruptions and worker-hours of a pool fade: after three days they count half. A pool with little evidence is judged
like an ordinary one, so that one early interruption makes no pool noisy.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from node_fleet.domain.model.instance_types import offered
from node_fleet.domain.model.memory import Memory, PoolBackOff, SpotPool
from node_fleet.domain.model.snapshot import Worker
from node_fleet.domain.model.value_class import value_class

HALF_LIFE_SECONDS = 3 * 86_400
"""After this time an interruption, and an hour without one, counts half."""
LONGEST_SECONDS = 3 * 86_400
"""How long after its last interruption a pool can be noisy: then it is tried again."""
PRIOR_HOURS = 200.0
"""What is known of a pool without evidence counts as much as this many worker-hours."""
PRIOR_PER_100_HOURS = 0.03
"""The rate of a pool without evidence: the limit of the worst band of AWS's Spot advisor, 20 % of the instances
interrupted in a month, is -ln(0.8) / 730 interruptions an hour."""
POOLS_KEPT = 30
"""Pools that are remembered: those with the most interruptions, then hours."""
LEAST_HOURS = 1.0
"""A pool without workers that was never interrupted and has less than this is forgotten."""


@value_class
class NoisyPool:
    """A pool whose Spot workers are interrupted too often. until: epoch seconds, when it is used again.

    pool: "zone/type". lost, hours: the faded interruptions and worker-hours behind the rate.
    """

    pool: str
    per_100_hours: float
    lost: float
    hours: float
    until: int

    @property
    def sentence(self) -> str:
        """For example: ap-southeast-1a/t3.small: 1.5 interruptions per 100 h (3.0 in 3 h)."""
        rate = f"{self.per_100_hours:.1f} interruptions per 100 h"
        return f"{self.pool}: {rate} ({self.lost:.1f} in {self.hours:.0f} h)"


def pool_name(zone: str, instance_type: str) -> str:
    """For example: ap-southeast-1a/t3.small."""
    return f"{zone}/{instance_type}"


def count_losses(memory: Memory, lost: Mapping[str, int], now: int) -> Memory:
    """The memory with the interruptions that it has not counted yet.

    lost: pool -> its interruptions since the cluster was set up. Those of a pool that the memory does not know are new,
    unless the learning has just begun or the memory holds only some of the pools.
    """
    is_complete = memory.spot_at > 0 and len(memory.spot_pools) < POOLS_KEPT
    known = {pool.pool for pool in memory.spot_pools}
    others = (SpotPool(pool=p, seen=0 if is_complete else lost[p]) for p in sorted(lost) if p not in known)
    pools = tuple(_with_losses(pool, lost.get(pool.pool, 0), now) for pool in (*memory.spot_pools, *others))
    return memory if pools == memory.spot_pools else replace(memory, spot_pools=pools)


def _with_losses(pool: SpotPool, total: int, now: int) -> SpotPool:
    if total < pool.seen:
        return replace(pool, seen=total)
    if total == pool.seen:
        return pool
    lost = pool.lost * _share_left(now - pool.lost_at) + total - pool.seen
    return replace(pool, lost=lost, lost_at=now, seen=total)


def add_hours(memory: Memory, workers: Iterable[Worker], now: int) -> Memory:
    """The memory with the hours that these workers have run as Spot since the last time, or since their launch."""
    elapsed = max(0, now - memory.spot_at) if memory.spot_at else 0
    pools = {
        p.pool: replace(p, hours=p.hours * _share_left(elapsed), lost_at=min(p.lost_at, now))  # a clock was ahead
        for p in memory.spot_pools
    }
    used = set()
    for worker in workers:
        if worker.market != "spot":
            continue
        name = pool_name(worker.zone, worker.instance_type)
        pool = pools.get(name) or SpotPool(pool=name)
        ran = min(elapsed, max(0, now - worker.launched_at))
        pools[name] = replace(pool, hours=pool.hours + _faded_hours(ran))
        used.add(name)
    kept = [p for p in pools.values() if p.pool in used or p.hours >= LEAST_HOURS or p.seen]
    kept.sort(key=lambda p: (-round(_lost(p, now), 1), p.pool not in used, -p.hours, p.pool))
    return replace(memory, spot_at=now, spot_pools=tuple(kept[:POOLS_KEPT]))


def per_100_hours(lost: float, hours: float) -> float:
    """The rate of a pool: what was seen, shrunk towards that of an ordinary pool where little was seen."""
    return 100 * (PRIOR_PER_100_HOURS / 100 * PRIOR_HOURS + lost) / (PRIOR_HOURS + hours)


def noisy_pools(memory: Memory, limit: float, now: int) -> tuple[NoisyPool, ...]:
    """The pools with more interruptions per 100 hours than the limit, the noisiest first."""
    found = []
    for pool in memory.spot_pools:
        lost, hours = _lost(pool, now), pool.hours * _share_left(now - memory.spot_at)
        if (until := _noisy_until(pool, lost, hours, limit, now)) > now:
            rate = per_100_hours(lost, hours)
            found.append(NoisyPool(pool=pool.pool, per_100_hours=rate, lost=lost, hours=hours, until=until))
    return tuple(sorted(found, key=lambda one: (-one.per_100_hours, one.pool)))


def last_loss(memory: Memory) -> int:
    """When a Spot worker was interrupted last (epoch), as far as it is remembered; 0 when none was."""
    return max((pool.lost_at for pool in memory.spot_pools), default=0)


def spot_pools_for(
    zone: str,
    instance_type: str,
    types: Sequence[str],
    *,
    noisy: Collection[str],
    back_offs: Iterable[PoolBackOff],
    now: int,
) -> tuple[str, ...]:
    """The names "zone/type/spot" of the pools in which a worker may return to Spot.

    They are in its zone, as large as the worker, neither noisy nor in back-off.
    """
    closed = {pool_name(b.zone, b.instance_type) for b in back_offs if b.market == "spot" and b.until > now}
    names = (pool_name(zone, kind) for kind in types if _is_as_large(kind, instance_type))
    return tuple(f"{name}/spot" for name in names if name not in closed and name not in noisy)


def _is_as_large(kind: str, worker_type: str) -> bool:
    """Whether this type offers pods what that one does; only a type is known to be as large as itself."""
    one, other = offered(kind), offered(worker_type)
    return kind == worker_type or (one is not None and other is not None and one[0] >= other[0] and one[1] >= other[1])


def _lost(pool: SpotPool, now: int) -> float:
    return pool.lost * _share_left(now - pool.lost_at)


def _noisy_until(pool: SpotPool, lost: float, hours: float, limit: float, now: int) -> int:
    """When the rate falls to the limit while nothing happens but fading, or when the pool is tried again."""
    share = limit / 100
    above, spare = lost - share * hours, (share - PRIOR_PER_100_HOURS / 100) * PRIOR_HOURS
    if above <= spare:
        return now
    return min(now + math.ceil(HALF_LIFE_SECONDS * math.log2(above / spare)), pool.lost_at + LONGEST_SECONDS)


def _share_left(seconds: int) -> float:
    """What is left of a count after that time."""
    return float(2.0 ** (-max(0, seconds) / HALF_LIFE_SECONDS))


def _faded_hours(seconds: int) -> float:
    """The hours of one worker in that time, each faded by its age."""
    return HALF_LIFE_SECONDS / math.log(2) / 3600 * (1 - _share_left(seconds))
