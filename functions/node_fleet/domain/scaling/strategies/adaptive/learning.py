"""What the adaptive strategy learns from one reading, and the headroom and the plan that follow.

Applies headroom.py and trials.py to the capacity estimate; strategy.py decides what to change.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from node_fleet.domain.model.memory import AdaptiveMemory, OpenRise, PodSums
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.scaling.strategies.adaptive import headroom, trials
from node_fleet.domain.scaling.strategies.adaptive.capacity import CapacityEstimate
from node_fleet.domain.scaling.strategies.adaptive.typical_pod import learn_pods
from node_fleet.domain.scaling.tick import Tick

DAY_SECONDS = 86400
PACE_WINDOW = (60, 180)
"""The age in seconds of the reading that the pace is measured from."""


@dataclass(kw_only=True)
class Evaluation:
    """The headroom and the plan for one reading. learned: the memory afterwards.

    hold: the workers that are worth their price, between the `limits`. The plan is chosen when a caller first needs it:
    most readings ask for no change.
    """

    tick: Tick
    capacity: CapacityEstimate
    choice: headroom.HeadroomChoice
    limits: tuple[int, int]
    hold: int
    learned: AdaptiveMemory

    @functools.cached_property
    def plan(self) -> trials.PlanChoice:
        policy = self.tick.policy
        return trials.choose_plan(self.learned.tried, wait_cost=policy.wait_cost, change_cost=policy.change_cost)

    @property
    def start(self) -> int:
        """Up to how many workers to start; never more than `hold`."""
        price = self.plan.plan.start_price
        price = min(price, trials.JOINT_PRICE) if self.capacity.new_workers else price
        return _within(self.limits, self.choice.start(price))

    @property
    def keep(self) -> int:
        """How many workers must stay."""
        return self.plan.plan.kept(self.learned.needs, self.tick.read_at, self.hold)


def with_defaults(learned: AdaptiveMemory) -> AdaptiveMemory:
    """The memory with initial counts where none are stored, where their number differs, or where they weigh nothing."""
    rises, tried = headroom.initial_counts(), learned.tried
    if len(learned.rises) != len(rises):
        learned = replace(learned, rises=rises)
    rows = (tried.workers, tried.before or tried.workers, tried.moved, tried.held, tried.waited, tried.turns)
    if {*map(len, rows)} != {len(trials.PLANS)} or tried.weight <= 0:
        learned = replace(learned, tried=trials.initial_trials())
    return learned


def learn_pod_size(tick: Tick, learned: AdaptiveMemory) -> PodSums:
    """The sums with the requests of this tick's usable workers; unchanged when the reading is not new."""
    if not _is_new(tick, learned):
        return learned.pods
    return learn_pods(learned.pods, tick.usable, _keep(tick.policy))


