"""Small loads for tests of the back-test: traces by hand, and the plan of one."""

from __future__ import annotations

from collections.abc import Sequence

from backtest.load import Load, plan_load
from backtest.model import Capacity, Scaling
from backtest.trace import Trace, from_rows

START = 1_780_272_000
MINUTE, HOUR, DAY = 60, 3600, 86400
CAPACITY = Capacity()
WORKER = CAPACITY.pods_per_worker * CAPACITY.pod_cpu_milli * 0.7
"""CPU milli that one full worker serves at the target."""

BY_WORKERS = Scaling(interpolation="jump", milli_per_unit=WORKER)
"""One unit of the trace is one full worker."""


def trace_of(values: Sequence[float], *, step: int = 600, name: str = "hand") -> Trace:
    return from_rows([(START + index * step, value) for index, value in enumerate(values)], name=name)


def load_of(
    values: Sequence[float],
    *,
    step: int = 600,
    scaling: Scaling = BY_WORKERS,
    capacity: Capacity = CAPACITY,
    most: int = 10,
) -> Load:
    return plan_load(trace_of(values, step=step), capacity, scaling, min_workers=2, max_workers=most)
