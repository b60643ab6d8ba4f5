"""The strategy `thresholds`: fixed thresholds add one worker, or two when urgent, and remove one after the idle time.

A chosen headroom adds the workers that are missing for it, and keeps those without which it would be missing.

It evaluates the load only. decision.py applies the minimum, the maximum, cooldowns, back-offs and the NotReady rule.
"""

from __future__ import annotations

from node_fleet.domain.model.memory import Streak
from node_fleet.domain.scaling.check import Check, DesiredChange, Verdict
from node_fleet.domain.scaling.signals.chosen_headroom import evaluate_headroom
from node_fleet.domain.scaling.signals.custom_metrics import evaluate_custom_metrics
from node_fleet.domain.scaling.signals.idle import evaluate_idle
from node_fleet.domain.scaling.signals.load import (
    evaluate_load,
    hold_for_joining,
    joining_workers,
    percent_once_joined,
)
from node_fleet.domain.scaling.signals.pending_pods import PendingPods, new_workers_for
from node_fleet.domain.scaling.signals.sustained import advance_streak, is_sustained
from node_fleet.domain.scaling.tick import Tick, finite


def apply_thresholds(tick: Tick, pending_pods: PendingPods | None, minimum: int) -> DesiredChange:
    """Add when one signal is over its threshold; remove when all have been low for the idle time."""
    change = DesiredChange()
    change.checks = [_pending_check(tick, pending_pods, change.streaks), *evaluate_load(tick, change.streaks)]
    customs = evaluate_custom_metrics(tick, change.streaks)
    change.checks += [hold_for_joining(tick, check) for check, _ in customs]
    missing, headroom = evaluate_headroom(tick, pending_pods)
    change.checks += [headroom] if headroom else []
    triggers = [c for c in change.checks if c.verdict == "up"]
    if triggers:
        change.rule = triggers[0].name
        change.add = missing if change.rule == "headroom" else max(_step(tick, pending_pods), missing)
        change.new_workers = new_workers_for(tick, pending_pods) if pending_pods else ()
        change.bypasses_cooldown = change.rule == "pending" and tick.policy.pending_bypasses_cooldown
    customs_low = all(low for _, low in customs)
    remove, checks = evaluate_idle(tick, pending_pods, change.streaks, customs_low=customs_low, minimum=minimum)
    change.checks += checks
    if remove and not change.add:
        change.remove, change.rule = remove, "idle"
    return change


def _step(tick: Tick, pending_pods: PendingPods | None) -> int:
    policy, cpu = tick.policy, finite(tick.snapshot.cpu_percent)
    many_pods = pending_pods is not None and pending_pods.left > policy.pending_urgent
    high_cpu = cpu is not None and percent_once_joined(tick, cpu, "cpu") > policy.cpu_urgent_percent
    return policy.step_urgent if many_pods or high_cpu else policy.step_normal


def _pending_check(tick: Tick, pending_pods: PendingPods | None, streaks: dict[str, Streak]) -> Check:
    needed = tick.policy.pending_readings
    streak = advance_streak(tick, streaks, "pending", pending_pods.left > 0 if pending_pods else None)
    if pending_pods is None:
        return Check(name="pending", verdict="missing", text="pending pods missing", setting="pending_readings")
    left, waiting, readings = pending_pods.left, pending_pods.waiting, streak.readings if streak else 0
    verdict: Verdict = "down"
    if left:
        text = f"pending {left} (unschedulable, oldest {pending_pods.oldest_seconds} s)"
        if waiting > left:
            text += f", {waiting - left} more will fit on joining workers"
        verdict = "up" if is_sustained(streak, needed, tick.policy) else "waiting"
        if verdict == "waiting":
            text += f", reading {readings} of {needed}"
    elif waiting:
        text, verdict = f"pending {waiting}, all will fit on {joining_workers(tick)}", "hold"
    else:
        text = "pending 0"
    listed = pending_pods.listed
    return Check(
        name="pending",
        verdict=verdict,
        text=text + (f" ({listed} listed, not counted)" if listed else ""),
        value=left,
        threshold=0,
        readings=readings,
        needed=needed,
        setting="pending_readings",
    )
