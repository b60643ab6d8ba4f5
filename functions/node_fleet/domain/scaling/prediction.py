"""Prediction: what the history says about the next hour, and whether the history was right often enough to be used.

An hour is compared with the same hour of the same kind of day. Load counts in worker-percent (CPU times workers), so
that a well-sized fleet of last week does not hide next week's demand. A prediction asks for one worker at most.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from node_fleet.domain.model.local_time import DAY_NAMES, zone
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import HourlyLoad
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.scaling.check import Check, Verdict
from node_fleet.domain.scaling.tick import Tick

_HOUR, _DAY = 3600, 86400


@dataclass(slots=True, kw_only=True)
class Prediction:
    """The prediction of one tick; add: whether one more worker is wanted for the next hour.

    hour_judged: start of the last hour that was predicted (epoch). hold_workers: the predicted minimum until
    hold_until (epoch).
    """

    check: Check | None = None
    add: bool = False
    hour_judged: int = 0
    hold_until: int = 0
    hold_workers: int = 0


@value_class
class Forecast:
    """The expected load of one hour, and how good the method was over the last week.

    load: worker-percent when per_worker, else percent. abstains: why there is no forecast, empty when there is one.
    error, naive_error: mean absolute error of this method and of "same as now". calls, hits: hours of the last week
    that it predicted to be over the threshold, and those that were.
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
        """The expected mean CPU in percent when that many workers share the load."""
        return self.load / max(1, workers) if self.per_worker else self.load


def predict(tick: Tick) -> Prediction:
    """Predict the next hour once, from predictive_minute on and on live data only; else the stored prediction."""
    policy, memory = tick.policy, tick.memory
    stored = Prediction(
        hour_judged=memory.predicted_hour,
        hold_until=memory.predictive_hold_until,
        hold_workers=memory.predictive_hold_workers,
    )
    hour = tick.now - tick.now % _HOUR + _HOUR
    if not is_prediction_due(tick.now, policy):
        return stored
    if memory.predicted_hour == hour or not tick.live or not tick.usable:
        return stored
    return _predict_hour(tick, hour, stored)


def is_prediction_due(now: int, policy: Policy) -> bool:
    """Whether a tick at that time predicts, and so needs the history.

    The hours of the history begin with those of UTC, in zones at half hours too; only their buckets are local.
    """
    return policy.predictive and now % _HOUR // 60 >= policy.predictive_minute


def _predict_hour(tick: Tick, hour: int, stored: Prediction) -> Prediction:
    expected = forecast(tick.snapshot.hourly, hour, tick.policy)
    policy, have = tick.policy, tick.have
    if expected.abstains:
        check = _check("missing", f"no prediction: {expected.abstains}", None, policy)
        return replace(stored, check=check, hour_judged=hour)
    percent = expected.percent_on(have)
    text = f"the next hour is usually at {percent:.1f} % CPU on {have} workers"
    if percent > policy.cpu_up_percent:
        check = _check("up", f"{text}, over {policy.cpu_up_percent:g} %", percent, policy)
        hold = min(have + 1, policy.max_workers)
        return Prediction(check=check, add=True, hour_judged=hour, hold_until=hour + _HOUR, hold_workers=hold)
    still_needed = stored.hold_until > tick.now and expected.percent_on(have - 1) > policy.cpu_up_percent
    return replace(
        stored,
        check=_check("ok", text, percent, policy),
        hour_judged=hour,
        hold_until=hour + _HOUR if still_needed else stored.hold_until,
    )


def _check(verdict: Verdict, text: str, value: float | None, policy: Policy) -> Check:
    return Check(
        name="prediction",
        verdict=verdict,
        text=text,
        value=value,
        threshold=policy.cpu_up_percent,
        setting="predictive",
    )


