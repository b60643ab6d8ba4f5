"""The decisions of node-fleet for a simulator of your own: one reading a step goes in, one answer comes out.

Stable: the changelog announces every change that a caller must follow. No call reads a file, a clock or the network,
and the same readings always give the same answers. An example is in docs/backtest.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal

from backtest.decisions import DAEMON_PODS, Observer, choose_workers, fit_together, instance_of
from backtest.model import Capacity, ModelError
from node_fleet.domain.model.back_off import JOIN
from node_fleet.domain.model.errors import InvalidSettingsError
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.snapshot import Market, PodShape, Snapshot, Worker
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.scale_up.placement import Placement, plan_slots
from node_fleet.domain.scaling.decision import Decision, decide
from node_fleet.domain.scaling.memory_update import record_failure, record_success
from node_fleet.settings import Settings

__all__ = [
    "Answer",
    "Autoscaler",
    "InvalidSettingsError",
    "Launch",
    "ModelError",
    "Reading",
    "WaitingPods",
    "WorkerReading",
]

UNJOINED = "unjoined"
"""The rule by which a worker is removed whose node did not join in time."""


@value_class
class WorkerReading:
    """One worker. CPU and memory: use of the machine in percent. Requests with those of DaemonSets, pods without.

    state: "joining" until its node is Ready, "cordoned" while it is drained. launched_at: epoch seconds.
    """

    id: str
    launched_at: int
    state: Literal["joining", "usable", "not_ready", "cordoned"] = "usable"
    cpu_percent: float = 0.0
    memory_percent: float = 0.0
    cpu_requested_milli: int = 0
    memory_requested_mib: int = 0
    pods: int = 0
    instance_type: str = "t3.small"
    market: Market = "on-demand"
    zone: str = "a"


@value_class
class WaitingPods:
    """Pods of one size that the scheduler cannot place, and how long the oldest of them waits."""

    cpu_milli: int
    memory_mib: int
    count: int = 1
    oldest_seconds: int = 0


@value_class
class Reading:
    """The fleet at one time (epoch seconds). Every worker that is on the bill is in it."""

    at: int
    workers: tuple[WorkerReading, ...]
    waiting: tuple[WaitingPods, ...] = ()


@value_class
class Launch:
    """One worker to launch. types: the instance types that suit, best first."""

    zone: str
    market: Market
    types: tuple[str, ...]


@value_class
class Answer:
    """What to do now: workers to launch, or the ids of workers to drain and remove; neither: nothing.

    rule: what asks for it, such as "pending" or "idle"; "none" for nothing. reason: the sentence that the deployed
    autoscaler reports.
    """

    launches: tuple[Launch, ...] = ()
    removals: tuple[str, ...] = ()
    rule: str = "none"
    reason: str = ""


class Autoscaler:
    """The deployed decisions, with the memory that they keep between two of them.

    settings: names and values as in cdk.json, for example {"preset": "adaptive", "max_workers": 20}. zones: where
    workers can be launched.

    Pass a reading every interval_seconds (120), and one more when pods begin to wait. Like the deployed workflow it
    carries out one action at a time: until the launched workers are usable, or the removed ones are out of the
    readings, it answers nothing.

    Raises:
        InvalidSettingsError: a setting is unknown or wrong; the message names it and what would be right.
    """

    def __init__(self, settings: Mapping[str, Any] | None = None, *, zones: tuple[str, ...] = ("a", "b", "c")) -> None:
        self._settings = Settings.from_mapping(settings or {})
        types = self._settings.instance_types
        self._policy = replace(self._settings.policy(), instance_types=types, subnets=())
        self._placement = Placement(
            zones={zone: f"subnet-{zone}" for zone in zones},
            instance_types=types,
            spot_percent=self._settings.spot_percent,
            on_demand_minimum=self._settings.on_demand_minimum,
        )
        self._observer = Observer(self._policy)
        self._memory = Memory()
        self._at = -1
        self._action: _Action | None = None

    def decide(self, reading: Reading) -> Answer:
        """The answer to this reading.

        Raises:
            ModelError: the time does not advance, an id is there twice, or the size of an instance type is not known.
        """
        self._refuse_wrong(reading)
        snapshot = self._snapshot(reading)
        self._at = reading.at
        if self._action and (text := self._continue(self._action, reading)):
            return Answer(reason=text)
        if late := self._late(reading):
            return late
        decision = decide(snapshot, self._memory, self._policy, reading.at)
        self._memory = decision.memory
        answer = Answer(reason=decision.sentence)
        if decision.action == "scale_up":
            launches = self._launches(snapshot, decision)
            known = frozenset(worker.id for worker in reading.workers)
            self._action = _Action(rule=decision.rule, launched=len(launches), since=reading.at, known=known)
            return replace(answer, launches=launches, rule=decision.rule)
        if decision.action == "scale_down":
            removals = choose_workers(
                snapshot,
                decision,
                self._memory,
                self._policy,
                spot_percent=self._settings.spot_percent,
                together=_fit_together(snapshot.workers),
            )
            self._action = _Action(rule=decision.rule, removed=frozenset(removals)) if removals else None
            return replace(answer, removals=removals, rule=decision.rule if removals else answer.rule)
        return answer

    def _launches(self, snapshot: Snapshot, decision: Decision) -> tuple[Launch, ...]:
        fleet = [instance_of(worker) for worker in snapshot.workers]
        slots = plan_slots(decision.count, fleet, self._placement, now=snapshot.at, wanted=decision.new_workers)
        types = self._placement.instance_types
        return tuple(Launch(zone=slot.zone, market=slot.market, types=slot.types or types) for slot in slots)

    def _late(self, reading: Reading) -> Answer | None:
        """The removal of workers that have not joined in time."""
        limit = self._policy.join_limit_seconds
        late = [w.id for w in reading.workers if w.state == "joining" and reading.at - w.launched_at >= limit]
        if not late:
            return None
        self._action = _Action(rule=UNJOINED, removed=frozenset(late))
        return Answer(
            removals=tuple(late), rule=UNJOINED, reason=f"not joined within {limit} s of the launch: {', '.join(late)}"
        )

    def withdraw(self, worker_id: str, at: int) -> None:
        """The drain of this worker failed, and it stays: it is not chosen again before its back-off ends."""
        if self._action and worker_id in self._action.removed:
            self._action = replace(self._action, removed=self._action.removed - {worker_id})
            self._memory = record_failure(self._memory, f"node:{worker_id}", at, self._policy)

    def _continue(self, action: _Action, reading: Reading) -> str:
        """Why the action still runs; empty when it has ended, which the memory then records."""
        if left := sorted(action.removed & {worker.id for worker in reading.workers}):
            return f"the removal of {', '.join(left)} is in progress"
        added = [worker for worker in reading.workers if worker.id not in action.known] if action.launched else []
        joined = {worker.id: reading.at for worker in added if worker.state != "joining"}
        late = reading.at - action.since >= self._policy.join_limit_seconds
        if len(joined) < action.launched and not late:
            return f"{len(joined)} of {action.launched} launched workers have joined"
        if joined:
            self._memory = record_success(self._memory, "scale_up", action.rule, reading.at, joined=joined)
        elif action.launched:
            self._memory = record_failure(self._memory, JOIN, reading.at, self._policy)
        elif action.removed and action.rule != UNJOINED:
            self._memory = record_success(self._memory, "scale_down", action.rule, reading.at)
        self._action = None
        return ""

    def _snapshot(self, reading: Reading) -> Snapshot:
        pending = tuple(
            PodShape(
                cpu_milli=pods.cpu_milli,
                memory_mib=pods.memory_mib,
                count=pods.count,
                oldest_seconds=pods.oldest_seconds,
                example=f"pod of {pods.cpu_milli}m and {pods.memory_mib} MiB",
            )
            for pods in reading.waiting
        )
        return self._observer.snapshot(reading.at, tuple(map(_worker, reading.workers)), pending)

    def _refuse_wrong(self, reading: Reading) -> None:
        if reading.at <= self._at:
            raise ModelError(f"at is {reading.at}, expected more than {self._at}, the time of the last reading")
        twice = [name for name, number in Counter(worker.id for worker in reading.workers).items() if number > 1]
        if twice:
            raise ModelError(f"worker {twice[0]!r} is in the reading twice, expected each worker once")


@value_class
class _Action:
    """What was answered and is not done: workers that join after `since` beside the `known` ones, or ids that leave."""

    rule: str
    launched: int = 0
    since: int = 0
    known: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()


def _worker(reading: WorkerReading) -> Worker:
    size = _size_of(reading.instance_type)
    worker = Worker(
        instance_id=reading.id,
        zone=reading.zone,
        market=reading.market,
        instance_type=reading.instance_type,
        phase=reading.state,
        launched_at=reading.launched_at,
    )
    if reading.state == "joining":
        return worker
    return replace(
        worker,
        node_name=reading.id,
        cores=size.vcpus,
        cpu_percent=reading.cpu_percent,
        memory_used_mib=round(size.memory_mib * reading.memory_percent / 100),
        memory_total_mib=size.memory_mib,
        cpu_allocatable_milli=size.allocatable_cpu_milli,
        cpu_requested_milli=reading.cpu_requested_milli,
        memory_allocatable_mib=size.allocatable_memory_mib,
        memory_requested_mib=reading.memory_requested_mib,
        pods=reading.pods + DAEMON_PODS,
        pods_allocatable=size.max_pods,
    )


@cache
def _size_of(instance_type: str) -> Capacity:
    return Capacity.of_type(instance_type)


def _fit_together(workers: Sequence[Worker]) -> Collection[str]:
    """The ids of workers whose pods fit on the others together."""
    usable = sorted((w for w in workers if w.phase == "usable"), key=_fewest_pods)
    found = fit_together(usable, lambda leaving: _fit_on([w for w in usable if w not in leaving], leaving))
    return {worker.instance_id for worker in found}


def _fewest_pods(worker: Worker) -> tuple[int, int, str]:
    return worker.pods or 0, worker.cpu_requested_milli or 0, worker.instance_id


def _fit_on(others: Sequence[Worker], leaving: Sequence[Worker]) -> bool:
    """Whether pods of the mean size of those that leave fit into the gaps of the others, each gap for itself."""
    pods = sum((worker.pods or 0) - DAEMON_PODS for worker in leaving)
    if not pods:
        return True
    cpu = sum(worker.cpu_requested_milli or 0 for worker in leaving) / pods
    memory = sum(worker.memory_requested_mib or 0 for worker in leaving) / pods
    return pods <= sum(_gap(worker, cpu, memory) for worker in others)


def _gap(worker: Worker, cpu_milli: float, memory_mib: float) -> int:
    """The number of pods of this size that fit beside those that the worker has."""
    free = (
        ((worker.cpu_allocatable_milli or 0) - (worker.cpu_requested_milli or 0), cpu_milli),
        ((worker.memory_allocatable_mib or 0) - (worker.memory_requested_mib or 0), memory_mib),
        ((worker.pods_allocatable or 0) - (worker.pods or 0), 1),
    )
    return max(0, min(int(amount / each) for amount, each in free if each))
