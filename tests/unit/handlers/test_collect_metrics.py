"""CollectMetrics: live, cached or none, what is recorded, and when history is fetched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.collect_metrics import handler
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.snapshot import NodeReading, Reading, Snapshot
from node_fleet.domain.scaling.prediction import predict
from node_fleet.domain.scaling.tick import make_tick
from node_fleet.payload import from_payload
from node_fleet.settings import Settings
from tests.support.handlers.fakes import NOW, A, B, FakeServices, inspection_text, instance, worker_line

FIGURES = ("cpu_percent", "cpu_max_percent", "memory_percent", "memory_max_percent")
PROBLEM = "Prometheus at http://10.0.0.1:30090 does not answer"


@pytest.fixture
def one(services: FakeServices) -> FakeServices:
    """A fleet of one worker, which Prometheus shows with 42 % of its CPU."""
    services.settings = Settings(cached_reading_seconds=300)
    services.ec2.fleet = services.ec2.fleet[:1]
    node = NodeReading(
        node_name=A,
        provider_id=f"aws:///a/{A}",
        ready=True,
        cores=2.0,
        cpu_percent=42.0,
        memory_used_mib=1,
        memory_total_mib=2,
    )
    figures: dict[str, Any] = dict.fromkeys(FIGURES, 42.0)
    services.prometheus.reading = Reading(at=NOW, **figures, pending=(), nodes=(node,))
    return services


def collect() -> Snapshot:
    answer = handler({"status": "acquired"}, None)
    assert answer["status"] == "acquired"
    snapshot: Snapshot = from_payload(Snapshot, answer["snapshot"])
    return snapshot


def test_a_live_reading_is_recorded_once(one: FakeServices) -> None:
    snapshot = collect()
    assert (snapshot.source, snapshot.cpu_percent, snapshot.pending_count, snapshot.problem) == ("live", 42, 0, "")
    assert one.records.readings == [snapshot]


@pytest.mark.parametrize(("age", "source"), [(120, "cached"), (300, "cached"), (301, "none"), (None, "none")])
def test_without_prometheus_a_young_reading_stands_in_and_the_instances_are_still_there(
    one: FakeServices, age: int | None, source: str
) -> None:
    if age:
        one.records.snapshot = replace(collect(), at=NOW - age, read_at=NOW - age)
        one.records.readings.clear()
    one.prometheus.down = True
    snapshot = collect()
    assert (snapshot.source, snapshot.problem) == (source, PROBLEM)
    assert (snapshot.cpu_percent, snapshot.pending) == ((42, ()) if source == "cached" else (None, None))
    (worker,) = snapshot.workers
    assert worker.instance_id == A and (worker.phase == "unknown" or source == "cached")
    assert one.records.readings == []


def test_a_reading_in_which_all_is_missing_is_live_and_names_it_and_is_not_recorded(one: FakeServices) -> None:
    nothing: dict[str, Any] = dict.fromkeys(FIGURES)
    one.prometheus.reading = Reading(at=NOW, **nothing, pending=None, nodes=(), missing=("nodes", "pending"))
    snapshot = collect()
    assert one.records.readings == []
    assert snapshot.source == "live"
    assert snapshot.missing == ("nodes", "pending", "cpu_percent", "memory_percent")


def test_notices_of_the_state_item_reach_the_snapshot(one: FakeServices) -> None:
    one.notice(A)
    assert collect().workers[0].under_notice


@pytest.mark.parametrize(
    ("age", "flags", "stale", "asked"),
    [
        (301, "RW", True, True),
        (301, "W", False, True),
        (301, "", False, True),
        (301, None, False, False),
        (300, "RW", False, False),
    ],
    ids=["Ready in the API", "NotReady in the API", "not in the API", "no answer", "within the join limit"],
)
def test_a_ready_node_that_kube_state_metrics_does_not_show_makes_its_figures_missing(
    one: FakeServices, age: int, flags: str | None, stale: bool, asked: bool
) -> None:
    one.ec2.fleet = (instance(A), replace(instance(B), launched_at=NOW - age))
    if flags is not None:
        lines = [worker_line(A), *([worker_line(B, flags)] if flags else [])]
        one.server.says("InspectNodes", inspection_text(*lines))
    else:
        one.server.unreachable = True
    snapshot = collect()
    assert (snapshot.source, snapshot.cpu_percent, bool(one.server.commands)) == ("live", 42, asked)
    assert ("nodes" in snapshot.missing, "pending" in snapshot.missing, snapshot.pending is None) == (stale,) * 3
    assert (B in snapshot.problem, "kube-state-metrics is stale" in snapshot.problem) == (stale, stale)
    assert {w.phase for w in snapshot.workers if w.instance_id == A} == {"unknown" if stale else "usable"}


@pytest.mark.parametrize(
    ("predictive", "zone", "minute", "asked"),
    [
        (True, "UTC", 49, False),
        (True, "UTC", 50, True),
        (True, "UTC", 59, True),
        (False, "UTC", 55, False),
        (True, "Asia/Kolkata", 49, False),
        (True, "Asia/Kolkata", 50, True),
    ],
)
def test_history_is_fetched_only_in_the_minutes_of_prediction(
    one: FakeServices, predictive: bool, zone: str, minute: int, asked: bool
) -> None:
    one.settings = Settings(predictive=predictive, timezone=zone)
    one.clock.time = NOW // 3600 * 3600 + minute * 60
    assert bool(collect().hourly) is asked
    assert one.records.asked == ([(one.clock.time - 14 * 86_400, one.clock.time)] if asked else [])


@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    zone=st.sampled_from(
        ("UTC", "Asia/Dhaka", "Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe", "America/St_Johns")
    ),
    second=st.integers(0, 14 * 86_400),
    minute=st.integers(0, 59),
)
def test_the_history_is_fetched_exactly_when_a_prediction_is_made(
    one: FakeServices, zone: str, second: int, minute: int
) -> None:
    one.settings = Settings(predictive=True, timezone=zone, predictive_minute=minute)
    one.clock.time = NOW + second
    one.prometheus.reading = replace(one.prometheus.reading, at=one.clock.time)
    tick = make_tick(collect(), Memory(), one.settings.policy(), one.clock.time)
    assert bool(tick.snapshot.hourly) == bool(predict(tick).hour_judged)