def evaluate(
    tick: Tick, capacity: CapacityEstimate, learned: AdaptiveMemory, minimum: int, pods: PodSums
) -> Evaluation:
    """Choose the headroom for this reading, and learn from it. pods: the sums after this reading."""
    policy, now, demand, keep = tick.policy, tick.read_at, capacity.demand, _keep(tick.policy)
    if learned.places != capacity.pods_per_worker:
        learned = replace(learned, places=capacity.pods_per_worker, read_at=0, before_at=0, open=())
    if tick.live and learned.read_at > now + headroom.STALE_SECONDS:  # the clock of the server was ahead
        needs = tuple(replace(need, at=min(need.at, now)) for need in learned.needs)
        learned = replace(learned, read_at=0, before_at=0, open=(), needs=needs)
    limits = capacity.of_minimum(minimum), capacity.of_maximum(policy.max_workers)
    pace, is_new, joined = _pace(learned, now, demand), _is_new(tick, learned), _join_seconds(tick, learned)
    boot, rises, still_open = learned.boot_seconds, learned.rises, learned.open
    if is_new:
        boot += (min(max(joined, 30), policy.join_limit_seconds) - boot) / 5 if joined else 0.0
        horizon = policy.interval_seconds + boot
        rises, still_open = headroom.close_rises(rises, still_open, now, demand, horizon_seconds=horizon, keep=keep)
    choice = headroom.choose_workers(
        rises,
        pace,
        demand,
        wait_cost=policy.wait_cost,
        pods_per_worker=capacity.pods_per_worker,
        most=limits[1],
    )
    hold = _within(limits, choice.workers)
    if is_new:
        needs = trials.update_needs(learned.needs, now, hold, learned.read_at)
        seen = _seen(tick, learned, choice, capacity, boot=boot, limits=limits, minimum=minimum)
        learned = AdaptiveMemory(
            read_at=now,
            demand=demand,
            places=learned.places,
            before_at=learned.read_at,
            before=learned.demand,
            rises=rises,
            open=(*still_open[-7:], OpenRise(at=now, demand=demand, highest=demand, pace=pace)),
            needs=needs,
            tried=trials.advance_trials(learned.tried, needs, now, seen, keep=keep),
            pods=pods,
            boot_seconds=boot,
            adding_since=0 if joined else learned.adding_since,
        )
    return Evaluation(tick=tick, capacity=capacity, choice=choice, limits=limits, hold=hold, learned=learned)


def _keep(policy: Policy) -> float:
    """The share of a count that remains after one tick; its half-life is learning_days."""
    return float(0.5 ** (policy.interval_seconds / (policy.learning_days * DAY_SECONDS)))


def _is_new(tick: Tick, learned: AdaptiveMemory) -> bool:
    return tick.live and tick.read_at > learned.read_at


def _pace(learned: AdaptiveMemory, now: int, demand: float) -> int:
    """The pace since a reading about one tick ago; steady when there is none."""
    past = [(learned.before_at, learned.before), (learned.read_at, learned.demand)]
    recent = [p for p in past if PACE_WINDOW[0] <= now - p[0] <= PACE_WINDOW[1]] or past[1:]
    at, before = recent[0]
    if not at or now - at > headroom.STALE_SECONDS or now <= at:
        return headroom.pace(0.0, headroom.PACE_SECONDS)
    return headroom.pace((demand - before) / headroom.unit(before), now - at)


def _join_seconds(tick: Tick, learned: AdaptiveMemory) -> int:
    """How long the scale-up took that has ended since the last decision to add; 0 when none has."""
    memory = tick.memory
    took = memory.last_action_at - learned.adding_since
    return took if memory.last_action == "scale_up" and learned.adding_since and took > 0 else 0


def _within(limits: tuple[int, int], workers: int) -> int:
    least, most = limits
    workers = least if workers < least else workers
    return most if workers > most else workers


def _seen(
    tick: Tick,
    before: AdaptiveMemory,
    choice: headroom.HeadroomChoice,
    capacity: CapacityEstimate,
    *,
    boot: float,
    limits: tuple[int, int],
    minimum: int,
) -> trials.Seen:
    """This reading for the trials. before: the memory before it. boot: seconds from a decision to the join."""
    least, most, demand = minimum * capacity.mean, limits[1], capacity.demand
    minutes = (tick.read_at - before.read_at) / 60 if before.read_at else 0.0
    return trials.Seen(
        starts=tuple([_within(limits, choice.start(price)) for price in trials.START_PRICES]),
        hold=_within(limits, choice.workers),
        demand=demand if demand < most else float(most),
        least=least,
        most=most,
        minutes=minutes,
        wait_pod_minutes=before.places * (trials.ALERT_SECONDS + boot) / 60,
        demand_before=min(float(most), max(least, before.demand)),
        late_pod_minutes=before.places * _late_minutes(minutes, boot / 60),
    )


def _late_minutes(minutes: float, boot: float) -> float:
    """The mean waiting of pods that are created evenly over these minutes, for a worker that is there after `boot`."""
    if not minutes:
        return 0.0
    return boot - minutes / 2 if minutes < boot else boot * boot / (2 * minutes)
