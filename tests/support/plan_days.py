"""Simulated days for the tests of the plan trials: the trials after a given series of needs."""

from __future__ import annotations

from collections.abc import Iterable

from node_fleet.domain.model.memory import PlanTrials, WorkerNeed
from node_fleet.domain.scaling.strategies.adaptive.trials import (
    START_PRICES,
    Seen,
    advance_trials,
    initial_trials,
    update_needs,
)

TICK_MINUTES = 2
WAIT_POD_MINUTES = 7 * (20 + 90) / 60
"""A worker of seven pods that is missing until it has booted."""


def seen(workers: int, *, hold: int = 0, start: int = 0, demand: float = -1.0, minutes: float = TICK_MINUTES) -> Seen:
    """A reading at which so many workers are needed, and no more are worth their price unless it is said."""
    needed = float(workers) if demand < 0 else demand
    return Seen(
        starts=(start or workers,) * len(START_PRICES),
        hold=hold or workers,
        demand=needed,
        minutes=minutes,
        wait_pod_minutes=WAIT_POD_MINUTES,
    )


def met(needs: Iterable[tuple[int, int]], *, keep: float = 1.0, tried: PlanTrials | None = None) -> PlanTrials:
    """(ticks, workers): so many ticks long, so many workers were needed."""
    found, now = tried or initial_trials(), 0
    stairs: tuple[WorkerNeed, ...] = ()
    for ticks, workers in needs:
        for _ in range(ticks):
            now += TICK_MINUTES * 60
            stairs = update_needs(stairs, now, workers)
            found = advance_trials(found, stairs, now, seen(workers), keep=keep)
    return found


def after(times: int, *, minutes: int, workers: int, keep: float = 1.0, tried: PlanTrials | None = None) -> PlanTrials:
    """So often, for two ticks, the workers were needed beside two others, and then not for so long; at last again."""
    pause = minutes // TICK_MINUTES - 1
    days = [(2, 2 + workers), (pause, 2)] * times
    return met([*days, (1, 2 + workers)], keep=keep, tried=tried)
