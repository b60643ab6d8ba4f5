"""What remains to be done after a fault: which operations may be closed, which cordons undone, which memory counts."""

from __future__ import annotations

from dataclasses import replace

from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation, Target


def may_close(operation: Operation, dead_execution_id: str) -> bool:
    """True for an operation that the dead execution began and that can be given up without loss.

    A worker whose instance is being terminated must be finished (its node is to be forgotten), so such an operation
    stays open for the next run; so does one that the dead execution had only taken up from another.
    """
    unfinished = any(t.phase in ("terminating", "terminated") for t in operation.targets)
    return operation.execution_id == dead_execution_id and not unfinished


def given_up(operation: Operation) -> Operation:
    """The operation in phase fail: from here on every run may only undo it."""
    return replace(operation, phase="fail")


def cordons_to_undo(operation: Operation) -> tuple[Target, ...]:
    """Targets that this operation may have cordoned and that still run: at most the one it was at.

    A drain may have been sent and not yet recorded, so a target that was only selected counts too.
    """
    target = operation.current
    return (target,) if target is not None and target.phase in ("selected", "draining", "drained") else ()


def left_open(operation: Operation | None) -> str:
    """What a clean-up that has no say in an open operation tells about it; empty when there is none."""
    if operation is None:
        return ""
    return f"operation {operation.operation_id} ({operation.phase}) stays open: the next run finishes or undoes it"


def newest(stored: Memory, carried: Memory) -> Memory:
    """What a run that met a fault must remember, from the item and from its payload.

    A step that died after it had closed its operation has stored a stamp or a back-off that the payload lacks: the
    payload must not take it back.
    """
    if stored.last_action_at > carried.last_action_at:
        return stored
    known = {entry.key: entry for entry in carried.back_offs}
    later = [e for e in stored.back_offs if e.key not in known or known[e.key].failures < e.failures]
    kept = tuple(e for e in carried.back_offs if e.key not in {entry.key for entry in later})
    return replace(carried, back_offs=(*kept, *later))
