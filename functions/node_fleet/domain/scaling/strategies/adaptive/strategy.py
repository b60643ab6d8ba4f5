"""The rule set `adaptive`: as many workers as the pods ask for, and the spare room that is worth its price.

Composes packing, spare room and calm; the floors, back-offs and guards that bind every rule set stand in decision.py.
"""

from __future__ import annotations

import math
from dataclasses import replace

from node_fleet.domain.model.memory import AdaptiveMemory
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.scaling.check import Check, Verdict
from node_fleet.domain.scaling.explain import counted
from node_fleet.domain.scaling.signals.custom_metrics import evaluate_custom_metrics
from node_fleet.domain.scaling.signals.idle import idle_blocker, projection
from node_fleet.domain.scaling.signals.pending_pods import PendingPods
from node_fleet.domain.scaling.strategies.adaptive import headroom
from node_fleet.domain.scaling.strategies.adaptive.capacity import CapacityEstimate, estimate_capacity
from node_fleet.domain.scaling.strategies.adaptive.learning import Evaluation, evaluate, learn_pod_size, with_defaults
from node_fleet.domain.scaling.strategies.adaptive.preset import ADAPTIVE_PRESET
from node_fleet.domain.scaling.strategies.thresholds import (
    DesiredChange,
    apply_thresholds,
    evaluate_cpu,
    evaluate_memory,
    held_by_joining,
)
from node_fleet.domain.scaling.tick import Tick


def apply_adaptive(tick: Tick, pending_pods: PendingPods | None, minimum: int) -> DesiredChange:
    """Add what is missing in one wave; let go what was not needed for the learned rest; else say what is held."""
    before = with_defaults(tick.memory.learned)
    learned = learn_pod_size(tick, before)
    capacity = estimate_capacity(tick, pending_pods, learned.pods)
    if capacity is None:
        return _by_default_rules(tick, pending_pods, minimum, learned)
    result = evaluate(tick, capacity, learned, minimum)
    change = DesiredChange(learned=result.learned)
    _evaluate_scale_up(tick, pending_pods, capacity, result, change)
    customs = evaluate_custom_metrics(tick, change.streaks)
    _evaluate_usage(tick, change, [check for check, _ in customs])
    if not change.add:
        low = all(low for _, low in customs)
        change.remove, checks = _evaluate_scale_down(
            tick, pending_pods, capacity, result, minimum=minimum, customs_low=low
        )
        change.checks += checks
        change.rule = "idle" if change.remove else "none"
    if change.add:
        change.learned = replace(result.learned, adding_since=tick.now)
    return change


def _by_default_rules(
    tick: Tick, pending_pods: PendingPods | None, minimum: int, learned: AdaptiveMemory
) -> DesiredChange:
    """The default preset's rules, with its own marks, while requests are missing."""
    plain, own = Policy(), ADAPTIVE_PRESET
    marks = {
        name: getattr(plain, name)
        for name, value in own.items()
        if hasattr(plain, name) and name != "max_targets" and getattr(tick.policy, name) == value
    }
    change = apply_thresholds(replace(tick, policy=replace(tick.policy, **marks)), pending_pods, minimum)
    text = "requests of the workers missing, the default rules decide"
    change.checks.append(Check(name="requests", verdict="missing", text=text, setting="PRESET"))
    change.learned = learned
    return change


def _evaluate_scale_up(
    tick: Tick, pending_pods: PendingPods | None, capacity: CapacityEstimate, result: Evaluation, change: DesiredChange
) -> None:
    """One wave for the pods that wait and for the spare room; unmet demand waits for no cooldown."""
    choice, left = result.choice, pending_pods.left if pending_pods else 0
    by_room = max(0, math.ceil(choice.start - capacity.have - 1e-6)) - tick.unknown if pending_pods else 0
    add = max(capacity.new_workers, by_room, 0)
    pending = Check(name="pending", verdict="missing", text="pending pods missing", setting="PENDING_READINGS")
    if pending_pods:
        verdict: Verdict = "up" if capacity.new_workers else "hold" if pending_pods.waiting else "ok"
        text = f"pending {left} (unschedulable, oldest {pending_pods.oldest_seconds} s)" if left else "pending 0"
        if pending_pods.waiting > left:
            text = (
                f"pending {pending_pods.waiting}, {pending_pods.waiting - left} of them fit on workers that are joining"
            )
        pending = Check(name="pending", verdict=verdict, text=text, value=left, threshold=0, setting="PENDING_READINGS")
    change.checks += [pending, _headroom_check(tick, capacity, choice, up=add > 0), *_cost_checks(tick, result)]
    if add:
        change.add, change.bypasses_cooldown = add, True
        change.rule = "pending" if capacity.new_workers else "room"


