"""Reads executions back as a story: what each one decided, why, the path it took, and the workers before and after.

Everything is taken from the execution histories, so the table and the page say what really ran.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from simulator.runner import Execution

CHANGING = frozenset({"LaunchNodes", "StartDrain", "TerminateNodes", "UndoDrain", "AbandonUnjoined", "ReapUnjoined"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One execution in one line. Times are epoch seconds; workers_after is None when the run did not say."""

    name: str
    started_at: float
    ended_at: float | None
    trigger: str
    decision: str
    reason: str
    path: str
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


def tell(executions: Iterable[Execution]) -> list[Row]:
    """A row for each execution, in the order they started."""
    return [_row(execution) for execution in executions]


def _row(execution: Execution) -> Row:
    decision, outcome, operation, failure = _findings(execution)
    reason = operation.get("reason") or decision.get("sentence", "")
    if failure:
        reason = f"{failure['Error']}: {failure['Cause']}"
    return Row(
        name=execution.name,
        started_at=execution.started_at,
        ended_at=execution.ended_at,
        trigger=(execution.input or {}).get("trigger", "event"),
        decision=_action(decision, operation, outcome),
        reason=reason,
        path=short_path(execution.path),
        status=execution.status,
        workers_before=operation.get("workers_before", decision.get("workers_before")),
        workers_after=outcome.get("workers_after") or operation.get("workers_before", decision.get("workers_before")),
    )


def _findings(execution: Execution) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The first decision, and the last outcome, operation and failure that any state put into the payload."""
    found: dict[str, dict[str, Any]] = {}
    for visit in execution.history:
        payload = visit.output if isinstance(visit.output, dict) else {}
        for key in ("outcome", "operation", "failure"):
            if isinstance(payload.get(key), dict):
                found[key] = payload[key]
        if isinstance(payload.get("decision"), dict):
            found.setdefault("decision", payload["decision"])
    return tuple(found.get(key, {}) for key in ("decision", "outcome", "operation", "failure"))  # type: ignore[return-value]


def _action(decision: dict[str, Any], operation: dict[str, Any], outcome: dict[str, Any]) -> str:
    kind = operation.get("kind") or decision.get("action", "none")
    if kind == "scale_up":
        return f"+{operation.get('requested') or decision.get('count', 0)}"
    if kind == "scale_down":
        targets = operation.get("requested") or decision.get("count", 0)
        return f"-{targets}"
    return outcome.get("kind") or "none"


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
