"""What the preset `adaptive` reaches in the back-test: on the real traces where they are, else on a made one.

Five days from the middle of each trace, nothing learned before; NODE_FLEET_WHOLE_TRACES=1 replays all of them whole.
Figures are printed, so that a run with -s shows them.
"""

from __future__ import annotations

import math
import os
import random
from pathlib import Path
from statistics import fmean

import pytest

from node_fleet.settings import Settings
from simulator.backtest.bound import clairvoyant
from simulator.backtest.compare import REFERENCES
from simulator.backtest.deployed import Deployed
from simulator.backtest.load import plan_load
from simulator.backtest.model import Capacity, Scaling
from simulator.backtest.replay import Sizer, replay
from simulator.backtest.trace import DAY_SECONDS, Trace, TraceError, from_rows, read_csv

ROOT = Path(__file__).resolve().parents[3]
FOLDER = Path(os.environ.get("NODE_FLEET_TRACES") or ROOT.parent / "shared" / "traces")
WHOLE = bool(os.environ.get("NODE_FLEET_WHOLE_TRACES"))
SETTINGS = Settings.from_mapping({"preset": "adaptive"})
COST, WAITING, CHANGES = 1.15, 45.0, 12.0
DAYS, HARDER_DAYS = 5, 7
SYNTHETIC = "made"

Figures = tuple[float, float, float]


def traces() -> list[str]:
    """Names of the real traces, or of the made one."""
    found = sorted(path.name.removesuffix(".csv.gz") for path in FOLDER.glob("*.csv.gz"))
    return found or [SYNTHETIC]


def trace_of(name: str, days: int = DAYS) -> Trace:
    """The part of the trace that is replayed."""
    if name == SYNTHETIC:
        return made_trace()
    trace = read_csv(FOLDER / f"{name}.csv.gz")
    middle = (trace.start + trace.end) // 2
    try:
        return trace if WHOLE else trace.between(middle, middle + days * DAY_SECONDS)
    except TraceError:
        return trace


def made_trace() -> Trace:
    """Five days of a daily rhythm with noise, and a spike each day."""
    dice, rows = random.Random(11), []
    for index in range(DAYS * 288):
        daily = 40 + 25 * math.sin(2 * math.pi * index / 288)
        spike = 60 if index % 288 in (100, 101, 102) else 0
        rows.append((1_780_272_000 + index * 300, daily + spike + dice.uniform(-4, 4)))
    return from_rows(rows, name=SYNTHETIC)


def reached(trace: Trace, sizer: Sizer, capacity: Capacity, scaling: Scaling) -> Figures:
    """Cost against the clairvoyant bound, avoidable pending pod-minutes a day, changes of direction a day."""
    load = plan_load(trace, capacity, scaling, least_workers=SETTINGS.min_workers, most_workers=SETTINGS.max_workers)
    measures = replay(load, capacity, sizer)
    hours = clairvoyant(load, capacity).worker_hours
    return measures.worker_hours / hours, measures.avoidable_per_day, measures.changes_per_day


def adaptive(capacity: Capacity) -> Deployed:
    return Deployed(SETTINGS.policy(), capacity)


def told(label: str, figures: Figures) -> None:
    print(f"{label:40} cost {figures[0]:.3f}  waiting {figures[1]:6.1f}  changes {figures[2]:5.1f}")


def means(found: list[Figures]) -> Figures:
    return fmean(f[0] for f in found), fmean(f[1] for f in found), fmean(f[2] for f in found)


def test_cost_waiting_and_calm_keep_their_marks_with_one_set_of_settings() -> None:
    found = []
    for name in traces():
        figures = reached(trace_of(name), adaptive(Capacity()), Capacity(), Scaling())
        told(name, figures)
        found.append(figures)
    cost, waiting, changes = means(found)
    told("mean", (cost, waiting, changes))
    assert cost <= COST
    assert waiting <= WAITING
    assert changes <= CHANGES


@pytest.mark.parametrize(
    ("capacity", "scaling"),
    [
        (Capacity(boot_seconds=180), Scaling()),
        (Capacity(), Scaling(interpolation="jump")),
        (Capacity(), Scaling(stay_up_seconds=300)),
    ],
    ids=["slow boot", "demand that jumps", "replicas that stay up"],
)
def test_it_is_cheaper_than_the_calm_and_waits_less_than_the_cheap_when_the_world_is_harder(
    capacity: Capacity, scaling: Scaling
) -> None:
    """On idle times with batch spikes, the trace on which waiting is hardest to avoid."""
    name = next((n for n in traces() if "fe7f93" in n), traces()[0])
    trace = trace_of(name, HARDER_DAYS)
    found = {"adaptive": reached(trace, adaptive(capacity), capacity, scaling)}
    for reference in ("target-tracking-50", "cluster-autoscaler", "karpenter"):
        found[reference] = reached(trace, REFERENCES[reference](), capacity, scaling)
    for policy, figures in found.items():
        told(f"{name} {policy}", figures)
    mine = found["adaptive"]
    assert mine[0] < found["cluster-autoscaler"][0]
    assert mine[0] < found["target-tracking-50"][0]
    assert mine[1] < found["karpenter"][1]
