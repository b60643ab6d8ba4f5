"""The metrics that a run leaves for Prometheus: counts that only grow, gauges that are missing when unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import LaunchSlot, Operation, Target
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import PodShape, Snapshot, Worker
from node_fleet.domain.notify.exposition import change_of, exposition, stored
from node_fleet.domain.notify.totals import MOST_KEYS, by_labels, count_operation, count_run, packed, unpacked
from tests.support.shipped_scripts import load_server

POLICY = Policy(min_workers=2, max_workers=10)
METRICS = load_server("state_metrics")


def operation(*outcomes: Any, targets: tuple[Target, ...] = (), **more: Any) -> Operation:
    slots = tuple(
        LaunchSlot(number=n, zone="a", subnet_id="s", instance_type="t3.small", market="spot", outcome=outcome)
        for n, outcome in enumerate(outcomes)
    )
    base = Operation(
        operation_id="up-1",
        kind="scale_up",
        phase="verify",
        started_at=1,
        requested=1,
        reason="r",
        execution_id="e",
        slots=slots,
        targets=targets,
    )
    return replace(base, **more)


def target(phase: Any) -> Target:
    return Target(instance_id="i-1", node_name="i-1", phase=phase)


def values(text: str) -> dict[str, float]:
    rows = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in rows}


def shown(memory: Memory = Memory(), snapshot: Snapshot | None = None, **more: Any) -> dict[str, float]:  # noqa: B008
    given_values = {"now": 1000, "change": None, "usd_per_hour": None, "node_count": None, **more}
    return values(exposition(memory, snapshot, POLICY, **given_values))


def worker(number: int, phase: Any = "usable") -> Worker:
    return Worker(
        instance_id=f"i-{number}",
        instance_type="t3.small",
        zone="a",
        market="spot",
        launched_at=1,
        phase=phase,
    )


def test_launches_and_removals_are_counted_by_result_and_reason() -> None:
    memory = count_operation(Memory(), operation("joined", "joined", "unjoined", "planned", "launched"), "pending")
    memory = count_operation(memory, operation("joined"), "cpu")
    memory = count_operation(memory, operation(targets=(target("forgotten"), target("undone"))), "idle")
    assert by_labels(unpacked(memory.totals), "launches") == [
        ("joined", "cpu", 1),
        ("joined", "pending", 2),
        ("not_joined", "pending", 1),
        ("refused", "pending", 1),
        ("unknown", "pending", 1),
    ]
    assert by_labels(unpacked(memory.totals), "removals") == [("forgotten", "idle", 1), ("undone", "idle", 1)]


@pytest.mark.parametrize(
    ("replaced", "rule", "reason"),
    [("drifted", "replace", "drifted"), ("", "", "resumed"), ("", 'a "b" {c}\n', "a_b_c_"), ("", "x" * 99, "x" * 24)],
)
def test_a_reason_is_the_replacement_else_the_rule_in_plain_characters(replaced: Any, rule: str, reason: str) -> None:
    memory = count_operation(Memory(), operation("joined", replace_reason=replaced), rule)
    assert by_labels(unpacked(memory.totals), "launches") == [("joined", reason, 1)]


def test_without_an_operation_nothing_is_counted() -> None:
    assert count_operation(Memory(), None, "cpu") == Memory()


def test_a_thousand_reasons_make_a_bounded_number_of_series_and_lose_no_count() -> None:
    memory = Memory()
    for number in range(1000):
        memory = count_operation(memory, operation("joined"), f"custom_{number}")
    assert len(unpacked(memory.totals)) == MOST_KEYS + 1
    assert sum(unpacked(memory.totals).values()) == 1000
    assert ("joined", "other", 1000 - MOST_KEYS) in by_labels(unpacked(memory.totals), "launches")


@pytest.mark.parametrize(
    "text", ["x", "AAAA", "!!", packed({"runs/failed/": 1})[:-6], "c-o7O1pomR0J#", "c-m8{Pyzq}djP!"]
)
def test_damaged_counts_begin_again_and_end_no_run(text: str) -> None:
    memory = count_run(Memory(totals=text), (), 5, is_failed=False)
    assert unpacked(memory.totals) == {"runs/succeeded/": 1}


def test_a_failed_run_counts_as_failed_and_keeps_the_time_of_the_last_success() -> None:
    memory = count_run(Memory(), ("scale_up", "none"), 500, is_failed=False)
    memory = count_run(memory, (), 600, is_failed=True)
    assert memory.succeeded_at == 500
    assert by_labels(unpacked(memory.totals), "runs") == [("failed", "", 1), ("succeeded", "", 1)]
    assert by_labels(unpacked(memory.totals), "decisions") == [("none", "", 1), ("scale_up", "", 1)]


def test_the_text_has_every_figure_of_the_run() -> None:
    pending = (PodShape(cpu_milli=1, memory_mib=1, count=3),)
    workers = (worker(1), worker(2), worker(3, "joining"))
    snapshot = Snapshot(at=1, source="live", pending=pending, workers=workers)
    memory = Memory(succeeded_at=990, totals=packed({"decisions/scale_up/": 2, "launches/joined/pending": 4}))
    assert shown(memory, snapshot, change=2, usd_per_hour=0.25) == {
        "node_fleet_last_run_timestamp_seconds": 1000,
        "node_fleet_last_success_timestamp_seconds": 990,
        "node_fleet_workers_wanted": 5,
        "node_fleet_workers_actual": 3,
        "node_fleet_workers_usable": 2,
        "node_fleet_workers_min": 2,
        "node_fleet_workers_max": 10,
        "node_fleet_pending_pods": 3,
        "node_fleet_cost_usd_per_hour": 0.25,
        'node_fleet_decisions_total{action="scale_up"}': 2,
        'node_fleet_launches_total{result="joined",reason="pending"}': 4,
    }


def test_what_a_run_does_not_know_is_missing_and_never_0() -> None:
    assert shown().keys() == {
        "node_fleet_last_run_timestamp_seconds",
        "node_fleet_workers_min",
        "node_fleet_workers_max",
    }
    cached = shown(snapshot=Snapshot(at=1, source="cached", workers=(worker(1),)), usd_per_hour=float("nan"))
    assert {"node_fleet_workers_usable", "node_fleet_cost_usd_per_hour", "node_fleet_pending_pods"}.isdisjoint(cached)


def test_after_a_change_the_count_of_the_operation_is_the_actual_one() -> None:
    snapshot = Snapshot(at=1, source="live", workers=(worker(1),))
    assert shown(snapshot=snapshot, node_count=4)["node_fleet_workers_actual"] == 4


@pytest.mark.parametrize(("action", "change"), [("scale_up", 3), ("scale_down", -3), ("none", 0), ("replace", 0)])
def test_a_decision_changes_the_wanted_workers(action: str, change: int) -> None:
    assert change_of(action, 3) == change


@given(st.lists(st.tuples(st.text(max_size=60), st.sampled_from(["joined", "unjoined", "failed"])), max_size=40))
def test_the_server_passes_on_every_line_whatever_the_reasons(rows: list[tuple[str, Any]]) -> None:
    memory = Memory()
    for rule, outcome in rows:
        memory = count_operation(memory, operation(outcome), rule)
    text = exposition(memory, None, POLICY, now=1, change=None, usd_per_hour=None, node_count=None)
    served = METRICS.metrics({"exposition": {"S": stored(text)}}, 2.0)
    assert text.splitlines() == served.splitlines()[: len(text.splitlines())]
