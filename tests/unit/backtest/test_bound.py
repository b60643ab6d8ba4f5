"""The clairvoyant lower bound: exact on small loads, and never above a policy without avoidable waiting."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backtest.bound import clairvoyant
from backtest.deployed import Deployed
from backtest.load import Load
from backtest.measures import Measures
from backtest.model import STEP_SECONDS, Capacity
from backtest.references import ClusterAutoscaler, FixedFleet, Karpenter
from backtest.replay import replay
from node_fleet.settings import Settings
from node_fleet.settings.presets import PRESETS
from tests.support.backtest_loads import CAPACITY, HOUR, load_of
from tests.support.tiers import examples

RESTART = CAPACITY.boot_seconds + CAPACITY.drain_seconds


def hours(*seconds: int) -> float:
    return sum(seconds) / 3600


def test_a_steady_load_costs_only_its_workers() -> None:
    bound = clairvoyant(load_of([3.0] * 6), CAPACITY)
    assert bound.worker_hours == pytest.approx(hours(3 * 3600))
    assert bound.actions == ()


def test_a_rise_costs_one_boot_before_it_and_a_fall_one_drain_after_it() -> None:
    load = load_of([2.0, 3.0, 2.0, 2.0])
    bound = clairvoyant(load, CAPACITY)
    assert bound.worker_hours == pytest.approx(hours(2 * 2400, 600, RESTART), abs=hours(40))
    assert [action.change for action in bound.actions] == [1, -1]


def test_a_worker_runs_through_a_pause_that_is_not_longer_than_a_restart() -> None:
    short = load_of([3.0, 2.0, 3.0, 3.0], step=RESTART - 10)
    assert clairvoyant(short, CAPACITY).actions == ()
    longer = load_of([3.0, 2.0, 3.0, 3.0], step=RESTART + 60)
    assert len(clairvoyant(longer, CAPACITY).actions) == 2


def test_above_the_maximum_pods_are_pending_even_in_the_clairvoyant_fleet() -> None:
    bound = clairvoyant(load_of([4.0, 4.0], most=3), CAPACITY)
    assert (bound.avoidable_pod_minutes, bound.overload_minutes) == (0.0, 0.0)
    assert bound.worker_hours == pytest.approx(hours(3 * 1200))


def cheapest_by_trying_all(load: Load, capacity: Capacity) -> float:
    """Every choice of keeping or restarting, for every worker and every pause."""
    phase = load.phases[0]
    ends = [at for at, _ in phase.changes[1:]] + [phase.end]
    needs = [(at, until, load.workers_for(n)) for (at, n), until in zip(phase.changes, ends, strict=True)]
    total = 0.0
    for level in range(1, load.max_workers + 1):
        spans = [(a, b) for a, b, need in needs if need >= level]
        joined: list[list[int]] = []
        for a, b in spans:
            if joined and joined[-1][1] == a:
                joined[-1][1] = b
            else:
                joined.append([a, b])
        pauses = [b[0] - a[1] for a, b in itertools.pairwise(joined)]
        edges = 0
        if joined:
            edges += min(joined[0][0] - phase.start, capacity.boot_seconds)
            edges += min(phase.end - joined[-1][1], capacity.drain_seconds)
        restart = capacity.boot_seconds + capacity.drain_seconds
        choices = [
            sum(pause if keep else restart for keep, pause in zip(kept, pauses, strict=True))
            for kept in itertools.product((True, False), repeat=len(pauses))
        ]
        total += sum(b - a for a, b in joined) + edges + (min(choices) if joined else 0)
    return total / 3600


@examples(40)
@given(st.lists(st.integers(1, 4), min_size=2, max_size=8), st.sampled_from([60, 120, 200, 600]))
def test_it_equals_the_cheapest_of_all_choices(values: list[int], step: int) -> None:
    load = load_of([float(v) for v in values], step=step)
    assert clairvoyant(load, CAPACITY).worker_hours == pytest.approx(cheapest_by_trying_all(load, CAPACITY))


def everybody(load: Load) -> list[Measures]:
    sizers = [Deployed(Settings.from_mapping({"preset": name}).policy(), CAPACITY, name=name) for name in PRESETS]
    return [replay(load, CAPACITY, s) for s in (*sizers, ClusterAutoscaler(), Karpenter(), FixedFleet(10))]


@examples(25)
@given(st.lists(st.floats(0, 9), min_size=3, max_size=12))
def test_no_policy_without_avoidable_waiting_is_cheaper(values: list[float]) -> None:
    load = load_of(values, step=900)
    bound = clairvoyant(load, CAPACITY)
    least = load.min_workers * load.seconds / HOUR
    assert bound.worker_hours >= least
    for found in everybody(load):
        # A worker that is still in its drain, or booting, at the end of the trace is cut off there for everybody.
        slack = load.max_workers * STEP_SECONDS / HOUR
        if found.avoidable_pod_minutes == 0:
            assert found.worker_hours >= bound.worker_hours - slack, found.policy
        assert found.pending_pod_minutes >= bound.pending_pod_minutes
