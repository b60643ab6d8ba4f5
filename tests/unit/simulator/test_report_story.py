"""The story of executions: rows from histories, folded paths, and the workflow's picture from its definition."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdk_app.workflow import definitions
from simulator.report.graph import all_edges, flattened, layout, mermaid, picture, svg
from simulator.report.story import changed_something, rows_of, short_path
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


@pytest.mark.parametrize("name", ["autoscaler", "interruption"])
def test_the_picture_has_every_state_and_an_arrow_for_every_edge_of_the_definition(name: str) -> None:
    definition = definitions()[name]
    whole = flattened(definition)
    drawn = svg(definition)
    for state in whole["States"]:
        assert f'data-state="{state}"' in drawn
    for start, end in all_edges(definition):
        assert drawn.count(f'data-edge="{start}&gt;{end}"') == 1


@pytest.mark.parametrize("name", ["autoscaler", "interruption"])
def test_no_two_states_are_drawn_over_each_other(name: str) -> None:
    places = layout(flattened(definitions()[name]))
    assert len({(place.x, place.y) for place in places.values()}) == len(places)


def test_documents_get_a_picture_that_stands_alone_and_a_diagram_as_text() -> None:
    definition = definitions()["autoscaler"]
    assert picture(definition).startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    text = mermaid(definition)
    assert text.startswith("flowchart TD") and "Decide --> Route" in text
