"""The references do what their documentation says: when they act, by how much, and what they wait for."""

from __future__ import annotations

from itertools import pairwise

import pytest

from backtest.fleet import Fleet
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


def test_cluster_autoscaler_keeps_the_time_of_a_candidate_when_another_worker_becomes_emptier() -> None:
    """Five pods leave room for one candidate: the one of the scan before, though another worker has fewer pods."""
    fleet = Fleet(CAPACITY, load_of([3.0, 3.0]), START, 3)
    policy = ClusterAutoscaler()
    for pods, now in (((2, 3, 6), START), ((3, 2, 6), START + 300)):
        fleet.now = now
        for machine, count in zip(fleet.machines, pods, strict=True):
            machine.pods = count
        policy.act(fleet)
        assert policy._unneeded == {fleet.machines[0].instance_id: START}


def test_cluster_autoscaler_examines_an_empty_worker_before_the_candidates_of_the_last_scan() -> None:
    fleet = Fleet(CAPACITY, load_of([3.0, 3.0]), START, 3)
    policy = ClusterAutoscaler()
    for pods, now, first in (((2, 3, 6), START, 0), ((3, 0, 7), START + 300, 1)):
        fleet.now = now
        for machine, count in zip(fleet.machines, pods, strict=True):
            machine.pods = count
        policy.act(fleet)
        assert fleet.machines[first].instance_id in policy._unneeded


def test_a_shorter_warm_up_lets_target_tracking_scale_out_again_sooner() -> None:
    """The load needs more with every step; the second launch waits until the first instance is in the metric."""
    steps = [2.0, 4.0, 6.0, 8.0, 8.0, 8.0]
    short, usual = (ran(TargetTracking(50, warm_up_seconds=s), steps, step=180) for s in (120, 300))
    assert short.avoidable_pod_minutes < usual.avoidable_pod_minutes
    assert (short.policy, usual.policy) == ("target-tracking-50-warm-120", "target-tracking-50")


@pytest.mark.parametrize(("others", "is_removed"), [(7, True), (2, True), (1, False)])
def test_balanced_consolidation_needs_half_of_the_disruption_s_share_in_savings(others: int, is_removed: bool) -> None:
    """A worker with eight pods among three: a third of the cost for 9 / (9 + 2 x (1 + others)) of the disruption."""
    fleet = Fleet(CAPACITY, load_of([3.0, 3.0]), START, 3)
    for machine, pods in zip(fleet.machines, (8, others, others), strict=True):
        machine.pods = pods
    assert Karpenter(balanced=True)._is_worth_it(fleet.machines[0], fleet.machines) is is_removed


def test_balanced_consolidation_always_removes_the_emptiest_of_equal_workers() -> None:
    """It never has more than the mean disruption, so that only `consolidate_after` differs from the older rule."""
    values = [2.0, 5.0, 3.0, 6.0, 1.0, 4.0, 2.0]
    older, balanced = ran(Karpenter(), values), ran(Karpenter(balanced=True), values)
    assert [(a.at, a.change) for a in balanced.actions] == [(a.at, a.change) for a in older.actions]


def test_consolidate_after_waits_until_the_pods_of_a_worker_stay() -> None:
    downs = [
        next(a.at for a in ran(Karpenter(consolidate_after=after), [4.0, 2.0, 2.0]).actions if a.change < 0)
        for after in (0, 60, 300)
    ]
    assert (downs[1] - downs[0], downs[2] - downs[0]) == (60, 300)


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
