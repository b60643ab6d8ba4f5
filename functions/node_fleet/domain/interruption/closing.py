"""After the date of a notice: whether AWS reclaimed the worker, how long to wait for capacity, what to report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from node_fleet.domain.interruption.response import Interruption
from node_fleet.domain.model.fleet_state import Notice
from node_fleet.domain.model.run import Alert
from node_fleet.domain.scale_down.lost_volumes import LostVolume, lost_volumes_alert

OutcomeStatus = Literal["gone", "not_reclaimed", "superseded"]

CAPACITY_WAITS = (*[300] * 11, *[3600] * 5)
"""Seconds between the tries to reinstate a worker in a full fleet: every 5 minutes for an hour, then hourly."""


def outcome_status(ec2_state: str, notice: Notice | None, claimed_by: str) -> OutcomeStatus:
    """Whether AWS reclaimed the worker. superseded: another execution responds to a later notice or to its end."""
    if notice is None or notice.belongs_to_other(claimed_by):
        return "superseded"
    return "not_reclaimed" if ec2_state in ("pending", "running") else "gone"


def capacity_wait_seconds(tries: int) -> int | None:
    """Seconds until the next try after that many tries; None when an operator must decide."""
    return CAPACITY_WAITS[tries - 1] if tries <= len(CAPACITY_WAITS) else None


def closing_sentence(interruption: Interruption, status: str, detail: str, failure: Mapping[str, str] | None) -> str:
    """How the response to a notice ended."""
    head = f"{interruption.instance_id}: {interruption.why}"
    if failure is not None:
        return f"{head}; the notice could not be settled: {failure['Cause']} [{failure['Error']}]"
    return f"{head}; {detail or status or 'nothing to do'}"


def closing_alerts(
    interruption: Interruption, status: str, text: str, *, failed: bool, volumes: Sequence[LostVolume] = ()
) -> tuple[Alert, ...]:
    """An alert for each case that an operator must handle.

    That is a worker that stays under notice, one that is stopped, and one that ended with volumes (those that no
    message has named yet).
    """
    instance_id = interruption.instance_id
    lost = lost_volumes_alert(instance_id, volumes)
    if failed or status == "kept":
        advice = operator_advice(instance_id)
        return (*lost, Alert(kind=f"interruption_unsettled:{instance_id}", text=f"{text}; {advice}"))
    if interruption.kind == "stopped":
        advice = f"start it, or remove it: aws ec2 terminate-instances --instance-ids {instance_id}"
        return (Alert(kind=f"worker_stopped:{instance_id}", text=f"{text}; {advice}"),)
    return lost


def operator_advice(instance_id: str) -> str:
    """What an operator can do about a worker that stays under notice."""
    return (
        "it stays under interruption notice and is not counted; remove it: aws ec2 terminate-instances --instance-ids"
        f" {instance_id}, or keep it (the next runs uncordon it): ./node-fleet resume --worker {instance_id}"
    )
