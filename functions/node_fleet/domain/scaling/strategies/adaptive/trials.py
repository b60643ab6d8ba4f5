"""The plan in force: when headroom is started, how long unneeded capacity is kept, and how much of it.

Every candidate plan is simulated on the demand of this fleet: the unused capacity that it would have held, the changes
of direction that it would have made, and the waiting that it would have left. The plan with the lowest cost is in
force, so that a price buys what happened to this fleet and not what was predicted.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace

from node_fleet.domain.model.memory import PlanTrials, WorkerNeed
from node_fleet.domain.model.value_class import value_class

DELAY_MINUTES = (2, 6, 12, 20, 45, 90, 180, 360)
"""The candidate scale-down delays."""

SHARES = (1.0, 0.5)
"""How much of what was needed within the delay is kept beyond what is needed at the reading."""

START_PRICES = (4.5, 1.2, math.inf)
"""The candidate start prices: headroom is started when it saves more than this many times its price.

A worker that is started is also paid for while it boots, waits for removal and drains. Infinite: none is started for
headroom alone.
"""

JOINT_PRICE = START_PRICES[0]
"""The highest start price of headroom that is started together with workers for pending pods.

Headroom adds no change of direction to such a launch, and no other launch begins before it ends.
"""

FORGET_SECONDS = DELAY_MINUTES[-1] * 60
STEPS_KEPT = 24
GAP_MINUTES = 10.0
"""The longest time between two readings that is counted."""
ALERT_SECONDS = 20
"""The time between the first waiting pod and the decision that it brings about."""
UNITS = 100
"""Sums are whole hundredths, so that the state item stays small."""
HIGHEST_WEIGHT = 1024
"""New entries weigh more and more instead of old ones less and less; at this weight all sums are divided by it."""


@value_class
class Plan:
    """start: the place of its price in START_PRICES; delay: the place of its delay in DELAY_MINUTES."""

    start: int
    delay: int
    share: float

    @property
    def start_price(self) -> float:
        return START_PRICES[self.start]

    @property
    def delay_seconds(self) -> int:
        return DELAY_MINUTES[self.delay] * 60

    def kept(self, needs: Sequence[WorkerNeed], now: int, hold: int) -> int:
        """How many workers this plan keeps where `hold` are worth their price at this reading."""
        if not needs or needs[0].workers <= hold:  # the first is the highest
            return hold
        highest = max((n.workers for n in needs if now - n.at < self.delay_seconds), default=0)
        return _kept(hold, highest, self.share)


PLANS = tuple(
    Plan(start=start, delay=delay, share=share)
    for start in range(len(START_PRICES))
    for delay in range(len(DELAY_MINUTES))
    for share in SHARES
)
"""Every candidate plan; of equal ones the first is in force, so also before anything is learned."""


@dataclass(slots=True, kw_only=True)
class PlanChoice:
    """The plan in force and its cost over the last days, in worker-minutes, which decays.

    holding: unused capacity. waiting: the price of the pods that waited. changing: the price of the changes of
    direction. first: the sum of all three for the first plan, which has the shortest delay.
    """

    plan: Plan
    holding: float
    waiting: float
    changing: float
    first: float


@dataclass(slots=True, kw_only=True)
class Seen:
    """One reading as the trials meet it, in workers.

    starts: up to how many workers are started, for each of START_PRICES; hold: how many are worth their price when they
    are there. least, most: the capacity of the minimum, which every fleet has, also where its workers are smaller than
    those that a launch creates, and of the maximum. demand: at most the maximum. minutes: since the last reading.
    wait_pod_minutes: the waiting that one missing worker causes. demand_before: the demand of the last reading, within
    both. late_pod_minutes: the waiting of one worker's pods that were created since then, where the workers of the last
    reading's launch had to boot first.
    """

    starts: tuple[int, ...]
    hold: int
    demand: float
    minutes: float
    wait_pod_minutes: float
    least: float = 0.0
    most: float = math.inf
    demand_before: float = 0.0
    late_pod_minutes: float = 0.0


def initial_trials() -> PlanTrials:
    """The trials before the first reading."""
    nothing = (0,) * len(PLANS)
    return PlanTrials(workers=nothing, moved=nothing, held=nothing, waited=nothing, turns=nothing)


def update_needs(needs: Sequence[WorkerNeed], now: int, workers: int, read_at: int = 0) -> tuple[WorkerNeed, ...]:
    """The needs with the present one last; needs that are not higher than the present one are dropped.

    read_at: the last reading (epoch). What GAP_MINUTES do not cover of the time since then was not observed, and
    makes no need older.
    """
    unseen = int(now - read_at - GAP_MINUTES * 60) if read_at else 0
    if unseen > 0:
        needs = [replace(n, at=n.at + unseen) for n in needs]
    recent = [n for n in needs if n.workers > workers and now - n.at <= FORGET_SECONDS]
    return (*recent[-(STEPS_KEPT - 1) :], WorkerNeed(at=now, workers=workers))


def advance_trials(tried: PlanTrials, needs: Sequence[WorkerNeed], now: int, seen: Seen, *, keep: float) -> PlanTrials:
    """Every trial one reading later: its fleet keeps what its plan keeps, and at most what it had.

    The workers that it starts are there at the next reading, and pods that are created before wait for the rest of the
    boot. `keep` of the weight of old entries remains.
    """
    weight = tried.weight / keep
    if weight >= HIGHEST_WEIGHT:
        tried, weight = _divided(tried), weight / HIGHEST_WEIGHT
    one, demand, least = UNITS * weight, seen.demand, seen.least
    used = demand if demand > least else least
    kept = _kept_by_delay(needs, now, seen.hold)
    had, moved, turns, waited = tried.workers, tried.moved, tried.turns, tried.waited
    before: tuple[int, ...] = ()
    if not (had[0] or tried.readings):  # a fleet of no worker is one as well
        had = tuple(start for start in seen.starts for _ in kept)
    sizes = set(had)
    if max(sizes) > seen.most:  # the maximum was lowered
        had = tuple([min(n, int(seen.most)) for n in had])
        sizes = set(had)
    lowest = max(min(sizes), seen.least)
    workers = _next_workers(had, seen.starts, kept, math.ceil(demand - 1e-6) if demand > lowest else 0)
    if tried.before and demand > seen.demand_before:
        rises, price = _late_rises(tried.before, had, seen), one * seen.late_pod_minutes
        waited = tuple([total + round(rise * price) for total, rise in zip(waited, rises, strict=True)])
    if workers != had:
        to = [(after > before) - (after < before) for before, after in zip(had, workers, strict=True)]
        turned = list(map(operator.mul, to, moved))  # -1 where the direction changes
        if -1 in turned:
            turn = round(one)
            turns = tuple([total + turn if sign < 0 else total for total, sign in zip(turns, turned, strict=True)])
        moved = tuple([a or b for a, b in zip(to, moved, strict=True)])
        before = had if 1 in to else ()
    if demand > lowest:
        price = one * seen.wait_pod_minutes
        missing = {n: round(max(0.0, demand - max(n, seen.least)) * price) for n in sizes}
        waited = tuple([total + missing[n] for total, n in zip(waited, had, strict=True)])
    rate = one * min(seen.minutes, GAP_MINUTES)
    amounts = {n: round((n - used) * rate) if n > used else 0 for n in sizes}
    return PlanTrials(
        workers=workers,
        before=before,
        moved=moved,
        held=tuple([total + amounts[n] for total, n in zip(tried.held, had, strict=True)]),
        waited=waited,
        turns=turns,
        demand=round(tried.demand + used * weight, 4),
        readings=round(tried.readings + weight, 4),
        weight=weight,
    )


def _late_rises(before: tuple[int, ...], had: tuple[int, ...], seen: Seen) -> list[float]:
    """For every trial, the rise of demand that found no capacity while the workers of its last launch booted."""
    return [
        max(0.0, seen.demand - max(seen.demand_before, old)) if new > old else 0.0
        for old, new in zip(before, had, strict=True)
    ]


@functools.lru_cache(maxsize=64)
def _next_workers(had: tuple[int, ...], starts: tuple[int, ...], kept: tuple[int, ...], needed: int) -> tuple[int, ...]:
    """The fleet size of every trial one reading later. Cached, because most readings are like the one before.

    needed: without so many workers pods are pending, and headroom is started with those that they need.
    """
    joint = starts[START_PRICES.index(JOINT_PRICE)]
    started = [start for start in starts for _ in kept]
    if needed:
        started = [max(start, joint) if n < needed else start for n, start in zip(had, started, strict=True)]
    trials = zip(had, started, kept * len(starts), strict=True)
    return tuple([start if n <= start else n if n <= most else max(most, start) for n, start, most in trials])


def _divided(tried: PlanTrials) -> PlanTrials:
    """The trials with all sums divided by HIGHEST_WEIGHT."""
    return replace(
        tried,
        held=tuple(total // HIGHEST_WEIGHT for total in tried.held),
        waited=tuple(total // HIGHEST_WEIGHT for total in tried.waited),
        turns=tuple(total // HIGHEST_WEIGHT for total in tried.turns),
        demand=tried.demand / HIGHEST_WEIGHT,
        readings=tried.readings / HIGHEST_WEIGHT,
    )


def _kept_by_delay(needs: Sequence[WorkerNeed], now: int, hold: int) -> tuple[int, ...]:
    """What the plans of one start price keep, in the order of PLANS."""
    if needs[0].workers <= hold:
        return (hold,) * (len(DELAY_MINUTES) * len(SHARES))
    at, highest = len(needs) - 1, []
    for minutes in DELAY_MINUTES:
        while at > 0 and now - needs[at - 1].at < minutes * 60:
            at -= 1
        highest.append(needs[at].workers)
    return _kept_by_highest(hold, tuple(highest))


@functools.lru_cache(maxsize=64)
def _kept_by_highest(hold: int, highest: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(_kept(hold, workers, share) for workers in highest for share in SHARES)


def _kept(hold: int, highest: int, share: float) -> int:
    return hold + max(0, math.ceil(share * (highest - hold)))


def choose_plan(tried: PlanTrials, *, wait_cost: float, change_cost: float) -> PlanChoice:
    """The plan with the lowest cost.

    wait_cost: worker-minutes for one pod's minute of waiting. change_cost: minutes of the whole fleet, at its mean
    demand, for one change of direction.
    """
    change = change_cost * tried.demand / tried.readings if tried.readings else 0.0
    costs = [
        held + wait_cost * waited + change * turns
        for held, waited, turns in zip(tried.held, tried.waited, tried.turns, strict=True)
    ]
    best, one = costs.index(min(costs)), UNITS * tried.weight
    return PlanChoice(
        plan=PLANS[best],
        holding=tried.held[best] / one,
        waiting=wait_cost * tried.waited[best] / one,
        changing=change * tried.turns[best] / one,
        first=costs[0] / one,
    )
