"""Which launched workers have joined, by provider id and never by name, and how a scale-up ends.

Unknown is not unjoined: without a node list no launched instance is abandoned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

from node_fleet.domain.model.back_off import JOIN, SCALE_UP, SPOT
from node_fleet.domain.model.errors import NoCapacityError
from node_fleet.domain.model.identity import DISPUTE_ADVICE, identify
from node_fleet.domain.model.operation import LaunchSlot, Operation
from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.snapshot import Instance, NodeReading
from node_fleet.domain.model.standby import STANDBY
from node_fleet.domain.model.text import count_of, printable, span
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.scale_up.launch import (
    EC2_LISTING_DELAY_SECONDS,
    ERRORS_WITHOUT_BACK_OFF,
    RUNNING_STATES,
    ended_launches,
)
from node_fleet.domain.scale_up.refusals import launch_error
from node_fleet.domain.scale_up.standby import failed_starts

CONSOLE_LINES, CONSOLE_CHARACTERS = 5, 300
IMAGES_SHOWN = 3
START_DELAY_SECONDS = 30
"""How long EC2 may still list an instance as stopped that it has just started."""
JoinStatus = Literal["waiting", "joined", "partial", "timeout"]


@value_class
class JoinProgress:
    """How many launched workers have joined.

    seconds: from launch to usable, of the slowest worker that joined. pods_waiting: None when unknown.
    """

    status: JoinStatus
    joined: int
    wanted: int
    detail: str
    pods_waiting: int | None = None
    seconds: int | None = None


@value_class
class NodeList:
    """The nodes and the source that listed them; nodes is None when no source gave a complete list."""

    nodes: tuple[NodeReading, ...] | None
    source: Literal["prometheus", "server", "none"]
    problem: str = ""

    @property
    def known(self) -> bool:
        """True when a source gave a complete list."""
        return self.nodes is not None


NO_NODE_LIST = NodeList(nodes=None, source="none")


def update_slots(
    operation: Operation, *, instances: Mapping[str, Instance], nodes: Iterable[NodeReading] | None, now: int
) -> Operation:
    """The operation with the outcome of each launched slot: joined, failed, or still launched.

    A slot whose instance has a disputed Node has not joined, and its detail gives the reason.
    """
    identities = identify(instances.values(), nodes or ())
    usable = {i for i, node in identities.confirmed.items() if node.usable}
    for slot in operation.waiting:
        instance = instances.get(slot.instance_id)
        updated = _updated(slot, instance, usable, now)
        if updated is slot and nodes is not None:
            dispute = identities.disputed.get(slot.instance_id)
            updated = replace(slot, disputed=dispute is not None, detail=dispute.sentence if dispute else "")
        operation = operation.with_slot(updated)
    return operation


def join_progress(
    operation: Operation, *, now: int, limit_seconds: int, pods_waiting: int | None = None
) -> JoinProgress:
    """The progress of the join: waiting while a slot is within its limit, timeout when every limit is over."""
    status: JoinStatus = "joined" if operation.joined else "timeout"
    if operation.waiting:
        over = all(now - slot.launched_at >= limit_seconds for slot in operation.waiting)
        status = "timeout" if over else "waiting"
    return _progress(operation, status, now, pods_waiting)


def final_join_progress(operation: Operation, *, now: int, pods_waiting: int | None) -> JoinProgress:
    """How the join ended: timeout when every instance is lost, unless another pool can replace what EC2 ended.

    A standby worker that stopped again before it joined shows nothing about launches: another round may follow.
    """
    ends = ended_launches(operation)
    other_pool_helps = ends and all(refusal.refusal_class.reaction == "next pool" for refusal in ends)
    stopped_again = failed_starts(operation) and not any(s.outcome == "unjoined" for s in operation.slots)
    kept = operation.joined or operation.waiting or other_pool_helps or stopped_again
    return _progress(operation, "partial" if kept else "timeout", now, pods_waiting)


def close_unjoined(operation: Operation, node_list: NodeList, *, now: int, limit_seconds: int) -> Operation:
    """The operation with every slot closed whose outcome is known.

    Without a node list, and while its Node is disputed, a slot stays launched: its instance may run pods.
    """
    for slot in operation.slots:
        age = now - slot.launched_at
        if slot.outcome == "planned":
            operation = operation.with_slot(replace(slot, outcome="failed", detail="it was never launched"))
        elif slot.outcome == "launched" and node_list.known and not slot.disputed and age >= limit_seconds:
            detail = f"{node_list.source} shows {_shown(slot, node_list)} {age} s after its launch"
            operation = operation.with_slot(replace(slot, outcome="unjoined", detail=detail))
    return operation


def _shown(slot: LaunchSlot, node_list: NodeList) -> str:
    """A Ready node that only a taint keeps from being usable has another cause than a worker without a node."""
    for node in node_list.nodes or ():
        if node.instance_id == slot.instance_id and node.ready and node.blocking_taints:
            return f"its node Ready, but closed to pods ({', '.join(node.blocking_taints)}),"
    return "no usable node for it"


def join_alerts(operation: Operation, *, keep_unjoined: bool) -> tuple[Alert, ...]:
    """The alerts of instances that did not join, and of instances whose join is unknown."""
    alerts = []
    lost = [s for s in operation.slots if s.outcome == "unjoined"]
    if lost:
        listed = "; ".join(f"{s.instance_id} in {s.zone}: {s.detail}" for s in lost)
        workers = count_of(len(lost), "launched worker")
        consoles = "".join(f"; the console of {s.instance_id} ends with: {s.console}" for s in lost if s.console)
        text = f"{workers} never joined the cluster: {listed}; {unjoined_action(keep_unjoined)}{consoles}"
        alerts.append(Alert(kind="join_failed", text=text))
    disputed = [s for s in operation.waiting if s.disputed]
    alerts += [
        Alert(kind=f"node_disputed:{s.instance_id}", text=f"{s.instance_id}: {s.detail}; {DISPUTE_ADVICE}")
        for s in disputed
    ]
    if unknown := [s for s in operation.waiting if not s.disputed]:
        ids = ", ".join(s.instance_id for s in unknown)
        text = (
            f"it is unknown whether {ids} joined the cluster, since neither Prometheus nor the server gives a list of "
            "nodes: node-fleet keeps and counts the instances. Check the K3s server and its SSM agent"
        )
        alerts.append(Alert(kind="join_unknown", text=text))
    return tuple(alerts)


def console_end(output: str) -> str:
    """The last lines of a console in one line, short enough for a message, without what looks like a secret."""
    from node_fleet.domain.model.secret_text import redacted  # only a worker that failed has a console

    lines = [" ".join(redacted(line).split()) for line in printable(output).splitlines()]
    return " | ".join([line for line in lines if line][-CONSOLE_LINES:])[-CONSOLE_CHARACTERS:]


def unjoined_action(keep_unjoined: bool) -> str:
    """What node-fleet does with an instance that never joined, and what an operator can read."""
    if keep_unjoined:
        return "kept for inspection (keep_unjoined): read its console output and its tag BootstrapError"
    return "node-fleet terminates what never joins; set keep_unjoined=true to keep the next one for inspection"


def unjoined_refusal_alert(instance_id: str, refusal: str) -> Alert:
    """The alert of an instance that never joined and that EC2 refuses to terminate."""
    text = (
        f"{instance_id} never joined the cluster, and it still runs: {refusal}. It counts as a worker, and node-fleet "
        "tries again to terminate it. What you can do: remove what the message names, or terminate it yourself"
    )
    return Alert(kind=f"unjoined_kept:{instance_id}", text=text)


def _progress(operation: Operation, status: JoinStatus, now: int, pods_waiting: int | None) -> JoinProgress:
    return JoinProgress(
        status=status,
        joined=len(operation.joined),
        wanted=operation.requested,
        detail="; ".join(_slot_words(slot, now) for slot in operation.slots),
        pods_waiting=pods_waiting,
        seconds=max((s.joined_at - s.launched_at for s in operation.joined), default=None),
    )


def _updated(slot: LaunchSlot, instance: Instance | None, usable: set[str], now: int) -> LaunchSlot:
    state = instance.state if instance else "gone"
    age = now - slot.launched_at
    is_old_answer = (state == "gone" and age < EC2_LISTING_DELAY_SECONDS) or (
        slot.is_started and state == "stopped" and age < START_DELAY_SECONDS
    )
    if state not in RUNNING_STATES and not is_old_answer:
        return replace(slot, outcome="failed", detail=f"EC2 reports {state} before it joined")
    if slot.instance_id in usable and state in RUNNING_STATES:
        images = instance.images if instance and not slot.is_started else ""  # a started standby worker pulled none
        return replace(slot, outcome="joined", joined_at=now, detail=images)
    return slot


def _slot_words(slot: LaunchSlot, now: int) -> str:
    name = slot.instance_id or f"slot {slot.number}"
    images = f" (images: {slot.detail})" if slot.detail else ""
    words = {"joined": f"usable after {slot.joined_at - slot.launched_at} s{images}"}
    if not slot.detail:
        words["launched"] = f"waiting for {now - slot.launched_at} s"
    return f"{name} {words.get(slot.outcome, slot.detail or slot.outcome)}"


def completed_sentence(operation: Operation, *, workers_after: int) -> str:
    """The result of a finished scale-up, partial success included."""
    joined, wanted = len(operation.joined), operation.requested
    text = f"scaled up from {operation.workers_before} to {workers_after} workers: {joined} of {wanted} usable"
    pulled = [f"{s.instance_id} {s.detail}" for s in operation.joined if s.detail]
    more = f", and {len(pulled) - IMAGES_SHOWN} more" if len(pulled) > IMAGES_SHOWN else ""
    text += f"; images pulled: {', '.join(pulled[:IMAGES_SHOWN])}{more}" if pulled else ""
    missing = [_slot_words(s, 0) for s in operation.slots if s.outcome in ("unjoined", "failed")]
    kept = [s.instance_id for s in operation.waiting]
    if missing:
        text += f"; missing: {'; '.join(missing)}"
    return text + (f"; kept, join unknown: {', '.join(kept)}" if kept else "")


def nothing_joined_sentence(operation: Operation) -> str:
    """Why a scale-up with launched workers failed."""
    lost = "; ".join(_slot_words(s, 0) for s in operation.slots)
    return f"none of {operation.requested} launched workers became usable: {lost}"


def needs_another_round(join: JoinProgress, *, round_number: int, max_rounds: int) -> bool:
    """True when pods still wait and this execution may launch once more. Unknown counts as no demand."""
    return (join.pods_waiting or 0) > 0 and round_number < max_rounds


def scale_up_failure(failure: Mapping[str, str] | None, operation: Operation | None) -> dict[str, str] | None:
    """Error and cause of a failed scale-up: the caught fault, or why no worker joined; None without either."""
    if failure is not None:
        return {"error": failure["Error"], "cause": failure["Cause"]}
    if operation is None or not operation.instance_ids:
        return None
    if ends := ended_launches(operation):
        error = launch_error(ends)
        return {"error": type(error).__name__, "cause": str(error)}
    return {"error": "NothingJoinedError", "cause": nothing_joined_sentence(operation)}


def back_off_key(failure: Mapping[str, str] | None, *, is_return: bool = False, is_refill: bool = False) -> str:
    """The back-off that this failure adds to; empty when it shows nothing about launching.

    is_return: of an On-Demand worker to Spot. Without Spot capacity it waits, and no other launch waits with it.
    is_refill: the launch of a standby worker, whose refusal must not delay a launch that the load needs.
    """
    if failure is not None and failure["error"] in ERRORS_WITHOUT_BACK_OFF:
        return ""
    if failure is None:
        return SPOT if is_return else STANDBY if is_refill else ""
    if failure["error"] == "NothingJoinedError":
        return JOIN
    return SPOT if is_return else STANDBY if is_refill else SCALE_UP


def is_return(operation: Operation | None, rule: str) -> bool:
    """Whether a launch brings an On-Demand worker back to Spot. rule: of the decision, when there is no operation."""
    return (operation.replace_reason if operation else rule) == "on-demand"


def waits_for_spot(failure: Mapping[str, str] | None) -> bool:
    """Whether a return to Spot failed only because there is no Spot worker to be had now."""
    return failure is None or failure["error"] == NoCapacityError.__name__


def no_return_sentence(operation: Operation | None, failure: Mapping[str, str] | None, wait_seconds: int) -> str:
    """That the On-Demand worker stays for now, and why."""
    details = [slot.detail for slot in operation.slots if slot.detail] if operation else []
    why = failure["cause"] if failure else next(iter(details), "no quiet Spot pool of its zone is left")
    worker = operation.replaces if operation else "the worker"
    return f"{worker} stays On-Demand: {why}; next try in {span(wait_seconds)}"
