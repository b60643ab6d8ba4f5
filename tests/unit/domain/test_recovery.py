"""What a clean-up may close and undo, and what a given-up operation means to the next run."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from node_fleet.domain.model.operation import (
    FINISHED_TARGET_PHASES,
    LaunchSlot,
    Operation,
    Target,
    TargetPhase,
    cordons_to_undo,
    given_up,
    may_close,
    resume_state,
)
from node_fleet.payload import from_payload, to_payload

UP = Operation(
    operation_id="up-1",
    kind="scale_up",
    phase="verify",
    started_at=0,
    requested=1,
    reason="busy",
    execution_id="dead",
    slots=(LaunchSlot(number=0, zone="a", subnet_id="s", instance_type="t", market="spot"),),
)


def down(*phases: TargetPhase) -> Operation:
    targets = tuple(Target(instance_id=f"i-{n}", node_name=f"n-{n}", phase=p) for n, p in enumerate(phases))
    return replace(UP, operation_id="down-1", kind="scale_down", phase="draining", slots=(), targets=targets)


@pytest.mark.parametrize("phase", get_args(TargetPhase))
def test_only_a_target_that_was_begun_and_still_runs_can_have_our_cordon(phase: TargetPhase) -> None:
    expected = phase not in FINISHED_TARGET_PHASES and phase not in ("terminating", "terminated")
    assert bool(cordons_to_undo(down(phase))) is expected


def test_targets_go_one_by_one_so_at_most_one_is_cordoned() -> None:
    assert [t.instance_id for t in cordons_to_undo(down("undone", "drained", "selected"))] == ["i-1"]
    assert cordons_to_undo(UP) == ()


@pytest.mark.parametrize(
    ("operation", "state"),
    [
        (UP, "AbandonUnjoined"),
        (down("selected"), "UndoDrain"),
        (down("draining"), "UndoDrain"),
        (down("drained"), "UndoDrain"),
        (down("undone"), "CompleteScaleDown"),
    ],
)
def test_a_given_up_operation_is_only_undone_however_young_it_is(operation: Operation, state: str) -> None:
    assert resume_state(given_up(operation), now=1, limit_seconds=900) == state


def test_a_given_up_operation_survives_its_trip_through_the_state_item() -> None:
    assert from_payload(Operation, to_payload(given_up(UP))) == given_up(UP)


def test_another_executions_operation_is_not_closed() -> None:
    assert may_close(UP, "dead") is True
    assert may_close(UP, "another") is False
