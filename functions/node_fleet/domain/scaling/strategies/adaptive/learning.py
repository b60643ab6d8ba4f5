"""What the adaptive rules make of one reading: what they learn from it, and the two choices that follow.

Puts headroom.py and scale_down_delay.py to work on the figures; what is done about it is for adaptive.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from node_fleet.domain.model.memory import AdaptiveMemory, OpenRise
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.scaling.signals.bin_packing import learn_pods
from node_fleet.domain.scaling.strategies.adaptive import headroom, scale_down_delay
from node_fleet.domain.scaling.strategies.adaptive.capacity import CapacityEstimate
from node_fleet.domain.scaling.tick import Tick

DAY_SECONDS = 86400
PACE_WINDOW = (60, 180)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What one reading amounts to: the choice, the rest, and how many workers must stay for now."""

    choice: headroom.HeadroomChoice
    delay: scale_down_delay.ScaleDownDelay
    keep: int
    learned: AdaptiveMemory


def with_defaults(learned: AdaptiveMemory) -> AdaptiveMemory:
    """What was learned, with the starting counts where nothing was, or where their number has changed."""
    rises, tried, counts = headroom.initial_counts(), learned.tried, len(scale_down_delay.DELAY_MINUTES)
    whole = all(len(row) == counts for row in (tried.workers, tried.moved, tried.held, tried.turns))
    if whole and len(learned.rises) == len(rises):
        return learned
    return replace(
        learned,
        rises=learned.rises if len(learned.rises) == len(rises) else rises,
        tried=tried if whole else scale_down_delay.initial_trials(),
    )


def _fading(policy: Policy) -> float:
    """What one tick leaves of a count whose half-life is LEARNING_DAYS."""
    return float(0.5 ** (policy.interval_seconds / (policy.learning_days * DAY_SECONDS)))


def learn_pod_size(tick: Tick, learned: AdaptiveMemory) -> AdaptiveMemory:
    if not _is_new(tick, learned):
        return learned
    return replace(learned, pods=learn_pods(learned.pods, tick.usable, _fading(tick.policy)))


def _is_new(tick: Tick, learned: AdaptiveMemory) -> bool:
    return tick.live and tick.read_at > learned.read_at


def evaluate(tick: Tick, capacity: CapacityEstimate, learned: AdaptiveMemory, minimum: int) -> Evaluation:
    policy, now = tick.policy, tick.read_at
    if learned.places != capacity.pods_per_worker:
        learned = replace(learned, places=capacity.pods_per_worker, read_at=0, before_at=0, open=())
    speed = _pace(learned, now, capacity.demand)
    new = _is_new(tick, learned)
    if new:
        learned = _learn_rises(tick, learned, capacity.demand, speed)
    choice = headroom.choose_workers(
        learned.rises,
        speed,
        capacity.demand,
        wait_cost=policy.wait_cost,
        pods_per_worker=capacity.pods_per_worker,
        most=policy.max_workers,
    )
    needed = min(policy.max_workers, max(minimum, choice.workers))
    if new:
        start = min(policy.max_workers, max(minimum, choice.start))
        learned = _advance_trials(learned, now, start=start, hold=needed, policy=policy)
    delay = scale_down_delay.choose_delay(learned.tried, change_cost=policy.change_cost)
    keep = max(needed, scale_down_delay.recently_needed(learned.needs, now, delay.seconds))
    return Evaluation(choice=choice, delay=delay, keep=keep, learned=learned)


def _pace(learned: AdaptiveMemory, now: int, demand: float) -> int:
    """The pace since a reading of about a tick ago; steady when there is none."""
    past = [(learned.before_at, learned.before), (learned.read_at, learned.demand)]
    about = [p for p in past if PACE_WINDOW[0] <= now - p[0] <= PACE_WINDOW[1]] or past[1:]
    at, before = about[0]
    if not at or now - at > headroom.STALE_SECONDS or now <= at:
        return headroom.pace(0.0, headroom.PACE_SECONDS)
    return headroom.pace((demand - before) / headroom.unit(before), now - at)


def _learn_rises(tick: Tick, learned: AdaptiveMemory, demand: float, speed: int) -> AdaptiveMemory:
    now, memory = tick.read_at, tick.memory
    boot = learned.boot_seconds
    took = memory.last_action_at - learned.adding_since
    joined = memory.last_action == "scale_up" and learned.adding_since and took > 0
    if joined:
        boot += (min(max(took, 30), tick.policy.join_limit_seconds) - boot) / 5
    horizon = tick.policy.interval_seconds + boot
    rises, going = headroom.close_rises(
        learned.rises, learned.open, now, demand, horizon_seconds=horizon, keep=_fading(tick.policy)
    )
    newest = OpenRise(at=now, demand=demand, highest=demand, pace=speed)
    return replace(
        learned,
        read_at=now,
        demand=demand,
        before_at=learned.read_at,
        before=learned.demand,
        rises=rises,
        open=(*going[-7:], newest),
        boot_seconds=boot,
        adding_since=0 if joined else learned.adding_since,
    )


def _advance_trials(learned: AdaptiveMemory, now: int, *, start: int, hold: int, policy: Policy) -> AdaptiveMemory:
    needs = scale_down_delay.update_needs(learned.needs, now, hold)
    minutes = (now - learned.before_at) / 60 if learned.before_at else 0.0
    tried = scale_down_delay.advance_trials(
        learned.tried, needs, now, start=start, hold=hold, minutes=minutes, keep=_fading(policy)
    )
    return replace(learned, needs=needs, tried=tried)
