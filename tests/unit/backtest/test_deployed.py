"""The deployed autoscaler in a replay: its ticks, its alert, its lock, its rounds, its cooldowns, and its drains."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from backtest.decisions import LARGEST_SET
from backtest.deployed import Deployed, Workflow
from backtest.fleet import Fleet
from backtest.measures import Measures
from backtest.model import Capacity, ModelError
from backtest.replay import replay
from node_fleet.domain.scaling.decision import decide
from node_fleet.settings import Settings
from tests.support.backtest_loads import BY_WORKERS, CAPACITY, START, load_of
from tests.support.fit_clusters import removal_fit


def ran(values: list[float], *, step: int = 600, capacity: Capacity = CAPACITY, **changes: object) -> Measures:
    policy = Settings.from_mapping(changes).policy()
    return replay(load_of(values, step=step, capacity=capacity), capacity, Deployed(policy, capacity))


def test_a_steady_load_causes_no_action() -> None:
    found = ran([2.0] * 12)
    assert found.actions == ()
    assert found.worker_hours == pytest.approx(2 * 11 * 600 / 3600, abs=0.4)


def test_the_alert_starts_a_run_twenty_seconds_after_pods_become_pending() -> None:
    found = ran([2.0, 2.4, 2.4], step=630)
    pods_wait_at = START + 650
    assert found.actions[0].at == pods_wait_at + CAPACITY.alert_seconds
    assert found.actions[0].rule == "pending"


def test_one_execution_has_up_to_three_rounds_while_pods_are_pending() -> None:
    found = ran([2.0, 9.9, 9.9], step=3600)
    ups = [action for action in found.actions if action.change > 0]
    again = CAPACITY.boot_seconds + Settings().policy().scheduling_grace_seconds
    assert [b.at - a.at for a, b in pairwise(ups[:3])] == [again, again]
    assert ups[3].at - ups[2].at > CAPACITY.boot_seconds


def test_ticks_decide_nothing_while_an_execution_holds_the_lock() -> None:
    slow = replace(CAPACITY, boot_seconds=240)
    policy = Settings().policy()
    sizer = Deployed(policy, slow)
    replay(load_of([2.0, 2.4, 2.4], step=600, capacity=slow), slow, sizer)
    ticks = 1800 // policy.interval_seconds
    assert sizer.decisions < ticks


def test_a_scale_down_waits_for_the_cooldown_after_the_last_success() -> None:
    found = ran([5.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5], step=1200, idle_seconds=0)
    downs = [action.at for action in found.actions if action.change < 0]
    rest = Settings().policy().cooldown_down_seconds
    assert len(downs) == 3
    assert all(b - a >= rest + CAPACITY.drain_seconds for a, b in pairwise(downs))


def removal_of(*pods: int) -> int:
    """How many workers one removal of at most three takes, of workers with these numbers of pods."""
    policy = Settings.from_mapping({"preset": "adaptive", "min_workers": 1}).policy()
    fleet = Fleet(CAPACITY, load_of([3.0] * 3), START, len(pods))
    for machine, count in zip(fleet.machines, pods, strict=True):
        machine.pods = count
    sizer = Deployed(policy, CAPACITY)
    decision = replace(decide(sizer.snapshot(fleet), sizer.memory, policy, START), count=3)
    return len(sizer._chosen(fleet, sizer.snapshot(fleet), decision))


def test_one_removal_takes_workers_whose_pods_fit_on_the_others_together() -> None:
    full = CAPACITY.pods_per_worker
    assert removal_of(0, 0, 0, full, full) == 3
    assert removal_of(1, 1, full - 2, full) == 2
    assert removal_of(1, 2, full - 2, full) == 1


def test_the_set_of_one_removal_is_as_large_as_the_inspection_allows() -> None:
    assert removal_fit.LARGEST_SET == LARGEST_SET


def test_a_drain_is_withdrawn_when_load_returns_and_its_worker_stays() -> None:
    policy = Settings.from_mapping({"idle_seconds": 0, "cooldown_down_seconds": 0}).policy()
    load = load_of([3.0, 0.5, 3.0, 3.0], step=600)
    sizer = Deployed(policy, CAPACITY)
    fleet = Fleet(CAPACITY, load, START, 3)
    fleet.settle(4)
    sizer.start(fleet)
    sizer.act(fleet)
    cordoned = [machine for machine in fleet.machines if machine.state == "cordoned"]
    assert len(cordoned) == 1
    fleet.advance(START + 10, 0.0)
    fleet.settle(21)
    sizer.act(fleet)
    assert cordoned[0].state == "usable"
    assert (sizer.actions, fleet.pending) == ([], 0)
    assert sizer.memory.last_action == ""
    assert [b.key for b in sizer.memory.back_offs] == [f"node:{cordoned[0].instance_id}"]


def test_the_fleet_stays_between_minimum_and_maximum() -> None:
    policy = Settings.from_mapping({"min_workers": 3, "max_workers": 5}).policy()
    load = load_of([0.0, 9.0, 9.0, 0.0, 0.0, 0.0], step=2400, most=5)
    found = replay(load, CAPACITY, Deployed(policy, CAPACITY), chart_seconds=60, start_workers=3)
    assert {point.workers for point in found.points} >= {3, 5}
    assert all(3 <= point.workers <= 5 for point in found.points)


def test_the_snapshot_describes_the_fleet() -> None:
    policy = Settings().policy()
    fleet = Fleet(CAPACITY, load_of([2.0, 2.0]), START, 2)
    fleet.settle(16)
    fleet.launch()
    fleet.advance(START + 30, 14 * 100.0 * 30)
    snapshot = Deployed(policy, CAPACITY).snapshot(fleet)
    assert [worker.phase for worker in snapshot.workers] == ["usable", "usable", "joining"]
    assert snapshot.pending_count == 2
    assert snapshot.cpu_percent == pytest.approx((48 + 700) / 20)
    assert snapshot.pending is not None
    assert snapshot.pending[0].oldest_seconds == 30
    assert decide(snapshot, Deployed(policy, CAPACITY).memory, policy, snapshot.at).action == "none"


def test_a_boot_longer_than_the_join_limit_is_refused() -> None:
    with pytest.raises(ModelError, match="boot_seconds is 300, expected less than the join limit of 300"):
        Deployed(Settings().policy(), replace(CAPACITY, boot_seconds=300))


def test_predictive_scaling_uses_the_hours_of_the_replay() -> None:
    policy = Settings.from_mapping({"predictive": True}).policy()
    sizer = Deployed(policy, CAPACITY)
    seen: list[int] = []
    original = sizer.snapshot

    def spy(fleet: Fleet):  # type: ignore[no-untyped-def]
        snapshot = original(fleet)
        seen.append(len(snapshot.hourly))
        return snapshot

    sizer.snapshot = spy  # type: ignore[method-assign]
    replay(load_of([2.0] * 25, step=1200), CAPACITY, sizer)
    assert max(seen) == 7
    assert seen.count(0) > len(seen) / 2


def test_settings_of_the_workflow_reach_the_replay() -> None:
    load = load_of([2.0, 9.9, 9.9], step=3600)
    once = Deployed(Settings().policy(), CAPACITY, Workflow(max_rounds=1))
    ups = [a for a in replay(load, CAPACITY, once).actions if a.change > 0]
    assert ups[1].at - ups[0].at >= 120
    assert BY_WORKERS.interpolation == "jump"


def test_standby_workers_shorten_the_waiting_and_are_made_and_refilled_in_quiet_time() -> None:
    load = [2.0] * 4 + [5.0] * 3 + [2.0] * 12
    without, with_two = (ran(load, standby_workers=number) for number in (0, 2))
    assert without.standby_hours == 0 < with_two.standby_hours
    assert with_two.pending_pod_minutes < without.pending_pod_minutes
    assert [(a.change, a.rule) for a in with_two.actions] == [(a.change, a.rule) for a in without.actions]
    as_slow = ran(load, standby_workers=2, capacity=replace(CAPACITY, start_seconds=CAPACITY.boot_seconds))
    assert as_slow.pending_pod_minutes >= with_two.pending_pod_minutes
