"""What the adaptive strategy learns from one reading, and the headroom and the plan that follow.

Applies headroom.py and trials.py to the capacity estimate; strategy.py decides what to change.
"""

from __future__ import annotations

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


@dataclass(slots=True, kw_only=True)
class Evaluation:
    """The headroom and the plan for one reading. learned: the memory afterwards.

    start: up to how many workers to start; keep: how many must stay.
    """

    choice: headroom.HeadroomChoice
    plan: trials.PlanChoice
    start: int
    keep: int
    learned: AdaptiveMemory


def with_defaults(learned: AdaptiveMemory) -> AdaptiveMemory:
    """The memory with initial counts where none are stored or where their number differs."""
    rises, tried, count = headroom.initial_counts(), learned.tried, len(trials.PLANS)
    if len(learned.rises) != len(rises):
        learned = replace(learned, rises=rises)
    if any(len(row) != count for row in (tried.workers, tried.moved, tried.held, tried.waited, tried.turns)):
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
    """Learn from this reading, then choose the headroom and the plan. pods: the sums after this reading."""
    policy, now = tick.policy, tick.read_at
    if learned.places != capacity.pods_per_worker:
        learned = replace(learned, places=capacity.pods_per_worker, read_at=0, before_at=0, open=())
    pace = _pace(learned, now, capacity.demand)
    is_new = _is_new(tick, learned)
    if is_new:
        learned = _learn_rises(tick, learned, capacity.demand, pace, pods)
    choice = headroom.choose_workers(
        learned.rises,
        pace,
        capacity.demand,
        wait_cost=policy.wait_cost,
        pods_per_worker=capacity.pods_per_worker,
        most=policy.max_workers,
    )
    hold = _within(tick, choice.workers, minimum)
    if is_new:
        learned = _advance_trials(tick, learned, choice, hold, minimum)
    plan = trials.choose_plan(learned.tried, wait_cost=policy.wait_cost, change_cost=policy.change_cost)
    price = min(plan.plan.start_price, trials.JOINT_PRICE) if capacity.new_workers else plan.plan.start_price
    start = _within(tick, choice.start(price), minimum)
    return Evaluation(
        choice=choice, plan=plan, start=start, keep=plan.plan.kept(learned.needs, now, hold), learned=learned
    )


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


def _learn_rises(tick: Tick, learned: AdaptiveMemory, demand: float, pace: int, pods: PodSums) -> AdaptiveMemory:
    """Count the rises that are over, and the boot time when a scale-up has ended since the last decision to add.

    pods: the sums after this reading.
    """
    now, memory = tick.read_at, tick.memory
    boot = learned.boot_seconds
    took = memory.last_action_at - learned.adding_since
    joined = memory.last_action == "scale_up" and learned.adding_since and took > 0
    if joined:
        boot += (min(max(took, 30), tick.policy.join_limit_seconds) - boot) / 5
    horizon = tick.policy.interval_seconds + boot
    rises, still_open = headroom.close_rises(
        learned.rises, learned.open, now, demand, horizon_seconds=horizon, keep=_keep(tick.policy)
    )
    return replace(
        learned,
        read_at=now,
        demand=demand,
        before_at=learned.read_at,
        before=learned.demand,
        rises=rises,
        pods=pods,
        open=(*still_open[-7:], OpenRise(at=now, demand=demand, highest=demand, pace=pace)),
        boot_seconds=boot,
        adding_since=0 if joined else learned.adding_since,
    )


def _within(tick: Tick, workers: int, minimum: int) -> int:
    return min(tick.policy.max_workers, max(minimum, workers))


def _advance_trials(
    tick: Tick, learned: AdaptiveMemory, choice: headroom.HeadroomChoice, hold: int, minimum: int
) -> AdaptiveMemory:
    now, demand = tick.read_at, min(float(tick.policy.max_workers), learned.demand)
    needs = trials.update_needs(learned.needs, now, hold)
    seen = trials.Seen(
        starts=tuple(_within(tick, choice.start(price), minimum) for price in trials.START_PRICES),
        hold=hold,
        demand=demand,
        used=max(float(minimum), demand),
        minutes=(now - learned.before_at) / 60 if learned.before_at else 0.0,
        wait_pod_minutes=learned.places * (trials.ALERT_SECONDS + learned.boot_seconds) / 60,
    )
    return replace(
        learned, needs=needs, tried=trials.advance_trials(learned.tried, needs, now, seen, keep=_keep(tick.policy))
    )
