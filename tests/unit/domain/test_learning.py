"""What the adaptive strategy learns from one reading, at the boundaries of each rule."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from node_fleet.domain.model.memory import AdaptiveMemory, Memory, OpenRise, PodSums, WorkerNeed
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import NewWorker, PodShape, Worker
from node_fleet.domain.scaling.signals.pending_pods import evaluate_pending_pods
from node_fleet.domain.scaling.strategies.adaptive.capacity import CapacityEstimate, estimate_capacity
from node_fleet.domain.scaling.strategies.adaptive.headroom import RISES
from node_fleet.domain.scaling.strategies.adaptive.learning import Evaluation, evaluate, with_defaults
from node_fleet.domain.scaling.strategies.adaptive.trials import PLANS
from node_fleet.domain.scaling.tick import make_tick
from tests.support.decisions import START, snapshot, worker

POLICY = Policy(max_workers=30)
EMPTY = with_defaults(AdaptiveMemory(places=7))
RISES_SEEN = tuple(10.0**pace if size == 0 else 0.0 for pace in range(5) for size in RISES)
"""One count for each pace, by which a choice shows its pace."""


def evaluated(
    learned: AdaptiveMemory,
    demand: float,
    *,
    source: str = "live",
    new_workers: tuple[NewWorker, ...] = (),
    **memory: Any,
) -> Evaluation:
    tick = make_tick(snapshot(source=source), Memory(learned=learned, **memory), POLICY, START)
    capacity = CapacityEstimate(
        demand=demand, have=9.0, workers=9, pods_per_worker=7, new_workers=new_workers, worker_slots=()
    )
    return evaluate(tick, capacity, learned, 0, learned.pods)


def pace_of(before: tuple[int, float], last: tuple[int, float], demand: float) -> int:
    """The pace of a reading that repeats, so that it teaches nothing. before, last: age in seconds and demand."""
    (before_age, before_demand), (age, last_demand) = before, last
    learned = replace(
        EMPTY,
        rises=RISES_SEEN,
        before_at=START - before_age,
        before=before_demand,
        read_at=START - age,
        demand=last_demand,
    )
    return round(math.log10(evaluated(learned, demand, source="cached").choice.samples))


@pytest.mark.parametrize(
    ("before", "last", "demand", "pace"),
    [
        ((180, 3.0), (60, 5.0), 5.0, 3),
        ((181, 3.0), (60, 5.0), 5.0, 1),
        ((60, 3.0), (30, 5.0), 5.0, 4),
        ((59, 3.0), (30, 5.0), 5.0, 1),
        ((300, 5.0), (59, 3.0), 5.0, 4),
        ((START, 3.0), (120, 3.0), 5.0, 4),
        ((START, 3.0), (START, 3.0), 5.0, 1),
        ((3600, 1.0), (1800, 1.0), 20.0, 3),
        ((3600, 1.0), (1801, 1.0), 20.0, 1),
        ((240, 3.0), (0, 3.0), 5.0, 1),
        ((300, 1.0), (120, 20.0), 22.0, 3),
        ((300, 1.0), (120, 5.0), 4.0, 0),
    ],
)
def test_the_pace_is_measured_from_the_reading_one_to_three_minutes_ago_or_else_from_the_last(
    before: tuple[int, float], last: tuple[int, float], demand: float, pace: int
) -> None:
    assert pace_of(before, last, demand) == pace


@pytest.mark.parametrize(
    ("took", "boot"),
    [(-1, 90.0), (0, 90.0), (1, 78.0), (30, 78.0), (31, 78.2), (180, 108.0), (300, 132.0), (301, 132.0), (9999, 132.0)],
)
def test_a_join_moves_the_boot_time_by_a_fifth_and_counts_between_30_s_and_the_join_limit(
    took: int, boot: float
) -> None:
    learned = replace(EMPTY, adding_since=START - 20_000)
    found = evaluated(learned, 3.0, last_action="scale_up", last_action_at=learned.adding_since + took).learned
    assert found.boot_seconds == pytest.approx(boot)
    assert found.adding_since == (0 if took > 0 else learned.adding_since)


@pytest.mark.parametrize(
    ("action", "since"), [("scale_down", START - 20_000), ("scale_up", 0)], ids=["a scale-down", "no scale-up waits"]
)
def test_only_the_join_that_is_waited_for_teaches_the_boot_time(action: str, since: int) -> None:
    found = evaluated(replace(EMPTY, adding_since=since), 3.0, last_action=action, last_action_at=START - 100).learned
    assert (found.boot_seconds, found.adding_since) == (90.0, since)


def test_a_reading_is_kept_with_the_one_before_it_and_opens_a_rise() -> None:
    learned = replace(EMPTY, read_at=START - 120, demand=2.0, before_at=START - 240, before=1.0)
    found = evaluated(learned, 4.0).learned
    assert (found.read_at, found.demand, found.before_at, found.before) == (START, 4.0, START - 120, 2.0)
    assert found.open == (OpenRise(at=START, demand=4.0, highest=4.0, pace=4),)


def test_a_rise_is_open_for_the_interval_and_the_boot_time() -> None:
    """120 s and 90 s, less half of the slack."""
    rises = tuple(OpenRise(at=START - age, demand=4.0, highest=4.0, pace=1) for age in (180, 179, 178))
    assert [rise.at for rise in evaluated(replace(EMPTY, open=rises), 4.0).learned.open] == [
        START - 179,
        START - 178,
        START,
    ]


def test_the_eight_newest_rises_are_kept() -> None:
    rises = tuple(OpenRise(at=START - age, demand=4.0, highest=4.0, pace=1) for age in range(10, 0, -1))
    found = evaluated(replace(EMPTY, open=rises), 4.0).learned.open
    assert [START - rise.at for rise in found] == [7, 6, 5, 4, 3, 2, 1, 0]


def test_another_number_of_pods_for_each_worker_starts_the_readings_anew() -> None:
    learned = replace(
        EMPTY,
        places=6,
        read_at=START - 120,
        demand=1.0,
        before_at=START - 240,
        open=(OpenRise(at=START - 9, demand=1.0, highest=1.0, pace=1),),
    )
    found = evaluated(learned, 5.0).learned
    assert (found.places, found.read_at, found.before_at) == (7, START, 0)
    assert found.open == (OpenRise(at=START, demand=5.0, highest=5.0, pace=1),)
    assert set(found.tried.held) == {0}


@pytest.mark.parametrize(("share", "joint"), [(0.1, 3), (0.2, 5)], ids=["saves 2.8", "saves 5.6"])
def test_a_plan_that_starts_no_headroom_alone_starts_it_with_the_workers_of_pending_pods(
    share: float, joint: int
) -> None:
    """Steady demand that rises by two workers in this share of readings: each of the two saves 7 x 4 x share."""
    rises = tuple({0.0: 1e6 * (1 - share), 2.0: 1e6 * share}.get(size, 0.0) for size in RISES)
    nothing = (0.0,) * len(RISES)
    held = tuple(0 if plan.start_price == math.inf else 1 for plan in PLANS)
    tried = replace(EMPTY.tried, workers=(3,) * len(PLANS), held=held)
    learned = replace(EMPTY, tried=tried, rises=(*nothing, *rises, *nothing * 3))
    assert evaluated(learned, 3.0, source="cached").start == 3
    found = evaluated(learned, 3.0, source="cached", new_workers=(NewWorker(),))
    assert (found.choice.workers, found.start) == (5, joint)


def test_half_of_a_count_is_left_after_the_learning_days() -> None:
    learned = replace(EMPTY, rises=(8.0, *EMPTY.rises[1:]))
    tick = make_tick(snapshot(), Memory(), replace(POLICY, learning_days=1, interval_seconds=86_400), START)
    capacity = CapacityEstimate(demand=1.0, have=9.0, workers=9, pods_per_worker=7, new_workers=(), worker_slots=())
    assert evaluate(tick, capacity, learned, 0, learned.pods).learned.rises[0] == pytest.approx(4.0)


@pytest.mark.parametrize(("minutes", "held"), [(2, 400), (10, 2000), (11, 2000)])
def test_the_capacity_that_a_trial_holds_is_counted_over_the_minutes_since_the_last_reading(
    minutes: int, held: int
) -> None:
    first = replace(EMPTY, tried=replace(EMPTY.tried, workers=(5,) * 48))
    tried = evaluated(replace(first, read_at=START - 60 * minutes, demand=3.0), 3.0).learned.tried
    assert tried.held == pytest.approx((held,) * 48, abs=1)


def test_a_missing_worker_costs_the_waiting_of_its_pods_for_the_alert_and_the_boot() -> None:
    """Seven pods that wait for 20 s and 90 s, in hundredths of a minute: 1283.33 for each of three missing workers."""
    learned = replace(EMPTY, read_at=START - 120, demand=3.0, tried=replace(EMPTY.tried, workers=(1,) * 48))
    assert evaluated(learned, 4.0).learned.tried.waited == pytest.approx((3850,) * 48, abs=4)


@pytest.mark.parametrize(
    ("seconds", "minutes"),
    [(120, 0.5625), (90, 0.75), (60, 1.0), (0, 0.0)],
    ids=["longer than the boot", "the boot", "shorter", "no reading before"],
)
def test_pods_that_are_created_while_a_worker_boots_wait_for_the_rest_of_its_boot(seconds: int, minutes: float) -> None:
    """Half a worker of seven pods, created evenly since the last reading; the worker is there 90 s after it."""
    tried = replace(EMPTY.tried, workers=(9,) * 48, before=(3,) * 48)
    learned = replace(EMPTY, read_at=START - seconds if seconds else 0, demand=3.0, tried=tried)
    expected = 100 * 0.5 * 7 * minutes
    assert evaluated(learned, 3.5).learned.tried.waited == pytest.approx((expected,) * 48, rel=0.01)


def test_what_was_needed_within_the_delay_is_kept() -> None:
    needs = (WorkerNeed(at=START - 119, workers=6),)
    assert evaluated(replace(EMPTY, needs=needs), 3.0).keep == 6
    assert evaluated(replace(EMPTY, needs=(replace(needs[0], at=START - 120),)), 3.0).keep < 6


@pytest.mark.parametrize(("minimum", "hold"), [(0, 3), (8, 8), (40, 30)])
def test_the_minimum_is_held_up_to_the_maximum(minimum: int, hold: int) -> None:
    steady = replace(EMPTY, rises=tuple(1e6 if place % len(RISES) == 0 else 0.0 for place in range(len(RISES) * 5)))
    tick = make_tick(snapshot(), Memory(), POLICY, START)
    capacity = CapacityEstimate(demand=3.0, have=9.0, workers=9, pods_per_worker=7, new_workers=(), worker_slots=())
    found = evaluate(tick, capacity, steady, minimum, steady.pods)
    assert (found.keep, found.learned.needs[-1].workers, set(found.learned.tried.workers)) == (hold, hold, {hold})


SUMS = PodSums(workers=2, pods=8, pods_squared=50, cpu=7200, pods_cpu=46_800, memory=3600, pods_memory=23_400, least=1)
"""A worker with a DaemonSet's pod of 600m and 300 MiB alone, and one with six more pods of 1000m and 500 MiB."""


