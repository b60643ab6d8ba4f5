"""CPU and memory of the usable workers as signals: over the high threshold for long enough, or under the low one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from node_fleet.domain.model.instance_types import capacity
from node_fleet.domain.model.memory import Streak
from node_fleet.domain.model.snapshot import Worker
from node_fleet.domain.model.text import count_of
from node_fleet.domain.scaling.check import Check, Verdict
from node_fleet.domain.scaling.signals.sustained import advance_streak, is_sustained
from node_fleet.domain.scaling.tick import Tick, finite

Resource = Literal["cpu", "memory"]


@dataclass(slots=True, kw_only=True)
class _Load:
    """A load in percent, its thresholds, and how many readings it must be over the high one."""

    label: str
    value: float | None
    high: float
    low: float
    needed: int


def evaluate_load(tick: Tick, streaks: dict[str, Streak]) -> list[Check]:
    """The check of CPU and, where use_memory is on, of memory. Adds their streaks to `streaks`."""
    policy, snapshot = tick.policy, tick.snapshot
    loads = [
        _Load(
            label="CPU",
            value=finite(snapshot.cpu_percent),
            high=policy.cpu_up_percent,
            low=policy.cpu_down_percent,
            needed=policy.cpu_readings,
        )
    ]
    if policy.use_memory:
        loads.append(
            _Load(
                label="memory",
                value=finite(snapshot.memory_percent),
                high=policy.memory_up_percent,
                low=policy.memory_down_percent,
                needed=policy.memory_readings,
            )
        )
    return [_evaluate(tick, load, streaks) for load in loads]


def _evaluate(tick: Tick, load: _Load, streaks: dict[str, Streak]) -> Check:
    name, value = load.label.lower(), load.value
    streak = advance_streak(tick, streaks, name, None if value is None else value > load.high)
    readings = streak.readings if streak else 0
    verdict, text = _verdict(tick, load, streak)
    is_low = verdict == "down"
    return Check(
        name=name,
        verdict=verdict,
        text=text,
        value=value,
        threshold=load.low if is_low else load.high,
        readings=readings,
        needed=load.needed,
        setting=f"{name}_{'down' if is_low else 'up'}_percent",
    )


def _verdict(tick: Tick, load: _Load, streak: Streak | None) -> tuple[Verdict, str]:
    value = load.value
    if value is None:
        return "missing", f"{load.label} missing"
    text = f"{load.label} {value:.1f} %"
    if value < load.low:
        return "down", f"{text} under {load.low:g} %"
    if value <= load.high:
        return "ok", f"{text} {'at' if value == load.high else 'under'} {load.high:g} %"
    text, readings = f"{text} over {load.high:g} %", streak.readings if streak else 0
    if readings < load.needed:
        return "waiting", f"{text}, reading {readings} of {load.needed}"
    if not is_sustained(streak, load.needed, tick.policy):
        return "waiting", f"{text} for {count_of(readings, 'reading')}, not long enough yet"
    later = percent_once_joined(tick, value, "memory" if load.label == "memory" else "cpu")
    if later <= load.high:
        return "hold", f"{text}, but {later:.1f} % with {joining_workers(tick)}"
    return "up", f"{text} for {count_of(readings, 'reading')}"


def sizes_of(workers: Sequence[Worker], resource: Resource) -> list[int]:
    """The vCPUs or the memory (MiB) of each worker by its type; 1 for each when one of the types is not known."""
    found = [capacity(w.instance_type) for w in workers]
    known = [size[resource == "memory"] for size in found if size]
    return known if len(known) == len(found) else [1] * len(found)


def percent_once_joined(tick: Tick, percent: float, resource: Resource) -> float:
    """The mean load when the joining workers take their share of it, by their size."""
    usable, joining = len(tick.usable), len(tick.joining)
    sizes = sizes_of((*tick.usable, *tick.joining), resource)
    return percent * sum(sizes[:usable]) / sum(sizes) if joining and usable else percent


def joining_workers(tick: Tick) -> str:
    """'1 joining worker', '2 joining workers', or 'workers that just joined' when none is joining."""
    count = len(tick.joining)
    return count_of(count, "joining worker") if count else "workers that just joined"


def hold_for_joining(tick: Tick, check: Check) -> Check:
    """The check of a custom metric, held while a whole step of workers is joining."""
    if check.verdict != "up" or len(tick.joining) < tick.policy.step_normal:
        return check
    return replace(check, verdict="hold", text=f"{check.text}, but {joining_workers(tick)} will help first")
