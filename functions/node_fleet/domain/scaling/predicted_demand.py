"""What prediction answers for one tick, and whether it is asked at all: a start without it does not load it."""

from __future__ import annotations

from dataclasses import dataclass

from node_fleet.domain.scaling.check import Check
from node_fleet.domain.scaling.tick import Tick

_HOUR = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedDemand:
    """The answer for this tick: whether one worker more is wanted, how long how many are held, and the check."""

    check: Check | None = None
    add: bool = False
    hour_judged: int = 0
    hold_until: int = 0
    hold_workers: int = 0


def foresee(view: Tick) -> PredictedDemand:
    """Judge the coming hour, once, from the configured minute on; only on live data."""
    policy, memory = view.policy, view.memory
    kept = PredictedDemand(
        hour_judged=memory.predicted_hour,
        hold_until=memory.predictive_hold_until,
        hold_workers=memory.predictive_hold_workers,
    )
    coming = view.now - view.now % _HOUR + _HOUR
    if not policy.predictive or (view.now % _HOUR) // 60 < policy.predictive_minute:
        return kept
    if memory.predicted_hour == coming or not view.live or not view.usable:
        return kept
    from node_fleet.domain.scaling.prediction import judge

    return judge(view, coming, kept)