@pytest.mark.parametrize(
    ("count", "cpu_milli", "memory_mib", "new_workers"),
    [
        (5, 1000, 10, 1),
        (6, 1000, 10, 1),
        (7, 1000, 10, 2),
        (4, 10, 5000, 1),
        (5, 10, 5000, 2),
        (218, 1, 1, 1),
        (219, 1, 1, 2),
    ],
)
def test_a_joining_worker_and_a_new_one_hold_pods_beside_their_daemon_sets(
    count: int, cpu_milli: int, memory_mib: int, new_workers: int
) -> None:
    """A t3.xlarge offers 4000m, 15237 MiB and 110 pods."""
    shape = PodShape(cpu_milli=cpu_milli, memory_mib=memory_mib, count=count, oldest_seconds=95)
    coming = worker("j1", "joining", instance_type="t3.xlarge", launched_at=START - 60)
    policy = replace(POLICY, instance_types=("t3.xlarge",))
    tick = make_tick(snapshot(pending=(shape,), workers=(coming,)), Memory(), policy, START)
    estimate = estimate_capacity(tick, evaluate_pending_pods(tick, {}), SUMS)
    assert estimate is not None and len(estimate.new_workers) == new_workers


@pytest.mark.parametrize(
    "offered",
    [{"cpu_allocatable_milli": 4600}, {"memory_allocatable_mib": 2300}, {"pods_allocatable": 5}],
    ids=["cpu", "memory", "pods"],
)
def test_an_empty_worker_holds_four_pods_beside_its_daemon_sets_by_its_scarcest_resource(
    offered: dict[str, int],
) -> None:
    large = {"cpu_allocatable_milli": 90_000, "memory_allocatable_mib": 90_000, "pods_allocatable": 110}
    crew = (worker(1, cpu_requested_milli=600, memory_requested_mib=300, pods=1, **(large | offered)),)
    estimate = estimate_capacity(make_tick(snapshot(workers=crew), Memory(), POLICY, START), None, SUMS)
    assert estimate is not None
    assert (estimate.pods_per_worker, estimate.worker_slots) == (4, ((4, 0),))


