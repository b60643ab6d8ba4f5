"""Simulated days for the tests of the scale-down delay: the trials after a given series of needs."""

from __future__ import annotations

from collections.abc import Iterable

from node_fleet.domain.model.memory import DelayTrials, WorkerNeed
from node_fleet.domain.scaling.strategies.adaptive.scale_down_delay import (
    advance_trials,
    initial_trials,
    update_needs,
)

TICK_MINUTES = 2


def met(needs: Iterable[tuple[int, int]], *, keep: float = 1.0, tried: DelayTrials | None = None) -> DelayTrials:
    """(ticks, workers): so many ticks long, so many workers were needed."""
    found, now = tried or initial_trials(), 0
    stairs: tuple[WorkerNeed, ...] = ()
    for ticks, workers in needs:
        for _ in range(ticks):
            now += TICK_MINUTES * 60
            stairs = update_needs(stairs, now, workers)
            found = advance_trials(found, stairs, now, start=workers, hold=workers, minutes=TICK_MINUTES, keep=keep)
    return found


def after(
    times: int, *, minutes: int, workers: int, keep: float = 1.0, tried: DelayTrials | None = None
) -> DelayTrials:
    """So often, for two ticks, the workers were needed beside two others, and then not for so long; at last again."""
    pause = minutes // TICK_MINUTES - 1
    days = [(2, 2 + workers), (pause, 2)] * times
    return met([*days, (1, 2 + workers)], keep=keep, tried=tried)
