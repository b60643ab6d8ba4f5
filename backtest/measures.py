"""What a replay amounts to: worker-hours, money, waiting, overload, actions and how often they changed direction."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One completed change of the fleet: when it began, and by how many workers (below 0: fewer)."""

    at: int
    change: int
    rule: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One stretch of a chart that begins at `at`: the highest workers and pending in it, running as it began."""

    at: int
    workers: int
    running: int
    pending: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """One policy on one trace. avoidable: pending pod-minutes that the clairvoyant fleet would not have had."""

    policy: str
    trace: str
    days: float
    worker_hours: float
    pending_pod_minutes: float
    avoidable_pod_minutes: float
    overload_minutes: float
    actions: tuple[Action, ...] = ()
    points: tuple[Point, ...] = field(default=(), repr=False)

    @property
    def changes_of_direction(self) -> int:
        """How often an action up followed one down, or the other way round."""
        signs = [action.change > 0 for action in self.actions]
        return sum(a != b for a, b in pairwise(signs))

    @property
    def avoidable_per_day(self) -> float:
        return self.avoidable_pod_minutes / self.days

    @property
    def changes_per_day(self) -> float:
        return self.changes_of_direction / self.days
