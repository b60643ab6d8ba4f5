"""Reference policies: a fixed fleet, and three autoscalers as their own documentation describes them.

They have the same machines, boots, drains and pods as the deployed policy.
"""

from __future__ import annotations

import math
from collections import deque

from backtest.fleet import NEVER, ZONES, Fleet, Machine
from backtest.measures import Action

MINUTE = 60


class _Reference:
    """The common part: a name, the actions, launches into the zone with the fewest machines, and drains."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.actions: list[Action] = []
        self._next = NEVER

    def wakes_at(self) -> int:
        return self._next

    def start(self, fleet: Fleet) -> None:
        """Most references need no preparation."""

    def _launch(self, fleet: Fleet, wanted: int) -> int:
        count = min(wanted, fleet.load.max_workers - fleet.size)
        for _ in range(count):
            zones = [m.zone for m in fleet.machines]
            fleet.launch(zone=min(ZONES, key=zones.count))
        if count > 0:
            self.actions.append(Action(at=fleet.now, change=count, rule=self.name))
        return max(0, count)

    def _drain(self, fleet: Fleet, machines: list[Machine]) -> None:
        for machine in machines:
            fleet.drain(machine)
        if machines:
            self.actions.append(Action(at=fleet.now, change=-len(machines), rule=self.name))


class FixedFleet(_Reference):
    """A fixed number of workers."""

    def __init__(self, workers: int) -> None:
        super().__init__(f"fixed-{workers}")
        self._workers = workers

    def start(self, fleet: Fleet) -> None:
        """Start with exactly these workers; this is no action."""
        while fleet.size < self._workers:
            fleet.launch().joins_at = fleet.now
        for machine in fleet.machines[self._workers :]:
            fleet.drain(machine)
            machine.ends_at = fleet.now
        fleet.next_event_at = fleet.now
        fleet.settle(fleet.wanted)

    def act(self, fleet: Fleet) -> None:
        """A fixed fleet never changes."""


class TargetTracking(_Reference):
    """An Auto Scaling group with target tracking on its average CPU.

    Follows https://docs.aws.amazon.com/autoscaling/ec2/userguide/as-scaling-target-tracking.html and the alarms that
    the service creates: scale-out in proportion after 3 of 3 one-minute points above the target; scale-in after 15 of
    15 points under the low threshold, one worker at a time and not while an instance warms up. An instance that warms
    up is not in the metric and counts as capacity. The warm-up is the group's default cooldown, 300 s, unless the
    group names another one; the waiting depends on it, so that two are compared.
    """

    DEFAULT_WARM_UP = 300

    def __init__(
        self, target_percent: float = 50.0, *, low_share: float = 0.9, warm_up_seconds: int = DEFAULT_WARM_UP
    ) -> None:
        varied = "" if warm_up_seconds == self.DEFAULT_WARM_UP else f"-warm-{warm_up_seconds}"
        super().__init__(f"target-tracking-{target_percent:g}{varied}")
        self._target = target_percent
        self._low = target_percent * low_share
        self._warm_up = warm_up_seconds
        self._next = 0
        self._points: deque[float] = deque(maxlen=15)
        self._busy: dict[str, float] = {}
        self._initial: set[str] = set()

    def start(self, fleet: Fleet) -> None:
        """The first point is one minute after the start; the initial workers have warmed up."""
        self._next = -(-fleet.now // MINUTE) * MINUTE + MINUTE
        self._initial = {m.instance_id for m in fleet.machines}

    def act(self, fleet: Fleet) -> None:
        if fleet.now < self._next:
            return
        self._next += (fleet.now - self._next) // MINUTE * MINUTE + MINUTE
        warm = [m for m in fleet.usable() if self._has_warmed_up(m, fleet.now)]
        point = self._point(fleet, warm)
        if point is not None:
            self._points.append(point)
            self._size(fleet, warm, point)

    def _has_warmed_up(self, machine: Machine, now: int) -> bool:
        return now - machine.launched_at >= self._warm_up or machine.instance_id in self._initial

    def _point(self, fleet: Fleet, warm: list[Machine]) -> float | None:
        """Mean CPU of the last minute over the instances that have warmed up."""
        before, self._busy = self._busy, {m.instance_id: m.busy for m in fleet.machines}
        used = [m.busy - before[m.instance_id] for m in warm if m.instance_id in before]
        return 100 * sum(used) / (len(used) * MINUTE * fleet.capacity.vcpus * 1000) if used else None

    def _size(self, fleet: Fleet, warm: list[Machine], point: float) -> None:
        staying = [m for m in fleet.machines if m.state != "cordoned"]
        needed = math.ceil(len(warm) * point / self._target - 1e-9)
        last = list(self._points)[-3:]
        if len(last) == 3 and min(last) > self._target:
            self._launch(fleet, needed - len(staying))
        elif len(self._points) == 15 and max(self._points) < self._low and len(staying) == len(warm):
            self._shrink(fleet, staying, needed)

    def _shrink(self, fleet: Fleet, staying: list[Machine], needed: int) -> None:
        zones = [m.zone for m in staying]
        if len(staying) > max(needed, fleet.load.min_workers):
            self._drain(fleet, [min(staying, key=lambda m: (-zones.count(m.zone), m.launched_at))])


class ClusterAutoscaler(_Reference):
    """Sizes by requests, as Kubernetes' Cluster Autoscaler.

    Follows https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md with its defaults: a scan
    every 10 s; new nodes at once for pods that fit on no node, joining nodes included; a node whose requests are under
    50 % and whose pods fit elsewhere is removed after 10 minutes, empty nodes up to ten at a time, others one at a
    time, and none within 10 minutes after a scale-up. Empty nodes are examined first and then the candidates of the
    scan before, so that a change of order resets no node's ten minutes (processors/scaledowncandidates).
    """

    SCAN_SECONDS = 10
    UTILISATION = 0.5
    UNNEEDED_SECONDS = 600
    AFTER_ADD_SECONDS = 600
    EMPTY_AT_ONCE = 10

    def __init__(self) -> None:
        super().__init__("cluster-autoscaler")
        self._unneeded: dict[str, int] = {}
        self._added_at = -NEVER

    def act(self, fleet: Fleet) -> None:
        self._next = NEVER
        if fleet.pending:
            self._grow(fleet)
        self._mark_unneeded(fleet)
        if self._unneeded:
            self._shrink(fleet)

    def _grow(self, fleet: Fleet) -> None:
        scan = fleet.pending_since + self.SCAN_SECONDS
        if fleet.now < scan:
            self._next = scan
            return
        if self._launch(fleet, missing_workers(fleet)):
            self._added_at = fleet.now

    def _mark_unneeded(self, fleet: Fleet) -> None:
        """Record since when each node is unneeded; unneeded nodes do not count as capacity for each other's pods."""
        capacity, now, before = fleet.capacity, fleet.now, self._unneeded
        usable = sorted(fleet.usable(), key=lambda m: (m.pods > 0, m.instance_id not in before, m.pods))
        free = sum(capacity.pods_per_worker - m.pods for m in usable)
        found: dict[str, int] = {}
        for machine in usable:
            asked = capacity.daemon_cpu_milli + machine.pods * capacity.pod_cpu_milli
            elsewhere = free - capacity.pods_per_worker + machine.pods
            if asked < self.UTILISATION * capacity.allocatable_cpu_milli and machine.pods <= elsewhere:
                free = elsewhere - machine.pods
                found[machine.instance_id] = before.get(machine.instance_id, now)
        self._unneeded = found

    def _shrink(self, fleet: Fleet) -> None:
        now = fleet.now
        ready = min(self._unneeded.values()) + self.UNNEEDED_SECONDS
        due = max(ready, self._added_at + self.AFTER_ADD_SECONDS)
        if now < due:
            self._next = min(self._next, due)
            return
        old = [m for m in fleet.usable() if now - self._unneeded.get(m.instance_id, now) >= self.UNNEEDED_SECONDS]
        old.sort(key=lambda m: m.pods)
        removable = fleet.size - fleet.load.min_workers
        to_remove = [m for m in old if not m.pods][: min(removable, self.EMPTY_AT_ONCE)]
        draining = any(m.state == "cordoned" and m.ends_at > now for m in fleet.machines)
        if (
            not to_remove
            and not draining
            and removable > 0
            and old
            and old[0].pods <= fleet.free_capacity_without(old[0])
        ):
            to_remove = old[:1]
        self._drain(fleet, to_remove)
        if draining or (old and removable > len(to_remove)):
            self._next = min(self._next, now + self.SCAN_SECONDS)


