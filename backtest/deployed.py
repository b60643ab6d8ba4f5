"""The deployed autoscaler in a replay: the deployed decide(), placement and selection, and the times of the workflow.

One execution holds the lock from its decision to its end; ticks and alerts in between have no effect.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from backtest.fleet import NEVER, ZONES, Fleet, Machine
from backtest.measures import Action
from backtest.model import Capacity, ModelError
from node_fleet.domain.model.assembly import total_load
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import LaunchSlot
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import HourlyLoad, Instance, PodShape, Snapshot, Worker
from node_fleet.domain.scale_down.eligibility import Candidate, Eligibility
from node_fleet.domain.scale_down.inspection import InspectedNode
from node_fleet.domain.scale_down.selection import choose
from node_fleet.domain.scale_up.placement import Placement, plan_slots
from node_fleet.domain.scaling.decision import Decision, decide
from node_fleet.domain.scaling.memory_update import record_failure, record_success
from node_fleet.domain.scaling.minimum_size import effective_minimum
from node_fleet.domain.scaling.prediction import is_prediction_due
from node_fleet.domain.scaling.tick import make_tick

HISTORY_DAYS = 14
HOUR = 3600
PENDING_POD = "shop/web"
DAEMON_PODS = 1
"""Pods of DaemonSets on each worker."""
LARGEST_SET = 10
"""How many workers the inspection marks at most, as in cluster/commands/removal_fit.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
        self.policy = replace(policy, instance_types=tuple(self._types), subnets=())
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
        self._hours = Hours(policy)

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
            decision = decide(snapshot, self.memory, self.policy, fleet.now)
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
        slots = plan_slots(decision.count, instances, self._placement, now=now, wanted=decision.new_workers)
        launched = [
            fleet.launch(zone=self._zones[slot.zone], market=slot.market, capacity=self._types[self._type_for(slot)])
            for slot in slots
        ]
        self.actions.append(Action(at=now, change=len(launched), rule=decision.rule))
        joined: dict[str, int] = {}
        while len(joined) < len(launched):
            yield fleet.now + self._workflow.join_poll_seconds
            for machine in launched:
                if machine.joined_at <= fleet.now:
                    joined.setdefault(machine.instance_id, fleet.now)
        self.memory = record_success(self.memory, "scale_up", decision.rule, fleet.now, joined=joined)

    def _type_for(self, slot: LaunchSlot) -> str:
        """The type that EC2 launches: for Spot the cheapest that the slot allows, for On-Demand the first."""
        prices, allowed = self._workflow.spot_usd, slot.types or self._placement.instance_types
        if slot.market == "on-demand" or not all(kind in prices for kind in allowed):
            return slot.instance_type
        return min(allowed, key=lambda kind: prices[kind])

    def _remove(self, fleet: Fleet, snapshot: Snapshot, decision: Decision) -> Iterator[int]:
        before, removed, began = fleet.pending, 0, fleet.now
        for machine in self._chosen(fleet, snapshot, decision):
            fleet.drain(machine)
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
        if removed:
            self.memory = record_success(self.memory, "scale_down", decision.rule, fleet.now)
            self.actions.append(Action(at=began, change=-removed, rule=decision.rule))

    def _chosen(self, fleet: Fleet, snapshot: Snapshot, decision: Decision) -> list[Machine]:
        usable = fleet.usable()
        together = tuple(machine.instance_id for machine in _fit_together(usable))
        chosen = choose_workers(
            snapshot, decision, self.memory, self.policy, spot_percent=self._workflow.spot_percent, together=together
        )
        by_id = {m.instance_id: m for m in usable}
        return [by_id[each] for each in chosen]

    def snapshot(self, fleet: Fleet) -> Snapshot:
        """The snapshot that CollectMetrics makes of this fleet."""
        now = fleet.now
        workers = tuple(self._worker(m, now) for m in fleet.machines)
        usable = [w for w in workers if w.phase == "usable"]
        load = total_load(usable)
        self._hours.add(now, load.cpu_percent, len(usable))
        return Snapshot(
            at=now,
            source="live",
            cpu_percent=load.cpu_percent,
            cpu_max_percent=load.cpu_max_percent,
            memory_percent=load.memory_percent,
            memory_max_percent=load.memory_max_percent,
            pending=_pending(fleet),
            workers=workers,
            hourly=self._hours.hourly_means(now),
            read_at=now,
        )

    def _zone_of(self, machine: Machine) -> str:
        return f"{self._workflow.region}{machine.zone}"

    def _worker(self, machine: Machine, now: int) -> Worker:
        capacity = machine.capacity
        if machine.state == "joining":
            return Worker(
                instance_id=machine.instance_id,
                zone=self._zone_of(machine),
                market=machine.market,
                instance_type=capacity.instance_type,
                phase=machine.state,
                launched_at=machine.launched_at,
            )
        return Worker(
            instance_id=machine.instance_id,
            zone=self._zone_of(machine),
            market=machine.market,
            instance_type=capacity.instance_type,
            phase=machine.state,
            launched_at=machine.launched_at,
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


class Hours:
    """The hourly means that CollectMetrics adds to a snapshot, from the minute at which the next hour is predicted."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._days = max(HISTORY_DAYS, policy.predictive_min_days + 1)
        self._past: list[HourlyLoad] = []
        self._hour, self._cpu, self._workers, self._count = 0, 0.0, 0, 0

    def add(self, now: int, cpu: float | None, workers: int) -> None:
        """Add one reading; without effect while prediction is off."""
        if not self._policy.predictive or cpu is None:
            return
        hour = now - now % HOUR
        if hour != self._hour:
            self._close()
            self._hour, self._cpu, self._workers, self._count = hour, 0.0, 0, 0
        self._cpu += cpu
        self._workers += workers
        self._count += 1

    def hourly_means(self, now: int) -> tuple[HourlyLoad, ...]:
        if not is_prediction_due(now, self._policy):
            return ()
        since = now - self._days * 86400
        return tuple(hour for hour in self._past if hour.hour_epoch >= since)

    def _close(self) -> None:
        if self._count:
            mean, workers = round(self._cpu / self._count, 1), round(self._workers / self._count, 1)
            self._past.append(
                HourlyLoad(hour_epoch=self._hour, cpu_percent=mean, readings=self._count, workers=workers)
            )
            del self._past[: -24 * self._days]


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


def _fit_together(usable: list[Machine]) -> list[Machine]:
    """The workers whose pods fit on the others together, chosen as the inspection does: the fewest pods first."""
    found: list[Machine] = []
    for machine in sorted(usable, key=lambda m: (m.pods, m.instance_id)):
        leaving = [*found, machine]
        free = sum(m.most_pods - m.pods for m in usable if m not in leaving)
        if len(found) < LARGEST_SET and sum(m.pods for m in leaving) <= free:
            found = leaving
    return found if len(found) > 1 else []


def choose_workers(
    snapshot: Snapshot,
    decision: Decision,
    memory: Memory,
    policy: Policy,
    *,
    spot_percent: int,
    together: Collection[str],
) -> tuple[str, ...]:
    """The ids of the workers that a removal takes. together: ids of workers whose pods fit on the others together."""
    now = snapshot.at
    in_back_off = {b.key for b in memory.back_offs if b.until > now}
    usable = [w for w in snapshot.workers if w.phase == "usable" or w.instance_id == decision.replace]
    candidates = tuple(
        Candidate(
            instance=instance_of(w),
            node=_inspected(w, now, fits_together=w.instance_id in together),
            cpu_percent=w.cpu_percent,
        )
        for w in usable
        if f"node:{w.instance_id}" not in in_back_off
    )
    plan = choose(
        Eligibility(candidates=candidates, kept=(), usable=tuple(w.instance_id for w in usable if w.phase == "usable")),
        count=min(max(decision.count, 1), policy.max_targets),
        minimum=effective_minimum(make_tick(snapshot, memory, policy, now)).workers,
        order=policy.scale_down_order,
        spot_percent=spot_percent,
        not_ready=decision.replace,
    )
    return tuple(target.instance.instance_id for target in plan.targets)


def instance_of(worker: Worker) -> Instance:
    """The instance of a worker, as EC2 lists it."""
    return Instance(
        instance_id=worker.instance_id,
        zone=worker.zone,
        instance_type=worker.instance_type,
        market=worker.market,
        state="running",
        launched_at=worker.launched_at,
    )


def _inspected(worker: Worker, now: int, *, fits_together: bool) -> InspectedNode:
    return InspectedNode(
        instance_id=worker.instance_id,
        node_name=worker.instance_id,
        zone=worker.zone,
        ready=worker.phase == "usable",
        cordoned=False,
        server=False,
        needs_force=False,
        tainted=False,
        worker=True,
        age_seconds=now - worker.launched_at,
        pods_to_move=max(0, (worker.pods or 0) - DAEMON_PODS),
        daemon_pods=DAEMON_PODS,
        mirror_pods=0,
        finished_pods=0,
        cpu_requested_milli=worker.cpu_requested_milli or 0,
        cpu_allocatable_milli=worker.cpu_allocatable_milli or 0,
        fits_together=fits_together,
    )
