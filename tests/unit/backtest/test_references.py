"""The references do what their documentation says: when they act, by how much, and what they wait for."""

from __future__ import annotations

from itertools import pairwise

import pytest

from backtest.measures import Measures
from backtest.references import ClusterAutoscaler, FixedFleet, Karpenter, TargetTracking
from backtest.replay import Sizer, replay
from tests.support.backtest_loads import CAPACITY, START, load_of


def ran(sizer: Sizer, values: list[float], step: int = 1200) -> Measures:
    return replay(load_of(values, step=step), CAPACITY, sizer)


def test_a_fixed_fleet_costs_its_size_under_any_load() -> None:
    for workers in (2, 5, 9):
        found = ran(FixedFleet(workers), [4.0, 9.0, 1.0])
        assert found.worker_hours == pytest.approx(workers * found.days * 24)
        assert found.actions == ()


def test_target_tracking_scales_out_in_proportion_after_three_minutes() -> None:
    first = ran(TargetTracking(50), [2.0, 2.0, 2.0]).actions[0]
    assert first.at - START == 4 * 60
    assert first.change == 1


def test_target_tracking_scales_in_one_at_a_time_after_fifteen_minutes() -> None:
    found = ran(TargetTracking(50), [3.0, 0.5, 0.5, 0.5])
    downs = [action for action in found.actions if action.change < 0]
    assert downs
    assert downs[0].at - (START + 1200) >= 15 * 60
    assert {action.change for action in downs} == {-1}


def test_cluster_autoscaler_launches_what_pending_pods_need_at_its_next_scan() -> None:
    found = ran(ClusterAutoscaler(), [2.0, 3.9, 3.9])
    waits_from = START + 1220
    assert [(a.at, a.change) for a in found.actions] == [(waits_from + 10, 2)]


def test_cluster_autoscaler_removes_a_node_under_half_used_after_ten_minutes() -> None:
    found = ran(ClusterAutoscaler(), [4.0, 1.0, 1.0])
    downs = [action for action in found.actions if action.change < 0]
    assert downs[0].at == pytest.approx(START + 1215 + 600, abs=10)
    assert all(b.at - a.at >= CAPACITY.drain_seconds for a, b in pairwise(downs))


def test_cluster_autoscaler_waits_ten_minutes_after_a_scale_up() -> None:
    found = ran(ClusterAutoscaler(), [2.0, 3.9, 1.0, 1.0, 1.0], step=300)
    up = next(action for action in found.actions if action.change > 0)
    down = next(action for action in found.actions if action.change < 0)
    assert down.at - up.at >= 600


def test_karpenter_batches_for_ten_seconds_and_consolidates_within_a_minute() -> None:
    found = ran(Karpenter(), [2.0, 3.9, 2.0, 2.0])
    up, down = found.actions[0], found.actions[1]
    assert (up.at, up.change) == (START + 1220 + 10, 2)
    assert down.change == -1
    assert down.at - (START + 2400) <= 60


def test_every_reference_stays_between_minimum_and_maximum() -> None:
    for sizer in (TargetTracking(50), ClusterAutoscaler(), Karpenter()):
        load = load_of([0.0, 20.0, 20.0, 0.0, 0.0, 0.0])
        found = replay(load, CAPACITY, sizer, chart_seconds=60)
        assert max(point.workers for point in found.points) == 10
        assert min(point.workers for point in found.points) == 2


def test_each_reference_names_the_document_that_it_follows() -> None:
    for reference in (TargetTracking, ClusterAutoscaler, Karpenter):
        assert "https://" in (reference.__doc__ or "")
