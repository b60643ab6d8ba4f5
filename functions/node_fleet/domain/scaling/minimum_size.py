"""The effective minimum: the greatest of the minimum, an open schedule window and a running predictive hold."""

from __future__ import annotations

from dataclasses import dataclass

from node_fleet.domain.model.policy import ScheduleWindow
from node_fleet.domain.scaling.tick import Tick


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimumSize:
    """How many workers must be there, by which rule, and in words."""

    workers: int
    rule: str
    text: str
    setting: str


def effective_minimum(tick: Tick) -> MinimumSize:
    """The highest floor in force, never above the maximum; of equals, the plain minimum, then the schedule."""
    policy, memory = tick.policy, tick.memory
    best = MinimumSize(
        workers=policy.min_workers, rule="minimum", text=f"the minimum of {policy.min_workers}", setting="MIN_NODES"
    )
    window = _open_window(tick) if policy.schedules else None
    if window and window.minimum > best.workers:
        best = MinimumSize(
            workers=window.minimum,
            rule="schedule",
            text=f"the scheduled floor of {window.minimum} ({window.text})",
            setting="SCHEDULES",
        )
    if policy.predictive and memory.predictive_hold_until > tick.now and memory.predictive_hold_workers > best.workers:
        best = MinimumSize(
            workers=memory.predictive_hold_workers,
            rule="prediction",
            text=f"the {memory.predictive_hold_workers} held for the busy hour",
            setting="ENABLE_PREDICTIVE_SCALING",
        )
    if best.workers > policy.max_workers:
        return MinimumSize(workers=policy.max_workers, rule=best.rule, text=best.text, setting=best.setting)
    return best


def _open_window(tick: Tick) -> ScheduleWindow | None:
    from node_fleet.domain.scaling.schedule import (
        open_window,  # with it come dates and zones: not in a start without windows
    )

    return open_window(tick.policy.schedules, tick.policy.timezone, tick.now)
