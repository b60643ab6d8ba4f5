"""Workers and pods of one replay: boots, drains, placement by requests, CPU use, and the counts of them.

It carries out what a policy decides. All pods have one shape, so they are counted, not listed. Workers may be of
several types, each with its own size.
"""

from __future__ import annotations

import operator
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Literal

from backtest.load import Load
from backtest.model import Capacity
from node_fleet.domain.cost.cpu_credits import CreditAccount
from node_fleet.domain.model.instance_types import CpuCredits
from node_fleet.domain.model.snapshot import Market

NEVER = 1 << 60
CPU_WINDOW_SECONDS = 300
ZONES = ("a", "b", "c")

State = Literal["joining", "usable", "cordoned"]


class Machine:
    """One worker. busy: milli-core-seconds since it joined; history: (time, busy) within the CPU window.

    refill: it was launched to become a standby worker. stops: its drain ends in a stop.
    """

    __slots__ = (
        "busy",
        "capacity",
        "credits",
        "ends_at",
        "history",
        "instance_id",
        "joined_at",
        "joins_at",
        "launched_at",
        "market",
        "most_cpu_milli",
        "most_pods",
        "pods",
        "refill",
        "state",
        "stops",
        "zone",
    )

    def __init__(
        self,
        number: int,
        now: int,
        joins_at: int,
        *,
        zone: str,
        market: Market,
        capacity: Capacity,
        credits: CreditAccount,
    ) -> None:
        self.credits = credits
        self.capacity = capacity
        self.most_cpu_milli = capacity.vcpus * 1000.0
        self.most_pods = capacity.pods_per_worker
        self.instance_id = f"i-{number:017x}"
        self.launched_at = now
        self.joins_at = joins_at
        self.joined_at = NEVER
        self.ends_at = NEVER
        self.zone = zone
        self.market = market
        self.state: State = "joining"
        self.refill = self.stops = False
        self.pods = 0
        self.busy = 0.0
        self.history: deque[tuple[int, float]] = deque()

    def cpu_milli(self, now: int) -> float:
        """Mean use over the last CPU window, or since it joined if that is shorter. now: the last time in `history`."""
        since, joined_at = now - CPU_WINDOW_SECONDS, self.joined_at
        since = joined_at if joined_at > since else since
        if since >= now:
            return 0.0
        history = self.history
        while history[1][0] <= since:
            history.popleft()
        (at, busy), (later, more) = history[0], history[1]
        busy += (more - busy) * (since - at) / (later - at)
        return (self.busy - busy) / (now - since)


@dataclass(slots=True)
class Counts:
    """The sums of a replay. The machine-seconds and the charged vCPU-hours are by instance type.

    standby_seconds: of stopped standby workers.
    """

    machine_seconds: Counter[str] = field(default_factory=Counter)
    standby_seconds: int = 0
    pending_pod_seconds: int = 0
    avoidable_pod_seconds: int = 0
    overload_seconds: int = 0
    charged_vcpu_hours: dict[str, float] = field(default_factory=dict)
    missing_vcpu_hours: float = 0.0

    def end(self, machine: Machine) -> None:
        """Add the CPU credits of a machine that ends."""
        kind, account = machine.capacity.instance_type, machine.credits
        self.charged_vcpu_hours[kind] = self.charged_vcpu_hours.get(kind, 0.0) + account.charged_at_end
        self.missing_vcpu_hours += account.missing


