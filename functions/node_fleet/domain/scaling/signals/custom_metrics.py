"""Custom metrics as signals: each with its thresholds, its readings and its traffic guard.

A metric that cannot be read affects no other metric, and never counts as healthy.
"""

from __future__ import annotations

import functools
from typing import Any

from node_fleet.domain.model.custom_metric import CustomMetric
from node_fleet.domain.model.memory import Streak
from node_fleet.domain.model.snapshot import CustomReading
from node_fleet.domain.model.text import count_of
from node_fleet.domain.scaling.check import Check, Verdict
from node_fleet.domain.scaling.signals.sustained import advance_streak, is_sustained
from node_fleet.domain.scaling.tick import Tick, finite


def evaluate_custom_metrics(tick: Tick, streaks: dict[str, Streak]) -> list[tuple[Check, bool]]:
    """A check for every configured metric, and whether it allows a removal. Adds the streaks to `streaks`."""
    metrics, before = tick.policy.custom_metrics, tick.memory.since
    if not metrics:
        return []
    readings = {r.name: r for r in tick.snapshot.custom}
    if not readings and not any(name.startswith("custom:") for name in before):
        return list(_all_missing(metrics))
    return [_evaluate(tick, metric, readings.get(metric.name), streaks) for metric in metrics]


@functools.lru_cache(maxsize=64)
def _all_missing(metrics: tuple[CustomMetric, ...]) -> tuple[tuple[Check, bool], ...]:
    return tuple(_missing(metric) for metric in metrics)


def _evaluate(
    tick: Tick, metric: CustomMetric, reading: CustomReading | None, streaks: dict[str, Streak]
) -> tuple[Check, bool]:
    value = finite(reading.value) if reading else None
    low_traffic = reading is not None and metric.has_low_traffic(reading.traffic)
    high = False if low_traffic else None if value is None else value > metric.high
    streak = advance_streak(tick, streaks, f"custom:{metric.name}", high)
    if low_traffic:
        text = f"{metric.name} not evaluated: traffic under {metric.minimum_traffic:g}"
        return _check(metric, "ok", text, value=value), True
    if value is None:
        return _missing(metric)
    return _compare(tick, metric, value, streak)


@functools.lru_cache(maxsize=256)
def _missing(metric: CustomMetric) -> tuple[Check, bool]:
    ignored = metric.when_absent == "ignore"
    text = f"{metric.name} missing, {'ignored' if ignored else 'so no worker is removed'}"
    return _check(metric, "missing", text, needed=0, aside=ignored), ignored


def _compare(tick: Tick, metric: CustomMetric, value: float, streak: Streak | None) -> tuple[Check, bool]:
    text = f"{metric.name} {value:g}{metric.unit and ' ' + metric.unit}"
    if value < metric.low:
        return _check(metric, "down", f"{text} under {metric.low:g}", value=value, threshold=metric.low), True
    if value <= metric.high:
        text = f"{text} between {metric.low:g} and {metric.high:g}"
        return _check(metric, "ok", text, value=value, threshold=metric.high), False
    text, count = f"{text} over {metric.high:g}", streak.readings if streak else 0
    verdict: Verdict = "up" if is_sustained(streak, metric.readings, tick.policy) else "waiting"
    text += f" for {count_of(count, 'reading')}" if verdict == "up" else f", reading {count} of {metric.readings}"
    return _check(metric, verdict, text, value=value, threshold=metric.high, readings=count), False


def _check(metric: CustomMetric, verdict: Verdict, text: str, **values: Any) -> Check:
    values = {"needed": metric.readings, **values}
    return Check(name=f"custom:{metric.name}", verdict=verdict, text=text, setting="custom_metrics", **values)
