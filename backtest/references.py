"""Policies to compare with: a fixed fleet, and three autoscalers by what their own documentation says of them.

Each class names what it follows. They see the same machines, boots, drains and pods as the deployed policy.
"""

from __future__ import annotations

import math
from collections import deque

from backtest.fleet import NEVER, ZONES, Fleet, Machine
from backtest.measures import Action

MINUTE = 60


class _Reference:
    """What they share: a name, a list of actions, launching into the emptiest zone, draining within the minimum."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.actions: list[Action] = []

    def start(self, fleet: Fleet) -> None:
        """Nothing to prepare."""

    def _launch(self, fleet: Fleet, wanted: int) -> int:
        count = min(wanted, fleet.load.most_workers - fleet.size)
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
    """A number of workers that somebody chose: the seeds' comparison, five."""

    def __init__(self, workers: int) -> None:
        super().__init__(f"fixed-{workers}")
        self._workers = workers

    def start(self, fleet: Fleet) -> None:
        """All of them are there from the first second; this is no action."""
        while fleet.size < self._workers:
            fleet.launch().joins_at = fleet.now
        for machine in fleet.machines[self._workers :]:
            machine.gone_at = fleet.now
            fleet.drain(machine)
            machine.gone_at = fleet.now
        fleet.next_due = fleet.now
        fleet.settle(fleet.wanted)

    def next_turn(self) -> int:
        return NEVER

    def act(self, fleet: Fleet) -> None:
        """It never changes."""


