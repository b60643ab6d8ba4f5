"""Scores prediction on load traces, hour by hour, beside "same as now" and the plain mean of the last seven days.

Run as a program it prints the table of docs/decision-rules.md. Traces are read where NODE_FLEET_TRACES or the shared
directory has them; they never become part of the repository.
"""

from __future__ import annotations

import csv
import gzip
import math
import os
import random
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, quantiles

from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import HourlyLoad
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.scaling.prediction import forecast

HOUR, DAY = 3600, 86400
HISTORY_DAYS = 14
POLICY = Policy(predictive=True, interval_seconds=120)
ROOT = Path(__file__).resolve().parents[2]


@value_class
class Score:
    """One method: hours called busy that were so and that were not, and rises from calm to busy that it saw coming."""

    hits: int
    false_alarms: int
    rises: int
    abstained: int = 0

    @property
    def worker_hours(self) -> float:
        """One worker for the called hour and the ten minutes before it."""
        return round((self.hits + self.false_alarms) * 70 / 60, 1)


@value_class
class Scores:
    """All methods on one trace: hours judged, hours over the mark, rises, and a score for each method."""

    name: str
    hours: int
    busy: int
    rises: int
    ours: Score
    same_as_now: Score
    plain_mean: Score


def trace_directory() -> Path | None:
    """Where the traces are, if they are anywhere."""
    named = os.environ.get("NODE_FLEET_TRACES")
    places = [Path(named)] if named else [ROOT.parent / "shared" / "traces"]
    return next((place for place in places if place.is_dir()), None)


def traces() -> dict[str, Path]:
    """Trace name -> file."""
    directory = trace_directory()
    return {path.name.removesuffix(".csv.gz"): path for path in sorted(directory.glob("*.csv.gz"))} if directory else {}


def hourly(path: Path) -> list[HourlyLoad]:
    """Hourly means of a trace; an hour with a gap of more than half is left out by its count of readings."""
    sums: dict[int, list[float]] = defaultdict(list)
    for at, value in _rows(path):
        sums[at - at % HOUR].append(value)
    most = max(len(values) for values in sums.values())
    return [
        HourlyLoad(hour_epoch=hour, cpu_percent=fmean(values), readings=30 * len(values) // most)
        for hour, values in sorted(sums.items())
    ]


def as_percent(loads: list[HourlyLoad], busy_share: float = 0.15) -> list[HourlyLoad]:
    """Demand in percent of a stated capacity: so much that the busiest 15 % of the hours are over the mark of 70 %."""
    cuts = quantiles([h.cpu_percent for h in loads], n=100)
    mark = cuts[round(100 * (1 - busy_share)) - 1] or 1.0
    scale = POLICY.cpu_up_percent / mark
    return [HourlyLoad(hour_epoch=h.hour_epoch, cpu_percent=h.cpu_percent * scale, readings=h.readings) for h in loads]


def diurnal(days: int = 35, seed: int = 3) -> list[HourlyLoad]:
    """A made-up shop with a weekday rhythm and noise, for machines without the traces."""
    dice, start = random.Random(seed), 1_789_948_800
    found = []
    for hour in range(start, start + days * DAY, HOUR):
        weekday, of_day = (hour // DAY + 3) % 7, hour % DAY // HOUR
        wave = 45 + 35 * math.sin((of_day - 8) / 24 * 2 * math.pi) * (0.5 if weekday >= 5 else 1.0)
        load = min(100.0, max(0.0, wave + dice.gauss(0, 4)))
        found.append(HourlyLoad(hour_epoch=hour, cpu_percent=load, readings=30))
    return found


def score(name: str, loads: list[HourlyLoad]) -> Scores:
    """Judge every hour from the eighth day on that follows another hour."""
    mark = POLICY.cpu_up_percent
    by_hour = {h.hour_epoch: h.cpu_percent for h in loads}
    hours = [*by_hour]
    begin = loads[0].hour_epoch + 7 * DAY
    judged = [h for h in loads if h.hour_epoch >= begin and h.hour_epoch - HOUR in by_hour]
    calls: dict[str, list[HourlyLoad]] = {"ours": [], "now": [], "mean": []}
    abstained = 0
    for hour in judged:
        first, last = (bisect_left(hours, at) for at in (hour.hour_epoch - HISTORY_DAYS * DAY, hour.hour_epoch))
        past = loads[first:last]
        said = forecast(past, hour.hour_epoch, POLICY)
        abstained += bool(said.abstains)
        for method, called in (
            ("ours", not said.abstains and said.load > mark),
            ("now", by_hour[hour.hour_epoch - HOUR] > mark),
            ("mean", _plain_mean(past, hour.hour_epoch) > mark),
        ):
            if called:
                calls[method].append(hour)
    scored = {method: _score(found, by_hour, mark) for method, found in calls.items()}
    ours = Score(
        hits=scored["ours"].hits,
        false_alarms=scored["ours"].false_alarms,
        rises=scored["ours"].rises,
        abstained=abstained,
    )
    busy = [h for h in judged if h.cpu_percent > mark]
    return Scores(
        name=name,
        hours=len(judged),
        busy=len(busy),
        rises=sum(by_hour[h.hour_epoch - HOUR] <= mark for h in busy),
        ours=ours,
        same_as_now=scored["now"],
        plain_mean=scored["mean"],
    )


def _score(called: list[HourlyLoad], by_hour: dict[int, float], mark: float) -> Score:
    hits = [h for h in called if h.cpu_percent > mark]
    rises = sum(by_hour[h.hour_epoch - HOUR] <= mark for h in hits)
    return Score(hits=len(hits), false_alarms=len(called) - len(hits), rises=rises)


def _plain_mean(past: list[HourlyLoad], hour_epoch: int) -> float:
    """The mean of that hour of day over the last seven days."""
    alike = [
        h.cpu_percent for h in past if h.hour_epoch >= hour_epoch - 7 * DAY and (hour_epoch - h.hour_epoch) % DAY == 0
    ]
    return fmean(alike) if alike else 0.0


def _rows(path: Path) -> Iterator[tuple[int, float]]:
    with gzip.open(path, "rt", newline="") as file:
        rows = csv.reader(file)
        next(rows)
        for stamp, value in rows:
            at = datetime.fromisoformat(stamp.replace("Z", "+00:00"))
            yield int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()), float(value)


def all_scores() -> list[Scores]:
    """Every trace there is, and the made-up series."""
    found = [score(name, as_percent(hourly(path))) for name, path in traces().items()]
    return [*found, score("made-up shop", diurnal())]


COLUMNS: dict[str, Callable[[Scores], object]] = {
    "trace": lambda s: s.name,
    "hours": lambda s: s.hours,
    "busy": lambda s: s.busy,
    "rises": lambda s: s.rises,
    "abstained": lambda s: s.ours.abstained,
    "ours: hits / false / rises / worker-hours": lambda s: _cell(s.ours),
    "same as now": lambda s: _cell(s.same_as_now),
    "plain 7-day mean": lambda s: _cell(s.plain_mean),
}


def _cell(one: Score) -> str:
    return f"{one.hits} / {one.false_alarms} / {one.rises} / {one.worker_hours:g}"


def table(scores: list[Scores]) -> str:
    """A Markdown table of all scores."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    lines += ["| " + " | ".join(str(column(s)) for column in COLUMNS.values()) + " |" for s in scores]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(all_scores()))
