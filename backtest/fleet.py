"""Workers and pods of one replay: boots, drains, placement by requests, CPU use, and what is counted of them.

It obeys whoever sizes the fleet and decides nothing. Pods are all of one shape, so they are counted, not listed.
"""

from __future__ import annotations

from collections import deque
from typing import Literal

from backtest.load import Load
from backtest.model import Capacity

NEVER = 1 << 60
CPU_WINDOW_SECONDS = 300
ZONES = ("a", "b", "c")

State = Literal["joining", "usable", "cordoned"]


class Machine:
    """One worker. busy: milli-core-seconds used since it joined; history: (time, busy) back to the CPU window."""

    __slots__ = (
        "busy",
        "gone_at",
        "history",
        "instance_id",
        "joined_at",
        "joins_at",
        "launched_at",
        "market",
        "pods",
        "state",
        "zone",
    )

    def __init__(self, number: int, now: int, joins_at: int, zone: str, market: str) -> None:
        self.instance_id = f"i-{number:017x}"
        self.launched_at = now
        self.joins_at = joins_at
        self.joined_at = NEVER
        self.gone_at = NEVER
        self.zone = zone
        self.market = market
        self.state: State = "joining"
        self.pods = 0
        self.busy = 0.0
        self.history: deque[tuple[int, float]] = deque()

    def cpu_milli(self, now: int) -> float:
        """Mean use over the last CPU window, or since it joined when that is shorter."""
        since = max(now - CPU_WINDOW_SECONDS, self.joined_at)
        if since >= now:
            return 0.0
        history = self.history
        while len(history) > 1 and history[1][0] <= since:
            history.popleft()
        at, busy = history[0]
        if at < since and len(history) > 1:
            later, more = history[1]
            busy += (more - busy) * (since - at) / (later - at)
        return (self.busy - busy) / (now - since)


class Counts:
    """What is counted while a replay runs: seconds, and pod-seconds."""

    __slots__ = (
        "avoidable_pod_seconds",
        "machine_seconds",
        "overload_seconds",
        "pending_pod_seconds",
    )

    def __init__(self) -> None:
        self.machine_seconds = 0
        self.pending_pod_seconds = 0
        self.avoidable_pod_seconds = 0
        self.overload_seconds = 0


