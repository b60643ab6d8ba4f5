"""Load curves: how many requests per second an application gets at each second of a scenario.

Pure functions of the seconds since the start; the simulated cluster samples them once a load step.
"""

from __future__ import annotations

import csv
import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

Curve = Callable[[float], float]
Point = tuple[float, float]

DAY_SECONDS = 86_400.0


class CurveError(ValueError):
    """A load curve that cannot be read: what is wrong with which part of it."""


def constant(rate: float) -> Curve:
    return lambda _seconds: rate


def steps(points: Sequence[Point]) -> Curve:
    """The rate of the last point reached; the first point's before it."""
    at = _ordered(points)
    return lambda seconds: points[max(0, bisect_right(at, seconds) - 1)][1]


def linear(points: Sequence[Point]) -> Curve:
    """Straight lines between the points, level outside them."""
    at = _ordered(points)

    def rate(seconds: float) -> float:
        place = bisect_right(at, seconds)
        if place == 0 or place == len(points):
            return points[min(place, len(points) - 1)][1]
        (left, low), (right, high) = points[place - 1], points[place]
        return low + (high - low) * (seconds - left) / (right - left)

    return rate


def diurnal(low: float, high: float, peak_hour: float = 14.0, start_hour: float = 0.0) -> Curve:
    """A cosine day: `high` at peak_hour, `low` twelve hours away. start_hour is the scenario's first hour."""

    def rate(seconds: float) -> float:
        hour = start_hour + seconds / 3600
        share = (1 + math.cos((hour - peak_hour) / 24 * 2 * math.pi)) / 2
        return low + (high - low) * share

    return rate


def flash_sale(
    *,
    base: float,
    peak: float,
    start_seconds: float,
    ramp_seconds: float,
    hold_seconds: float,
    fall_seconds: float,
) -> Curve:
    """The base rate, a ramp up, the peak, a ramp down, and the base rate."""
    up, top = start_seconds, start_seconds + ramp_seconds
    down, end = top + hold_seconds, top + hold_seconds + fall_seconds
    return linear([(up, base), (top, peak), (down, peak), (end, base)])


def series(path: Path, *, scale: float = 1.0, step_seconds: float = 60.0) -> Curve:
    """A CSV's last column, one row per step, without a header row. The last value holds after the end."""
    values = [float(row[-1]) * scale for row in _rows(path)]
    if not values:
        raise CurveError(f"{path}: no row with a number in its last column")
    return lambda seconds: values[min(len(values) - 1, max(0, int(seconds // step_seconds)))]


def _rows(path: Path) -> list[list[str]]:
    with path.open(newline="") as lines:
        return [row for row in csv.reader(lines) if row and _is_number(row[-1])]


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _ordered(points: Sequence[Point]) -> list[float]:
    if not points:
        raise CurveError("a curve needs at least one point")
    at = [point[0] for point in points]
    if any(later <= earlier for earlier, later in pairwise(at)):
        raise CurveError(f"the times of a curve's points must grow, got {at}")
    return at
