"""The capacity model: boots, drains, placement by requests, pending pods, CPU, and the counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backtest.fleet import Fleet
from backtest.model import STEP_SECONDS
from tests.support.backtest_loads import CAPACITY, START, load_of
from tests.support.tiers import examples


def fleet_of(workers: int, wanted: int) -> Fleet:
    fleet = Fleet(CAPACITY, load_of([2.0, 2.0]), START, workers)
    fleet.settle(wanted)
    return fleet


def later(fleet: Fleet, seconds: int, wanted: int | None = None, used: float = 0.0) -> None:
    fleet.advance(fleet.now + seconds, used)
    fleet.settle(fleet.wanted if wanted is None else wanted)


def test_pods_are_placed_on_the_worker_with_the_lowest_requests() -> None:
    fleet = fleet_of(3, 8)
    assert sorted(machine.pods for machine in fleet.machines) == [2, 3, 3]


def test_pods_that_fit_nowhere_are_pending_and_the_oldest_counts_first() -> None:
    fleet = fleet_of(2, 14)
    later(fleet, 10, 16)
    later(fleet, 20, 17)
    assert (fleet.running, fleet.pending, fleet.oldest_seconds()) == (14, 3, 20)
    assert fleet.pending_since == START + 10


def test_a_launched_worker_takes_pods_after_the_boot_delay_and_not_before() -> None:
    fleet = fleet_of(2, 20)
    fleet.launch()
    later(fleet, CAPACITY.boot_seconds - STEP_SECONDS)
    assert fleet.pending == 6
    later(fleet, STEP_SECONDS)
    assert fleet.pending == 0
    assert fleet.counts.pending_pod_seconds == 6 * CAPACITY.boot_seconds


def test_a_stopped_worker_is_started_under_its_id_and_takes_pods_after_the_start_delay() -> None:
    fleet = fleet_of(3, 14)
    stopped = fleet.machines[0]
    fleet.drain(stopped, stops=True)
    later(fleet, CAPACITY.drain_seconds)
    assert (fleet.size, [m.instance_id for m in fleet.standby]) == (2, [stopped.instance_id])
    later(fleet, 100, 20)
    assert (fleet.pending, fleet.counts.standby_seconds) == (6, 100)
    assert fleet.start(fleet.standby[0]).instance_id == stopped.instance_id
    later(fleet, CAPACITY.start_seconds - STEP_SECONDS)
    assert (fleet.pending, fleet.standby) == (6, [])
    later(fleet, STEP_SECONDS)
    assert (fleet.pending, fleet.size, fleet.counts.standby_seconds) == (0, 3, 100)


def test_pods_of_a_drained_worker_move_at_once_and_the_bill_ends_with_the_drain() -> None:
    fleet = fleet_of(3, 12)
    fleet.drain(fleet.machines[0])
    assert (fleet.running, fleet.pending, fleet.size) == (12, 0, 3)
    later(fleet, CAPACITY.drain_seconds)
    assert fleet.size == 2
    assert fleet.counts.machine_seconds == {"t3.small": 3 * CAPACITY.drain_seconds}


def test_pods_of_a_drain_that_fit_nowhere_are_pending_until_it_is_withdrawn() -> None:
    fleet = fleet_of(2, 12)
    machine = fleet.machines[0]
    fleet.drain(machine)
    assert fleet.pending == 5
    fleet.withdraw(machine)
    assert (fleet.pending, machine.state) == (0, "usable")
    later(fleet, CAPACITY.drain_seconds)
    assert fleet.size == 2


def test_pending_pods_are_removed_first_and_then_those_of_the_fullest_worker() -> None:
    fleet = fleet_of(2, 16)
    later(fleet, 10, 13)
    assert (fleet.pending, [machine.pods for machine in fleet.machines]) == (0, [6, 7])


def test_waiting_of_pods_above_the_largest_fleet_is_not_avoidable() -> None:
    fleet = fleet_of(10, 75)
    later(fleet, 60)
    assert fleet.counts.pending_pod_seconds == 5 * 60
    assert fleet.counts.avoidable_pod_seconds == 0


def test_cpu_is_the_mean_of_the_last_five_minutes() -> None:
    fleet = fleet_of(2, 14)
    per_second = 14 * 100.0
    later(fleet, 300, used=per_second * 300)
    busy = CAPACITY.system_cpu_milli + 7 * 100
    assert fleet.machines[0].cpu_milli(fleet.now) == pytest.approx(busy)
    later(fleet, 150, used=0.0)
    assert fleet.machines[0].cpu_milli(fleet.now) == pytest.approx(CAPACITY.system_cpu_milli + 350)


def test_a_worker_never_uses_more_than_its_cores_nor_a_pod_more_than_its_limit() -> None:
    fleet = fleet_of(2, 2)
    later(fleet, 100, used=1e9)
    assert fleet.machines[0].cpu_milli(fleet.now) == CAPACITY.system_cpu_milli + CAPACITY.pod_cpu_limit_milli
    full = fleet_of(2, 14)
    later(full, 100, used=1e9)
    assert full.machines[0].cpu_milli(full.now) == CAPACITY.vcpus * 1000


def test_overload_is_time_in_which_the_load_needs_more_cpu_than_running_pods_request() -> None:
    fleet = fleet_of(2, 14)
    later(fleet, 100, used=14 * 250 * 100.0)
    assert fleet.counts.overload_seconds == 0
    later(fleet, 100, used=14 * 251 * 100.0)
    assert fleet.counts.overload_seconds == 100


def test_nothing_is_counted_in_a_gap() -> None:
    fleet = fleet_of(2, 16)
    fleet.skip_to(START + 9000)
    assert (fleet.counts.machine_seconds.total(), fleet.oldest_seconds()) == (0, 0)


@examples(60)
@given(
    st.lists(
        st.tuples(st.sampled_from(["want", "launch", "drain", "withdraw"]), st.integers(0, 40)), min_size=1, max_size=40
    )
)
def test_no_pod_is_lost_and_no_worker_has_too_many(changes: list[tuple[str, int]]) -> None:
    fleet = fleet_of(3, 10)
    wanted = 10
    for what, number in changes:
        if what == "want":
            wanted = number
        elif what == "launch" and fleet.size < 10:
            fleet.launch()
        elif what == "drain" and fleet.usable():
            fleet.drain(fleet.usable()[number % len(fleet.usable())])
        elif what == "withdraw":
            for machine in [m for m in fleet.machines if m.state == "cordoned"][:1]:
                fleet.withdraw(machine)
        later(fleet, STEP_SECONDS, wanted)
        assert fleet.running + fleet.pending == wanted
        assert fleet.running == sum(machine.pods for machine in fleet.machines)
        assert all(0 <= machine.pods <= CAPACITY.pods_per_worker for machine in fleet.machines)
        assert fleet.pending == sum(count for _, count in fleet.waiting)
        free = sum(CAPACITY.pods_per_worker - machine.pods for machine in fleet.usable())
        assert not (fleet.pending and free)
