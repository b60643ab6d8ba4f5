"""What keeps workers from being removed: each condition of an idle fleet, and the load expected after a removal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from node_fleet.domain.model.memory import Memory, Streak
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import Dispute, Snapshot, Worker
from node_fleet.domain.scaling.signals.idle import evaluate_idle, evaluate_projection, find_idle_blocker
from node_fleet.domain.scaling.signals.pending_pods import PendingPods
from node_fleet.domain.scaling.tick import make_tick
from tests.support.decisions import START, TICK, idle, worker, workers

POLICY = Policy(idle_seconds=600, max_targets=3)
WITHOUT_MEMORY = replace(POLICY, use_memory=False)
WAITED = Memory(since={"idle": Streak(since=START - 600, last=START - TICK, readings=5)})
NOT_LIVE = ("missing", "no worker is removed without a live reading", "cached_reading_seconds")
UNKNOWN = worker(8, "unknown")


def lacking(names: str) -> tuple[str, str, str]:
    return "missing", f"no worker is removed while data is missing: {names}", "missing_readings"


def blocked_by(seen: Snapshot, policy: Policy = POLICY, *, waiting: int = 0, customs_low: bool = True) -> Any:
    tick = make_tick(seen, Memory(), policy, START)
    pending = PendingPods(waiting=waiting) if seen.pending is not None else None
    return find_idle_blocker(tick, pending, customs_low=customs_low)


@pytest.mark.parametrize(
    ("changes", "policy", "more", "expected"),
    [
        ({"source": "cached"}, POLICY, {}, NOT_LIVE),
        ({"cpu_percent": None}, POLICY, {}, lacking("cpu_percent")),
        (
            {"cpu_percent": float("nan"), "memory_percent": None, "pending": None},
            POLICY,
            {},
            lacking("cpu_percent, memory_percent, pending"),
        ),
        ({"workers": (*workers(3), UNKNOWN)}, POLICY, {}, lacking("state of 1 worker")),
        ({"missing": ("memory_max", "nodes", "custom:queue")}, POLICY, {}, lacking("memory_max, nodes")),
        ({"missing": ("memory_max", "nodes")}, WITHOUT_MEMORY, {}, lacking("nodes")),
        ({}, POLICY, {"waiting": 1}, ("hold", "not idle: 1 pod pending", "pending_readings")),
        (
            {"cpu_percent": 30.0},
            POLICY,
            {},
            ("hold", "not idle: CPU 30.0 %, not under 30 %", "cpu_down_percent"),
        ),
        (
            {"memory_percent": 50.0},
            POLICY,
            {},
            ("hold", "not idle: memory 50.0 %, not under 50 %", "memory_down_percent"),
        ),
        (
            {},
            POLICY,
            {"customs_low": False},
            ("hold", "not idle: a custom metric is not under its low threshold", "custom_metrics"),
        ),
    ],
    ids=str,
)
def test_one_condition_that_is_not_met_keeps_every_worker_and_is_left_out_of_the_sentence(
    changes: dict[str, Any], policy: Policy, more: dict[str, Any], expected: tuple[str, str, str]
) -> None:
    found = blocked_by(idle(**changes), policy, **more)
    assert (found.verdict, found.text, found.setting) == expected
    assert (found.name, found.aside) == ("idle", True)


@pytest.mark.parametrize(
    ("changes", "policy"),
    [
        ({"cpu_percent": 29.9, "memory_percent": 49.9}, POLICY),
        ({"cpu_percent": 0.0, "memory_percent": 0.0}, POLICY),
        ({"memory_percent": 99.0}, WITHOUT_MEMORY),
        ({"memory_percent": None, "missing": ("memory_percent",)}, WITHOUT_MEMORY),
        ({"missing": ("custom:queue",)}, POLICY),
        (
            {
                "workers": (*workers(3), UNKNOWN),
                "disputes": (Dispute(instance_id=UNKNOWN.instance_id, node_names=("n",), reason="twice"),),
            },
            POLICY,
        ),
    ],
    ids=str,
)
def test_an_idle_fleet_has_low_values_and_all_data_that_its_settings_use(
    changes: dict[str, Any], policy: Policy
) -> None:
    assert blocked_by(idle(**changes), policy) is None


def removable(seen: Snapshot, memory: Memory = WAITED, policy: Policy = POLICY, minimum: int = 1) -> Any:
    tick = make_tick(seen, memory, policy, START)
    return evaluate_idle(tick, PendingPods(), {}, customs_low=True, minimum=minimum)


@pytest.mark.parametrize(("since", "verdict"), [(600, "down"), (599, "waiting")])
def test_the_fleet_must_be_idle_for_the_whole_idle_time(since: int, verdict: str) -> None:
    memory = Memory(since={"idle": Streak(since=START - since, last=START - TICK, readings=5)})
    count, checks = removable(idle(workers=workers(6)), memory)
    assert (count > 0, checks[0].verdict) == (verdict == "down", verdict)
    assert (checks[0].value, checks[0].threshold, checks[0].readings) == (since, 600, 6)
    assert checks[0].text == ("idle for 600 s" if verdict == "down" else "idle 599 of 600 s")


def test_the_first_idle_reading_waits() -> None:
    count, checks = removable(idle(workers=workers(6)), Memory())
    assert (count, checks[0].verdict, checks[0].value, checks[0].readings) == (0, "waiting", 0, 1)


@pytest.mark.parametrize(("usable", "minimum", "count"), [(2, 2, 0), (3, 2, 1), (5, 2, 3), (9, 2, 3)])
def test_workers_above_the_minimum_are_removed_up_to_the_most_targets(usable: int, minimum: int, count: int) -> None:
    light = workers(usable, cpu_requested_milli=1, memory_requested_mib=1)
    found, checks = removable(idle(workers=light, cpu_percent=1.0, memory_percent=1.0), minimum=minimum)
    assert (found, len(checks)) == (count, 2)


@pytest.mark.parametrize(("minimum", "setting"), [(2, "min_workers"), (3, "schedules")])
def test_the_check_of_the_minimum_names_the_setting_that_sets_it(minimum: int, setting: str) -> None:
    _, (_, check) = removable(idle(workers=workers(2)), policy=replace(POLICY, min_workers=2), minimum=minimum)
    assert (check.verdict, check.value, check.setting) == ("hold", 2, setting)


def test_fewer_workers_are_removed_when_the_load_of_more_would_not_fit() -> None:
    """Four workers at 25 % are at 33 % as three, and at 50 % as two."""
    policy = replace(POLICY, cpu_up_percent=55.0)
    light = workers(4, cpu_requested_milli=1, memory_requested_mib=1)
    count, (_, projection) = removable(idle(workers=light, cpu_percent=25.0, memory_percent=1.0), policy=policy)
    assert (count, projection.text) == (1, "CPU would be 33.3 % under 45 %, memory would be 1.3 % under 65 %")


def projected(crew: tuple[Worker, ...], removed: int = 1, policy: Policy = POLICY, **changes: Any) -> Any:
    return evaluate_projection(make_tick(idle(workers=crew, **changes), Memory(), policy, START), removed)


@pytest.mark.parametrize(("count", "verdict"), [(1, "hold"), (2, "down")])
def test_the_last_worker_is_kept(count: int, verdict: str) -> None:
    assert projected(workers(count, cpu_requested_milli=1, memory_requested_mib=1)).verdict == verdict


@pytest.mark.parametrize(
    ("changes", "policy", "verdict", "value"),
    [
        ({"cpu_percent": 30.0}, POLICY, "hold", 60.0),
        ({"cpu_percent": 29.9}, POLICY, "down", None),
        ({"memory_percent": 32.5}, POLICY, "hold", 65.0),
        ({"memory_percent": 32.4}, POLICY, "down", None),
        ({"memory_percent": 99.0}, WITHOUT_MEMORY, "down", None),
    ],
)
def test_the_load_of_the_others_stays_under_the_high_threshold_less_the_margin(
    changes: dict[str, Any], policy: Policy, verdict: str, value: float | None
) -> None:
    found = projected(workers(2, cpu_requested_milli=1, memory_requested_mib=1), 1, policy, **changes)
    assert (found.verdict, found.value) == (verdict, value)


@pytest.mark.parametrize(
    ("crew", "verdict", "value"),
    [
        (workers(2, cpu_requested_milli=900), "down", None),
        (workers(2, cpu_requested_milli=901), "hold", 90.1),
        (workers(2, memory_allocatable_mib=1000, memory_requested_mib=450), "hold", 100.0),
        (workers(2, memory_allocatable_mib=1000, memory_requested_mib=451, cpu_requested_milli=0), "hold", 90.2),
        ((worker(1, cpu_requested_milli=None), worker(2)), "missing", None),
        ((worker(1, memory_allocatable_mib=None), worker(2)), "missing", None),
        (workers(2, cpu_requested_milli=None, memory_requested_mib=None), "down", None),
        (workers(2, cpu_allocatable_milli=0, cpu_requested_milli=0, memory_requested_mib=0), "down", None),
        (workers(2, cpu_allocatable_milli=0, cpu_requested_milli=1, memory_requested_mib=0), "hold", float("inf")),
        (
            (worker(1, cpu_allocatable_milli=8000), worker(2, cpu_allocatable_milli=1000, cpu_requested_milli=0)),
            "hold",
            100.0,
        ),
    ],
    ids=[
        "cpu at the limit",
        "cpu over it",
        "cpu decides when it is higher",
        "memory decides when it is higher",
        "one request is unknown",
        "one size is unknown",
        "the cluster reports no requests",
        "nothing is requested of nothing",
        "something is requested of nothing",
        "the largest worker is the one that is left out",
    ],
)
def test_the_requests_of_all_fit_on_the_others_within_the_margin(
    crew: tuple[Worker, ...], verdict: str, value: float | None
) -> None:
    light = tuple(w if w.memory_requested_mib != 800 else replace(w, memory_requested_mib=1) for w in crew)
    found = projected(light, 1)
    assert (found.verdict, found.value) == (verdict, value)
    assert found.threshold == (90 if found.verdict != "down" else None)
