"""The story of executions: rows from histories, folded paths, and the workflow's picture from its definition."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from cdk_app.workflow import definitions
from simulator.cluster.views import SnapshotLine
from simulator.report.figures import _longest_wait
from simulator.report.graph import HEIGHT, WIDTH, LayoutError, all_edges, flattened, layout, picture, svg
from simulator.report.story import account_of, changed_something, quiet_groups, quiet_runs, rows_of, short_path
from simulator.runner import Execution
from tests.support.report_pages import FAILED, UP, events, execution


@pytest.mark.parametrize(
    ("path", "folded"),
    [
        ("", ""),
        ("A", "A"),
        ("A B", "A > B"),
        ("A A A", "(A) x3"),
        ("A B C B C B C D", "A > (B > C) x3 > D"),
        ("A B A B", "(A > B) x2"),
        ("A B C A B C", "(A > B > C) x2"),
        ("A B B C B B C", "A > (B > B > C) x2"),
    ],
)
def test_repeated_stretches_of_a_path_are_folded(path: str, folded: str) -> None:
    assert short_path(path.split()) == folded


def test_a_row_says_when_what_why_and_from_how_many_to_how_many() -> None:
    (row,) = rows_of([execution(0, UP, reason="pending 3 -> +1")])
    assert (row.clock, row.trigger, row.decision, row.reason) == ("08:00:00", "schedule", "+1", "pending 3 -> +1")
    assert (row.workers_before, row.workers_after) == (2, 3)
    assert "WaitForJoin" in row.path and "WaitForJoin" not in row.tasks and "LockStatus" not in row.tasks


def test_a_failed_run_tells_its_fault() -> None:
    (row,) = rows_of([execution(0, FAILED, status="FAILED", reason="quota is used up")])
    assert row.reason == "QuotaExceededError: quota is used up"
    assert row.status == "FAILED"


def run_of(path: tuple[str, ...], outputs: dict[str, dict[str, Any]], data: Any = None) -> Execution:
    steps = events(path, 1_780_300_800.0, {})
    for event in steps:
        left = event.get("stateExitedEventDetails")
        if left and left["name"] in outputs:
            left["output"] = json.dumps(outputs[left["name"]])
    return Execution(
        arn="arn",
        name="run",
        machine="m-interruption",
        input=data,
        started_at=0,
        status="SUCCEEDED",
        _events=lambda: steps,
    )


def operation(number: int, **changes: Any) -> dict[str, Any]:
    return {"operation_id": f"up-{number}", "kind": "scale_up", "requested": 2, "workers_before": 2, **changes}


def test_rounds_of_one_run_are_told_in_order_with_the_first_count_and_the_last() -> None:
    path = ("LaunchNodes", "CompleteScaleUp", "MoreDemand", "Notify")
    run = run_of(
        path,
        {
            "LaunchNodes": {"operation": operation(1, reason="pending 9")},
            "CompleteScaleUp": {"operation": operation(1, reason="pending 9"), "outcome": {"workers_after": 4}},
            "MoreDemand": {"operation": operation(2, requested=1, workers_before=4, reason="pending 2")},
            "Notify": {"outcome": {"kind": "scaled_up", "workers_after": 5}},
        },
    )
    (row,) = rows_of([run])
    assert (row.decision, row.workers_before, row.workers_after, row.reason) == ("+2, then +1", 2, 5, "pending 9")


def test_a_run_that_decided_nothing_is_none_and_changed_nothing() -> None:
    decision = {"decision": {"action": "none", "count": 0, "sentence": "all is well", "workers_before": 3}}
    run = run_of(("AcquireLock", "Decide", "ReleaseLock"), {"Decide": decision}, {"trigger": "schedule"})
    (row,) = rows_of([run])
    assert (row.decision, row.reason, row.workers_before, row.workers_after) == ("none", "all is well", 3, 3)
    assert not changed_something(run)


def test_a_run_without_any_input_or_payload_still_has_a_row() -> None:
    (row,) = rows_of([run_of((), {})])
    assert (row.trigger, row.decision, row.path, row.workers_before) == ("event", "none", "", None)


DECIDED = {"action": "scale_down", "count": 1, "sentence": "idle 600 of 600 s -> -1; CPU 3 %", "workers_before": 4}
NO_WORKER = {"kind": "none", "text": "no worker was removed: no worker is eligible: worker i-0a: kept, a is a Job pod"}
KEPT = ["worker i-0a: kept, a is a Job pod", "worker i-0b: kept, b is a Job pod", "worker i-0c: kept, it is the server"]


def test_a_removal_for_which_no_worker_is_eligible_changed_nothing_for_that_reason() -> None:
    account = account_of({"decision": DECIDED, "outcome": NO_WORKER, "selection": {"kept": KEPT}})
    assert (account.what, account.before, account.after) == ("none", 4, 4)
    assert account.reason == f"{NO_WORKER['text']}; 1 other worker kept too"
    assert account.text == account.reason, "it is not said twice"


def test_a_dry_run_and_a_failure_are_accounted_for() -> None:
    dry = account_of({"decision": DECIDED, "outcome": {"kind": "dry_run", "text": "dry run: would remove i-0a"}})
    assert (dry.what, dry.outcome) == ("dry run", "dry run: would remove i-0a")
    failed = account_of({"decision": DECIDED, "failure": {"Error": "Ec2Error", "Cause": "throttled; twice"}})
    assert (failed.what, failed.reason) == ("-1", "Ec2Error: throttled; twice")
    assert account_of({}).what == "none"


def test_quiet_runs_with_reasons_that_differ_only_in_numbers_and_ids_are_one_group() -> None:
    reasons = [
        "idle 120 of 600 s -> no change; CPU 3.1 %",
        "no worker is eligible: worker i-0a1b2c3d4e: kept, db-0",
        "idle 240 of 600 s -> no change; CPU 9 %",
        "no worker is eligible: worker i-0ffffffff1: kept, db-0",
        "cooldown 3 min left -> no change",
    ]
    runs = [
        (f"run-{number}", number * 120.0, account_of({"decision": {"sentence": reason, "action": "none", "count": 0}}))
        for number, reason in enumerate(reasons)
    ]
    groups = quiet_groups(runs)
    assert [(one.runs, one.first, one.last, one.first_at, one.last_at, one.reason) for one in groups] == [
        (2, "run-0", "run-2", 0.0, 240.0, reasons[2]),
        (2, "run-1", "run-3", 120.0, 360.0, reasons[3]),
        (1, "run-4", "run-4", 480.0, 480.0, reasons[4]),
    ]


def test_interruption_runs_that_changed_nothing_are_one_group_with_their_reason() -> None:
    runs = [
        run_of(
            ("AcquireLock",),
            {"AcquireLock": {"interruption": {"instance_id": f"i-0{n}", "why": "it was terminated"}}},
        )
        for n in (1, 2)
    ]
    assert [(one.reason, one.runs) for one in quiet_runs(runs)] == [("i-02: it was terminated", 2)]


def test_a_run_that_ended_before_it_decided_has_the_reason_of_that() -> None:
    held = {"AcquireLock": {"status": "held", "detail": "run-7 holds the lock for 300 s"}}
    (row,) = rows_of([run_of(("AcquireLock", "LockStatus", "AlreadyScaling"), held)])
    assert (row.decision, row.reason) == ("none", "run-7 holds the lock for 300 s")


def test_a_failure_is_shown_as_its_message_and_not_as_the_error_document_of_lambda() -> None:
    document = json.dumps({"errorType": "Ec2Error", "errorMessage": "EC2: throttled", "stackTrace": ["..."]})
    assert account_of({"failure": {"Error": "Ec2Error", "Cause": document}}).reason == "Ec2Error: EC2: throttled"


def test_runs_that_changed_something_or_failed_are_not_quiet() -> None:
    decided = {"Decide": {"decision": {**DECIDED, "action": "none", "count": 0}}}
    quiet = run_of(("AcquireLock", "Decide", "ReleaseLock"), decided)
    assert [one.runs for one in quiet_runs([quiet, execution(0, UP), execution(1, FAILED, status="FAILED")])] == [1]


@pytest.mark.parametrize("name", ["autoscaler", "interruption"])
def test_the_picture_has_every_state_and_an_arrow_for_every_edge_of_the_definition(name: str) -> None:
    definition = definitions()[name]
    whole = flattened(definition)
    drawn = svg(definition)
    for state in whole["States"]:
        assert f'data-state="{state}"' in drawn
    for start, end in all_edges(definition):
        assert drawn.count(f'data-edge="{start}&gt;{end}"') == 1


def boxes_of(name: str) -> dict[str, tuple[float, float, float, float]]:
    """State -> left, top, right and bottom of its box."""
    places = layout(flattened(definitions()[name])).places
    return {state: (place.x, place.y, place.x + WIDTH, place.y + HEIGHT) for state, place in places.items()}


@pytest.mark.parametrize("name", ["autoscaler", "interruption"])
def test_no_two_states_are_drawn_over_each_other(name: str) -> None:
    for (_, one), (_, other) in itertools.combinations(boxes_of(name).items(), 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]


@pytest.mark.parametrize("name", ["autoscaler", "interruption"])
def test_every_arrow_begins_and_ends_at_its_states_and_none_passes_behind_a_box(name: str) -> None:
    boxes, found = boxes_of(name), layout(flattened(definitions()[name]))
    for edge, points in found.routes.items():
        start, end = edge.split(">")
        for (x, y), box in ((points[0], boxes[start]), (points[-1], boxes[end])):
            assert box[0] <= x <= box[2] and y in (box[1], box[3]), edge
        for (x1, y1), (x2, y2) in itertools.pairwise(points):
            left, right, top, bottom = min(x1, x2), max(x1, x2), min(y1, y2), max(y1, y2)
            for state, box in boxes.items():
                outside = right <= box[0] or left >= box[2] or bottom <= box[1] or top >= box[3]
                assert outside, f"{edge} passes behind {state}"


def test_a_workflow_without_a_layout_is_refused_with_the_command_that_makes_it() -> None:
    changed = flattened(definitions()["autoscaler"])
    with pytest.raises(LayoutError, match=r"run python -m tools\.layout"):
        layout({**changed, "States": {**changed["States"], "New": {"Type": "Succeed"}}})


def test_documents_get_a_picture_that_stands_alone() -> None:
    assert picture(definitions()["autoscaler"]).startswith('<svg xmlns="http://www.w3.org/2000/svg"')


@pytest.mark.parametrize(
    ("unschedulable", "seconds"),
    [([], 0), ([0, 0], 0), ([0, 6, 6, 0], 90), ([0, 6, 0], 60), ([6, 6, 0, 0, 6, 0], 60), ([0, 6, 6], 60)],
)
def test_no_pod_waited_longer_than_from_the_last_sample_without_such_pods_to_the_next_one(
    unschedulable: list[int], seconds: float
) -> None:
    points = [
        SnapshotLine(
            at=30.0 * number,
            load_per_second=0.0,
            cpu_percent=None,
            pending_pods=count,
            unschedulable_pods=count,
            running_pods=0,
            workers_booting=0,
            workers_usable=2,
            workers_cordoned=0,
        )
        for number, count in enumerate(unschedulable)
    ]
    assert _longest_wait(points) == seconds