@pytest.mark.parametrize(("pods", "slots"), [(None, (4, 0)), (0, (4, 0)), (2, (2, 1))])
def test_pods_that_are_not_known_take_no_slot(pods: int | None, slots: tuple[int, int]) -> None:
    """A worker that takes four pods, where each has a DaemonSet's pod."""
    crew = (worker(1, cpu_allocatable_milli=90_000, memory_allocatable_mib=90_000, pods=pods, pods_allocatable=4),)
    estimate = estimate_capacity(make_tick(snapshot(workers=crew), Memory(), POLICY, START), None, SUMS)
    assert estimate is not None and estimate.worker_slots == (slots,)


def offered_by(*seen: Worker, types: tuple[str, ...] = ("t3.small", "t3.medium")) -> int | None:
    """The typical pods (100m and 1 MiB, no DaemonSets) that an empty new worker holds."""
    sums = PodSums(
        workers=2, pods=20, pods_squared=200, cpu=2000, pods_cpu=20_000, memory=20, pods_memory=200, least=10
    )
    tick = make_tick(snapshot(workers=seen), Memory(), replace(POLICY, instance_types=types), START)
    estimate = estimate_capacity(tick, None, sums)
    return estimate and estimate.pods_per_worker


@pytest.mark.parametrize(
    ("seen", "types", "holds"),
    [
        ((worker(1, cpu_allocatable_milli=1500), worker(2, cpu_allocatable_milli=1700)), ("t3.small",), 17),
        ((worker(1, instance_type="t3.medium", cpu_allocatable_milli=900), worker(2)), ("t3.medium", "t3.small"), 9),
        ((worker(1, instance_type="t3.medium", cpu_allocatable_milli=900),), ("t3.small", "t3.medium"), 9),
        ((worker(1, cpu_allocatable_milli=9000, pods_allocatable=12),), ("t3.small",), 12),
        ((worker(1, cpu_allocatable_milli=90_000, pods_allocatable=None),), ("t3.small",), 110),
        ((), ("x9.unknown", "t3.small"), 20),
        ((), ("x9.unknown",), None),
    ],
    ids=[
        "the largest of its type",
        "a worker of the first type before a larger one of another",
        "any worker when none is of the first type",
        "as many pods as a worker takes",
        "as many pods as the kubelet takes",
        "without workers by the name of the first type that has a known size",
        "no type has a known size",
    ],
)
def test_a_new_worker_counts_as_a_worker_of_its_type_shows_it(
    seen: tuple[Worker, ...], types: tuple[str, ...], holds: int | None
) -> None:
    assert offered_by(*seen, types=types) == holds


@pytest.mark.parametrize(("unknown", "is_estimated"), [(2, True), (3, False)])
def test_half_of_the_workers_may_have_unknown_requests_and_count_as_full(unknown: int, is_estimated: bool) -> None:
    crew = (worker(1), worker(2), *(worker(n, cpu_requested_milli=None) for n in range(3, 3 + unknown)))
    estimate = estimate_capacity(make_tick(snapshot(workers=crew), Memory(), POLICY, START), None, SUMS)
    assert (estimate is not None) is is_estimated
    if estimate:
        known = estimate_capacity(make_tick(snapshot(workers=crew[:2]), Memory(), POLICY, START), None, SUMS)
        assert known is not None
        assert (estimate.demand - known.demand, estimate.have - known.have) == (unknown, unknown)
