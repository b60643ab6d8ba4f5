"""The strategy `adaptive`: as many workers as the pods request, plus the headroom that is worth its price.

Combines the capacity estimate, the headroom and the plan. decision.py applies the minimum, the maximum,
cooldowns, back-offs and the NotReady rule to every strategy.
"""

from __future__ import annotations

import math
from dataclasses import replace

from node_fleet.domain.model.text import count_of
from node_fleet.domain.scaling.check import Check, DesiredChange, Verdict
from node_fleet.domain.scaling.signals.custom_metrics import evaluate_custom_metrics
from node_fleet.domain.scaling.signals.idle import evaluate_projection, find_idle_blocker
from node_fleet.domain.scaling.signals.load import evaluate_load, hold_for_joining
from node_fleet.domain.scaling.signals.pending_pods import PendingPods
from node_fleet.domain.scaling.strategies.adaptive.capacity import CapacityEstimate, estimate_capacity, lacks_requests
from node_fleet.domain.scaling.strategies.adaptive.headroom import HeadroomChoice
from node_fleet.domain.scaling.strategies.adaptive.learning import Evaluation, evaluate, learn_pod_size, with_defaults
from node_fleet.domain.scaling.strategies.adaptive.preset import DEFAULT_RULES, with_default_rules
from node_fleet.domain.scaling.strategies.thresholds import apply_thresholds
from node_fleet.domain.scaling.tick import Tick


def apply_adaptive(tick: Tick, pending_pods: PendingPods | None, minimum: int) -> DesiredChange:
    """Add all missing workers at once; remove workers that were unneeded for the scale-down delay."""
    learned = with_defaults(tick.memory.learned)
    pods = learn_pod_size(tick, learned)
    capacity = estimate_capacity(tick, pending_pods, pods)
    if capacity is None:
        cause = "requests of most workers are unknown" if lacks_requests(tick) else "no pod was seen yet"
        change = _apply_default_thresholds(tick, pending_pods, minimum, cause)
        change.learned = replace(learned, pods=pods)
        return change
    result = evaluate(tick, capacity, learned, minimum, pods)
    change = DesiredChange(learned=result.learned)
    _evaluate_requests(tick, pending_pods, capacity, result, change)
    customs = evaluate_custom_metrics(tick, change.streaks)
    usage = evaluate_load(tick, change.streaks) + [hold_for_joining(tick, check) for check, _ in customs]
    change.checks += usage
    high = [check for check in usage if check.verdict == "up"]
    if high and not change.add:
        change.rule, change.add = high[0].name, tick.policy.step_normal
    if change.add:
        change.learned = replace(result.learned, adding_since=tick.now)
        return change
    blocker = find_idle_blocker(tick, pending_pods, customs_low=all(low for _, low in customs))
    change.remove, checks = _evaluate_scale_down(tick, capacity, result, minimum, blocker)
    change.checks += checks
    change.rule = "idle"
    return change


def _apply_default_thresholds(tick: Tick, pending_pods: PendingPods | None, minimum: int, cause: str) -> DesiredChange:
    """The strategy `thresholds` with the rules of the preset node-fleet."""
    policy = with_default_rules(tick.policy)
    change = apply_thresholds(replace(tick, policy=policy), pending_pods, minimum)
    change.policy = policy
    text = f"{cause}, so the rules of the preset node-fleet decide"
    change.checks.append(Check(name=DEFAULT_RULES, verdict="missing", text=text, setting="preset"))
    return change


def _evaluate_requests(
    tick: Tick, pending_pods: PendingPods | None, capacity: CapacityEstimate, result: Evaluation, change: DesiredChange
) -> None:
    """Workers for the pending pods and for the headroom. They do not wait for the cooldown."""
    for_headroom = 0
    pending = Check(name="pending", verdict="missing", text="pending pods missing", setting="pending_readings")
    if pending_pods:
        if _missing(tick, capacity, result.hold) > 0:  # else no plan starts a worker
            for_headroom = min(_missing(tick, capacity, result.start), tick.headroom)
        left, waiting = pending_pods.left, pending_pods.waiting
        verdict: Verdict = "up" if capacity.new_workers else "hold" if waiting else "ok"
        text = f"pending {left} (unschedulable, oldest {pending_pods.oldest_seconds} s)" if left else "pending 0"
        if waiting > left:
            text = f"pending {waiting}, {waiting - left} of them fit on joining workers"
        pending = Check(name="pending", verdict=verdict, text=text, value=left, threshold=0, setting="pending_readings")
    add = max(len(capacity.new_workers), for_headroom, 0)
    change.checks += [pending, _headroom_check(tick, capacity, result.choice, up=add > 0)]
    change.checks += _cost_checks(result) if not tick.terse else []
    if add:
        change.add, change.bypasses_cooldown = add, True
        change.new_workers = capacity.new_workers
        change.rule = "pending" if capacity.new_workers else "headroom"