class Fleet:
    """The machines, the pods on them and the pending pods. waiting: [pending since, number of pods], oldest first.

    capacity: the type of a machine that is launched without one. standby: the stopped machines.
    """

    def __init__(
        self, capacity: Capacity, load: Load, start: int, workers: int, cpu_credits: CpuCredits = "unlimited"
    ) -> None:
        self.cpu_credits = cpu_credits
        self.capacity = capacity
        self.load = load
        self.now = start
        self.machines: list[Machine] = []
        self.standby: list[Machine] = []
        self.wanted = 0
        self.running = 0
        self.waiting: deque[list[int]] = deque()
        self.pending = 0
        self.pending_since = NEVER
        self.next_event_at = NEVER
        self.counts = Counts()
        self._created = 0
        self._of_type: Counter[str] = Counter()
        for number in range(workers):
            machine = self._create(start, start, ZONES[number % len(ZONES)], "on-demand", capacity)
            self._join(machine)

    @property
    def size(self) -> int:
        """Machines on the bill."""
        return len(self.machines)

    def usable(self) -> list[Machine]:
        return [m for m in self.machines if m.state == "usable"]

    def launch(self, *, zone: str = "a", market: Market = "on-demand", capacity: Capacity | None = None) -> Machine:
        """Launch one machine; it joins after the boot delay."""
        kind = capacity or self.capacity
        return self._create(self.now, self.now + kind.boot_seconds, zone, market, kind)

    def start(self, stopped: Machine) -> Machine:
        """Start a stopped machine; it joins after the start delay, under its old id."""
        self.standby.remove(stopped)
        kind = stopped.capacity
        machine = self._create(self.now, self.now + kind.start_seconds, stopped.zone, stopped.market, kind)
        machine.instance_id = stopped.instance_id
        return machine

    def drain(self, machine: Machine, *, stops: bool = False) -> None:
        """Cordon the machine and move its pods; it ends after the drain time, or stops as a standby worker."""
        machine.state, machine.stops = "cordoned", stops
        machine.ends_at = self.now + machine.capacity.drain_seconds
        self._evict(machine)
        self._set_next_event()

    def withdraw(self, machine: Machine) -> None:
        """Uncordon the machine, so that pods can be placed on it."""
        machine.state, machine.ends_at = "usable", NEVER
        self._set_next_event()
        self._place()

    def free_capacity_without(self, machine: Machine) -> int:
        """The number of pods that fit on the other usable workers."""
        return sum(m.most_pods - m.pods for m in self.machines if m.state == "usable" and m is not machine)

    def oldest_seconds(self) -> int:
        """How long the oldest pending pod is pending; 0 without pending pods."""
        return self.now - self.waiting[0][0] if self.waiting else 0

    def advance(self, until: int, used_milli_seconds: float) -> None:
        """Advance the clock to `until`, and count what lasts until then."""
        seconds = until - self.now
        counts = self.counts
        for kind, machines in self._of_type.items():
            counts.machine_seconds[kind] += seconds * machines
        counts.standby_seconds += seconds * len(self.standby)
        if self.pending:
            beyond = max(0, self.wanted - self.load.max_running_pods)
            counts.pending_pod_seconds += seconds * self.pending
            counts.avoidable_pod_seconds += seconds * max(0, self.pending - beyond)
        if used_milli_seconds > self.running * self.capacity.pod_cpu_milli * seconds * 1.000001:
            counts.overload_seconds += seconds
        self._use_cpu(until, seconds, used_milli_seconds)
        self.now = until

    def skip_to(self, start: int) -> None:
        """Skip a gap of the trace: nothing is counted, and the CPU history starts again."""
        self.now = start
        for machine in self.machines:
            machine.history.clear()
            machine.history.append((start, machine.busy))
            if machine.joined_at != NEVER:
                machine.joined_at = start
        for cohort in self.waiting:
            cohort[0] = max(cohort[0], start)
        if self.pending:
            self.pending_since = start

    def settle(self, wanted: int) -> None:
        """Apply joins and ends that are due, then change the number of pods to `wanted` and place the pending pods."""
        if self.next_event_at <= self.now:
            self._apply_due()
        change = wanted - self.wanted
        self.wanted = wanted
        if change > 0:
            self._queue(change)
        elif change < 0:
            self._stop(-change)
        if self.pending:
            self._place()

    def _create(self, now: int, joins_at: int, zone: str, market: Market, capacity: Capacity) -> Machine:
        self._created += 1
        self._of_type[capacity.instance_type] += 1
        account = CreditAccount(capacity.instance_type, self.cpu_credits)
        machine = Machine(self._created, now, joins_at, zone=zone, market=market, capacity=capacity, credits=account)
        self.machines.append(machine)
        self.next_event_at = min(self.next_event_at, joins_at)
        return machine

    def _join(self, machine: Machine) -> None:
        machine.state, machine.joined_at, machine.joins_at = "usable", self.now, NEVER
        machine.history.append((self.now, 0.0))

    def _apply_due(self) -> None:
        now = self.now
        for machine in self.machines:
            if machine.joins_at <= now:
                self._join(machine)
        for machine in self.machines:
            if machine.ends_at <= now:
                self.counts.end(machine)
                self._of_type[machine.capacity.instance_type] -= 1
                self.standby += [machine] if machine.stops else []
        self.machines = [m for m in self.machines if m.ends_at > now]
        self._set_next_event()

    def _set_next_event(self) -> None:
        self.next_event_at = min((min(m.joins_at, m.ends_at) for m in self.machines), default=NEVER)

    def _evict(self, machine: Machine) -> None:
        moved, machine.pods = machine.pods, 0
        self.running -= moved
        self._queue(moved)
        self._place()

    def _queue(self, pods: int) -> None:
        if not pods:
            return
        self.waiting.append([self.now, pods])
        if not self.pending:
            self.pending_since = self.now
        self.pending += pods

    def _place(self) -> None:
        """Place each pod on the usable worker with the lowest share of requests, as the scheduler does."""
        placed = 0
        open_machines = [m for m in self.machines if m.state == "usable" and m.pods < m.most_pods]
        while open_machines and placed < self.pending:
            best = min(open_machines, key=_share_of)
            best.pods += 1
            placed += 1
            if best.pods == best.most_pods:
                open_machines.remove(best)
        self.running += placed
        self._dequeue(placed, newest=False)

    def _stop(self, pods: int) -> None:
        """Remove pending pods first, then a pod of the worker with most pods each time, as a ReplicaSet does."""
        unplaced = min(pods, self.pending)
        self._dequeue(unplaced, newest=True)
        for _ in range(pods - unplaced):
            max(self.machines, key=operator.attrgetter("pods")).pods -= 1
        self.running -= pods - unplaced

    def _dequeue(self, pods: int, *, newest: bool) -> None:
        self.pending -= pods
        while pods:
            cohort = self.waiting[-1 if newest else 0]
            taken = min(pods, cohort[1])
            cohort[1] -= taken
            pods -= taken
            if not cohort[1]:
                self.waiting.pop() if newest else self.waiting.popleft()
        if not self.pending:
            self.pending_since = NEVER

    def _use_cpu(self, until: int, seconds: int, used_milli_seconds: float) -> None:
        """Spread the demand over the running pods, up to the limit of each pod and the cores of each worker."""
        capacity = self.capacity
        limit = capacity.pod_cpu_limit_milli * seconds
        idle = capacity.pod_idle_cpu_milli * seconds
        each = idle + used_milli_seconds / self.running if self.running else 0.0
        each = each if each < limit else limit
        system = capacity.system_cpu_milli * seconds
        for machine in self.machines:
            used, most = system + machine.pods * each, machine.most_cpu_milli * seconds
            used = used if used < most else most
            if machine.state != "joining":
                machine.busy = busy = machine.busy + used
                machine.history.append((until, busy))
            machine.credits.use(used / 1000, seconds)


def _share_of(machine: Machine) -> float:
    return machine.pods / machine.most_pods