def _headroom_check(tick: Tick, capacity: CapacityEstimate, choice: headroom.HeadroomChoice, *, up: bool) -> Check:
    price = tick.policy.wait_cost
    text = (
        f"pods ask for {capacity.demand:.1f} of {capacity.have:.1f} workers' room; "
        f"{choice.headroom:.1f} workers spare is worth holding (a minute of waiting costs {counted_minutes(price)})"
    )
    return Check(
        name="room",
        verdict="up" if up else "hold",
        text=text,
        value=round(capacity.demand, 4),
        threshold=choice.workers,
        setting="WAIT_COST",
    )


def counted_minutes(price: float) -> str:
    """'1 worker-minute', '8 worker-minutes'."""
    return f"{price:g} worker-minute{'' if price == 1 else 's'}"


def _cost_checks(tick: Tick, result: Evaluation) -> list[Check]:
    """The two sums behind the answer, for those who ask."""
    choice, delay = result.choice, result.delay
    spared = (
        f"one more worker would save {choice.saved_by_next:.2f} of the 1.00 it costs; with {choice.workers} the "
        f"expected waiting costs {choice.waiting:.2f} worker-minutes a minute (from {choice.samples:.0f} rises)"
    )
    rested = (
        f"room goes after {delay.seconds} s unneeded: over the last days this rest would have cost {delay.holding:.0f} "
        f"worker-minutes of held room and {delay.changing:.0f} of changed direction, the shortest {delay.at_once:.0f}"
    )
    return [
        Check(
            name="spare", verdict="ok", text=spared, value=round(choice.headroom, 4), setting="WAIT_COST", aside=True
        ),
        Check(name="calm", verdict="ok", text=rested, value=delay.seconds, setting="CHANGE_COST", aside=True),
    ]


def _evaluate_usage(tick: Tick, change: DesiredChange, customs: list[Check]) -> None:
    """Usage beside requests: a fleet that is hot, or a metric of the user's own, adds a step when requests did not."""
    first = len(change.checks)
    evaluate_cpu(tick, change)
    if tick.policy.use_memory:
        evaluate_memory(tick, change)
    change.checks += [held_by_joining(tick, check) for check in customs]
    hot = [c for c in change.checks[first:] if c.verdict == "up"]
    if hot and not change.add:
        change.rule, change.add = hot[0].name, tick.policy.step_normal


def _evaluate_scale_down(
    tick: Tick,
    pending_pods: PendingPods | None,
    capacity: CapacityEstimate,
    result: Evaluation,
    *,
    minimum: int,
    customs_low: bool,
) -> tuple[int, list[Check]]:
    """FreeCapacity that was unneeded for the rest goes, if its pods fit on the others and every guard agrees."""
    have = math.floor(capacity.have + 1e-6)
    surplus = have - max(minimum, result.choice.workers)
    if surplus <= 0 or tick.joining:
        return 0, []
    if stop := idle_blocker(tick, pending_pods, customs_low=customs_low):
        return 0, [Check(name="idle", verdict=stop[0], text=stop[1], setting=stop[2], aside=True)]
    most = min(have - result.keep, len(tick.usable) - minimum, tick.policy.max_targets)
    if most <= 0:
        return 0, [_delay_check(tick, result, surplus)]
    return _removal(tick, capacity, result, most)


def _removal(tick: Tick, capacity: CapacityEstimate, result: Evaluation, most: int) -> tuple[int, list[Check]]:
    """As many as fit, at most `most`."""
    for count in range(most, 0, -1):
        guard, fits = projection(tick, count), capacity.fits_without(count)
        if guard.verdict == "down" and fits:
            words = f"room of {counted(count, 'worker')} unneeded for {result.delay.seconds} s"
            return count, [_idle("down", f"{words}, its pods fit on the others", count), guard]
    if guard.verdict != "down":
        return 0, [guard]
    return 0, [_idle("hold", "room to headroom, but the pods of no worker fit on the others", 0)]


def _idle(verdict: Verdict, text: str, value: float) -> Check:
    return Check(name="idle", verdict=verdict, text=text, value=value, setting="CHANGE_COST")


def _delay_check(tick: Tick, result: Evaluation, surplus: int) -> Check:
    """How long the first of the spare workers has been unneeded."""
    have = result.choice.workers + surplus
    last = max((n.at for n in result.learned.needs if n.workers >= have), default=0)
    seconds = min(tick.read_at - last, result.delay.seconds) if last else 0
    text = f"room of {counted(surplus, 'worker')} unneeded for {seconds} of {result.delay.seconds} s"
    return Check(
        name="idle", verdict="waiting", text=text, value=seconds, threshold=result.delay.seconds, setting="CHANGE_COST"
    )
