"""Which launched workers have joined: by provider id, never by name; and what is known when the time is over.

Unknown is not unjoined: without a list of nodes nothing is given up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from node_fleet.domain.model.back_off import JOIN, SCALE_UP
from node_fleet.domain.model.operation import FINISHED_SLOT_OUTCOMES, LaunchSlot, Operation
from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.snapshot import NodeReading
from node_fleet.domain.scale_up.launch import ERRORS_WITHOUT_BACK_OFF, FRESH_SECONDS

JoinStatus = Literal["waiting", "joined", "partial", "timeout"]

RUNNING_STATES = ("pending", "running")


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinProgress:
    """How the wait stands. seconds: launch to usable of the slowest that joined; pods_waiting: None when not known."""

    status: JoinStatus
    joined: int
    wanted: int
    detail: str
    pods_waiting: int | None = None
    seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeList:
    """The nodes as somebody saw them, and who that was. None: nobody could look, or the list cannot be believed."""

    nodes: tuple[NodeReading, ...] | None
    source: Literal["prometheus", "server", "nobody"]
    problem: str = ""

    @property
    def known(self) -> bool:
        """True when a list was seen that can be believed."""
        return self.nodes is not None


NO_NODE_LIST = NodeList(nodes=None, source="nobody")


def update_slots(
    operation: Operation, *, states: Mapping[str, str], nodes: Iterable[NodeReading] | None, now: int
) -> Operation:
    """The operation with what has become of each launched slot: joined, failed, or still launched."""
    usable = {node.instance_id for node in nodes or () if node.usable}
    for slot in operation.waiting:
        operation = operation.with_slot(_judged(slot, states.get(slot.instance_id, "gone"), usable, now))
    return operation


def join_progress(
    operation: Operation, *, now: int, limit_seconds: int, pods_waiting: int | None = None
) -> JoinProgress:
    """The answer to 'have they joined': waiting while anyone may still come, timeout when the first limit is over."""
    waiting, joined = operation.waiting, operation.joined
    status: JoinStatus = "joined" if joined else "timeout"
    if waiting:
        over = all(now - slot.launched_at >= limit_seconds for slot in waiting)
        status = "timeout" if over else "waiting"
    return JoinProgress(
        status=status,
        joined=len(joined),
        wanted=operation.requested,
        detail=slots_sentence(operation, now),
        pods_waiting=pods_waiting,
        seconds=max((s.joined_at - s.launched_at for s in joined), default=None),
    )


def close_unjoined(operation: Operation, node_list: NodeList, *, now: int, limit_seconds: int) -> Operation:
    """The operation with every slot closed whose fate is known; one that nobody can see stays as launched."""
    for slot in operation.slots:
        if slot.outcome == "planned":
            operation = operation.with_slot(replace(slot, outcome="failed", detail="it was never launched"))
        elif slot.outcome == "launched" and node_list.known and now - slot.launched_at >= limit_seconds:
            detail = f"no usable node after {now - slot.launched_at} s (seen by {node_list.source})"
            operation = operation.with_slot(replace(slot, outcome="unjoined", detail=detail))
    return operation


def final_join_progress(operation: Operation, *, now: int, pods_waiting: int | None) -> JoinProgress:
    """How it ended: partial when something joined or may yet join, timeout when all is known to be lost."""
    kept = operation.joined or operation.waiting
    return JoinProgress(
        status="partial" if kept else "timeout",
        joined=len(operation.joined),
        wanted=operation.requested,
        detail=slots_sentence(operation, now),
        pods_waiting=pods_waiting,
        seconds=max((s.joined_at - s.launched_at for s in operation.joined), default=None),
    )


def join_alerts(operation: Operation, *, keep_unjoined: bool) -> tuple[Alert, ...]:
    """What a person should hear: which instance never joined, and which ones nobody can tell about."""
    found = []
    lost = [s for s in operation.slots if s.outcome == "unjoined"]
    if lost:
        fate = "kept for inspection" if keep_unjoined else "terminated"
        text = "; ".join(f"{s.instance_id} in {s.zone}: {s.detail}" for s in lost)
        found.append(Alert(kind="join_failed", text=f"{len(lost)} launched worker(s) never joined, {fate}: {text}"))
    if operation.waiting:
        ids = ", ".join(s.instance_id for s in operation.waiting)
        text = f"nobody can tell whether {ids} joined (neither Prometheus nor the server answers): kept"
        found.append(Alert(kind="join_unknown", text=text))
    return tuple(found)


def slots_sentence(operation: Operation, now: int) -> str:
    """One line for the console: each slot in a few words."""
    return "; ".join(_slot_words(slot, now) for slot in operation.slots)


def finished(operation: Operation) -> bool:
    """True when nothing of this operation can change any more."""
    return all(slot.outcome in FINISHED_SLOT_OUTCOMES for slot in operation.slots)


def _judged(slot: LaunchSlot, state: str, usable: set[str], now: int) -> LaunchSlot:
    if state not in RUNNING_STATES and not (state == "gone" and now - slot.launched_at < FRESH_SECONDS):
        return replace(slot, outcome="failed", detail=f"EC2 says {state} before it joined")
    if slot.instance_id in usable and state in RUNNING_STATES:
        return replace(slot, outcome="joined", joined_at=now)
    return slot


def _slot_words(slot: LaunchSlot, now: int) -> str:
    name = slot.instance_id or f"slot {slot.number}"
    words = {
        "joined": f"usable after {slot.joined_at - slot.launched_at} s",
        "launched": f"waiting for {now - slot.launched_at} s",
    }
    return f"{name} {words.get(slot.outcome, slot.detail or slot.outcome)}"


def completed_sentence(operation: Operation, *, workers_after: int) -> str:
    """What a finished scale-up amounts to, partial success included."""
    joined, wanted = len(operation.joined), operation.requested
    text = f"scaled up from {operation.workers_before} to {workers_after} workers: {joined} of {wanted} usable"
    missing = [_slot_words(s, 0) for s in operation.slots if s.outcome in ("unjoined", "failed")]
    kept = [s.instance_id for s in operation.waiting]
    if missing:
        text += f"; missing: {'; '.join(missing)}"
    return text + (f"; kept without knowing whether they joined: {', '.join(kept)}" if kept else "")


def nothing_joined_sentence(operation: Operation) -> str:
    """Why a scale-up with launched workers failed."""
    lost = "; ".join(_slot_words(s, 0) for s in operation.slots)
    return f"none of {operation.requested} launched workers became usable: {lost}"


def needs_another_round(join: JoinProgress, *, round_number: int, max_rounds: int) -> bool:
    """True when pods still wait and this execution may go round once more. Unknown is no demand."""
    return (join.pods_waiting or 0) > 0 and round_number < max_rounds


def scale_up_failure(failure: Mapping[str, str] | None, operation: Operation | None) -> dict[str, str] | None:
    """Why a scale-up failed, as error and cause: the fault that was caught, or that nothing joined; else None."""
    if failure is not None:
        return {"error": failure["Error"], "cause": failure["Cause"]}
    if operation is None or not operation.instance_ids:
        return None
    return {"error": "NothingJoinedError", "cause": nothing_joined_sentence(operation)}


def back_off_key(failure: Mapping[str, str] | None) -> str:
    """The back-off that this failure adds to; empty when nobody is to blame."""
    if failure is None or failure["error"] in ERRORS_WITHOUT_BACK_OFF:
        return ""
    return JOIN if failure["error"] == "NothingJoinedError" else SCALE_UP
