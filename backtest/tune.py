"""Searches, on one part of a trace, for the settings with the lowest cost within a limit of waiting.

The result is measured on the other part, which the search does not use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from backtest.compare import Assumptions, study
from backtest.measures import Measures
from backtest.trace import Trace
from node_fleet.domain.model.errors import InvalidSettingsError
from node_fleet.domain.model.value_class import value_class
from node_fleet.settings import Settings

SEARCHED: dict[str, dict[str, Sequence[Any]]] = {
    "thresholds": {
        "idle_seconds": (0, 300, 1200, 2400),
        "cpu_down_percent": (20.0, 40.0, 50.0, 55.0),
        "cpu_up_percent": (45.0, 55.0, 60.0),
        "step_urgent": (3, 4, 6),
        "pending_urgent": (0, 2),
        "cooldown_down_seconds": (120, 300, 1200),
        "projection_margin_percent": (2.0, 5.0, 20.0),
        "max_targets": (2, 3),
        "step_normal": (2,),
        "cooldown_up_seconds": (0, 120),
    },
    "adaptive": {
        "wait_cost": (1.0, 2.0, 5.0, 8.0),
        "change_cost": (10.0, 17.5, 35.0, 50.0),
        "learning_days": (1.0, 7.0),
        "max_targets": (1, 2, 5),
    },
}
"""Strategy -> the settings that the search may change and the values it tries, those with the largest effect first."""


@value_class
class Trial:
    """One configuration on the searched part."""

    changes: Mapping[str, Any]
    worker_hours: float
    waiting_per_day: float

    def is_better_than(self, other: Trial, limit: float) -> bool:
        """True for a cheaper trial within the limit; while neither is within the limit, for one with less waiting."""
        waiting, others_waiting = max(self.waiting_per_day, limit), max(other.waiting_per_day, limit)
        return (waiting, self.worker_hours) < (others_waiting, other.worker_hours)


@value_class
class Tuned:
    """The result of the search. before and after are measured on the part that was not searched."""

    changes: Mapping[str, Any]
    limit_per_day: float
    searched: Trial
    tries: int
    before: Measures
    after: Measures

    @property
    def within_limit(self) -> bool:
        """True when the limit holds on the part that was not searched."""
        return waiting_per_day(self.after) <= self.limit_per_day


def tune(
    trace: Trace,
    raw: Mapping[str, Any],
    assumptions: Assumptions,
    *,
    limit_per_day: float,
    share: float = 0.5,
    max_tries: int = 60,
) -> Tuned:
    """Change one setting at a time and keep improvements, until a round has none or max_tries is reached.

    raw: the initial settings, by field name. share: the searched share of the trace.
    """
    stated = assumptions.with_unit_of(trace)
    middle = int(trace.start + (trace.end - trace.start) * share)
    searched, other = trace.between(trace.start, middle), trace.between(middle, trace.end + 1)
    search = _Search(searched, raw, stated, limit_per_day, max_tries)
    best = search.run()
    return Tuned(
        changes=best.changes,
        limit_per_day=limit_per_day,
        searched=best,
        tries=search.tries,
        before=_measured(other, raw, stated),
        after=_measured(other, {**raw, **best.changes}, stated),
    )


def waiting_per_day(measures: Measures) -> float:
    """All pending pod-minutes a day, avoidable or not; the limit applies to them."""
    return measures.pending_pod_minutes / measures.days


class _Search:
    """Changes one setting after the other, in rounds, until a whole round has no improvement."""

    def __init__(
        self, trace: Trace, raw: Mapping[str, Any], assumptions: Assumptions, limit: float, max_tries: int
    ) -> None:
        self._trace, self._raw, self._assumptions = trace, raw, assumptions
        self._limit, self._most = limit, max_tries
        self.tries = 0

    def run(self) -> Trial:
        best = self._try({})
        before = None
        while best is not before and self.tries < self._most:
            before = best
            for name, values in _searched(Settings.from_mapping(self._raw)).items():
                best = self._along(name, values, best)
        return best

    def _along(self, name: str, values: Sequence[Any], best: Trial) -> Trial:
        """The best value of one setting, with the other settings of `best`."""
        for value in values:
            changes = {**best.changes, name: value}
            if self.tries >= self._most or changes == best.changes or not _valid({**self._raw, **changes}):
                continue
            tried = self._try(changes)
            best = tried if tried.is_better_than(best, self._limit) else best
        return best

    def _try(self, changes: Mapping[str, Any]) -> Trial:
        self.tries += 1
        found = _measured(self._trace, {**self._raw, **changes}, self._assumptions)
        return Trial(changes=changes, worker_hours=found.worker_hours, waiting_per_day=waiting_per_day(found))


def _searched(settings: Settings) -> Mapping[str, Sequence[Any]]:
    """The settings of this strategy with the values to try, without the present values."""
    names = SEARCHED.get(settings.policy().strategy, {})
    return {name: [v for v in values if v != getattr(settings, name)] for name, values in names.items()}


def _valid(raw: Mapping[str, Any]) -> bool:
    try:
        Settings.from_mapping(raw)
    except InvalidSettingsError:
        return False
    return True


def _measured(trace: Trace, raw: Mapping[str, Any], assumptions: Assumptions) -> Measures:
    return study(trace, Settings.from_mapping(raw), assumptions).configured
