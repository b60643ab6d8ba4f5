"""The end of a removal: what EC2's state of the instance means, and how the operation is closed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from node_fleet.domain.model.operation import Operation, TargetPhase

NOT_TERMINATED_SECONDS = 60
"""An instance that is still running this long after the termination is checked and terminated again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminationVerdict:
    """The state of a termination; phase: the new phase of the target, None while nothing changes."""

    status: Literal["waiting", "terminated", "timeout"]
    detail: str
    phase: TargetPhase | None = None


def judge_termination(ec2_state: str, still_ready: bool, waited: int, limit: int) -> TerminationVerdict:
    """What EC2's state means, `waited` seconds after the termination. still_ready: its node is shown as Ready."""
    ended = ec2_state in ("terminated", "gone")
    if ended and not (still_ready and waited <= limit):
        return TerminationVerdict(status="terminated", detail=f"EC2 state {ec2_state}", phase="terminated")
    if ended:
        return TerminationVerdict(status="waiting", detail="its node is still shown as Ready")
    if ec2_state in ("running", "pending") and waited > NOT_TERMINATED_SECONDS:
        text = f"EC2 state {ec2_state} {waited} s after TerminateInstances"
        return TerminationVerdict(status="timeout", detail=text, phase="drained")
    if waited > limit:
        return TerminationVerdict(status="timeout", detail=f"EC2 state {ec2_state} after {waited} s")
    return TerminationVerdict(status="waiting", detail=f"EC2 state {ec2_state}")


def must_stay_open(operation: Operation, *, expired: bool) -> bool:
    """True while a later run must finish a termination, or, until the limit, remove a cordon that may remain."""
    phases = {t.phase for t in operation.targets}
    return bool(phases & {"terminating", "terminated"}) or (bool(phases & {"draining", "drained"}) and not expired)


def removal_sentence(operation: Operation, left: int | None) -> str:
    """The result for every target; left: the workers that remain, None when not known."""
    parts = [f"{t.instance_id} ({t.zone}, {t.market}): {t.detail or t.phase}" for t in operation.targets]
    after = "" if left is None else f"; {operation.workers_before} -> {left} workers"
    removed = len(operation.forgotten)
    head = f"removed {removed} of {operation.requested} workers" if removed else "no worker was removed"
    return f"{head}{after}: {'; '.join(parts) or 'no worker was selected'}"
