"""What surrounds a decision outside of AWS: the snapshot before it, and the choice of the workers that it removes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

from node_fleet.domain.model.assembly import total_load
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import HourlyLoad, Instance, PodShape, Snapshot, StandbyWorker, Worker
from node_fleet.domain.scale_down.eligibility import Candidate, Eligibility
from node_fleet.domain.scale_down.inspection import InspectedNode
from node_fleet.domain.scale_down.selection import choose
from node_fleet.domain.scaling.decision import Decision
from node_fleet.domain.scaling.minimum_size import effective_minimum
from node_fleet.domain.scaling.prediction import is_prediction_due
from node_fleet.domain.scaling.tick import make_tick

HISTORY_DAYS = 14
HOUR = 3600
DAEMON_PODS = 1
"""Pods of DaemonSets on each worker."""
LARGEST_SET = 10
"""How many workers the inspection marks at most, as in cluster/commands/removal_fit.py."""
One = TypeVar("One")


class Observer:
    """Makes the snapshots that CollectMetrics makes, with the hourly means of the earlier ones."""

    def __init__(self, policy: Policy) -> None:
        self._hours = _Hours(policy)

    def snapshot(
        self,
        now: int,
        workers: tuple[Worker, ...],
        pending: tuple[PodShape, ...],
        standby: tuple[StandbyWorker, ...] = (),
    ) -> Snapshot:
        usable = [worker for worker in workers if worker.phase == "usable"]
        load = total_load(usable)
        self._hours.add(now, load.cpu_percent, len(usable))
        return Snapshot(
            at=now,
            source="live",
            cpu_percent=load.cpu_percent,
            cpu_max_percent=load.cpu_max_percent,
            memory_percent=load.memory_percent,
            memory_max_percent=load.memory_max_percent,
            pending=pending,
            workers=workers,
            hourly=self._hours.hourly_means(now),
            read_at=now,
            standby=standby,
        )


class _Hours:
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


def fit_together(fewest_pods_first: Iterable[One], fit: Callable[[Sequence[One]], bool]) -> Sequence[One]:
    """The workers that the inspection marks because their pods fit on the others together; fit judges such a set."""
    found: list[One] = []
    for worker in fewest_pods_first:
        if len(found) < LARGEST_SET and fit([*found, worker]):
            found.append(worker)
    return found if len(found) > 1 else ()


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
        on_demand_minimum=policy.on_demand_minimum,
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
        memory_requested_mib=worker.memory_requested_mib or 0,
        memory_allocatable_mib=worker.memory_allocatable_mib or 0,
        pods_allocatable=worker.pods_allocatable or 0,
        fits_together=fits_together,
    )
