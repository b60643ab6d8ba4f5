"""How much spare room is worth holding: one more worker against the waiting that it saves.

Learns how far demand rises within the time that help needs to arrive, apart for each pace at which it moves already.
Demand is in workers' room. Counts fade, so that old days lose their say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from node_fleet.domain.model.memory import OpenRise

RISES = (0.0, 0.15, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
PACES = (-0.3, 0.15, 0.5, 1.5)
"""Bounds of the paces, in workers in two minutes: falling, steady, rising, fast, leaping."""

PACE_SECONDS = 120
STALE_SECONDS = 1800
SLACK_SECONDS = 60
START_PRICE = 4.5
"""A worker that is started is paid for while it boots, rests and drains, and may be a change of direction: it must save
this many times its price."""

_GRANTED: tuple[dict[float, float], ...] = (
    {0.0: 4.0, 0.5: 1.0},
    {0.0: 4.0, 0.5: 1.0},
    {0.0: 2.0, 0.5: 2.0, 1.0: 1.0},
    {0.0: 1.0, 1.0: 2.0, 2.0: 2.0},
    {0.0: 1.0, 2.0: 2.0, 4.0: 2.0},
)
"""Rises taken for granted at each pace, as if seen: five, which say that a rise goes on for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadroomChoice:
    """The answer, and the sum behind it, all in worker-minutes for one minute of holding.

    workers: how many are worth holding; start: up to how many it is worth to start some. waiting: what is expected to
    wait all the same; saved_by_next: what one more worker would save of it. samples: rises seen at this pace.
    """

    workers: int
    start: int
    headroom: float
    waiting: float
    saved_by_next: float
    samples: float


def pace(change: float, seconds: int) -> int:
    """Which pace a change of demand is; 0 is the fastest fall."""
    rate = change * PACE_SECONDS / max(seconds, PACE_SECONDS // 2)
    return sum(rate > bound for bound in PACES)


def initial_counts() -> tuple[float, ...]:
    """The counts before anything was seen."""
    return (0.0,) * (len(RISES) * (len(PACES) + 1))


def unit(demand: float) -> float:
    """Rises are counted in workers, in a large fleet in tenths of it."""
    return max(1.0, demand / 10)


def close_rises(
    rises: Sequence[float],
    open_rises: Sequence[OpenRise],
    now: int,
    demand: float,
    *,
    horizon_seconds: float,
    keep: float,
) -> tuple[tuple[float, ...], tuple[OpenRise, ...]]:
    """The counts with every rise whose horizon is over, and the rises that go on; `keep` of each count is left."""
    counts = [count * keep for count in rises]
    going = []
    for rise in open_rises:
        age = now - rise.at
        late = age > horizon_seconds + SLACK_SECONDS
        highest = rise.highest if late else max(rise.highest, demand)
        if age < horizon_seconds - SLACK_SECONDS / 2:
            going.append(OpenRise(at=rise.at, demand=rise.demand, highest=highest, pace=rise.pace))
        elif age <= 3 * horizon_seconds:
            _count(counts, rise.pace, (highest - rise.demand) / unit(rise.demand))
    return tuple(counts), tuple(going)


def _count(counts: list[float], row: int, rise: float) -> None:
    """One more rise of this size, shared between the two sizes it lies between."""
    first = row * len(RISES)
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
) -> HeadroomChoice:
    """The worker counts at which one more would cost more than the waiting it saves; at least what demand needs.

    A faster pace never asks for less than a slower one, falls left out.
    """
    price = wait_cost * pods_per_worker
    rows = [_row(rises, row) for row in (range(1, pace_now + 1) if pace_now else (0,))]
    known: dict[int, list[float]] = {}

    def short(workers: int) -> list[float]:
        """Row by row; each count of workers is asked about more than once."""
        if workers not in known:
            known[workers] = [_short(row, workers, demand) for row in rows]
        return known[workers]

    def saved_by_next(workers: int) -> float:
        return max(price * (now - then) for now, then in zip(short(workers), short(workers + 1), strict=True))

    def worth(least: int, mark: float) -> int:
        while least < most and saved_by_next(least) > mark:
            least += 1
        return least

    base = max(0, math.ceil(demand - 1e-6))
    start = worth(base, START_PRICE)
    held = worth(start, 1.0)
    return HeadroomChoice(
        workers=held,
        start=start,
        headroom=held - demand,
        waiting=price * max(short(held)),
        saved_by_next=saved_by_next(held),
        samples=sum(rises[pace_now * len(RISES) : (pace_now + 1) * len(RISES)]),
    )


def _row(rises: Sequence[float], row: int) -> list[float]:
    """The counts of one pace, with what is taken for granted, as shares."""
    seen = rises[row * len(RISES) : (row + 1) * len(RISES)]
    counts = [count + _GRANTED[row].get(rise, 0.0) for rise, count in zip(RISES, seen, strict=True)]
    total = sum(counts)
    return [count / total for count in counts]


def _short(shares: Sequence[float], workers: int, demand: float) -> float:
    """FreeCapacity expected to be missing within the horizon with so many workers."""
    size, headroom = unit(demand), workers - demand
    missing = 0.0
    for rise, share in zip(reversed(RISES), reversed(shares), strict=True):
        if rise * size <= headroom:
            break
        missing += share * (rise * size - headroom)
    return missing
