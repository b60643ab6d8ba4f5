"""What history says of the coming hour, and whether history has earned to be believed.

Hours are compared with the same hour of the same kind of day; load counts in worker-percent, so that a fleet that was
sized well last week does not hide next week's demand. May only ever ask for one worker more.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from node_fleet.domain.model.policy import DAY_NAMES, Policy
from node_fleet.domain.model.snapshot import HourlyLoad
from node_fleet.domain.scaling.check import Check, Verdict
from node_fleet.domain.scaling.schedule import zone
from node_fleet.domain.scaling.tick import Tick

_HOUR, _DAY = 3600, 86400


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The answer for this tick: whether one worker more is wanted, how long how many are held, and the check."""

    check: Check | None = None
    add: bool = False
    hour_judged: int = 0
    hold_until: int = 0
    hold_workers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What is expected of one hour, in the unit of the history, and how the method did over the last week.

    abstains: why no forecast is made, empty when one is. error and naive_error: mean absolute error of this method
    and of "same as now". calls and hits: hours of the last week it would have called busy, and those that were.
    """

    hour_epoch: int
    load: float = 0.0
    per_worker: bool = False
    abstains: str = ""
    error: float = 0.0
    naive_error: float = 0.0
    calls: int = 0
    hits: int = 0

    def percent_on(self, workers: int) -> float:
        """The expected mean CPU when that many workers share the load."""
        return self.load / max(1, workers) if self.per_worker else self.load


def predict(tick: Tick) -> Prediction:
    """Judge the coming hour, once, from the configured minute on; only on live data."""
    policy, memory = tick.policy, tick.memory
    kept = Prediction(
        hour_judged=memory.predicted_hour,
        hold_until=memory.predictive_hold_until,
        hold_workers=memory.predictive_hold_workers,
    )
    coming = tick.now - tick.now % _HOUR + _HOUR
    if not policy.predictive or (tick.now % _HOUR) // 60 < policy.predictive_minute:
        return kept
    if memory.predicted_hour == coming or not tick.live or not tick.usable:
        return kept
    return predict_hour(tick, coming, kept)


def predict_hour(tick: Tick, coming: int, kept: Prediction) -> Prediction:
    """What the hour that starts at `coming` asks for; of `kept` stays what it does not change."""
    expected = forecast(tick.snapshot.hourly, coming, tick.policy)
    policy, have = tick.policy, tick.have
    if expected.abstains:
        return Prediction(
            check=_check("missing", f"no prediction: {expected.abstains}", None, policy),
            hour_judged=coming,
            hold_until=kept.hold_until,
            hold_workers=kept.hold_workers,
        )
    percent = expected.percent_on(have)
    words = f"the coming hour is usually at {percent:.1f} % CPU on {have} workers"
    if percent > policy.cpu_up_percent:
        check = _check("up", f"{words}, over {policy.cpu_up_percent:g} %", percent, policy)
        hold = min(have + 1, policy.max_workers)
        return Prediction(check=check, add=True, hour_judged=coming, hold_until=coming + _HOUR, hold_workers=hold)
    still_held = kept.hold_until > tick.now and expected.percent_on(have - 1) > policy.cpu_up_percent
    return Prediction(
        check=_check("ok", words, percent, policy),
        hour_judged=coming,
        hold_until=coming + _HOUR if still_held else kept.hold_until,
        hold_workers=kept.hold_workers,
    )


def _check(verdict: Verdict, text: str, value: float | None, policy: Policy) -> Check:
    return Check(
        name="prediction",
        verdict=verdict,
        text=text,
        value=value,
        threshold=policy.cpu_up_percent,
        setting="ENABLE_PREDICTIVE_SCALING",
    )


def forecast(hourly: Sequence[HourlyLoad], hour_epoch: int, policy: Policy) -> Forecast:
    """The robust average of the hours like this one, if the method beat "same as now" over the last week.

    The order of `hourly` does not matter; hours at or after hour_epoch, and hours with few readings, are left out.
    """
    least = max(1, _HOUR // policy.interval_seconds // 2)
    past = sorted((h for h in hourly if h.hour_epoch < hour_epoch and h.readings >= least), key=lambda h: h.hour_epoch)
    days = (hour_epoch - past[0].hour_epoch) / _DAY if past else 0.0
    if days < policy.predictive_min_days:
        return Forecast(
            hour_epoch=hour_epoch,
            abstains=f"{days:.1f} days of history, {policy.predictive_min_days} are needed",
        )
    return _scored(past, hour_epoch, policy)


def _scored(past: list[HourlyLoad], hour_epoch: int, policy: Policy) -> Forecast:
    """Walk through the past: what the method would have said of each hour of the last week, and what came."""
    per_worker = all(h.workers > 0 for h in past)
    buckets: dict[tuple[bool, int], list[float]] = {}
    error = naive_error = 0.0
    scored = calls = hits = 0
    before: HourlyLoad | None = None
    for hour in past:
        load = _load(hour, per_worker)
        seen = buckets.setdefault(_bucket(hour.hour_epoch, policy.timezone, policy.weekend_days), [])
        follows = before is not None and hour.hour_epoch - before.hour_epoch == _HOUR
        if (
            before
            and follows
            and len(seen) >= policy.predictive_min_samples
            and hour.hour_epoch >= hour_epoch - 7 * _DAY
        ):
            said, scored = _middle(seen), scored + 1
            error += abs(said - load)
            naive_error += abs(_load(before, per_worker) - load)
            mark = policy.cpu_up_percent * (before.workers if per_worker else 1)
            calls, hits = calls + (said > mark), hits + (said > mark and load > mark)
        bisect.insort(seen, load)
        before = hour
    like = buckets.get(_bucket(hour_epoch, policy.timezone, policy.weekend_days), [])
    result = Forecast(
        hour_epoch=hour_epoch,
        load=_middle(like) if like else 0.0,
        per_worker=per_worker,
        error=error / scored if scored else 0.0,
        naive_error=naive_error / scored if scored else 0.0,
        calls=calls,
        hits=hits,
    )
    return _believed(result, len(like), scored, policy)


def _believed(f: Forecast, samples: int, scored: int, policy: Policy) -> Forecast:
    why = ""
    if samples < policy.predictive_min_samples:
        why = f"{samples} hours like this one, {policy.predictive_min_samples} are needed"
    elif scored < 24:
        why = f"only {scored} hours of the last week could be checked, 24 are needed"
    elif f.error >= f.naive_error:
        why = f'it did not beat "same as now" last week (error {f.error:.1f} against {f.naive_error:.1f})'
    elif f.calls and f.hits * 2 < f.calls:
        why = f"{f.calls - f.hits} of its {f.calls} calls last week were false alarms"
    if not why:
        return f
    return Forecast(
        hour_epoch=f.hour_epoch,
        abstains=why,
        error=f.error,
        naive_error=f.naive_error,
        calls=f.calls,
        hits=f.hits,
    )


def _load(hour: HourlyLoad, per_worker: bool) -> float:
    return hour.cpu_percent * hour.workers if per_worker else hour.cpu_percent


def _middle(ordered: list[float]) -> float:
    """The median. (The statistics module is slow to import, and this runs at every start.)"""
    half, odd = divmod(len(ordered), 2)
    return ordered[half] if odd else (ordered[half - 1] + ordered[half]) / 2


@functools.lru_cache(maxsize=16384)
def _bucket(hour_epoch: int, timezone: str, weekend: tuple[str, ...]) -> tuple[bool, int]:
    local = datetime.fromtimestamp(hour_epoch, zone(timezone))
    return DAY_NAMES[local.weekday()] in weekend, local.hour
