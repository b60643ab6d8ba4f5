"""Metrics of the user's own: any number of them, each with its marks, its readings and its traffic guard.

One that is broken or absent says nothing, about itself or about the others; it is never taken for healthy.
"""

from __future__ import annotations

import functools
from typing import Any

from node_fleet.domain.model.custom_metric import CustomMetric
from node_fleet.domain.model.memory import Streak
from node_fleet.domain.model.snapshot import CustomReading
from node_fleet.domain.scaling.check import Check, Verdict
from node_fleet.domain.scaling.explain import counted
from node_fleet.domain.scaling.signals.sustained import advance, is_sustained
from node_fleet.domain.scaling.tick import Tick, finite


def evaluate_custom_metrics(tick: Tick, streaks: dict[str, Streak]) -> list[tuple[Check, bool]]:
    """A check for every configured metric, and whether it allows a worker to go. Updates `streaks` in place."""
    metrics, before = tick.policy.custom_metrics, tick.memory.since
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
    key = f"custom:{metric.name}"
    value = finite(reading.value) if reading else None
    quiet = reading is not None and _is_quiet(metric, reading)
    high = False if quiet else None if value is None else value > metric.high
    streak = advance(
        tick.memory.since.get(key), holds=high, at=tick.read_at, gap_seconds=tick.policy.reading_gap_seconds
    )
    if streak:
        streaks[key] = streak
    if quiet:
        text = f"{metric.name} not weighed: traffic under {metric.minimum_traffic:g}"
        return _check(metric, "ok", text, value=value), True
    if value is None:
        return _missing(metric)
    return _compare(tick, metric, value, streak)


def _is_quiet(metric: CustomMetric, reading: CustomReading) -> bool:
    if not metric.traffic_query:
        return False
    traffic = finite(reading.traffic)
    return traffic is not None and traffic < metric.minimum_traffic


@functools.lru_cache(maxsize=256)
def _missing(metric: CustomMetric) -> tuple[Check, bool]:
    ignored = metric.when_absent == "ignore"
    words = "missing, left out" if ignored else "missing, so no worker goes"
    check = Check(
        name=f"custom:{metric.name}",
        verdict="missing",
        text=f"{metric.name} {words}",
        setting="CUSTOM_METRICS",
        aside=ignored,
    )
    return check, ignored


def _compare(tick: Tick, metric: CustomMetric, value: float, streak: Streak | None) -> tuple[Check, bool]:
    shown = f"{metric.name} {value:g}{metric.unit and ' ' + metric.unit}"
    if value > metric.high:
        return _over(tick, metric, value, streak, shown), False
    low = value < metric.low
    text = f"{shown} under {metric.low:g}" if low else f"{shown} between {metric.low:g} and {metric.high:g}"
    return _check(metric, "down" if low else "ok", text, value=value, threshold=metric.low if low else metric.high), low


def _over(tick: Tick, metric: CustomMetric, value: float, streak: Streak | None, shown: str) -> Check:
    count = streak.readings if streak else 0
    verdict: Verdict = "up" if is_sustained(streak, metric.readings, tick.policy) else "waiting"
    held = f"for {counted(count, 'reading')}" if verdict == "up" else f"reading {count} of {metric.readings}"
    text = f"{shown} over {metric.high:g} {held}" if verdict == "up" else f"{shown} over {metric.high:g}, {held}"
    return _check(metric, verdict, text, value=value, threshold=metric.high, readings=count)


def _check(metric: CustomMetric, verdict: Verdict, text: str, **figures: Any) -> Check:
    return Check(
        name=f"custom:{metric.name}",
        verdict=verdict,
        text=text,
        needed=metric.readings,
        setting="CUSTOM_METRICS",
        **figures,
    )