def _missing(tick: Tick, capacity: CapacityEstimate, workers: int) -> int:
    """How many of these workers the capacity lacks. One of unknown status is not missing."""
    return math.ceil(workers - capacity.have - 1e-6) - tick.unknown


def _headroom_check(tick: Tick, capacity: CapacityEstimate, choice: HeadroomChoice, *, up: bool) -> Check:
    price, text = tick.policy.wait_cost, ""
    if not tick.terse:
        text = (
            f"demand {capacity.demand:.1f} workers, capacity {capacity.have:.1f} workers; a headroom of "
            f"{choice.headroom:.1f} workers is worth its price (a pod's minute of waiting costs {price:g} "
            f"worker-minute{'' if price == 1 else 's'})"
        )
    return Check(
        name="headroom",
        verdict="up" if up else "hold",
        text=text,
        value=round(capacity.demand, 4),
        threshold=choice.workers,
        setting="wait_cost",
    )


def _cost_checks(result: Evaluation) -> list[Check]:
    """The costs behind the headroom and the plan, which `node-fleet explain` shows."""
    choice, chosen = result.choice, result.plan
    plan = chosen.plan
    headroom = (
        f"one more worker would save {choice.saved_by_next:.2f} of the 1.00 it costs; with {choice.workers} workers "
        f"the expected waiting costs {choice.waiting:.2f} worker-minutes a minute (from {choice.samples:.0f} rises)"
    )
    started = "headroom is started only together with workers for pending pods"
    if plan.start_price < math.inf:
        started = f"headroom is started when it saves {plan.start_price:g} times its price"
    part = "" if plan.share == 1 else f", {1 - plan.share:.0%} of it at once"
    removal = (
        f"capacity is removed after {plan.delay_seconds} s unneeded{part}; {started}: over the last days this would "
        f"have cost {chosen.holding:.0f} worker-minutes of unused capacity, {chosen.waiting:.0f} of waiting and "
        f"{chosen.changing:.0f} of changes of direction, the shortest delay {chosen.first:.0f} in all"
    )
    value = round(choice.headroom, 4)
    return [
        Check(name="headroom_cost", verdict="ok", text=headroom, value=value, setting="wait_cost", aside=True),
        Check(
            name="scale_down_delay",
            verdict="ok",
            text=removal,
            value=plan.delay_seconds,
            setting="change_cost",
            aside=True,
        ),
    ]


def _evaluate_scale_down(
    tick: Tick, capacity: CapacityEstimate, result: Evaluation, minimum: int, blocker: Check | None
) -> tuple[int, list[Check]]:
    """How many workers to remove: unneeded for the scale-down delay, and their pods fit on the other workers."""
    have = math.floor(capacity.have + 1e-6)
    surplus = have - max(capacity.of_minimum(minimum), result.choice.workers)
    if surplus <= 0 or tick.joining:
        return 0, []
    if blocker:
        return 0, [blocker]
    unneeded = math.floor((capacity.have - result.keep) / capacity.mean + 1e-6)
    most = min(unneeded, len(tick.usable) - minimum, tick.policy.max_targets)
    if most <= 0:
        return 0, [_delay_check(tick, result, surplus)]
    for count in range(most, 0, -1):
        projection = evaluate_projection(tick, count)
        if projection.verdict == "down" and capacity.fits_without(count):
            text = f"capacity of {count_of(count, 'worker')} unneeded for {result.plan.plan.delay_seconds} s, "
            return count, [_idle_check("down", f"{text}the pods fit on the other workers", count), projection]
    if projection.verdict != "down":
        return 0, [projection]
    return 0, [_idle_check("hold", "more capacity than needed, but the pods of no worker fit on the others", 0)]


def _idle_check(verdict: Verdict, text: str, value: float) -> Check:
    return Check(name="idle", verdict=verdict, text=text, value=value, setting="change_cost")


def _delay_check(tick: Tick, result: Evaluation, surplus: int) -> Check:
    """How long the surplus has been unneeded."""
    last = max((n.at for n in result.learned.needs if n.workers >= result.choice.workers + surplus), default=0)
    delay = result.plan.plan.delay_seconds
    seconds = min(tick.read_at - last, delay) if last else 0
    text = f"capacity of {count_of(surplus, 'worker')} unneeded for {seconds} of {delay} s"
    return replace(_idle_check("waiting", text, seconds), threshold=delay)
