"""Removals that are set aside: their records, and which of them a run can settle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from node_fleet.domain.model.operation import Operation, Target
from node_fleet.domain.model.set_aside import SetAside

ENDED = ("terminated", "gone")
"""EC2 states of an instance whose node may be deleted."""


def set_aside(
    operation: Operation, target: Target, kind: Literal["termination", "rollback"], now: int, detail: str
) -> SetAside:
    """The record of a target whose termination or rollback cannot be finished now."""
    return SetAside(
        instance_id=target.instance_id,
        node_name=target.node_name,
        kind=kind,
        operation_id=operation.operation_id,
        since=now,
        detail=detail,
        command_id=target.command_id if kind == "rollback" else "",
    )


def has_ended(removal: SetAside, ec2_state: str) -> bool:
    """Whether its node may be deleted: the instance is terminated, or stopped as a standby worker."""
    return ec2_state in ENDED or (removal.kind == "termination" and ec2_state == "stopped")


def next_to_settle(
    removals: Iterable[SetAside], states: Mapping[str, str], under_notice: frozenset[str]
) -> SetAside | None:
    """The removal that a run can settle, the one tried least recently first; None while every one must wait.

    states: EC2's state of each instance. A worker under notice stays cordoned until its notice is settled.
    """
    ready = [
        r
        for r in removals
        if has_ended(r, states[r.instance_id]) or (r.kind == "rollback" and r.instance_id not in under_notice)
    ]
    return min(ready, key=lambda r: (r.tried_at, r.since, r.instance_id), default=None)


def settled_sentence(removal: SetAside, *, ended: bool, now: int) -> str:
    """What a run did about a removal that was set aside."""
    minutes = (now - removal.since) // 60
    if ended:
        return f"worker {removal.instance_id} has ended {minutes} min after it was set aside, and its node is deleted"
    return f"node {removal.node_name} is uncordoned {minutes} min after its rollback was set aside"
