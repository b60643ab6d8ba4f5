"""Generated loads for a judgement on more than the recorded traces: families with random periods, sizes and noise.

The same seed always gives the same loads.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from statistics import fmean

from backtest.trace import Trace, from_rows

DAYS = 7
START = 1_780_272_000
MINUTES = DAYS * 1440

Values = Iterator[float]


def generated_traces(seeds: range, *, minutes: int = 1) -> Iterator[Trace]:
    """One trace of DAYS days for each family and seed, with readings that are means of so many minutes."""
    for name, family in FAMILIES.items():
        for seed in seeds:
            values = [max(0.0, value) for value in family(random.Random(f"{name} {seed}"))]
            means = [fmean(values[at : at + minutes]) for at in range(0, len(values), minutes)]
            rows = [(START + index * minutes * 60, mean) for index, mean in enumerate(means)]
            yield from_rows(rows, name=f"{name}_{seed}")


def _daily(chance: random.Random) -> Values:
    """Day and night, with noise that lasts some minutes."""
    depth, noise, drift = chance.uniform(0.3, 0.9), chance.uniform(2, 8), 0.0
    for minute in range(MINUTES):
        drift = 0.9 * drift + chance.gauss(0, noise) * math.sqrt(1 - 0.9**2)
        yield 50 * (1 - depth * math.cos(minute / 1440 * 2 * math.pi)) + drift


def _crowds(chance: random.Random) -> Values:
    """A weak daily rhythm with flash crowds that arrive within minutes and fade."""
    each_day, fade, crowd = chance.uniform(2, 12), chance.uniform(10, 60), 0.0
    for minute in range(MINUTES):
        crowd *= math.exp(-1 / fade)
        if chance.random() < each_day / 1440:
            crowd += chance.uniform(30, 120)
        yield 30 - 10 * math.cos(minute / 1440 * 2 * math.pi) + crowd + chance.gauss(0, 2)


def _sawtooth(chance: random.Random) -> Values:
    """Rises slowly and falls at once, again and again, each time of another length and height."""
    period, high, length, top = chance.uniform(30, 180), chance.uniform(60, 100), 0.0, 0.0
    since = 0
    for minute in range(MINUTES):
        if minute - since >= length:
            since, length, top = minute, period * chance.uniform(0.7, 1.3), high * chance.uniform(0.6, 1.0)
        yield 15 + (top - 15) * (minute - since) / max(length, 1) + chance.gauss(0, 2)


def _batch(chance: random.Random) -> Values:
    """Jobs that switch on and off, of random length and pause."""
    work, pause, until, value = chance.uniform(10, 60), chance.uniform(20, 120), 0.0, 10.0
    is_on = True
    for minute in range(MINUTES):
        if minute >= until:
            is_on = not is_on
            until = minute + chance.expovariate(1 / (work if is_on else pause)) + 3
            value = chance.uniform(40, 100) if is_on else chance.uniform(8, 20)
        yield value + chance.gauss(0, 2)


def _growth(chance: random.Random) -> Values:
    """Slow growth over the week with a daily rhythm."""
    factor, depth = chance.uniform(1.5, 5), chance.uniform(0.1, 0.5)
    for minute in range(MINUTES):
        grown = 1 + (factor - 1) * minute / MINUTES
        yield 20 * grown * (1 - depth * math.cos(minute / 1440 * 2 * math.pi)) + chance.gauss(0, 1.5)


def _shifts(chance: random.Random) -> Values:
    """Levels that hold for hours and change at once."""
    hours, until, level = chance.uniform(2, 12), 0.0, 0.0
    for minute in range(MINUTES):
        if minute >= until:
            until, level = minute + 60 * chance.expovariate(1 / hours), chance.uniform(15, 100)
        yield level * (1 + chance.gauss(0, 0.06))


FAMILIES: dict[str, Callable[[random.Random], Values]] = {
    "daily": _daily,
    "crowds": _crowds,
    "sawtooth": _sawtooth,
    "batch": _batch,
    "growth": _growth,
    "shifts": _shifts,
}
