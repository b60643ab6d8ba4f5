"""Reads executions back as a story: what each one decided, why, the path it took, and the workers before and after.

Everything is taken from the execution histories, so the table and the page say what really ran.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulator.runner import Execution

CHANGING = frozenset(
    {"LaunchNodes", "StartDrain", "TerminateNodes", "UndoDrain", "AbandonUnjoined", "ReapUnjoined"}
    | {"StartDeadlineDrain", "LaunchReplacement"}
)
BETWEEN = frozenset({"Choice", "Wait", "Pass"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One execution in one line. Times are epoch seconds; workers_after is None when the run did not report it.

    path has every state, tasks only those that work or end: without the choices and waits between them.
    """

    name: str
    started_at: float
    ended_at: float | None
    trigger: str
    decision: str
    reason: str
    path: str
    tasks: str
    status: str
    workers_before: int | None
    workers_after: int | None

    @property
    def clock(self) -> str:
        """Start as HH:MM:SS, UTC."""
        return dt.datetime.fromtimestamp(self.started_at, tz=dt.UTC).strftime("%H:%M:%S")


def changed_something(execution: Execution) -> bool:
    """True when the run entered a state that changes the fleet."""
    return not CHANGING.isdisjoint(execution.path)


def rows_of(executions: Iterable[Execution]) -> list[Row]:
    """A row for each execution, in the order they started."""
    return [_row(execution) for execution in executions]


def _row(execution: Execution) -> Row:
    found = _findings(execution)
    first = found.operations[0] if found.operations else {}
    before = first.get("workers_before", found.decision.get("workers_before"))
    reason = first.get("reason") or found.decision.get("sentence", "")
    if found.interruption:
        reason = f"{found.interruption['instance_id']}: {found.interruption['why']}"
    if found.failure:
        reason = f"{found.failure['Error']}: {found.failure['Cause']}"
    return Row(
        name=execution.name,
        started_at=execution.started_at,
        ended_at=execution.ended_at,
        trigger="notice" if found.interruption else (execution.input or {}).get("trigger", "event"),
        decision=_action(found),
        reason=reason,
        path=short_path(execution.path),
        tasks=short_path([visit.name for visit in execution.history if visit.type not in BETWEEN]),
        status=execution.status,
        workers_before=before,
        workers_after=found.outcome.get("workers_after") or before,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What one execution left in its payloads: the first decision, the last outcome, every operation as it ended.

    interruption: the announcement that an interruption run answers; replaced: whether it launched a replacement.
    """

    decision: dict[str, Any]
    outcome: dict[str, Any]
    failure: dict[str, Any]
    interruption: dict[str, Any]
    replaced: bool
    operations: tuple[dict[str, Any], ...]


def _findings(execution: Execution) -> Findings:
    """One round of a scale-up is one operation, so a run of three rounds has three."""
    last: dict[str, dict[str, Any]] = {}
    operations: dict[str, dict[str, Any]] = {}
    replaced = False
    for visit in execution.history:
        payload = visit.output if isinstance(visit.output, dict) else {}
        replaced = replaced or (visit.name == "ReplacementEnded" and payload.get("status") == "launched")
        for key in ("outcome", "failure", "interruption"):
            if isinstance(payload.get(key), dict):
                last[key] = payload[key]
        if isinstance(payload.get("operation"), dict):
            operations[payload["operation"]["operation_id"]] = payload["operation"]
        if isinstance(payload.get("decision"), dict):
            last.setdefault("decision", payload["decision"])
    return Findings(
        decision=last.get("decision", {}),
        outcome=last.get("outcome", {}),
        failure=last.get("failure", {}),
        interruption=last.get("interruption", {}),
        replaced=replaced,
        operations=tuple(operations.values()),
    )


def operations_of(execution: Execution) -> tuple[dict[str, Any], ...]:
    """Every operation of the run as its last state left it, in payload form and in the order they were begun."""
    return _findings(execution).operations


def _action(found: Findings) -> str:
    """'+2, then +1' for rounds, '-1', 'replaced' for an interruption, or the outcome of a run without any of them."""
    signs = [f"{'+' if one['kind'] == 'scale_up' else '-'}{one['requested']}" for one in found.operations]
    if signs:
        return ", then ".join(signs)
    if found.interruption:
        return "replaced" if found.replaced else "drained"
    count = found.decision.get("count", 0)
    sign = {"scale_up": "+", "scale_down": "-"}.get(found.decision.get("action", ""), "")
    return f"{sign}{count}" if sign else found.outcome.get("kind") or "none"


def short_path(path: Sequence[str]) -> str:
    """The path with repeated stretches folded: "A > (B > C) x3 > D"."""
    parts: list[str] = []
    index = 0
    while index < len(path):
        length, times = _repeat(path, index)
        stretch = " > ".join(path[index : index + length])
        parts.append(f"({stretch}) x{times}" if times > 1 else stretch)
        index += length * times
    return " > ".join(parts)


def _repeat(path: Sequence[str], start: int) -> tuple[int, int]:
    """The stretch at `start` (length, times) that repeats and covers most; (1, 1) when none does."""
    best = (1, 1)
    for length in range(1, 7):
        piece = path[start : start + length]
        times = 1
        while path[start + times * length : start + (times + 1) * length] == piece and len(piece) == length:
            times += 1
        if times > 1 and length * times > best[0] * best[1]:
            best = (length, times)
    return best
