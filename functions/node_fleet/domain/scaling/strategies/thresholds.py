"""How many workers are wanted: the rule sets a preset chooses among, all of one form.

A rule set weighs the load only. Floors, headroom, cooldowns, back-offs and the NotReady path bind every one of them
and stand in decision.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from node_fleet.domain.model.memory import AdaptiveMemory, Streak
from node_fleet.domain.scaling.check import Check, Verdict
from node_fleet.domain.scaling.explain import counted
from node_fleet.domain.scaling.signals.custom_metrics import evaluate_custom_metrics
from node_fleet.domain.scaling.signals.idle import evaluate_idle
from node_fleet.domain.scaling.signals.pending_pods import PendingPods
from node_fleet.domain.scaling.signals.sustained import advance, is_sustained
from node_fleet.domain.scaling.tick import Tick, finite


@dataclass(slots=True, kw_only=True)
class DesiredChange:
    """What a rule set answers: workers to add (0: none) or to remove, by which rule, and all it weighed.

    The check that carries the rule's name leads the sentence; of an add its verdict is "up".
    bypasses_cooldown: the add does not wait for the up-cooldown. streaks: every run of readings to remember.
    learned: what the rule set keeps for itself; None leaves what was there.
    """

    add: int = 0
    remove: int = 0
    rule: str = "none"
    bypasses_cooldown: bool = False
    checks: list[Check] = field(default_factory=list)
    streaks: dict[str, Streak] = field(default_factory=dict)
    learned: AdaptiveMemory | None = None


Strategy = Callable[[Tick, PendingPods | None, int], DesiredChange]


def apply_thresholds(tick: Tick, pending_pods: PendingPods | None, minimum: int) -> DesiredChange:
    """One worker, or two when urgent, once a mark is passed; one goes when all have been low for the idle time."""
    change = DesiredChange()
    _evaluate_pending(tick, pending_pods, change)
    cpu = evaluate_cpu(tick, change)
    if tick.policy.use_memory:
        evaluate_memory(tick, change)
    customs = evaluate_custom_metrics(tick, change.streaks)
    change.checks += [held_by_joining(tick, check) for check, _ in customs]
    triggers = [c for c in change.checks if c.verdict == "up"]
    if triggers:
        change.rule = triggers[0].name
        change.add = _step(tick, pending_pods, cpu)
        change.bypasses_cooldown = triggers[0].name == "pending" and tick.policy.pending_bypasses_cooldown
    idle = evaluate_idle(tick, pending_pods, customs_low=all(low for _, low in customs), minimum=minimum)
    change.checks += idle.checks
    if idle.streak:
        change.streaks["idle"] = idle.streak
    if idle.remove and not change.add:
        change.remove, change.rule = idle.remove, "idle"
    return change


def _step(tick: Tick, pending_pods: PendingPods | None, cpu: float | None) -> int:
    policy = tick.policy
    left = pending_pods.left if pending_pods else 0
    urgent = left > policy.pending_urgent or (cpu is not None and _once_joined(tick, cpu) > policy.cpu_urgent_percent)
    return policy.step_urgent if urgent else policy.step_normal


def _once_joined(tick: Tick, percent: float) -> float:
    """The load when the joining workers take their share of it."""
    usable, joining = len(tick.usable), len(tick.joining)
    return percent * usable / (usable + joining) if joining and usable else percent


def _evaluate_pending(tick: Tick, pending_pods: PendingPods | None, change: DesiredChange) -> None:
    left = pending_pods.left > 0 if pending_pods else None
    streak = _advance(tick, change, "pending", left)
    change.checks.append(_pending_check(tick, pending_pods, streak))


def _pending_check(tick: Tick, pending_pods: PendingPods | None, streak: Streak | None) -> Check:
    needed = tick.policy.pending_readings
    if pending_pods is None:
        return Check(name="pending", verdict="missing", text="pending pods missing", setting="PENDING_READINGS")
    count = streak.readings if streak else 0
    verdict: Verdict = "down"
    if pending_pods.left:
        text = f"pending {pending_pods.left} (unschedulable, oldest {pending_pods.oldest_seconds} s)"
        if pending_pods.waiting > pending_pods.left:
            text += f", {pending_pods.waiting - pending_pods.left} more will fit on joining workers"
        verdict = "up" if is_sustained(streak, needed, tick.policy) else "waiting"
        if verdict == "waiting":
            text += f", reading {count} of {needed}"
    elif pending_pods.waiting:
        text, verdict = f"pending {pending_pods.waiting}, all will fit on {_joining_words(tick)}", "hold"
    else:
        text = "pending 0"
    listed = sum(s.count for s in pending_pods.too_large) + sum(s.count for s in pending_pods.stuck)
    return Check(
        name="pending",
        verdict=verdict,
        text=text + (f" ({listed} listed, not counted)" if listed else ""),
        value=pending_pods.left,
        threshold=0,
        readings=count,
        needed=needed,
        setting="PENDING_READINGS",
    )


def evaluate_cpu(tick: Tick, change: DesiredChange) -> float | None:
    policy, value = tick.policy, finite(tick.snapshot.cpu_percent)
    streak = _advance(tick, change, "cpu", None if value is None else value > policy.cpu_up_percent)
    load = _Load(
        name="cpu",
        label="CPU",
        value=value,
        high=policy.cpu_up_percent,
        low=policy.cpu_down_percent,
        needed=policy.cpu_readings,
        streak=streak,
    )
    change.checks.append(_load_check(tick, load))
    return value


def evaluate_memory(tick: Tick, change: DesiredChange) -> None:
    policy, value = tick.policy, finite(tick.snapshot.memory_percent)
    streak = _advance(tick, change, "memory", None if value is None else value > policy.memory_up_percent)
    load = _Load(
        name="memory",
        label="memory",
        value=value,
        high=policy.memory_up_percent,
        low=policy.memory_down_percent,
        needed=policy.memory_readings,
        streak=streak,
    )
    change.checks.append(_load_check(tick, load))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """A load in percent with its marks and its run of readings over the high one."""

    name: str
    label: str
    value: float | None
    high: float
    low: float
    needed: int
    streak: Streak | None

    def check(self, verdict: Verdict, text: str) -> Check:
        """The check of this load with that answer; its setting is the mark that was nearest."""
        low = verdict == "down"
        return Check(
            name=self.name,
            verdict=verdict,
            text=text,
            value=self.value,
            threshold=self.low if low else self.high,
            readings=self.streak.readings if self.streak else 0,
            needed=self.needed,
            setting=f"SCALE_{'DOWN' if low else 'UP'}_THRESHOLD_{self.label.upper()}",
        )


def _load_check(tick: Tick, load: _Load) -> Check:
    value, label = load.value, load.label
    if value is None:
        return load.check("missing", f"{label} missing")
    if value > load.high:
        return _over(tick, load, value)
    if value < load.low:
        return load.check("down", f"{label} {value:.1f} % under {load.low:g} %")
    return load.check("ok", f"{label} {value:.1f} % {'at' if value == load.high else 'under'} {load.high:g} %")


def _over(tick: Tick, load: _Load, value: float) -> Check:
    count = load.streak.readings if load.streak else 0
    text = f"{load.label} {value:.1f} % over {load.high:g} %"
    if count < load.needed:
        return load.check("waiting", f"{text}, reading {count} of {load.needed}")
    if not is_sustained(load.streak, load.needed, tick.policy):
        return load.check("waiting", f"{text} for {counted(count, 'reading')}, not long enough yet")
    later = _once_joined(tick, value)
    if later <= load.high:
        return load.check("hold", f"{text}, but {later:.1f} % with {_joining_words(tick)}")
    return load.check("up", f"{text} for {counted(count, 'reading')}")


def _joining_words(tick: Tick) -> str:
    count = len(tick.joining)
    return counted(count, "joining worker") if count else "workers that just joined"


def held_by_joining(tick: Tick, check: Check) -> Check:
    if check.verdict != "up" or len(tick.joining) < tick.policy.step_normal:
        return check
    return replace(check, verdict="hold", text=f"{check.text}, but {_joining_words(tick)} will help first")


def _advance(tick: Tick, change: DesiredChange, name: str, holds: bool | None) -> Streak | None:
    streak = advance(
        tick.memory.since.get(name), holds=holds, at=tick.read_at, gap_seconds=tick.policy.reading_gap_seconds
    )
    if streak:
        change.streaks[name] = streak
    return streak
