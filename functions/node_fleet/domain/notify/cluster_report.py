"""What `kubectl` shows of a run: Events about nodes and pods, and the status of the ConfigMap node-fleet-status.

The report is bounded here: in Events, in characters of a message and of the status, and in how often kept workers are
reported. cluster/commands/record_events.sh writes it.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.snapshot import PodShape, Snapshot
from node_fleet.domain.model.text import count_of, printable, utc
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.notify.message import Message

MOST_EVENTS = 20
MOST_LINES = 10
MESSAGE_CHARACTERS = 300
PACKED_CHARACTERS = 12_000
"""SSM limits a document together with its parameters to 64 KB."""
KEPT_REPORTED = "events:kept"
"""Key in Memory.alerted: when kept workers were last reported."""
STATUS_CHARACTERS = 2500
"""Of a status that does not fit; even random characters then fit into PACKED_CHARACTERS."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_UNLISTED = ("it is the server", "it is not managed by node-fleet", "it has not joined the cluster yet")
"""Reasons without an Event: they are about no worker with a node."""

Reason = Literal["ScaleUp", "ScaleUpFailed", "NotEligible"]


@value_class
class ClusterEvent:
    """One Event. namespace: empty for a node, whose name may be its instance id."""

    name: str
    reason: Reason
    message: str
    namespace: str = ""
    is_warning: bool = False

    @property
    def row(self) -> tuple[str, str, str, str, str, bool]:
        """As record_events.sh reads it."""
        kind = "Pod" if self.namespace else "Node"
        message = printable(self.message)[:MESSAGE_CHARACTERS]
        return kind, self.namespace, self.name, self.reason, message, self.is_warning


@value_class
class ClusterReport:
    """The Events and the status of one run. at: epoch seconds."""

    at: int
    status: str
    events: tuple[ClusterEvent, ...] = ()

    @property
    def packed(self) -> str:
        """The report as one word without a character that a shell reads. What does not fit is left out: the last
        Events, then the end of the status."""
        rows = [e.row for e in self.events if _NAME.fullmatch(e.name) and _NAME.fullmatch(e.namespace or "node")]
        sizes = [(self.status, count) for count in range(min(len(rows), MOST_EVENTS), -1, -1)]
        words = (_word(self.at, status, rows[:count]) for status, count in (*sizes, (_beginning(self.status), 0)))
        return next(word for word in words if len(word) <= PACKED_CHARACTERS)


def _word(at: int, status: str, rows: Sequence[tuple[Any, ...]]) -> str:
    text = json.dumps({"at": at, "status": status, "events": rows}, separators=(",", ":"))
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")


def _beginning(status: str) -> str:
    """As many whole lines as fit into the limit whatever their characters."""
    return status[: status[:STATUS_CHARACTERS].rfind("\n") + 1]


def run_report(
    message: Message,
    *,
    at: int,
    snapshot: Snapshot | None,
    operation: Operation | None,
    failure: Mapping[str, str] | None,
) -> ClusterReport:
    """The report of a run that sends a message."""
    events = [*_joined(operation), *_pods(snapshot, operation, failure)]
    return ClusterReport(at=at, status=status_text(message, at=at, snapshot=snapshot), events=tuple(events))


def kept_report(message: Message, kept: Mapping[str, str], *, at: int, snapshot: Snapshot | None) -> ClusterReport:
    """The report of a run in which no worker is removed: an Event for each worker that is kept. kept: id -> reason."""
    named = {name: reason for name, reason in kept.items() if reason not in _UNLISTED}
    events = [ClusterEvent(name=name, reason="NotEligible", message=f"kept: {why}") for name, why in named.items()]
    sentences = [f"worker {name}: kept, {why}" for name, why in named.items()]
    status = status_text(message, at=at, snapshot=snapshot, kept=sentences)
    return ClusterReport(at=at, status=status, events=tuple(events))


def kept_due(memory: Memory, now: int, quiet_seconds: int) -> Memory | None:
    """The memory that records a report of kept workers; None while the last one is younger than the quiet time."""
    last = memory.alerted.get(KEPT_REPORTED)
    if last is not None and now - last < quiet_seconds:
        return None
    return replace(memory, alerted={**memory.alerted, KEPT_REPORTED: now})


def status_text(message: Message, *, at: int, snapshot: Snapshot | None, kept: Sequence[str] = ()) -> str:
    """The status as YAML, whose texts are JSON strings: the last reported decision, its reasons and its counts."""
    pending = snapshot.pending_count if snapshot else None
    rows: list[tuple[str, Any]] = [
        ("time", utc(at)),
        ("cluster", message.cluster_id),
        ("result", message.level),
        ("what", message.what),
        ("why", message.why),
        ("workersBefore", message.workers_before),
        ("workersAfter", message.workers_after),
        ("pendingPods", pending),
        ("execution", message.execution_id),
    ]
    lines = [f"{name}: {_scalar(value)}" for name, value in rows]
    lines += _list("instances", message.placements)
    lines += _list("alerts", [f"{alert.kind}: {alert.text}" for alert in message.alerts])
    return "\n".join([*lines, *_list("kept", kept)]) + "\n"


def _scalar(value: Any) -> str:
    return json.dumps(printable(value)[:MESSAGE_CHARACTERS] if isinstance(value, str) else value)


def _list(name: str, texts: Sequence[str]) -> list[str]:
    shown = [f"  - {_scalar(text)}" for text in texts[:MOST_LINES]]
    left = len(texts) - len(shown)
    shown += [f"  - {_scalar(f'and {left} more')}"] if left else []
    return [f"{name}:", *shown] if shown else []


def _joined(operation: Operation | None) -> Iterable[ClusterEvent]:
    for slot in operation.joined if operation else ():
        place = f"{slot.instance_type} {slot.market} in {slot.zone}"
        text = f"node-fleet launched this worker ({place}): {operation.reason if operation else ''}"
        yield ClusterEvent(name=slot.instance_id, reason="ScaleUp", message=text)


def _pods(
    snapshot: Snapshot | None, operation: Operation | None, failure: Mapping[str, str] | None
) -> Iterable[ClusterEvent]:
    """One pod of each group of equal pending pods: what was launched for them, or why nothing was."""
    launches = operation is not None and operation.kind == "scale_up"
    for shape in (snapshot.pending or ()) if snapshot else ():
        namespace, _, name = shape.example.partition("/")
        if not name:
            continue
        if shape.problem and shape.lasting:
            text = f"no new worker helps {_group(shape)}: {shape.problem}"
            yield _pod_event(namespace, name, text, is_warning=True)
        elif failure and launches:
            text = f"the scale-up for {_group(shape)} failed: {failure['Cause']} [{failure['Error']}]"
            yield _pod_event(namespace, name, text, is_warning=True)
        elif operation is not None and operation.kind == "scale_up" and operation.joined and not shape.problem:
            workers = count_of(len(operation.joined), "worker")
            text = f"node-fleet added {workers} while {_group(shape)} waited: {operation.reason}"
            yield ClusterEvent(namespace=namespace, name=name, reason="ScaleUp", message=text)


def _pod_event(namespace: str, name: str, message: str, *, is_warning: bool) -> ClusterEvent:
    return ClusterEvent(namespace=namespace, name=name, reason="ScaleUpFailed", message=message, is_warning=is_warning)


def _group(shape: PodShape) -> str:
    return "this pod" if shape.count == 1 else f"{shape.count} pods such as this one"