class TargetTracking(_Reference):
    """An Auto Scaling group with target tracking on its average CPU.

    Follows https://docs.aws.amazon.com/autoscaling/ec2/userguide/as-scaling-target-tracking.html and the alarms that
    the service creates: out after 3 of 3 one-minute points above the target, in proportion and at once; in after 15
    of 15 points under the lower mark, more gradually: one worker at a time, and not while an instance warms up
    (300 s); a warming instance is not in the metric and counts as capacity.
    """

    def __init__(self, target_percent: float = 50.0, *, low_share: float = 0.9, warm_up_seconds: int = 300) -> None:
        super().__init__(f"target-tracking-{target_percent:g}")
        self._target = target_percent
        self._low = target_percent * low_share
        self._warm_up = warm_up_seconds
        self._next = 0
        self._points: deque[float] = deque(maxlen=15)
        self._busy: dict[str, float] = {}
        self._there: set[str] = set()

    def start(self, fleet: Fleet) -> None:
        """The first point is one minute after the start; the workers that are there have warmed up."""
        self._next = -(-fleet.now // MINUTE) * MINUTE + MINUTE
        self._there = {m.instance_id for m in fleet.machines}

    def next_turn(self) -> int:
        return self._next

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
        return now - machine.launched_at >= self._warm_up or machine.instance_id in self._there

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
        if len(staying) > max(needed, fleet.load.least_workers):
            self._drain(fleet, [min(staying, key=lambda m: (-zones.count(m.zone), m.launched_at))])


class ClusterAutoscaler(_Reference):
    """Sized by requests, as Kubernetes' Cluster Autoscaler.

    Follows https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md with its defaults: a scan
    every 10 s; pods that no node and no coming node holds get nodes at once; a node under 50 % of its requests whose
    pods fit elsewhere goes after 10 minutes of that, empty nodes up to ten at a time, others one at a time, and none
    within 10 minutes after a scale-up.
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
        self._next = NEVER

    def next_turn(self) -> int:
        return self._next

    def act(self, fleet: Fleet) -> None:
        self._next = NEVER
        if fleet.pending:
            self._grow(fleet)
        self._mark(fleet)
        if self._unneeded:
            self._shrink(fleet)

    def _grow(self, fleet: Fleet) -> None:
        seen = fleet.pending_since + self.SCAN_SECONDS
        if fleet.now < seen:
            self._next = seen
            return
        if self._launch(fleet, coming_short(fleet)):
            self._added_at = fleet.now

    def _mark(self, fleet: Fleet) -> None:
        """Since when each node has been unneeded; nodes already marked do not hold each other's pods."""
        capacity, now = fleet.capacity, fleet.now
        usable = sorted(fleet.usable(), key=lambda m: m.pods)
        free = sum(capacity.pods_per_worker - m.pods for m in usable)
        found: dict[str, int] = {}
        for machine in usable:
            asked = capacity.daemon_cpu_milli + machine.pods * capacity.pod_cpu_milli
            free -= capacity.pods_per_worker - machine.pods
            if asked >= self.UTILISATION * capacity.allocatable_cpu_milli or machine.pods > free:
                break
            free -= machine.pods
            found[machine.instance_id] = self._unneeded.get(machine.instance_id, now)
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
        spare = fleet.size - fleet.load.least_workers
        leaving = [m for m in old if not m.pods][: min(spare, self.EMPTY_AT_ONCE)]
        draining = any(m.state == "cordoned" and m.gone_at > now for m in fleet.machines)
        if not leaving and not draining and spare > 0 and old and old[0].pods <= fleet.room_without(old[0]):
            leaving = old[:1]
        self._drain(fleet, leaving)
        if draining or (old and spare > len(leaving)):
            self._next = min(self._next, now + self.SCAN_SECONDS)


class Karpenter(_Reference):
    """Nodes for pods in batches, and fast consolidation, as Karpenter.

    Follows https://karpenter.sh/docs/concepts/disruption/ and /docs/reference/settings/ with the defaults of version
    1: pods are batched for at most 10 s; consolidation WhenEmptyOrUnderutilized with consolidateAfter 0 s looks every
    10 s and validates for 15 s; a node goes when its pods fit on the others; at most 10 % of the nodes at a time,
    rounded up. With one instance type there is nothing to replace by something cheaper.
    """

    BATCH_SECONDS = 10
    LOOK_SECONDS = 10
    VALIDATE_SECONDS = 20
    BUDGET_ONE_IN = 10

    def __init__(self) -> None:
        super().__init__("karpenter")
        self._since: dict[str, int] = {}
        self._next = NEVER

    def next_turn(self) -> int:
        return self._next

    def act(self, fleet: Fleet) -> None:
        self._next = NEVER
        if fleet.pending:
            self._grow(fleet)
            self._since.clear()
            return
        self._consolidate(fleet)

    def _grow(self, fleet: Fleet) -> None:
        """A batch closes ten seconds after its first pod."""
        closes = fleet.pending_since + self.BATCH_SECONDS
        if fleet.now < closes:
            self._next = closes
            return
        self._launch(fleet, coming_short(fleet))

    def _consolidate(self, fleet: Fleet) -> None:
        now, usable = fleet.now, fleet.usable()
        budget = -(-fleet.size // self.BUDGET_ONE_IN) - sum(m.state == "cordoned" for m in fleet.machines)
        spare = fleet.size - sum(m.state == "cordoned" for m in fleet.machines) - fleet.load.least_workers
        coming = any(m.state == "joining" for m in fleet.machines)
        emptiest = min(usable, key=lambda m: (m.pods, m.instance_id), default=None)
        if emptiest is None or coming or min(budget, spare) <= 0 or emptiest.pods > fleet.room_without(emptiest):
            self._since.clear()
            return
        since = self._since.setdefault("room", now)
        if now - since < self.VALIDATE_SECONDS:
            self._next = since + self.VALIDATE_SECONDS
            return
        self._since.clear()
        self._drain(fleet, [emptiest])
        self._next = now + self.LOOK_SECONDS


def coming_short(fleet: Fleet) -> int:
    """Workers that waiting pods need beyond those that boot already."""
    per_worker = fleet.capacity.pods_per_worker
    coming = sum(m.state == "joining" for m in fleet.machines)
    return max(0, -(-fleet.pending // per_worker) - coming)
