"""The figures of the preset `adaptive` in the back-test: on a made trace, and with --all on the real ones if present.

Five days from the middle of each trace, nothing learned before; NODE_FLEET_WHOLE_TRACES=1 replays all of them whole.
Figures are printed, so that a run with -s shows them.
"""

from __future__ import annotations

import math
import os
import random
from functools import cache
from pathlib import Path
from statistics import fmean

import pytest

from backtest.bound import clairvoyant
from backtest.compare import REFERENCES
from backtest.deployed import Deployed
from backtest.load import plan_load
from backtest.model import Capacity, Scaling
from backtest.replay import Sizer, replay
from backtest.trace import DAY_SECONDS, Trace, TraceError, from_rows, read_trace
from node_fleet.settings import Settings

ROOT = Path(__file__).resolve().parents[3]
FOLDER = Path(os.environ.get("NODE_FLEET_TRACES") or ROOT.parent / "shared" / "traces")
WHOLE = bool(os.environ.get("NODE_FLEET_WHOLE_TRACES"))
SETTINGS = Settings.from_mapping({"preset": "adaptive"})
COST, WAITING, CHANGES = 1.12, 50.0, 12.0
COST_OF_PARTS = 1.2
DAYS = 5
MODELS = {
    "default": (Capacity(), Scaling()),
    "slow boot": (Capacity(boot_seconds=180), Scaling()),
    "demand that jumps": (Capacity(), Scaling(interpolation="jump")),
    "replicas that stay up": (Capacity(), Scaling(stabilization_seconds=300)),
}
REPLAYED_MODELS = list(MODELS) if WHOLE else ["default", "demand that jumps"]
SYNTHETIC = "made"
KNOWN = (
    "google2019_cell_cpu_5min",
    "nab_asg_cpu_misconfiguration",
    "nab_ec2_cpu_ac20cd",
    "nab_ec2_cpu_fe7f93",
    "nab_rds_cpu_cc0c53",
    "nab_twitter_volume_AAPL",
    "wc98_requests_1min",
)
NAMES = [name for name in KNOWN if (FOLDER / f"{name}.csv.gz").exists()]
LOADS = [
    "made trace",
    pytest.param(
        "real traces",
        marks=[
            pytest.mark.whole,
            pytest.mark.skipif(not NAMES, reason=f"no traces in {FOLDER}: name their folder in NODE_FLEET_TRACES"),
        ],
    ),
]

Figures = tuple[float, float, float]


def trace_of(name: str) -> Trace:
    """The part of the trace that is replayed."""
    if name == SYNTHETIC:
        return made_trace()
    trace = read_trace(FOLDER / f"{name}.csv.gz")
    middle = (trace.start + trace.end) // 2
    try:
        return trace if WHOLE else trace.between(middle, middle + DAYS * DAY_SECONDS)
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


def figures_of(trace: Trace, sizer: Sizer, capacity: Capacity, scaling: Scaling) -> Figures:
    """Cost against the clairvoyant bound, avoidable pending pod-minutes a day, changes of direction a day."""
    load = plan_load(trace, capacity, scaling, min_workers=SETTINGS.min_workers, max_workers=SETTINGS.max_workers)
    measures = replay(load, capacity, sizer)
    hours = clairvoyant(load, capacity).worker_hours
    return measures.worker_hours / hours, measures.avoidable_per_day, measures.changes_per_day


@cache
def mean_of(policy: str, model: str, load: str) -> Figures:
    """The mean over the traces, each with the same weight; prints the figures of every trace."""
    capacity, scaling = MODELS[model]
    found = []
    for name in [SYNTHETIC] if load == "made trace" else NAMES:
        sizer = REFERENCES[policy]() if policy in REFERENCES else Deployed(SETTINGS.policy(), capacity)
        found.append(figures_of(trace_of(name), sizer, capacity, scaling))
        report(f"{name} {policy}", found[-1])
    figures = (fmean(f[0] for f in found), fmean(f[1] for f in found), fmean(f[2] for f in found))
    report(f"mean {policy}, {model}", figures)
    return figures


def report(label: str, figures: Figures) -> None:
    print(f"{label:40} cost {figures[0]:.3f}  waiting {figures[1]:6.1f}  changes {figures[2]:5.1f}")


@pytest.mark.parametrize("load", LOADS)
def test_cost_waiting_and_changes_of_direction_meet_their_targets_with_one_set_of_settings(load: str) -> None:
    """Five days are dearer than the whole: the sawtooth's are held through, and nothing was learned before."""
    cost, waiting, changes = mean_of("adaptive", "default", load)
    assert cost <= (COST if WHOLE else COST_OF_PARTS)
    assert waiting <= WAITING
    assert changes <= CHANGES


@pytest.mark.parametrize("reference", ["cluster-autoscaler", "target-tracking-50"])
@pytest.mark.parametrize("model", REPLAYED_MODELS)
@pytest.mark.parametrize("load", LOADS)
def test_it_is_better_in_two_of_three_measures_and_hardly_worse_in_the_third(
    load: str, model: str, reference: str
) -> None:
    pairs = list(zip(mean_of("adaptive", model, load), mean_of(reference, model, load), strict=True))
    assert sum(mine < theirs for mine, theirs in pairs) >= 2
    if load == "real traces":
        (cost, peers_cost), (waiting, peers_waiting), (changes, peers_changes) = pairs
        assert cost <= 1.05 * peers_cost and waiting <= 1.05 * peers_waiting
        assert changes <= max(1.05 * peers_changes, CHANGES)


@pytest.mark.parametrize("model", REPLAYED_MODELS)
@pytest.mark.parametrize("load", LOADS)
def test_it_has_less_waiting_and_fewer_changes_than_the_cheapest(load: str, model: str) -> None:
    mine, karpenter = mean_of("adaptive", model, load), mean_of("karpenter", model, load)
    assert mine[1] < karpenter[1]
    assert mine[2] < karpenter[2]
