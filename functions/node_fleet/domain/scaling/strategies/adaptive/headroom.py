"""How much headroom to hold: one more worker costs its price, and saves the expected waiting of pods.

Learns how far demand rises within the time that a new worker needs to arrive, separately for each pace at which demand
already moves. Demand is in workers. Counts decay, so that recent days weigh most.
"""

from __future__ import annotations

import bisect
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace

from node_fleet.domain.model.memory import OpenRise

RISES = (0.0, 0.15, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
"""The sizes of a rise that are counted, in units of demand (see `unit`)."""

_LARGEST_FIRST = tuple(reversed(RISES))

PACES = (-0.3, 0.15, 0.5, 1.5)
"""Bounds between the five paces, in workers in two minutes: falling, steady, rising, fast, very fast."""

PACE_SECONDS = 120
STALE_SECONDS = 1800
SLACK_SECONDS = 60

_PRIOR: tuple[dict[float, float], ...] = (
    {0.0: 4.0, 0.5: 1.0},
    {0.0: 4.0, 0.5: 1.0},
    {0.0: 2.0, 0.5: 2.0, 1.0: 1.0},
    {0.0: 1.0, 1.0: 2.0, 2.0: 2.0},
    {0.0: 1.0, 2.0: 2.0, 4.0: 2.0},
)
"""Prior counts of each pace, five in total: a rise that has begun usually continues."""
_PRIOR_COUNTS = tuple(tuple(prior.get(rise, 0.0) for rise in RISES) for prior in _PRIOR)


@dataclass(slots=True, kw_only=True)
class HeadroomChoice:
    """The number of workers to hold and its cost, in worker-minutes per minute.

    workers: how many to hold; savings: what each of them beyond the demand saves, the first one first. headroom:
    workers - demand. waiting: the expected cost of waiting with that many workers; saved_by_next: how much of it one
    more worker would save. samples: rises seen at this pace.
    """

    workers: int
    savings: tuple[float, ...]
    headroom: float
    waiting: float
    saved_by_next: float
    samples: float

    def start(self, price: float) -> int:
        """Up to how many workers to start when each must save more than this."""
        workers = self.workers
        for saved in self.savings:
            workers -= saved <= price
        return workers


def pace(change: float, seconds: int) -> int:
    """The index of the pace of a change of demand, in workers; 0 is the fastest fall."""
    rate = change * PACE_SECONDS / max(seconds, PACE_SECONDS // 2)
    return bisect.bisect_left(PACES, rate)


def initial_counts() -> tuple[float, ...]:
    """The counts before any rise was seen."""
    return (0.0,) * (len(RISES) * (len(PACES) + 1))


def unit(demand: float) -> float:
    """The unit of rises in workers: one worker, or a tenth of the demand of a large fleet."""
    return demand / 10 if demand > 10 else 1.0


def close_rises(
    rises: Sequence[float],
    open_rises: Sequence[OpenRise],
    now: int,
    demand: float,
    *,
    horizon_seconds: float,
    keep: float,
) -> tuple[tuple[float, ...], tuple[OpenRise, ...]]:
    """The counts after every rise whose horizon is over, and the open rises. `keep` of each old count remains."""
    counts = [count * keep for count in rises]
    still_open = []
    for rise in open_rises:
        age = now - rise.at
        late = age > horizon_seconds + SLACK_SECONDS
        highest = rise.highest if late or demand < rise.highest else demand
        if age < horizon_seconds - SLACK_SECONDS / 2:
            still_open.append(rise if highest == rise.highest else replace(rise, highest=highest))
        elif age <= 3 * horizon_seconds:
            _count(counts, rise.pace, (highest - rise.demand) / unit(rise.demand))
    return tuple(counts), tuple(still_open)


def _count(counts: list[float], pace_index: int, rise: float) -> None:
    """Count one rise of this size, shared between the two counted sizes around it."""
    first = pace_index * len(RISES)
    size = min(max(rise, RISES[0]), RISES[-1])
    above = min(bisect.bisect(RISES, size), len(RISES) - 1)
    low, high = RISES[above - 1], RISES[above]
    share = (size - low) / (high - low)
    counts[first + above - 1] += 1 - share
    counts[first + above] += share


def choose_workers(
    rises: Sequence[float], pace_now: int, demand: float, *, wait_cost: float, pods_per_worker: float, most: int
) -> HeadroomChoice:
    """The number of workers at which one more would cost more than the waiting that it saves; at least the demand.

    wait_cost: worker-minutes that a pod's minute of waiting costs. A faster pace never asks for fewer workers than a
    slower one, except for falling demand.
    """
    price = wait_cost * pods_per_worker
    shares = [_shares(rises, index) for index in (range(1, pace_now + 1) if pace_now else (0,))]
    workers, size = max(0, math.ceil(demand - 1e-6)), unit(demand)
    now, savings = [_shortage(row, size, workers - demand) for row in shares], []
    while True:
        then = [_shortage(row, size, workers + 1 - demand) for row in shares]
        saved = price * max(map(operator.sub, now, then))
        if workers >= most or saved <= 1.0:
            break
        savings.append(saved)
        workers, now = workers + 1, then
    return HeadroomChoice(
        workers=workers,
        savings=tuple(savings),
        headroom=workers - demand,
        waiting=price * max(now),
        saved_by_next=saved,
        samples=sum(rises[pace_now * len(RISES) : (pace_now + 1) * len(RISES)]),
    )


def _shares(rises: Sequence[float], pace_index: int) -> list[tuple[float, float]]:
    """(rise, its share) of every rise that has a count at this pace, with its prior counts; the largest rise first."""
    first = pace_index * len(RISES)
    counts = list(map(operator.add, rises[first : first + len(RISES)], _PRIOR_COUNTS[pace_index]))
    total = sum(counts)
    return [(rise, count / total) for rise, count in zip(_LARGEST_FIRST, reversed(counts), strict=True) if count]


def _shortage(shares: Sequence[tuple[float, float]], size: float, headroom: float) -> float:
    """Workers expected to be missing within the horizon: the mean of what the rises exceed the headroom by.

    shares: as in _shares(). size: the unit of the rises.
    """
    missing = 0.0
    for rise, share in shares:
        beyond = rise * size - headroom
        if beyond <= 0:
            break
        missing += share * beyond
    return missing
