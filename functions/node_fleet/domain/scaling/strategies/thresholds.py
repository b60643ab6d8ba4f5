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
from node_fleet.domain.scaling.signals.custom_metrics import weigh_custom
from node_fleet.domain.scaling.signals.idle import weigh_idle
from node_fleet.domain.scaling.signals.pending_pods import Demand
from node_fleet.domain.scaling.signals.sustained import advance, is_sustained
from node_fleet.domain.scaling.tick import Tick, known


@dataclass(slots=True, kw_only=True)
class Wanted:
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


RuleSet = Callable[[Tick, Demand | None, int], Wanted]


def steps(view: Tick, demand: Demand | None, floor: int) -> Wanted:
    """One worker, or two when urgent, once a mark is passed; one goes when all have been low for the idle time."""
    wanted = Wanted()
    _weigh_pending(view, demand, wanted)
    cpu = weigh_cpu(view, wanted)
    if view.policy.use_memory:
        weigh_memory(view, wanted)
    customs = weigh_custom(view, wanted.streaks)
    wanted.checks += [held_by_joining(view, check) for check, _ in customs]
    triggers = [c for c in wanted.checks if c.verdict == "up"]
    if triggers:
        wanted.rule = triggers[0].name
        wanted.add = _step(view, demand, cpu)
        wanted.bypasses_cooldown = triggers[0].name == "pending" and view.policy.pending_bypasses_cooldown
    idle = weigh_idle(view, demand, customs_low=all(low for _, low in customs), floor=floor)
    wanted.checks += idle.checks
    if idle.streak:
        wanted.streaks["idle"] = idle.streak
    if idle.remove and not wanted.add:
        wanted.remove, wanted.rule = idle.remove, "idle"
    return wanted


def _step(view: Tick, demand: Demand | None, cpu: float | None) -> int:
    policy = view.policy
    left = demand.left if demand else 0
    urgent = left > policy.pending_urgent or (cpu is not None and _once_joined(view, cpu) > policy.cpu_urgent_percent)
    return policy.step_urgent if urgent else policy.step_normal


def _once_joined(view: Tick, percent: float) -> float:
    """The load when the joining workers take their share of it."""
    usable, joining = len(view.usable), len(view.joining)
    return percent * usable / (usable + joining) if joining and usable else percent


def _weigh_pending(view: Tick, demand: Demand | None, wanted: Wanted) -> None:
    left = demand.left > 0 if demand else None
    streak = _advance(view, wanted, "pending", left)
    wanted.checks.append(_pending_check(view, demand, streak))


def _pending_check(view: Tick, demand: Demand | None, streak: Streak | None) -> Check:
    needed = view.policy.pending_readings
    if demand is None:
        return Check(name="pending", verdict="missing", text="pending pods missing", setting="PENDING_READINGS")
    count = streak.readings if streak else 0
    verdict: Verdict = "down"
    if demand.left:
        text = f"pending {demand.left} (unschedulable, oldest {demand.oldest_seconds} s)"
        if demand.waiting > demand.left:
            text += f", {demand.waiting - demand.left} more will fit on joining workers"
        verdict = "up" if is_sustained(streak, needed, view.policy) else "waiting"
        if verdict == "waiting":
            text += f", reading {count} of {needed}"
    elif demand.waiting:
        text, verdict = f"pending {demand.waiting}, all will fit on {_joining_words(view)}", "hold"
    else:
        text = "pending 0"
    listed = sum(s.count for s in demand.too_large) + sum(s.count for s in demand.stuck)
    return Check(
        name="pending",
        verdict=verdict,
        text=text + (f" ({listed} listed, not counted)" if listed else ""),
        value=demand.left,
        threshold=0,
        readings=count,
        needed=needed,
        setting="PENDING_READINGS",
    )


def weigh_cpu(view: Tick, wanted: Wanted) -> float | None:
    policy, value = view.policy, known(view.snapshot.cpu_percent)
    streak = _advance(view, wanted, "cpu", None if value is None else value > policy.cpu_up_percent)
    load = _Load(
        name="cpu",
        label="CPU",
        value=value,
        high=policy.cpu_up_percent,
        low=policy.cpu_down_percent,
        needed=policy.cpu_readings,
        streak=streak,
    )
    wanted.checks.append(_load_check(view, load))
    return value


def weigh_memory(view: Tick, wanted: Wanted) -> None:
    policy, value = view.policy, known(view.snapshot.memory_percent)
    streak = _advance(view, wanted, "memory", None if value is None else value > policy.memory_up_percent)
    load = _Load(
        name="memory",
        label="memory",
        value=value,
        high=policy.memory_up_percent,
        low=policy.memory_down_percent,
        needed=policy.memory_readings,
        streak=streak,
    )
    wanted.checks.append(_load_check(view, load))


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


def _load_check(view: Tick, load: _Load) -> Check:
    value, label = load.value, load.label
    if value is None:
        return load.check("missing", f"{label} missing")
    if value > load.high:
        return _over(view, load, value)
    if value < load.low:
        return load.check("down", f"{label} {value:.1f} % under {load.low:g} %")
    return load.check("ok", f"{label} {value:.1f} % {'at' if value == load.high else 'under'} {load.high:g} %")


def _over(view: Tick, load: _Load, value: float) -> Check:
    count = load.streak.readings if load.streak else 0
    text = f"{load.label} {value:.1f} % over {load.high:g} %"
    if count < load.needed:
        return load.check("waiting", f"{text}, reading {count} of {load.needed}")
    if not is_sustained(load.streak, load.needed, view.policy):
        return load.check("waiting", f"{text} for {counted(count, 'reading')}, not long enough yet")
    later = _once_joined(view, value)
    if later <= load.high:
        return load.check("hold", f"{text}, but {later:.1f} % with {_joining_words(view)}")
    return load.check("up", f"{text} for {counted(count, 'reading')}")


def _joining_words(view: Tick) -> str:
    count = len(view.joining)
    return counted(count, "joining worker") if count else "workers that just joined"


def held_by_joining(view: Tick, check: Check) -> Check:
    if check.verdict != "up" or len(view.joining) < view.policy.step_normal:
        return check
    return replace(check, verdict="hold", text=f"{check.text}, but {_joining_words(view)} will help first")


def _advance(view: Tick, wanted: Wanted, name: str, holds: bool | None) -> Streak | None:
    streak = advance(
        view.memory.since.get(name), holds=holds, at=view.read_at, gap_seconds=view.policy.reading_gap_seconds
    )
    if streak:
        wanted.streaks[name] = streak
    return streak
