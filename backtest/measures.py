"""The results of a replay: worker-hours, waiting, overload, actions and their changes of direction."""

from __future__ import annotations

from dataclasses import field
from itertools import pairwise

from node_fleet.domain.model.value_class import value_class


@value_class
class Action:
    """One completed change of the fleet: when it began, and the number of workers added (below 0: removed)."""

    at: int
    change: int
    rule: str = ""


@value_class
class Point:
    """One interval of a chart: the most workers and pending pods in it, and the running pods at its start `at`."""

    at: int
    workers: int
    running: int
    pending: int


@value_class
class TypeUsage:
    """What the workers of one instance type are billed for. charged_vcpu_hours: CPU above the baseline."""

    instance_type: str
    worker_hours: float
    charged_vcpu_hours: float


@value_class
class Measures:
    """One policy on one trace. avoidable: pending pod-minutes that the clairvoyant fleet does not have.

    usage: by instance type; empty: all workers are of the configured type.
    standby_hours: of stopped standby workers, whose volumes are billed.
    charged_vcpu_hours: CPU above the baseline that EC2 charges. missing_vcpu_hours: in mode standard, CPU that the load
    wants and the burstable workers do not give; the rest of the model takes no notice of it.
    """

    policy: str
    trace: str
    days: float
    worker_hours: float
    pending_pod_minutes: float
    avoidable_pod_minutes: float
    overload_minutes: float
    charged_vcpu_hours: float = 0.0
    missing_vcpu_hours: float = 0.0
    standby_hours: float = 0.0
    usage: tuple[TypeUsage, ...] = ()
    actions: tuple[Action, ...] = ()
    points: tuple[Point, ...] = field(default=(), repr=False)

    @property
    def changes_of_direction(self) -> int:
        """How often a scale-up follows a scale-down, or the reverse."""
        signs = [action.change > 0 for action in self.actions]
        return sum(a != b for a, b in pairwise(signs))

    @property
    def avoidable_per_day(self) -> float:
        return self.avoidable_pod_minutes / self.days

    @property
    def changes_per_day(self) -> float:
        return self.changes_of_direction / self.days
