"""Where a later run resumes an unfinished operation, what a clean-up may close, and what giving one up means."""

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

START, LIMIT = 1_790_000_000, 900
UP = Operation(
    operation_id="op",
    kind="scale_up",
    phase="begin",
    started_at=START,
    requested=1,
    reason="pending 3",
    execution_id="dead",
    slots=(LaunchSlot(number=0, zone="a", subnet_id="subnet-1", instance_type="t3.small", market="spot"),),
)


def down(*phases: TargetPhase) -> Operation:
    targets = tuple(Target(instance_id=f"i-{n}", node_name=f"n-{n}", phase=p) for n, p in enumerate(phases))
    return replace(UP, kind="scale_down", phase="draining", slots=(), targets=targets)


@pytest.mark.parametrize(
    ("operation", "in_time", "too_late", "after_giving_up"),
    [
        (UP, "LaunchNodes", "AbandonUnjoined", "AbandonUnjoined"),
        (replace(UP, phase="record"), "LaunchNodes", "AbandonUnjoined", "AbandonUnjoined"),
        (replace(UP, phase="verify"), "CheckJoin", "AbandonUnjoined", "AbandonUnjoined"),
        (down("selected"), "StartDrain", "UndoDrain", "UndoDrain"),
        (down("draining"), "CheckDrain", "UndoDrain", "UndoDrain"),
        (down("drained"), "TerminateNodes", "UndoDrain", "UndoDrain"),
        (down("terminating"), "ConfirmTermination", "ConfirmTermination", "ConfirmTermination"),
        (down("terminated"), "ForgetNodes", "ForgetNodes", "ForgetNodes"),
        (down("forgotten"), "CompleteScaleDown", "CompleteScaleDown", "CompleteScaleDown"),
        (down("undone"), "CompleteScaleDown", "CompleteScaleDown", "CompleteScaleDown"),
        (down("skipped", "selected"), "StartDrain", "UndoDrain", "UndoDrain"),
        (down("forgotten", "terminating"), "ConfirmTermination", "ConfirmTermination", "ConfirmTermination"),
    ],
)
def test_an_operation_is_resumed_where_it_stands_and_closed_after_its_limit_unless_a_machine_is_already_ending(
    operation: Operation, in_time: str, too_late: str, after_giving_up: str
) -> None:
    assert resume_state(operation, now=START + LIMIT, limit_seconds=LIMIT) == in_time
    assert resume_state(operation, now=START + LIMIT + 1, limit_seconds=LIMIT) == too_late
    assert resume_state(given_up(operation), now=START + 1, limit_seconds=LIMIT) == after_giving_up


def test_no_operation_is_resumed_where_there_is_none() -> None:
    assert resume_state(None, now=START, limit_seconds=LIMIT) == ""


@pytest.mark.parametrize("phase", get_args(TargetPhase))
def test_the_clean_up_undoes_only_the_cordon_of_a_target_that_was_begun_and_still_runs(phase: TargetPhase) -> None:
    undone = phase not in FINISHED_TARGET_PHASES and phase not in ("terminating", "terminated")
    assert [t.instance_id for t in cordons_to_undo(down(phase))] == (["i-0"] if undone else [])


def test_targets_are_removed_one_by_one_so_at_most_one_is_cordoned() -> None:
    assert [t.instance_id for t in cordons_to_undo(down("undone", "drained", "selected"))] == ["i-1"]
    assert cordons_to_undo(UP) == ()


@pytest.mark.parametrize("phase", ["selected", "draining", "drained", "terminating", "terminated"])
def test_the_clean_up_leaves_a_machine_that_is_being_terminated_for_the_next_run(phase: TargetPhase) -> None:
    assert may_close(down(phase), "dead") is (phase not in ("terminating", "terminated"))


def test_the_clean_up_closes_only_an_operation_of_the_dead_execution() -> None:
    assert may_close(UP, "dead") is True
    assert may_close(UP, "another") is False
