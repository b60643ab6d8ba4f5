"""How much spare room is worth holding: one more worker against the waiting that it saves.

Learns how far demand rises within the time that help needs to arrive, apart for each pace at which it moves already.
Demand is in workers' room. Counts fade, so that old days lose their say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from node_fleet.domain.adaptive_memory import OpenRise

RISES = (0.0, 0.15, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
PACES = (-0.3, 0.15, 0.5, 1.5)
"""Bounds of the paces, in workers in two minutes: falling, steady, rising, fast, leaping."""

PACE_SECONDS = 120
STALE_SECONDS = 1800
SLACK_SECONDS = 60
_BEFORE = {0: 4.0, 3: 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The answer, and the sum behind it, all in worker-minutes for one minute of holding.

    short_pods: pods expected to wait with this many workers; saved_by_next: what one more worker would save.
    """

    workers: int
    spare: float
    waiting: float
    saved_by_next: float
    samples: float


def pace(change: float, seconds: int) -> int:
    """Which pace a change of demand is; 0 is the fastest fall."""
    rate = change * PACE_SECONDS / max(seconds, PACE_SECONDS // 2)
    return sum(rate > bound for bound in PACES)


def unlearned() -> tuple[float, ...]:
    """The counts before anything was seen: mostly steady, now and then half a worker more."""
    row = [_BEFORE.get(k, 0.0) for k in range(len(RISES))]
    return tuple(row * (len(PACES) + 1))


def unit(demand: float) -> float:
    """Rises are counted in workers, in a large fleet in tenths of it."""
    return max(1.0, demand / 10)


def closed_and_open(
    rises: Sequence[float],
    open_rises: Sequence[OpenRise],
    now: int,
    demand: float,
    *,
    horizon_seconds: float,
    keep: float,
) -> tuple[tuple[float, ...], tuple[OpenRise, ...]]:
    """The counts with every rise whose horizon is over, and the rises that go on; `keep` of each count is left."""
    counts = list(rises)
    going = []
    for rise in open_rises:
        age = now - rise.at
        late = age > horizon_seconds + SLACK_SECONDS
        highest = rise.highest if late else max(rise.highest, demand)
        if age < horizon_seconds - SLACK_SECONDS / 2:
            going.append(OpenRise(at=rise.at, demand=rise.demand, highest=highest, pace=rise.pace))
        elif age <= 3 * horizon_seconds:
            _count(counts, rise.pace, (highest - rise.demand) / unit(rise.demand), keep)
    return tuple(counts), tuple(going)


def _count(counts: list[float], row: int, rise: float, keep: float) -> None:
    """One more rise of this size, shared between the two sizes it lies between."""
    first = row * len(RISES)
    for k in range(first, first + len(RISES)):
        counts[k] *= keep
    above = next((k for k, size in enumerate(RISES) if size > rise), len(RISES))
    if above == len(RISES) or rise <= 0:
        counts[first + (above - 1 if rise > 0 else 0)] += 1
        return
    low, high = RISES[above - 1], RISES[above]
    part = (rise - low) / (high - low)
    counts[first + above - 1] += 1 - part
    counts[first + above] += part


def choose_workers(
    rises: Sequence[float], pace_now: int, demand: float, *, wait_cost: float, pods_per_worker: float, most: int
) -> Choice:
    """The worker count at which one more would cost more than the waiting it saves; at least what demand needs.

    A faster pace never asks for less than a slower one.
    """
    base = max(0, math.ceil(demand - 1e-6))
    price = wait_cost * pods_per_worker
    best = base
    for row in range(pace_now + 1):
        while best < most and price * (_short(rises, row, best, demand) - _short(rises, row, best + 1, demand)) > 1:
            best += 1
    row = pace_now * len(RISES)
    return Choice(
        workers=best,
        spare=best - demand,
        waiting=price * _short(rises, pace_now, best, demand),
        saved_by_next=price * (_short(rises, pace_now, best, demand) - _short(rises, pace_now, best + 1, demand)),
        samples=sum(rises[row : row + len(RISES)]),
    )


def _short(rises: Sequence[float], row: int, workers: int, demand: float) -> float:
    """Room expected to be missing within the horizon with so many workers."""
    counts = rises[row * len(RISES) : (row + 1) * len(RISES)]
    size, spare, total = unit(demand), workers - demand, sum(counts)
    if total <= 0:
        return 0.0
    missing = sum(
        count * (rise * size - spare) for rise, count in zip(RISES, counts, strict=True) if rise * size > spare
    )
    return missing / total
