"""The counts since the cluster was set up, which the state item keeps: runs, decisions, launches and removals.

Each count has the key "name/result/reason". The number of keys is bounded: beyond it a reason counts as "other". The
counts are packed, because the memory passes through every state of the workflow.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import replace

from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation

MOST_KEYS = 32
REASON_CHARACTERS = 24
OTHER = "other"
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_]+")
LAUNCH_RESULTS = {"joined": "joined", "unjoined": "not_joined", "launched": "unknown"}
"""Result by the outcome of a slot; every other slot has no instance."""


def count_operation(memory: Memory, operation: Operation | None, rule: str) -> Memory:
    """The memory after an operation that is closed. rule: of the decision behind it; empty when that is not known."""
    if operation is None:
        return memory
    reason = operation.replace_reason or rule or "resumed"
    totals = unpacked(memory.totals)
    for slot in operation.slots:
        _add(totals, "launches", LAUNCH_RESULTS.get(slot.outcome, "refused"), reason)
    for target in operation.targets:
        _add(totals, "removals", target.phase, reason)
    return replace(memory, totals=packed(totals))


def count_run(memory: Memory, actions: tuple[str, ...], now: int, *, is_failed: bool) -> Memory:
    """The memory after a run that decided these actions, one a round."""
    totals = unpacked(memory.totals)
    _add(totals, "runs", "failed" if is_failed else "succeeded", "")
    for action in actions:
        _add(totals, "decisions", action, "")
    return replace(memory, totals=packed(totals), succeeded_at=memory.succeeded_at if is_failed else now)


def _add(totals: dict[str, int], name: str, result: str, reason: str) -> None:
    key = f"{name}/{result}/{_NOT_PLAIN.sub('_', reason)[:REASON_CHARACTERS]}"
    if key not in totals and len(totals) >= MOST_KEYS:
        key = f"{name}/{result}/{OTHER}"
    totals[key] = totals.get(key, 0) + 1


def packed(totals: Mapping[str, int]) -> str:
    """The counts as text."""
    text = json.dumps(totals, separators=(",", ":"), sort_keys=True)
    return base64.b85encode(zlib.compress(text.encode(), 9)).decode() if totals else ""


def unpacked(text: str) -> dict[str, int]:
    """The counts in a text; none when it is damaged: counts must not end a run."""
    try:
        found = json.loads(zlib.decompress(base64.b85decode(text))) if text else {}
        return {str(key): int(count) for key, count in found.items()}
    except (AttributeError, TypeError, ValueError, zlib.error):
        return {}


def by_labels(totals: Mapping[str, int], name: str) -> list[tuple[str, str, int]]:
    """(result, reason, count) of every count with that name, sorted."""
    rows = (key.split("/", 2) + [""] * (2 - key.count("/")) + [str(count)] for key, count in sorted(totals.items()))
    return [(result, reason, int(count)) for one, result, reason, count in rows if one == name]