class Karpenter(_Reference):
    """Launches nodes for batches of pods and consolidates fast, as Karpenter.

    Follows https://karpenter.sh/docs/concepts/disruption/ and /docs/reference/settings/ with the defaults of version
    1: pods are batched for at most 10 s; consolidation WhenEmptyOrUnderutilized with consolidateAfter 0 s checks every
    10 s and validates for 15 s; a node is removed when its pods fit on the others; at most 10 % of the nodes at a time,
    rounded up. With one instance type no node is replaced by a cheaper one.

    balanced: the policy Balanced of version 1.14. A removal needs a share of the cost that is at least half of its
    share of the disruption; a node's disruption is 1 and one for each of its pods. consolidate_after: how long a node
    must have had the same pods.
    """

    BATCH_SECONDS = 10
    CHECK_SECONDS = 10
    VALIDATE_SECONDS = 20
    BUDGET_ONE_IN = 10
    LEAST_SCORE = 0.5

    def __init__(self, *, balanced: bool = False, consolidate_after: int = 0) -> None:
        super().__init__("karpenter-balanced" if balanced else "karpenter")
        self._balanced = balanced
        self._after = consolidate_after
        self._same_since: dict[str, tuple[int, int]] = {}
        self._since = NEVER

    def act(self, fleet: Fleet) -> None:
        self._next = NEVER
        self._note_changes(fleet)
        if fleet.pending:
            self._grow(fleet)
            self._since = NEVER
            return
        self._consolidate(fleet)

    def _note_changes(self, fleet: Fleet) -> None:
        """Note since when each node has had the pods that it has."""
        if not self._after:
            return
        before, found = self._same_since, {}
        for machine in fleet.usable():
            pods, since = before.get(machine.instance_id, (-1, 0))
            found[machine.instance_id] = (machine.pods, since if pods == machine.pods else fleet.now)
        self._same_since = found

    def _is_worth_it(self, machine: Machine, usable: list[Machine]) -> bool:
        """Whether the share of the cost that the removal saves is at least half of the share of its disruption."""
        disruption = (1 + machine.pods) / sum(1 + m.pods for m in usable)
        return not machine.pods or 1 / len(usable) >= self.LEAST_SCORE * disruption

    def _grow(self, fleet: Fleet) -> None:
        """Launch when the batch closes, ten seconds after its first pod."""
        closes = fleet.pending_since + self.BATCH_SECONDS
        if fleet.now < closes:
            self._next = closes
            return
        self._launch(fleet, missing_workers(fleet))

    def _consolidate(self, fleet: Fleet) -> None:
        now, usable = fleet.now, fleet.usable()
        budget = -(-fleet.size // self.BUDGET_ONE_IN) - sum(m.state == "cordoned" for m in fleet.machines)
        removable = fleet.size - sum(m.state == "cordoned" for m in fleet.machines) - fleet.load.min_workers
        joining = any(m.state == "joining" for m in fleet.machines)
        ends = [at + self._after for _, at in self._same_since.values()]
        self._next = min((end for end in ends if end > now), default=NEVER)
        ready = [m for m in usable if not self._after or now - self._same_since[m.instance_id][1] >= self._after]
        emptiest = min(ready, key=lambda m: (m.pods, m.instance_id), default=None)
        if (
            emptiest is None
            or joining
            or min(budget, removable) <= 0
            or emptiest.pods > fleet.free_capacity_without(emptiest)
            or (self._balanced and not self._is_worth_it(emptiest, usable))
        ):
            self._since = NEVER
            return
        self._since = min(self._since, now)
        if now - self._since < self.VALIDATE_SECONDS:
            self._next = min(self._next, self._since + self.VALIDATE_SECONDS)
            return
        self._since = NEVER
        self._drain(fleet, [emptiest])
        self._next = min(self._next, now + self.CHECK_SECONDS)


def missing_workers(fleet: Fleet) -> int:
    """Workers that the pending pods need in addition to the joining ones."""
    per_worker = fleet.capacity.pods_per_worker
    joining = sum(m.state == "joining" for m in fleet.machines)
    return max(0, -(-fleet.pending // per_worker) - joining)