class Fleet:
    """The machines, the pods on them and the pods that wait."""

    def __init__(self, capacity: Capacity, load: Load, start: int, workers: int) -> None:
        self.capacity = capacity
        self.load = load
        self.now = start
        self.machines: list[Machine] = []
        self.wanted = 0
        self.running = 0
        self.waiting: deque[list[int]] = deque()
        self.pending = 0
        self.pending_since = NEVER
        self.next_due = NEVER
        self.counts = Counts()
        self._made = 0
        for number in range(workers):
            machine = self._make(start, start, ZONES[number % len(ZONES)], "on-demand")
            self._join(machine)

    @property
    def size(self) -> int:
        """Machines that are paid for."""
        return len(self.machines)

    def usable(self) -> list[Machine]:
        return [m for m in self.machines if m.state == "usable"]

    def launch(self, *, zone: str = "a", market: str = "on-demand") -> Machine:
        """Start one machine; it joins after the boot delay."""
        return self._make(self.now, self.now + self.capacity.boot_seconds, zone, market)

    def drain(self, machine: Machine) -> None:
        """Cordon it and let its pods look for room elsewhere; it is gone after the drain time."""
        machine.state = "cordoned"
        machine.gone_at = self.now + self.capacity.drain_seconds
        self._evict(machine)
        self._set_due()

    def withdraw(self, machine: Machine) -> None:
        """Take it back: pods may come again."""
        machine.state, machine.gone_at = "usable", NEVER
        self._set_due()
        self._place()

    def room_without(self, machine: Machine) -> int:
        """Free places on the other usable workers."""
        most = self.capacity.pods_per_worker
        return sum(most - m.pods for m in self.machines if m.state == "usable" and m is not machine)

    def oldest_seconds(self) -> int:
        """How long the pod that waits longest has waited; 0 when none does."""
        return self.now - self.waiting[0][0] if self.waiting else 0

    def pass_time(self, until: int, used_milli_seconds: float) -> None:
        """Count everything that lasts until then, and move the clock there."""
        seconds = until - self.now
        counts = self.counts
        counts.machine_seconds += seconds * len(self.machines)
        if self.pending:
            beyond = max(0, self.wanted - self.load.holdable)
            counts.pending_pod_seconds += seconds * self.pending
            counts.avoidable_pod_seconds += seconds * max(0, self.pending - beyond)
        if used_milli_seconds > self.running * self.capacity.pod_cpu_milli * seconds * 1.000001:
            counts.overload_seconds += seconds
        self._burn(until, seconds, used_milli_seconds)
        self.now = until

    def skip_to(self, start: int) -> None:
        """Pass over a gap of the trace: nothing is counted, and CPU history starts again."""
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
        """Let joins and ends that are due happen, then bring the pods to the wanted number and place them."""
        if self.next_due <= self.now:
            self._happen()
        change = wanted - self.wanted
        self.wanted = wanted
        if change > 0:
            self._wait(change)
        elif change < 0:
            self._stop(-change)
        if self.pending:
            self._place()

    def _make(self, now: int, joins_at: int, zone: str, market: str) -> Machine:
        self._made += 1
        machine = Machine(self._made, now, joins_at, zone, market)
        self.machines.append(machine)
        self.next_due = min(self.next_due, joins_at)
        return machine

    def _join(self, machine: Machine) -> None:
        machine.state, machine.joined_at, machine.joins_at = "usable", self.now, NEVER
        machine.history.append((self.now, 0.0))

    def _happen(self) -> None:
        now = self.now
        for machine in self.machines:
            if machine.joins_at <= now:
                self._join(machine)
        self.machines = [m for m in self.machines if m.gone_at > now]
        self._set_due()

    def _set_due(self) -> None:
        self.next_due = min((min(m.joins_at, m.gone_at) for m in self.machines), default=NEVER)

    def _evict(self, machine: Machine) -> None:
        moved, machine.pods = machine.pods, 0
        self.running -= moved
        self._wait(moved)
        self._place()

    def _wait(self, pods: int) -> None:
        if not pods:
            return
        self.waiting.append([self.now, pods])
        if not self.pending:
            self.pending_since = self.now
        self.pending += pods

    def _place(self) -> None:
        """As the scheduler does: each pod onto the worker with the least asked of it."""
        most, placed = self.capacity.pods_per_worker, 0
        open_machines = [m for m in self.machines if m.state == "usable" and m.pods < most]
        while open_machines and placed < self.pending:
            best = min(open_machines, key=_pods_of)
            best.pods += 1
            placed += 1
            if best.pods == most:
                open_machines.remove(best)
        self.running += placed
        self._no_longer_wait(placed, newest=False)

    def _stop(self, pods: int) -> None:
        """As a ReplicaSet does: waiting pods first, then one from the worker that has most of them."""
        unplaced = min(pods, self.pending)
        self._no_longer_wait(unplaced, newest=True)
        for _ in range(pods - unplaced):
            max(self.machines, key=_pods_of).pods -= 1
        self.running -= pods - unplaced

    def _no_longer_wait(self, pods: int, *, newest: bool) -> None:
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

    def _burn(self, until: int, seconds: int, used_milli_seconds: float) -> None:
        """Spread the demand over the running pods; a pod stops at its limit, a worker at its cores."""
        capacity = self.capacity
        limit = capacity.pod_cpu_limit_milli * seconds
        idle = capacity.pod_idle_cpu_milli * seconds
        each = min(limit, idle + used_milli_seconds / self.running) if self.running else 0.0
        system, most = capacity.system_cpu_milli * seconds, capacity.vcpus * 1000.0 * seconds
        for machine in self.machines:
            if machine.state != "joining":
                machine.busy += min(most, system + machine.pods * each)
                machine.history.append((until, machine.busy))


def _pods_of(machine: Machine) -> int:
    return machine.pods