def forecast(hourly: Sequence[HourlyLoad], hour_epoch: int, policy: Policy) -> Forecast:
    """The median load of comparable hours, if it was closer than "same as now" over the last week.

    The order of `hourly` does not matter. Hours at or after hour_epoch, and hours with few readings, are left out.
    """
    least = max(1, _HOUR // policy.interval_seconds // 2)
    past = sorted((h for h in hourly if h.hour_epoch < hour_epoch and h.readings >= least), key=lambda h: h.hour_epoch)
    days = (hour_epoch - past[0].hour_epoch) / _DAY if past else 0.0
    if days < policy.predictive_min_days:
        text = f"{days:.1f} days of history, {policy.predictive_min_days} are needed"
        return Forecast(hour_epoch=hour_epoch, abstains=text)
    return _score(past, hour_epoch, policy)


def _score(past: list[HourlyLoad], hour_epoch: int, policy: Policy) -> Forecast:
    """Replay the past: what the method would have predicted for each hour of the last week, and what the load was."""
    per_worker = all(h.workers > 0 for h in past)
    buckets: dict[tuple[bool, int], list[float]] = {}
    error = naive_error = 0.0
    scored = calls = hits = 0
    before: HourlyLoad | None = None
    for hour in past:
        load = _load(hour, per_worker)
        seen = buckets.setdefault(_bucket(hour.hour_epoch, policy.timezone, policy.weekend_days), [])
        enough = len(seen) >= policy.predictive_min_samples and hour.hour_epoch >= hour_epoch - 7 * _DAY
        if enough and before and hour.hour_epoch - before.hour_epoch == _HOUR:
            predicted, scored = _median(seen), scored + 1
            error += abs(predicted - load)
            naive_error += abs(_load(before, per_worker) - load)
            threshold = policy.cpu_up_percent * (before.workers if per_worker else 1)
            calls, hits = calls + (predicted > threshold), hits + (predicted > threshold and load > threshold)
        if before is None or _local_hour(before.hour_epoch, policy.timezone) != _local_hour(
            hour.hour_epoch, policy.timezone
        ):
            bisect.insort(seen, load)
        before = hour
    like = buckets.get(_bucket(hour_epoch, policy.timezone, policy.weekend_days), [])
    result = Forecast(
        hour_epoch=hour_epoch,
        load=_median(like) if like else 0.0,
        per_worker=per_worker,
        error=error / scored if scored else 0.0,
        naive_error=naive_error / scored if scored else 0.0,
        calls=calls,
        hits=hits,
    )
    why = _why_not_used(result, len(like), scored, policy)
    return replace(result, load=0.0, per_worker=False, abstains=why) if why else result


def _why_not_used(f: Forecast, samples: int, scored: int, policy: Policy) -> str:
    if samples < policy.predictive_min_samples:
        return f"{samples} comparable hours, {policy.predictive_min_samples} are needed"
    if scored < 24:
        return f"only {scored} hours of the last week could be checked, 24 are needed"
    if f.error >= f.naive_error:
        return f'last week it was not better than "same as now" (error {f.error:.1f} against {f.naive_error:.1f})'
    if f.hits * 2 < f.calls:
        return f"{f.calls - f.hits} of its {f.calls} predictions last week were false alarms"
    return ""


def _load(hour: HourlyLoad, per_worker: bool) -> float:
    return hour.cpu_percent * hour.workers if per_worker else hour.cpu_percent


def _median(ordered: list[float]) -> float:
    """The median of sorted values; the statistics module would slow every start."""
    half, odd = divmod(len(ordered), 2)
    return ordered[half] if odd else (ordered[half - 1] + ordered[half]) / 2


@functools.lru_cache(maxsize=16384)
def _bucket(hour_epoch: int, timezone: str, weekend: tuple[str, ...]) -> tuple[bool, int]:
    """(whether the day is in the weekend, hour of the day), both local."""
    local = _local_hour(hour_epoch, timezone)
    return DAY_NAMES[local.weekday()] in weekend, local.hour


@functools.lru_cache(maxsize=16384)
def _local_hour(hour_epoch: int, timezone: str) -> datetime:
    """The hour as a clock on the wall shows it: at the end of summer time two hours in a row are the same."""
    return datetime.fromtimestamp(hour_epoch, zone(timezone)).replace(tzinfo=None, fold=0)
