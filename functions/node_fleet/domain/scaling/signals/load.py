"""CPU and memory of the usable workers as signals: over the high threshold for long enough, or under the low one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from node_fleet.domain.model.instance_types import capacity
from node_fleet.domain.model.memory import Streak
from node_fleet.domain.model.snapshot import Worker
from node_fleet.domain.model.text import count_of
from node_fleet.domain.scaling.check import Check, Verdict
from node_fleet.domain.scaling.signals.sustained import advance_streak, is_sustained
from node_fleet.domain.scaling.tick import Tick, finite

Resource = Literal["cpu", "memory"]


def evaluate_load(tick: Tick, streaks: dict[str, Streak]) -> list[Check]:
    """The check of CPU and, where use_memory is on, of memory. Adds their streaks to `streaks`."""
    policy, snapshot = tick.policy, tick.snapshot
    high, low, needed = policy.cpu_up_percent, policy.cpu_down_percent, policy.cpu_readings
    checks = [_evaluate(tick, "cpu", snapshot.cpu_percent, streaks, high=high, low=low, needed=needed)]
    if policy.use_memory:
        high, low, needed = policy.memory_up_percent, policy.memory_down_percent, policy.memory_readings
        checks.append(_evaluate(tick, "memory", snapshot.memory_percent, streaks, high=high, low=low, needed=needed))
    return checks


def _evaluate(
    tick: Tick,
    name: Resource,
    percent: float | None,
    streaks: dict[str, Streak],
    *,
    high: float,
    low: float,
    needed: int,
) -> Check:
    """The check of a load in percent, which must be over the high threshold for so many readings."""
    value = finite(percent)
    streak = advance_streak(tick, streaks, name, None if value is None else value > high)
    verdict = _verdict(tick, name, value, streak, high=high, low=low, needed=needed)
    check = Check(
        name=name,
        verdict=verdict,
        text="",
        value=value,
        threshold=low if verdict == "down" else high,
        readings=streak.readings if streak else 0,
        needed=needed,
        setting=f"{name}_{'down' if verdict == 'down' else 'up'}_percent",
    )
    return check if tick.terse else replace(check, text=_text(tick, name, check))


def _verdict(
    tick: Tick, name: Resource, value: float | None, streak: Streak | None, *, high: float, low: float, needed: int
) -> Verdict:
    if value is None:
        return "missing"
    if value < low:
        return "down"
    if value <= high:
        return "ok"
    if not is_sustained(streak, needed, tick.policy):
        return "waiting"
    return "hold" if percent_once_joined(tick, value, name) <= high else "up"


def _text(tick: Tick, name: Resource, check: Check) -> str:
    """For example: CPU 91.0 % over 85 % for 2 readings."""
    label, value, threshold = "CPU" if name == "cpu" else name, check.value, check.threshold
    if value is None:
        return f"{label} missing"
    text, readings = f"{label} {value:.1f} %", count_of(check.readings, "reading")
    if check.verdict == "down":
        return f"{text} under {threshold:g} %"
    if check.verdict == "ok":
        return f"{text} {'at' if value == threshold else 'under'} {threshold:g} %"
    text = f"{text} over {threshold:g} %"
    if check.verdict == "waiting" and check.readings < check.needed:
        return f"{text}, reading {check.readings} of {check.needed}"
    if check.verdict == "waiting":
        return f"{text} for {readings}, not long enough yet"
    if check.verdict == "hold":
        return f"{text}, but {percent_once_joined(tick, value, name):.1f} % with {joining_workers(tick)}"
    return f"{text} for {readings}"


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
