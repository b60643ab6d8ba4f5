"""The end of a removal: what EC2's state of the instance means, and how the operation is closed."""

from __future__ import annotations

from typing import Literal

from node_fleet.domain.model.operation import Operation, TargetPhase
from node_fleet.domain.model.text import count_of
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.scale_down.set_aside import ENDED

REBOOT_SECONDS = 60
"""A rebooted worker stays cordoned for so long, because EC2 only queues the reboot: no pod starts on it before."""
NOT_REBOOTED = "drained, but not rebooted"
"""How the detail of a worker begins whose reboot EC2 refused."""
NOT_TERMINATED_SECONDS = 60
"""An instance that still runs this long after the termination was not terminated: the removal is rolled back."""


@value_class
class TerminationVerdict:
    """The state of a termination; phase: the new phase of the target, None while nothing changes."""

    status: Literal["waiting", "terminated", "not_terminated", "set_aside", "rebooted"]
    detail: str
    phase: TargetPhase | None = None


def has_ended(ec2_state: str, *, standby: bool) -> bool:
    """Whether the instance runs no pod and starts none: it is terminated, or stopped as a standby worker."""
    return ec2_state in ENDED or (standby and ec2_state == "stopped")


def judge_termination(
    ec2_state: str, still_ready: bool, waited: int, limit: int, *, standby: bool
) -> TerminationVerdict:
    """What EC2's state means, `waited` seconds after the request. still_ready: its node is shown as Ready."""
    ended, request = has_ended(ec2_state, standby=standby), "StopInstances" if standby else "TerminateInstances"
    if ended and not (still_ready and waited <= limit):
        return TerminationVerdict(status="terminated", detail=f"EC2 state {ec2_state}", phase="terminated")
    if ended:
        return TerminationVerdict(status="waiting", detail="its node is still shown as Ready")
    if ec2_state in ("running", "pending") and waited > NOT_TERMINATED_SECONDS:
        text = f"EC2 state {ec2_state} {waited} s after {request}"
        return TerminationVerdict(status="not_terminated", detail=text, phase="drained")
    if waited > limit:
        text = f"EC2 state {ec2_state} {waited} s after {request}"
        return TerminationVerdict(status="set_aside", detail=text, phase="set_aside")
    return TerminationVerdict(status="waiting", detail=f"EC2 state {ec2_state}")


def judge_reboot(waited: int) -> TerminationVerdict:
    """Whether the node of a worker may be uncordoned, `waited` seconds after its reboot was recorded."""
    if waited < REBOOT_SECONDS:
        return TerminationVerdict(status="waiting", detail=f"rebooting for {waited} s")
    return TerminationVerdict(status="rebooted", detail="rebooted, it can receive pods again once it is Ready")


def must_stay_open(operation: Operation) -> bool:
    """True while a later run must finish a termination."""
    return operation.current is not None and operation.current.phase in ("terminating", "terminated")


def removal_sentence(operation: Operation, left: int | None) -> str:
    """The result for every target; left: the workers that remain, None when not known."""
    parts = [f"{t.instance_id} ({t.zone}, {t.market}): {t.detail or t.phase}" for t in operation.targets]
    if operation.rebooted:
        sent = sum(not t.detail.startswith(NOT_REBOOTED) for t in operation.rebooted)
        done = f"rebooted {count_of(sent, 'worker')}" if sent else "no worker was rebooted"
        return f"{done}: {'; '.join(parts)}"
    after = "" if left is None else f"; {operation.workers_before} -> {left} workers"
    removed = len(operation.removed)
    head = f"removed {removed} of {operation.requested} workers" if removed else "no worker was removed"
    return f"{head}{after}: {'; '.join(parts) or 'no worker was selected'}"
