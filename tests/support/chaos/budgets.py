"""The budgets and windows of one random schedule, and what they allow by arithmetic of its own.

It shares nothing with the product's rule, so that a mistake there shows here. Every window is daily and in UTC.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from node_fleet.domain.model.value_class import value_class

DAY_MINUTES = 1440


@value_class
class DrawnBudget:
    """One budget. begins: minutes from the start of the schedule to that of its daily window; None: it holds always."""

    nodes: str
    reasons: tuple[str, ...] = ()
    begins: int | None = None
    minutes: int = 0

    def limit(self, workers: int) -> int:
        if not self.nodes.endswith("%"):
            return int(self.nodes)
        whole, rest = divmod(workers * int(self.nodes.removesuffix("%")), 100)
        return whole + (1 if rest else 0)


@value_class
class DrawnRules:
    """What an operator deploys at the start of a schedule.

    only, never: (minutes from the start of the schedule, length) of removal windows of either kind.
    """

    budgets: tuple[DrawnBudget, ...] = ()
    only: tuple[int, int] | None = None
    never: tuple[int, int] | None = None

    def environment(self, start: float) -> dict[str, str]:
        """The settings as the functions read them."""
        rows = [self._row(budget, start) for budget in self.budgets]
        kinds = (("only", self.only), ("never", self.never))
        windows = [f"{kind}: {_span(start, *window)}" for kind, window in kinds if window]
        return {"DISRUPTION_BUDGETS": json.dumps(rows) if rows else "", "REMOVAL_WINDOWS": "; ".join(windows)}

    def allowed(self, reason: str, at: float, workers: int, start: float) -> int:
        """How many workers may be disrupted at once at that time, of so many."""
        limits = [
            budget.limit(workers)
            for budget in self.budgets
            if (not budget.reasons or reason in budget.reasons)
            and (budget.begins is None or _inside(at, start, budget.begins, budget.minutes))
        ]
        if self.only and not _inside(at, start, *self.only):
            limits.append(0)
        if self.never and _inside(at, start, *self.never):
            limits.append(0)
        return min([workers, *limits])

    def _row(self, budget: DrawnBudget, start: float) -> dict[str, Any]:
        row: dict[str, Any] = {"nodes": budget.nodes, "reasons": list(budget.reasons)}
        if budget.begins is not None:
            hour, minute = divmod(_minute(start, budget.begins), 60)
            row |= {"schedule": f"{minute} {hour} * * *", "duration": f"{budget.minutes}m"}
        return {name: value for name, value in row.items() if value}


def disrupted(rows: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """Of the workers of a reading: how many have joined, and how many of these serve no pods or are about to leave."""
    joined = [row for row in rows if row["phase"] in ("usable", "cordoned", "not_ready")]
    return len(joined), sum(row["phase"] != "usable" or row["under_notice"] for row in joined)


def _minute(start: float, after: int) -> int:
    return (int(start) // 60 + after) % DAY_MINUTES


def _inside(at: float, start: float, begins: int, minutes: int) -> bool:
    since = (int(at) // 60 - _minute(start, begins)) % DAY_MINUTES
    return since < minutes


def _span(start: float, begins: int, minutes: int) -> str:
    first = _minute(start, begins)
    last = first + minutes
    clock = [f"{minute % DAY_MINUTES // 60:02}:{minute % 60:02}" for minute in (first, last)]
    return f"Mon-Sun {clock[0]}-{clock[1]}"
