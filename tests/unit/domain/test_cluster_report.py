"""What kubectl shows of a run: its Events, its status, and their bounds."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.adapters.server import PATTERNS
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import LaunchSlot, Operation
from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.snapshot import PodShape, Snapshot
from node_fleet.domain.notify.cluster_report import (
    MOST_EVENTS,
    PACKED_CHARACTERS,
    ClusterEvent,
    ClusterReport,
    kept_due,
    kept_report,
    run_report,
    status_text,
)
from node_fleet.domain.notify.message import Message

MESSAGE = Message(
    cluster_id="prod",
    level="success",
    what="added 1 worker",
    why="3 pods wait",
    execution_id="run-1",
    trigger="schedule",
    workers_before=2,
    workers_after=3,
    placements=("i-1 t3.small spot a",),
)


def unpacked(report: ClusterReport) -> dict[str, Any]:
    word = report.packed
    found: dict[str, Any] = json.loads(zlib.decompress(base64.urlsafe_b64decode(word + "=" * (-len(word) % 4))))
    return found


def waiting(*shapes: PodShape) -> Snapshot:
    return Snapshot(at=100, source="live", pending=shapes)


def pods(count: int = 1, example: str = "shop/web-1", **more: Any) -> PodShape:
    return PodShape(cpu_milli=100, memory_mib=64, count=count, example=example, **more)


def launched(outcome: Any = "joined") -> Operation:
    slot = LaunchSlot(
        number=1, zone="a", subnet_id="s", instance_type="t3.small", market="spot", outcome=outcome, instance_id="i-1"
    )
    return Operation(
        operation_id="up-1",
        kind="scale_up",
        phase="verify",
        started_at=1,
        requested=1,
        reason="3 pods wait",
        execution_id="run-1",
        slots=(slot,),
    )


def events(snapshot: Snapshot | None, operation: Operation | None, failure: dict[str, str] | None = None) -> list[Any]:
    report = run_report(MESSAGE, at=100, snapshot=snapshot, operation=operation, failure=failure)
    return [(e.namespace, e.name, e.reason, e.message, e.is_warning) for e in report.events]


def test_a_scale_up_is_an_event_on_each_new_worker_and_on_a_pod_of_each_group() -> None:
    assert events(waiting(pods(3)), launched()) == [
        ("", "i-1", "ScaleUp", "node-fleet launched this worker (t3.small spot in a): 3 pods wait", False),
        (
            "shop",
            "web-1",
            "ScaleUp",
            "node-fleet added 1 worker while 3 pods such as this one waited: 3 pods wait",
            False,
        ),
    ]


def test_a_failed_scale_up_is_a_warning_on_the_pods_it_was_for() -> None:
    failure = {"Error": "NoCapacityError", "Cause": "EC2 refused every pool"}
    assert events(waiting(pods()), launched("failed"), failure) == [
        (
            "shop",
            "web-1",
            "ScaleUpFailed",
            "the scale-up for this pod failed: EC2 refused every pool [NoCapacityError]",
            True,
        )
    ]


def test_pods_that_no_worker_helps_are_warned_and_others_that_only_wait_are_not() -> None:
    lasting = pods(problem="its volume is bound to node x", lasting=True)
    assert events(waiting(lasting, pods(example="shop/b-1", problem="its claim is not bound")), launched()) == [
        ("", "i-1", "ScaleUp", "node-fleet launched this worker (t3.small spot in a): 3 pods wait", False),
        ("shop", "web-1", "ScaleUpFailed", "no new worker helps this pod: its volume is bound to node x", True),
    ]


@pytest.mark.parametrize(
    ("snapshot", "operation", "failure"),
    [
        (None, None, None),
        (waiting(), None, None),
        (waiting(pods(example="")), launched("failed"), {"Error": "E", "Cause": "c"}),
        (waiting(pods()), None, {"Error": "E", "Cause": "c"}),
        (waiting(pods()), launched("unjoined"), None),
        (waiting(pods()), replace(launched(), kind="scale_down", slots=()), {"Error": "E", "Cause": "c"}),
    ],
    ids=["nothing", "no pods", "no name", "no operation", "none joined", "a scale-down"],
)
def test_other_runs_have_no_events(
    snapshot: Snapshot | None, operation: Operation | None, failure: dict[str, str] | None
) -> None:
    assert events(snapshot, operation, failure) == []


def test_the_status_is_yaml_with_the_decision_its_reason_and_its_counts() -> None:
    shown = replace(
        MESSAGE, what='a "quoted" line\nbreak: 1', alerts=(Alert(kind="at_maximum", text="at the maximum"),)
    )
    assert yaml.safe_load(status_text(shown, at=0, snapshot=waiting(pods(3)), kept=["worker i-1: kept, x"])) == {
        "time": "1970-01-01 00:00:00 UTC",
        "cluster": "prod",
        "result": "success",
        "what": 'a "quoted" line\nbreak: 1',
        "why": "3 pods wait",
        "workersBefore": 2,
        "workersAfter": 3,
        "pendingPods": 3,
        "execution": "run-1",
        "instances": ["i-1 t3.small spot a"],
        "alerts": ["at_maximum: at the maximum"],
        "kept": ["worker i-1: kept, x"],
    }


def test_the_status_of_a_run_without_a_reading_has_no_count_of_pending_pods() -> None:
    assert yaml.safe_load(status_text(MESSAGE, at=0, snapshot=None))["pendingPods"] is None


@pytest.mark.parametrize(("count", "last"), [(10, "worker i-9"), (11, "and 1 more"), (1000, "and 990 more")])
def test_a_long_list_of_the_status_is_cut_and_counts_the_rest(count: int, last: str) -> None:
    found = yaml.safe_load(status_text(MESSAGE, at=0, snapshot=None, kept=[f"worker i-{n}" for n in range(count)]))
    assert len(found["kept"]) == min(count, 11)
    assert found["kept"][-1] == last


def test_each_kept_worker_has_an_event_and_the_server_and_foreign_nodes_have_none() -> None:
    kept = {
        "i-1": "shop/db-0 is a StatefulSet pod",
        "i-2": "it is the server",
        "i-3": "it is not managed by node-fleet",
        "i-4": "it has not joined the cluster yet",
    }
    report = kept_report(MESSAGE, kept, at=100, snapshot=None)
    assert [(e.name, e.reason, e.message) for e in report.events] == [
        ("i-1", "NotEligible", "kept: shop/db-0 is a StatefulSet pod")
    ]
    assert yaml.safe_load(report.status)["kept"] == ["worker i-1: kept, shop/db-0 is a StatefulSet pod"]


@pytest.mark.parametrize(("age", "due"), [(None, True), (0, False), (3599, False), (3600, True)])
def test_kept_workers_are_reported_once_in_the_quiet_time(age: int | None, due: bool) -> None:
    memory = Memory(alerted={"other": 5} | ({} if age is None else {"events:kept": 10_000 - age}))
    found = kept_due(memory, 10_000, 3600)
    assert (found is not None) == due
    if found:
        assert found.alerted == {"other": 5, "events:kept": 10_000}


def test_a_thousand_reasons_fit_into_one_command() -> None:
    kept = {f"i-{n:017x}": f"shop/db-{n} is a StatefulSet pod" for n in range(1000)}
    report = kept_report(MESSAGE, kept, at=100, snapshot=None)
    found = unpacked(report)
    assert len(found["events"]) == MOST_EVENTS
    assert found["events"][0] == [
        "Node",
        "",
        "i-" + "0" * 17,
        "NotEligible",
        "kept: shop/db-0 is a StatefulSet pod",
        False,
    ]
    assert yaml.safe_load(found["status"])["kept"][-1] == "and 990 more"


@given(
    texts=st.lists(st.text(max_size=2000), max_size=30),
    names=st.lists(st.text(alphabet="ab.-/A\x00", max_size=300), max_size=30),
)
def test_whatever_the_texts_a_report_is_one_word_within_the_limit(texts: list[str], names: list[str]) -> None:
    rows = [
        ClusterEvent(name=name, namespace=name, reason="NotEligible", message=text)
        for name, text in zip(names, texts, strict=False)
    ]
    shown = replace(MESSAGE, what=" ".join(texts), why="\n".join(texts), placements=tuple(texts))
    report = ClusterReport(at=1, status=status_text(shown, at=1, snapshot=None, kept=texts), events=tuple(rows))
    assert len(report.packed) <= PACKED_CHARACTERS
    assert PATTERNS["Report"].fullmatch(report.packed)
    assert all(len(message) <= 300 for *_, message, _ in unpacked(report)["events"])
    assert yaml.safe_load(unpacked(report)["status"])["cluster"] == "prod"


def test_a_status_of_random_characters_is_cut_at_a_line() -> None:
    random = Random(1)
    texts = ["".join(chr(random.randrange(0x4E00, 0x9FFF)) for _ in range(300)) for _ in range(30)]
    shown = replace(MESSAGE, what=texts[0], placements=tuple(texts), why=texts[1])
    event = ClusterEvent(name="i-1", reason="ScaleUp", message=texts[2])
    report = ClusterReport(at=1, status=status_text(shown, at=1, snapshot=None, kept=texts), events=(event,))
    found = unpacked(report)
    assert len(report.packed) <= PACKED_CHARACTERS
    assert yaml.safe_load(found["status"])["what"] == texts[0]
    assert found["events"] == []
