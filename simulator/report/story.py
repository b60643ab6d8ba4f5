"""Reads executions back as a story: what each one decided, why, the path it took, and the workers before and after.

Everything is taken from the execution histories, so the table and the page say what really ran.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from node_fleet.domain.model.text import count_of
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.notify.message import plain_failure

if TYPE_CHECKING:
    from simulator.runner import Execution

CHANGING = frozenset(
    {"LaunchNodes", "StartDrain", "TerminateNodes", "UndoDrain", "AbandonUnjoined", "ReapUnjoined"}
    | {"StartDeadlineDrain", "LaunchReplacement"}
)
SERVER = "it is the server"
_VARYING = re.compile(r"i-[0-9a-f]{8,17}|\d+(?:\.\d+)?")
_SIGNS = {"scale_up": "+", "scale_down": "-"}
BETWEEN = frozenset({"Choice", "Wait", "Pass"})


@value_class
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
    account = _account(found)
    return Row(
        name=execution.name,
        started_at=execution.started_at,
        ended_at=execution.ended_at,
        trigger="notice" if found.interruption else (execution.input or {}).get("trigger", "event"),
        decision=account.what,
        reason=account.reason,
        path=short_path(execution.path),
        tasks=short_path([visit.name for visit in execution.history if visit.type not in BETWEEN]),
        status=execution.status,
        workers_before=account.before,
        workers_after=account.after,
    )


@value_class
class Account:
    """One run of the autoscaler in words, the same in history, explain, the report and its page.

    what: "+2, then +1" for rounds, "-1", "dry run" or "none". outcome: how it ended; empty for a run that only decided.
    """

    what: str
    reason: str
    outcome: str = ""
    before: int | None = None
    after: int | None = None

    @property
    def text(self) -> str:
        """How it ended, and why."""
        return "; ".join(dict.fromkeys(filter(None, (self.outcome, self.reason))))


def account_of(record: Mapping[str, Any]) -> Account:
    """The account of a run from what ReleaseLock records of it."""
    decision, outcome = record.get("decision") or {}, record.get("outcome") or {}
    last = record.get("operation") or {}
    operations = {one["operation_id"]: one for one in (*record.get("rounds", ()), *([last] if last else ()))}
    first: Mapping[str, Any] = next(iter(operations.values()), {})
    before = first.get("workers_before", decision.get("workers_before"))
    failure = record.get("failure") or {}
    reason = first.get("reason") or decision.get("sentence") or record.get("detail", "")
    ended = outcome.get("text", "")
    if not operations and outcome.get("kind") == "none":
        # That no worker is eligible, and not the wish to remove one, is why nothing happened.
        kept = [one for one in (record.get("selection") or {}).get("kept", ()) if not one.endswith(SERVER)]
        others = f"; {count_of(len(kept) - 1, 'other worker')} kept too" if len(kept) > 1 else ""
        reason, ended = f"{ended}{others}", ""
    if failure:
        failure = plain_failure(failure)
        reason = f"{failure['Error']}: {failure['Cause']}"
    return Account(
        what=_what(operations.values(), decision, outcome),
        reason=reason,
        outcome=ended,
        before=before,
        after=outcome.get("workers_after") or before,
    )


def _account(found: Findings) -> Account:
    """The account of an execution of either workflow."""
    account, notice = account_of(found.as_record()), found.interruption
    if not notice:
        return account
    reason = account.reason if found.failure else f"{notice['instance_id']}: {notice['why']}"
    return replace(account, what="replaced" if found.replaced else "drained", reason=reason)


def _what(operations: Collection[Mapping[str, Any]], decision: Mapping[str, Any], outcome: Mapping[str, Any]) -> str:
    if operations:
        return ", then ".join(f"{_SIGNS[one['kind']]}{one['requested']}" for one in operations)
    if outcome:
        return str(outcome.get("kind", "none")).replace("_", " ")
    sign = _SIGNS.get(decision.get("action", ""), "")
    return f"{sign}{decision['count']}" if sign else "none"


@value_class
class Findings:
    """What one execution left in its payloads: the first decision, the last outcome, every operation as it ended.

    detail: why a run ended early, for example because another one holds the lock. interruption: the announcement that
    an interruption run answers; replaced: whether it launched a replacement.
    """

    decision: dict[str, Any]
    outcome: dict[str, Any]
    failure: dict[str, Any]
    selection: dict[str, Any]
    detail: str
    interruption: dict[str, Any]
    replaced: bool
    operations: tuple[dict[str, Any], ...]

    def as_record(self) -> dict[str, Any]:
        """The same in the form that ReleaseLock records, which has the rounds before the last one apart."""
        *rounds, last = self.operations or ({},)
        found = {"decision": self.decision, "outcome": self.outcome, "failure": self.failure, "rounds": rounds}
        return {**found, "operation": last, "selection": self.selection, "detail": self.detail}


def _findings(execution: Execution) -> Findings:
    """One round of a scale-up is one operation, so a run of three rounds has three."""
    last: dict[str, dict[str, Any]] = {}
    operations: dict[str, dict[str, Any]] = {}
    replaced, detail = False, ""
    for visit in execution.history:
        payload = visit.output if isinstance(visit.output, dict) else {}
        replaced = replaced or (visit.name == "ReplacementEnded" and payload.get("status") == "launched")
        for key in ("outcome", "failure", "interruption", "selection"):
            if isinstance(payload.get(key), dict):
                last[key] = payload[key]
        if isinstance(payload.get("operation"), dict):
            operations[payload["operation"]["operation_id"]] = payload["operation"]
        if isinstance(payload.get("decision"), dict):
            last.setdefault("decision", payload["decision"])
        detail = str(payload.get("detail", detail))
    return Findings(
        decision=last.get("decision", {}),
        outcome=last.get("outcome", {}),
        failure=last.get("failure", {}),
        selection=last.get("selection", {}),
        detail=detail,
        interruption=last.get("interruption", {}),
        replaced=replaced,
        operations=tuple(operations.values()),
    )


@value_class
class QuietGroup:
    """Runs that changed nothing for the same reason. Times are epoch seconds; first, last: names of executions."""

    reason: str
    runs: int
    first: str
    last: str
    first_at: float
    last_at: float


def quiet_groups(runs: Iterable[tuple[str, float, Account]]) -> list[QuietGroup]:
    """Runs (name, start, account) by reason, in the order of their first run. The reason shown is that of the last.

    Reasons are equal when their leading parts differ only in numbers and ids.
    """
    found: dict[str, QuietGroup] = {}
    for name, at, account in runs:
        key = _VARYING.sub("#", account.reason.partition("; ")[0])
        group = found.get(key) or QuietGroup(
            reason=account.reason, runs=0, first=name, last=name, first_at=at, last_at=at
        )
        found[key] = replace(group, reason=account.reason, runs=group.runs + 1, last=name, last_at=at)
    return list(found.values())


def quiet_runs(executions: Iterable[Execution]) -> list[QuietGroup]:
    """The executions that changed nothing and did not fail, by reason."""
    quiet = [one for one in executions if one.status == "SUCCEEDED" and not changed_something(one)]
    return quiet_groups((one.name, one.started_at, _account(_findings(one))) for one in quiet)


def operations_of(execution: Execution) -> tuple[dict[str, Any], ...]:
    """Every operation of the run as its last state left it, in payload form and in the order they were begun."""
    return _findings(execution).operations


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
