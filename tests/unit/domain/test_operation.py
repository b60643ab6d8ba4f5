"""Where a later run takes up an unfinished operation: every phase, fresh and expired."""

from __future__ import annotations

from dataclasses import replace

import pytest

from node_fleet.domain.model.operation import LaunchSlot, Operation, Target, cordons_to_undo, may_close, resume_state

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
DOWN = replace(UP, kind="scale_down", phase="draining", slots=(), targets=(Target(instance_id="i-1", node_name="i-1"),))


def down(*phases: str) -> Operation:
    targets = tuple(Target(instance_id=f"i-{n}", node_name=f"i-{n}", phase=p) for n, p in enumerate(phases))  # type: ignore[arg-type]
    return replace(DOWN, targets=targets)


@pytest.mark.parametrize(
    ("operation", "state"),
    [
        (None, ""),
        (UP, "LaunchNodes"),
        (replace(UP, phase="record"), "LaunchNodes"),
        (replace(UP, phase="verify"), "CheckJoin"),
        (down("selected"), "StartDrain"),
        (down("draining"), "CheckDrain"),
        (down("drained"), "TerminateNodes"),
        (down("terminating"), "ConfirmTermination"),
        (down("terminated"), "ForgetNodes"),
        (down("forgotten"), "CompleteScaleDown"),
        (down("undone"), "CompleteScaleDown"),
        (down("skipped", "selected"), "StartDrain"),
        (down("forgotten", "terminating"), "ConfirmTermination"),
    ],
)
def test_an_operation_is_resumed_where_its_record_stands(operation: Operation | None, state: str) -> None:
    assert resume_state(operation, now=START + LIMIT, limit_seconds=LIMIT) == state


@pytest.mark.parametrize(
    ("operation", "state"),
    [
        (UP, "AbandonUnjoined"),
        (replace(UP, phase="verify"), "AbandonUnjoined"),
        (down("selected"), "UndoDrain"),
        (down("draining"), "UndoDrain"),
        (down("drained"), "UndoDrain"),
        (down("terminating"), "ConfirmTermination"),
        (down("terminated"), "ForgetNodes"),
    ],
)
def test_one_second_past_the_limit_it_is_closed_unless_a_machine_is_already_going(
    operation: Operation, state: str
) -> None:
    assert resume_state(operation, now=START + LIMIT + 1, limit_seconds=LIMIT) == state


@pytest.mark.parametrize("phase", ["selected", "draining", "drained"])
def test_the_clean_up_closes_the_dead_executions_operation_and_undoes_its_cordons(phase: str) -> None:
    assert may_close(down(phase), "dead") is True
    assert [t.instance_id for t in cordons_to_undo(down(phase))] == ["i-0"]


@pytest.mark.parametrize("phase", ["terminating", "terminated"])
def test_a_machine_that_is_being_terminated_is_left_for_the_next_run_to_finish(phase: str) -> None:
    assert may_close(down(phase), "dead") is False
    assert cordons_to_undo(down(phase)) == ()


def test_the_clean_up_leaves_another_executions_operation_alone() -> None:
    assert may_close(UP, "another") is False
