"""From a trace to pods: the stated scale, ramps and jumps, and replicas with the limits of Kubernetes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backtest.load import plan_load, quantile
from backtest.model import Capacity, ModelError, Scaling
from backtest.trace import from_rows
from tests.support.backtest_loads import BY_WORKERS, CAPACITY, START, load_of, trace_of


def replicas_at(values: list[float], at: int, scaling: Scaling = BY_WORKERS, step: int = 600) -> int:
    phase = load_of(values, scaling=scaling, step=step).phases[0]
    return next(count for when, count in reversed(phase.changes) if when <= START + at)


def test_the_stated_quantile_needs_the_stated_number_of_full_workers() -> None:
    trace = trace_of([float(value) for value in range(1001)], step=60)
    load = plan_load(trace, CAPACITY, Scaling(), min_workers=2, max_workers=10)
    high = quantile(trace.values, 0.995)
    pods = high * load.milli_per_unit / (CAPACITY.pod_cpu_milli * 0.7)
    assert pods == pytest.approx(8 * CAPACITY.pods_per_worker)


def test_a_trace_of_zeros_has_the_minimum_of_replicas() -> None:
    load = plan_load(trace_of([0.0, 0.0, 0.0]), CAPACITY, Scaling(), min_workers=2, max_workers=10)
    assert [count for _, count in load.phases[0].changes] == [Scaling().min_replicas]


def test_seven_pods_of_250m_fit_a_small_worker() -> None:
    assert CAPACITY.pods_per_worker == 7
    assert Capacity(pod_memory_mib=600).pods_per_worker == 2


def test_replicas_keep_each_pod_at_the_target() -> None:
    assert replicas_at([1.0, 1.0], 0) == 7
    assert replicas_at([1.01, 1.0], 0) == 8


def test_a_ramp_rises_between_readings_and_a_jump_does_not() -> None:
    ramp = replace(BY_WORKERS, interpolation="ramp")
    assert replicas_at([1.0, 3.0, 3.0], 300, ramp) == pytest.approx(14, abs=1)
    assert replicas_at([1.0, 3.0, 3.0], 300) == 7


def test_replicas_at_most_double_in_one_sync_and_syncs_are_fifteen_seconds_apart() -> None:
    changes = load_of([1.0, 8.0, 8.0]).phases[0].changes
    assert changes == ((START, 7), (START + 620, 14), (START + 630, 28), (START + 650, 56))


def test_replicas_are_removed_at_once_without_a_stabilization_window() -> None:
    values = [2.0, 1.0, 1.0]
    assert replicas_at(values, 620) == 7
    stay = replace(BY_WORKERS, stabilization_seconds=300)
    assert replicas_at(values, 890, stay) == 14
    assert replicas_at(values, 900, stay) == 7


def test_replicas_do_not_change_within_the_tolerance() -> None:
    tolerant = replace(BY_WORKERS, tolerance_percent=10.0)
    assert replicas_at([2.0, 2.15, 2.15], 900, tolerant) == 14
    assert replicas_at([2.0, 2.25, 2.25], 900, tolerant) == 16


def test_replicas_stay_between_their_bounds() -> None:
    assert replicas_at([0.0, 0.0], 0) == 2
    assert replicas_at([50.0, 50.0], 0) == 70


def test_workers_needed_are_whole_and_between_minimum_and_maximum() -> None:
    load = load_of([1.0, 1.0])
    assert [load.workers_for(pods) for pods in (0, 14, 15, 70, 700)] == [2, 2, 3, 10, 10]


def test_demand_between_two_steps_is_the_sum_of_the_load() -> None:
    phase = load_of([1.0, 2.0], step=100).phases[0]
    one = CAPACITY.pods_per_worker * CAPACITY.pod_cpu_milli * 0.7
    assert phase.used_between(START, START + 200) == pytest.approx(one * 100 + 2 * one * 100)


@pytest.mark.parametrize(("name", "value"), [("boot_seconds", 0), ("boot_seconds", 95), ("drain_seconds", -10)])
def test_times_that_are_no_whole_steps_are_refused_by_name(name: str, value: int) -> None:
    with pytest.raises(ModelError, match=f"{name} is {value}"):
        Capacity(**{name: value})


def test_a_load_of_more_than_three_years_is_refused_before_it_is_computed() -> None:
    trace = from_rows([(0, 1.0), (1_780_272_000, 2.0)], name="since-1970")
    with pytest.raises(ModelError, match="trace since-1970 covers 20,605 days, expected at most 1,100; use a part"):
        plan_load(trace, Capacity(), BY_WORKERS, min_workers=2, max_workers=10)


def test_a_pod_larger_than_a_worker_is_refused() -> None:
    with pytest.raises(ModelError, match="a pod of 4000m CPU and 128 MiB fits no t3"):
        Capacity(pod_cpu_milli=4000)
