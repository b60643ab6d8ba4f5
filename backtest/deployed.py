"""The deployed autoscaler in a replay: the deployed decide(), placement and selection, and the times of the workflow.

One execution holds the lock from its decision to its end; ticks and alerts in between have no effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from backtest.decisions import DAEMON_PODS, Observer, choose_workers, fit_together, instance_of
from backtest.fleet import NEVER, ZONES, Fleet, Machine
from backtest.measures import Action
from backtest.model import Capacity, ModelError
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import LaunchSlot
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import Instance, PodShape, Snapshot, StandbyWorker, Worker
from node_fleet.domain.model.standby import READY, STANDBY
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.scale_up.placement import Placement, plan_slots
from node_fleet.domain.scale_up.standby import refill_pools, with_standby
from node_fleet.domain.scaling.decision import Decision, decide
from node_fleet.domain.scaling.memory_update import record_failure, record_success

PENDING_POD = "shop/web"


@value_class
class Workflow:
    """The settings of the workflow that are not part of the policy.

    region, spot_usd (by type): the prices by which a fleet of several types chooses among them.
    """

    max_rounds: int = 3
    join_poll_seconds: int = 10
    drain_poll_seconds: int = 10
    spot_percent: int = 70
    on_demand_minimum: int = 0
    region: str = ""
    spot_usd: Mapping[str, float] = field(default_factory=dict)


class Deployed:
    """Sizes the fleet as the deployed workflow does: on ticks, on the alert, and at the polls of an execution.

    further: the types of workers after the first one, in order of preference.
    """

    def __init__(
        self,
        policy: Policy,
        capacity: Capacity,
        workflow: Workflow | None = None,
        *,
        name: str = "",
        further: tuple[Capacity, ...] = (),
    ) -> None:
        if capacity.boot_seconds >= policy.join_limit_seconds:
            raise ModelError(
                f"boot_seconds is {capacity.boot_seconds}, expected less than the join limit of "
                f"{policy.join_limit_seconds}: otherwise no worker joins in time"
            )
        self.name = name or policy.preset
        self.actions: list[Action] = []
        self.decisions = 0
        self._types = {one.instance_type: one for one in (capacity, *further)}
        # A load has no custom metrics: those that are ignored when they are absent decide nothing.
        customs = tuple(metric for metric in policy.custom_metrics if metric.when_absent != "ignore")
        self.policy = replace(policy, instance_types=tuple(self._types), subnets=(), custom_metrics=customs)
        self.memory = Memory()
        self._workflow = workflow or Workflow()
        self._zones = {f"{self._workflow.region}{zone}": zone for zone in ZONES}
        self._placement = Placement(
            zones={zone: f"subnet-{zone}" for zone in self._zones},
            instance_types=tuple(self._types),
            spot_percent=self._workflow.spot_percent,
            on_demand_minimum=self._workflow.on_demand_minimum,
        )
        self._tick = 0
        self._alert_at = NEVER
        self._episode = NEVER
        self._execution: Iterator[int] | None = None
        self._resumes_at = NEVER
        self._observer = Observer(policy)
        self._joined: dict[str, Worker] = {}

    @property
    def decides_by(self) -> object:
        """All that its decisions depend on besides the fleet: the policy, the workflow and the types of workers."""
        return self.policy, self._workflow, self._types

    def start(self, fleet: Fleet) -> None:
        """The first tick is the first whole interval at or after the start."""
        interval = self.policy.interval_seconds
        self._tick = -(-fleet.now // interval) * interval

    def wakes_at(self) -> int:
        return min(self._tick, self._alert_at, self._resumes_at)

    def act(self, fleet: Fleet) -> None:
        now = fleet.now
        self._update_alert(fleet)
        if self._resumes_at <= now:
            self._resume()
        fires = self._alert_at <= now
        if fires:
            self._alert_at = NEVER
        if self._tick <= now:
            fires = True
            self._tick += (now - self._tick) // self.policy.interval_seconds * self.policy.interval_seconds
            self._tick += self.policy.interval_seconds
        if fires and self._execution is None:
            self._execution = self._run(fleet)
            self._resume()

    def _update_alert(self, fleet: Fleet) -> None:
        """Plan one alert for each episode of pending pods, as Alertmanager sends one for each start of the alert."""
        if fleet.pending_since == self._episode:
            return
        self._episode = fleet.pending_since
        self._alert_at = NEVER if self._episode == NEVER else self._episode + fleet.capacity.alert_seconds

    def _resume(self) -> None:
        assert self._execution is not None
        self._resumes_at = next(self._execution, NEVER)
        if self._resumes_at == NEVER:
            self._execution = None

    def _run(self, fleet: Fleet) -> Iterator[int]:
        """One execution: yields each time at which it continues."""
        for number in range(1, self._workflow.max_rounds + 1):
            snapshot = self.snapshot(fleet)
            self.decisions += 1
            decision = decide(snapshot, self.memory, self.policy, fleet.now, terse=True)
            self.memory = decision.memory
            if decision.action == "scale_down":
                yield from self._remove(fleet, snapshot, decision)
            if decision.action != "scale_up":
                return
            yield from self._add(fleet, decision)
            if not fleet.pending or number == self._workflow.max_rounds:
                return
            yield fleet.now + self.policy.scheduling_grace_seconds

    def _add(self, fleet: Fleet, decision: Decision) -> Iterator[int]:
        now = fleet.now
        instances = [instance_of(self._worker(m, now)) for m in fleet.machines]
        is_refill, wanted = decision.rule == STANDBY, decision.new_workers
        if is_refill:
            wanted = (refill_pools(self._placement, [self._zone_of(m) for m in fleet.standby]),)
        slots = plan_slots(decision.count, instances, self._placement, now=now, wanted=wanted)
        if not is_refill:
            stopped = [self._stopped(machine) for machine in fleet.standby]
            slots = with_standby(slots, stopped, self._placement, closed=frozenset())
        launched = [self._launched(fleet, slot, is_refill=is_refill) for slot in slots]
        if not is_refill:
            self.actions.append(Action(at=now, change=len(launched), rule=decision.rule))
        joined: dict[str, int] = {}
        while len(joined) < len(launched):
            yield fleet.now + self._workflow.join_poll_seconds
            for machine in launched:
                if machine.joined_at <= fleet.now:
                    joined.setdefault(machine.instance_id, fleet.now)
        if is_refill:
            self.memory = replace(self.memory, fresh={**self.memory.fresh, **joined})
        else:
            self.memory = record_success(self.memory, "scale_up", decision.rule, fleet.now, joined=joined)

    def _launched(self, fleet: Fleet, slot: LaunchSlot, *, is_refill: bool) -> Machine:
        """The machine of the slot: the standby worker that it names is started, any other is launched."""
        if slot.standby:
            self._joined.pop(slot.standby, None)
            return fleet.start(next(m for m in fleet.standby if m.instance_id == slot.standby))
        kind = self._types[self._type_for(slot)]
        machine = fleet.launch(zone=self._zones[slot.zone], market=slot.market, capacity=kind)
        machine.refill = is_refill
        return machine

    def _stopped(self, machine: Machine) -> Instance:
        return Instance(
            instance_id=machine.instance_id,
            zone=self._zone_of(machine),
            instance_type=machine.capacity.instance_type,
            market=machine.market,
            state="stopped",
            launched_at=machine.launched_at,
            standby=READY,
        )

    def _type_for(self, slot: LaunchSlot) -> str:
        """The type that EC2 launches: for Spot the cheapest that the slot allows, for On-Demand the first."""
        prices, allowed = self._workflow.spot_usd, slot.types or self._placement.instance_types
        if slot.market == "on-demand" or not all(kind in prices for kind in allowed):
            return slot.instance_type
        return min(allowed, key=lambda kind: prices[kind])

    def _remove(self, fleet: Fleet, snapshot: Snapshot, decision: Decision) -> Iterator[int]:
        before, removed, began = fleet.pending, 0, fleet.now
        places = self.policy.standby_workers - len(fleet.standby)
        for machine in self._chosen(fleet, snapshot, decision):
            stops = machine.market == "on-demand" and places > 0
            places -= stops
            fleet.drain(machine, stops=stops)
            while machine.ends_at > fleet.now:
                yield min(machine.ends_at, fleet.now + self._workflow.drain_poll_seconds)
                if machine.ends_at > fleet.now and fleet.pending > before:
                    fleet.withdraw(machine)
                    key = f"node:{machine.instance_id}"
                    self.memory = record_failure(self.memory, key, fleet.now, self.policy)
                    break
            else:
                removed += 1
                continue
            break
        if removed and decision.rule != STANDBY:
            self.memory = record_success(self.memory, "scale_down", decision.rule, fleet.now)
            self.actions.append(Action(at=began, change=-removed, rule=decision.rule))

    def _chosen(self, fleet: Fleet, snapshot: Snapshot, decision: Decision) -> list[Machine]:
        by_id = {machine.instance_id: machine for machine in fleet.usable()}

        def fit(leaving: Sequence[Machine]) -> bool:
            free = sum(m.most_pods - m.pods for m in by_id.values() if m not in leaving)
            return sum(m.pods for m in leaving) <= free

        chosen = choose_workers(
            snapshot,
            decision,
            self.memory,
            self.policy,
            spot_percent=self._workflow.spot_percent,
            together={m.instance_id for m in fit_together(sorted(by_id.values(), key=_fewest_pods), fit)},
        )
        return [by_id[each] for each in chosen]

    def snapshot(self, fleet: Fleet) -> Snapshot:
        """The snapshot that CollectMetrics makes of this fleet."""
        workers = tuple([self._worker(machine, fleet.now) for machine in fleet.machines])
        standby = tuple(
            StandbyWorker(
                instance_id=machine.instance_id,
                zone=self._zone_of(machine),
                instance_type=machine.capacity.instance_type,
                launched_at=machine.launched_at,
            )
            for machine in fleet.standby
        )
        return self._observer.snapshot(fleet.now, workers, _pending(fleet), standby)

    def _zone_of(self, machine: Machine) -> str:
        return f"{self._workflow.region}{machine.zone}"

    def _worker(self, machine: Machine, now: int) -> Worker:
        """The worker as Prometheus and EC2 show it.

        A joined machine keeps one object, whose values change in place: building it anew at each reading takes a tenth
        of the replay, and no worker of a snapshot is used after its decision.
        """
        capacity, joined = machine.capacity, self._joined.get(machine.instance_id)
        if joined:
            shown: Any = joined  # as a Worker, the type checker refuses the assignments
            shown.phase = machine.state
            shown.cpu_percent = machine.cpu_milli(now) / (capacity.vcpus * 10)
            if shown.pods != (pods := machine.pods + DAEMON_PODS):
                shown.memory_used_mib = capacity.system_memory_mib + machine.pods * capacity.pod_memory_used_mib
                shown.cpu_requested_milli = capacity.daemon_cpu_milli + machine.pods * capacity.pod_cpu_milli
                shown.memory_requested_mib = capacity.daemon_memory_mib + machine.pods * capacity.pod_memory_mib
                shown.pods = pods
            return joined
        if machine.state == "joining":
            return Worker(
                instance_id=machine.instance_id,
                zone=f"{self._workflow.region}{machine.zone}",
                market=machine.market,
                instance_type=capacity.instance_type,
                phase="joining",
                launched_at=machine.launched_at,
                refill=machine.refill,
            )
        self._joined[machine.instance_id] = worker = Worker(
            instance_id=machine.instance_id,
            zone=f"{self._workflow.region}{machine.zone}",
            market=machine.market,
            instance_type=capacity.instance_type,
            phase=machine.state,
            launched_at=machine.launched_at,
            refill=machine.refill,
            node_name=machine.instance_id,
            cores=capacity.vcpus,
            cpu_percent=machine.cpu_milli(now) / (capacity.vcpus * 10),
            memory_used_mib=capacity.system_memory_mib + machine.pods * capacity.pod_memory_used_mib,
            memory_total_mib=capacity.memory_mib,
            cpu_allocatable_milli=capacity.allocatable_cpu_milli,
            cpu_requested_milli=capacity.daemon_cpu_milli + machine.pods * capacity.pod_cpu_milli,
            memory_allocatable_mib=capacity.allocatable_memory_mib,
            memory_requested_mib=capacity.daemon_memory_mib + machine.pods * capacity.pod_memory_mib,
            pods=machine.pods + DAEMON_PODS,
            pods_allocatable=capacity.max_pods,
        )
        return worker


def _pending(fleet: Fleet) -> tuple[PodShape, ...]:
    if not fleet.pending:
        return ()
    capacity = fleet.capacity
    shape = PodShape(
        cpu_milli=capacity.pod_cpu_milli,
        memory_mib=capacity.pod_memory_mib,
        count=fleet.pending,
        oldest_seconds=fleet.oldest_seconds(),
        example=PENDING_POD,
    )
    return (shape,)


def _fewest_pods(machine: Machine) -> tuple[int, str]:
    return machine.pods, machine.instance_id
