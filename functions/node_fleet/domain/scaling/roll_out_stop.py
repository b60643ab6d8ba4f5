"""What stops a roll-out and what allows it again: a worker of a new version that did not join or prove itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from node_fleet.domain.model.memory import RollOut
from node_fleet.domain.model.run import Alert

if TYPE_CHECKING:
    from node_fleet.domain.model.operation import Operation


def stop(roll_out: RollOut, why: str, version: str) -> RollOut:
    """The roll-out after a failure: no further worker is replaced while that version is deployed."""
    return replace(roll_out, current=None, stopped=why[:900], stopped_version=version, lost=0)


def resumed(roll_out: RollOut) -> RollOut:
    """The roll-out after an operator has allowed it again."""
    return replace(roll_out, stopped="", stopped_version="", retry_at=0)


def join_failure(roll_out: RollOut, operation: Operation, configured: str = "") -> str:
    """Why a failed launch stops the roll-out; empty when it says nothing about the version that was launched.

    It does when an instance never joined, and either replaces an outdated worker or is of another version than the last
    good one. A refusal of EC2, an instance that AWS ended for lack of capacity, or a standby worker, which was launched
    earlier, stops nothing. While the configured version is stopped, a failure of another one must not allow it again.
    """
    if roll_out.is_stopped(configured) and operation.template_version not in ("", configured):
        return ""
    never_joined = [slot for slot in operation.slots if slot.outcome == "unjoined" and not slot.is_started]
    is_new = bool(roll_out.good_version) and operation.template_version not in ("", roll_out.good_version)
    if not never_joined or not (operation.replaces or is_new):
        return ""
    slot, version = never_joined[0], operation.template_version or "the configured"
    console = f"; its console ends with: {slot.console}" if slot.console else "; EC2 shows no output of its console"
    kept = f"{operation.replaces} is kept; " if operation.replaces else ""
    return f"{slot.instance_id} of version {version} of the launch template never joined; {kept}{slot.detail}{console}"


def stopped_alert(roll_out: RollOut, configured: str) -> Alert:
    """What stopped the roll-out, what new workers are launched from, and what an operator can do."""
    version = roll_out.launch_version(configured)
    launches = (
        f"New workers are launched from version {version} of the launch template, whose workers joined"
        if version != configured
        else f"New workers are still launched from version {configured} of the launch template"
    )
    text = (
        f"the roll-out is stopped: {roll_out.stopped}. No further drifted or expired worker is replaced. {launches}. "
        "What you can do: deploy a newer version, or, when the cause lies elsewhere and is fixed: node-fleet resume "
        "--roll-out"
    )
    return Alert(kind="roll_out_stopped", text=text)
