"""What the clean-up after a dead execution may do: which operations it may close, which cordons it undoes."""

from __future__ import annotations

from node_fleet.domain.operation import Operation, Target


def may_close(operation: Operation, dead_execution_id: str) -> bool:
    """True for an operation that the dead execution worked on and that can be given up without loss.

    A worker whose instance is being terminated must be finished (its node is to be forgotten), so such an operation
    stays open for the next run.
    """
    unfinished = any(t.phase in ("terminating", "terminated") for t in operation.targets)
    return operation.execution_id == dead_execution_id and not unfinished


def cordons_to_undo(operation: Operation) -> tuple[Target, ...]:
    """Targets that this operation may have cordoned and that still run."""
    return tuple(t for t in operation.targets if t.phase in ("selected", "draining", "drained"))
