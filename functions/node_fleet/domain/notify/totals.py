"""The counts since the cluster was set up, which the state item keeps: runs, decisions, launches and removals.

Each count has the key "name/result/reason". The number of keys is bounded: beyond it a reason counts as "other".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation

MOST_KEYS = 80
OTHER = "other"
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_]+")
LAUNCH_RESULTS = {"joined": "joined", "unjoined": "not_joined", "launched": "unknown"}
"""Result by the outcome of a slot; every other slot has no instance."""


def count_operation(memory: Memory, operation: Operation | None, rule: str) -> Memory:
    """The memory after an operation that is closed. rule: of the decision behind it; empty when that is not known."""
    if operation is None:
        return memory
    reason = operation.replace_reason or rule or "resumed"
    totals = dict(memory.totals)
    for slot in operation.slots:
        _add(totals, "launches", LAUNCH_RESULTS.get(slot.outcome, "refused"), reason)
    for target in operation.targets:
        _add(totals, "removals", target.phase, reason)
    return replace(memory, totals=totals)


def count_run(memory: Memory, actions: tuple[str, ...], now: int, *, is_failed: bool) -> Memory:
    """The memory after a run that decided these actions, one a round."""
    totals = dict(memory.totals)
    _add(totals, "runs", "failed" if is_failed else "succeeded", "")
    for action in actions:
        _add(totals, "decisions", action, "")
    return replace(memory, totals=totals, succeeded_at=memory.succeeded_at if is_failed else now)


def _add(totals: dict[str, int], name: str, result: str, reason: str) -> None:
    key = f"{name}/{result}/{_NOT_PLAIN.sub('_', reason)[:40]}"
    if key not in totals and len(totals) >= MOST_KEYS:
        key = f"{name}/{result}/{OTHER}"
    totals[key] = totals.get(key, 0) + 1


def by_labels(totals: Mapping[str, int], name: str) -> list[tuple[str, str, int]]:
    """(result, reason, count) of every count with that name, sorted."""
    rows = (key.split("/", 2) + [""] * (2 - key.count("/")) + [str(count)] for key, count in sorted(totals.items()))
    return [(result, reason, int(count)) for one, result, reason, count in rows if one == name]
