"""Unschedulable pods as a signal: which of them a new worker would help, and which of them joining workers will hold.

Pods that are too large for any worker, and pods that earlier launches did not help, are listed but not counted.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from node_fleet.domain.model.instance_types import offered
from node_fleet.domain.model.memory import ShapeLaunch
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import PodShape, Worker
from node_fleet.domain.scaling.check import Check
from node_fleet.domain.scaling.signals.bin_packing import FreeCapacity, free_capacity, place
from node_fleet.domain.scaling.tick import Tick


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingPods:
    """The pending pods of one reading.

    waiting: pods that a worker would help; helpful: their shapes. left: those of them that no joining or newly usable
    worker will hold; left_shapes: their shapes. oldest_seconds: the longest wait among `left`, or among `waiting` when
    nothing is left. too_large, stuck: shapes that are listed and not counted. largest: CPU milli and memory MiB of the
    largest worker.
    """

    waiting: int = 0
    left: int = 0
    oldest_seconds: int = 0
    left_shapes: tuple[PodShape, ...] = ()
    helpful: tuple[PodShape, ...] = ()
    too_large: tuple[PodShape, ...] = ()
    stuck: tuple[PodShape, ...] = ()
    launched_for: tuple[ShapeLaunch, ...] = ()
    not_helped: tuple[tuple[str, int], ...] = ()
    largest: tuple[int, int] | None = None


_NONE = PendingPods()


def shape_key(shape: PodShape) -> str:
    """The name of a shape, e.g. "500m/256Mi@ap-southeast-1a": requests, zone, node selector and tolerations."""
    where = "|".join((shape.zone, *sorted(shape.node_selector), *sorted(shape.tolerations))).strip("|")
    return f"{shape.cpu_milli}m/{shape.memory_mib}Mi{where and '@' + where}"


def evaluate_pending_pods(tick: Tick, fresh: dict[str, int]) -> PendingPods | None:
    """The pending pods of this reading; None when unknown. fresh: instance id -> first seen usable (epoch)."""
    pending = tick.snapshot.pending
    if pending is None:
        return None
    if not pending:
        return _NONE
    shapes = _merged(pending)
    sizes = worker_sizes(tick.snapshot.workers, tick.policy)
    too_large = tuple(s for s in shapes if not _fits_any(s, sizes))
    fitting = [s for s in shapes if s not in too_large]
    launches = _evaluate_launches(tick, fitting)
    not_helped = _not_helped(tick, launches)
    helpful = [h for s in fitting if (h := _without_listed(s, launches, not_helped)).count > 0]
    capacities = _coming_capacities(tick, fresh, sizes)
    left = [(s, count) for s in helpful if (count := place(s, s.count, capacities))]
    return PendingPods(
        waiting=sum(s.count for s in helpful),
        left=sum(count for _, count in left),
        oldest_seconds=max((s.oldest_seconds for s in ([s for s, _ in left] or helpful)), default=0),
        left_shapes=tuple(shape for shape, _ in left),
        helpful=tuple(helpful),
        too_large=too_large,
        stuck=tuple(s for s in fitting if shape_key(s) in not_helped),
        launched_for=tuple(launches.values()),
        not_helped=tuple(sorted(not_helped.items())),
        largest=sizes[0] if sizes else None,
    )


def add_launch(pending_pods: PendingPods, now: int) -> tuple[ShapeLaunch, ...]:
    """The launches to evaluate later, with one more at `now` (epoch) for every shape that is left and not listed."""
    launches = {t.shape: t for t in pending_pods.launched_for}
    listed = dict(pending_pods.not_helped)
    for shape in pending_pods.left_shapes:
        key = shape_key(shape)
        if key not in listed:
            before = launches.get(key, ShapeLaunch(shape=key, at=0, count=0))
            launches[key] = replace(before, at=now, count=shape.count)
    return tuple(launches[key] for key in sorted(launches))


def listed_checks(pending_pods: PendingPods) -> list[Check]:
    """One check for every shape that is listed and not counted, with the reason."""
    checks = []
    for shape in pending_pods.too_large:
        text = (
            f"pod {_example(shape)} requests {shape.cpu_milli}m CPU and {shape.memory_mib} MiB, more than any worker "
            "offers"
        )
        if pending_pods.largest:
            text += f" (largest: {pending_pods.largest[0]}m and {pending_pods.largest[1]} MiB)"
        checks.append(
            Check(name="pod_too_large", verdict="hold", text=text, value=shape.count, setting="INSTANCE_TYPES")
        )
    until = dict(pending_pods.not_helped)
    for shape in pending_pods.stuck:
        end = time.strftime("%H:%M", time.gmtime(until[shape_key(shape)]))
        text = f"pod {_example(shape)} stays unschedulable after launches for it: not counted until {end} UTC"
        checks.append(
            Check(name="pods_not_helped", verdict="hold", text=text, value=shape.count, setting="NOT_HELPED_SECONDS")
        )
    return checks


def _example(shape: PodShape) -> str:
    return shape.example or shape_key(shape)


def worker_sizes(workers: tuple[Worker, ...], policy: Policy) -> list[tuple[int, int]]:
    """(CPU milli, memory MiB) of every kind of worker that runs or that a launch may create, largest first."""
    seen = {
        (w.cpu_allocatable_milli, w.memory_allocatable_mib)
        for w in workers
        if w.cpu_allocatable_milli is not None and w.memory_allocatable_mib is not None
    }
    known_types = {w.instance_type for w in workers if w.cpu_allocatable_milli is not None}
    by_type = {offered(t) for t in policy.instance_types if t not in known_types}
    return sorted(seen | {size for size in by_type if size}, reverse=True)


def _merged(pending: tuple[PodShape, ...]) -> list[PodShape]:
    """One entry for each shape, the largest first; the example is the pod that waits longest."""
    found: dict[str, PodShape] = {}
    for shape in sorted(pending, key=lambda s: (-s.oldest_seconds, s.example)):
        if shape.count > 0:
            key = shape_key(shape)
            first = found.get(key)
            found[key] = replace(first, count=first.count + shape.count) if first else shape
    return sorted(found.values(), key=lambda s: (s.cpu_milli, s.memory_mib, shape_key(s)), reverse=True)


def _fits_any(shape: PodShape, sizes: list[tuple[int, int]]) -> bool:
    return not sizes or any(shape.cpu_milli <= cpu and shape.memory_mib <= memory for cpu, memory in sizes)


def _coming_capacities(tick: Tick, fresh: dict[str, int], sizes: list[tuple[int, int]]) -> list[FreeCapacity]:
    """Free capacity of joining workers, and of usable ones that the scheduler has had no time to fill."""
    grace = tick.policy.scheduling_grace_seconds
    by_type = {
        w.instance_type: (w.cpu_allocatable_milli, w.memory_allocatable_mib)
        for w in tick.usable
        if w.cpu_allocatable_milli is not None and w.memory_allocatable_mib is not None
    }
    fresh_now = [w for w in tick.usable if w.instance_id in fresh and tick.now - fresh[w.instance_id] < grace]
    smallest = sizes[-1] if sizes else None
    return [
        _capacity_in_zone(w, by_type.get(w.instance_type) or offered(w.instance_type) or smallest)
        for w in sorted((*tick.joining, *fresh_now), key=lambda w: w.instance_id)
    ]


def _capacity_in_zone(worker: Worker, allocatable: tuple[int, int] | None = None) -> FreeCapacity:
    """The worker's free capacity for pods of its zone; a joining worker's taints and labels are not final yet."""
    return replace(free_capacity(worker, allocatable), instance_type="", market="", taints=())


def _evaluate_launches(tick: Tick, shapes: list[PodShape]) -> dict[str, ShapeLaunch]:
    """Shape -> its launch, for shapes that are still pending; a launch that has since succeeded is evaluated."""
    launches = {t.shape: _allow_retry(tick, t) for t in tick.memory.launched_for}
    return {key: _evaluate_launch(tick, s, launches[key]) for s in shapes if (key := shape_key(s)) in launches}


def _allow_retry(tick: Tick, launch: ShapeLaunch) -> ShapeLaunch:
    """After its time on the list, a shape gets one more launch before it is listed again."""
    until = tick.memory.not_helped.get(launch.shape)
    over = until is not None and until <= tick.now
    return replace(launch, unhelped=tick.policy.not_helped_launches - 1) if over else launch


def _evaluate_launch(tick: Tick, shape: PodShape, launch: ShapeLaunch) -> ShapeLaunch:
    memory, now = tick.memory, tick.now
    done = memory.last_action == "scale_up" and memory.last_action_at >= launch.at > 0
    if not done or now - memory.last_action_at < tick.policy.scheduling_grace_seconds:
        return launch
    same_pods = shape.count >= launch.count and shape.oldest_seconds >= now - launch.at
    stuck = same_pods and any(_has_capacity(w, shape) for w in tick.usable)
    return replace(launch, at=0, unhelped=launch.unhelped + 1 if stuck else 0)


def _has_capacity(worker: Worker, shape: PodShape) -> bool:
    """Whether the worker could hold one such pod by its requests; a worker with unknown requests could."""
    if None in (worker.cpu_requested_milli, worker.memory_requested_mib, worker.cpu_allocatable_milli):
        return True
    return _capacity_in_zone(worker).take(shape, 1) == 1


def _not_helped(tick: Tick, launches: dict[str, ShapeLaunch]) -> dict[str, int]:
    """Shape -> until when (epoch) its pods are not counted."""
    now, policy = tick.now, tick.policy
    listed = {k: until for k, until in tick.memory.not_helped.items() if until > now and k in launches}
    for key, launch in launches.items():
        if launch.unhelped >= policy.not_helped_launches:
            listed.setdefault(key, now + policy.not_helped_seconds)
    return listed


def _without_listed(shape: PodShape, launches: dict[str, ShapeLaunch], not_helped: dict[str, int]) -> PodShape:
    key = shape_key(shape)
    return replace(shape, count=max(0, shape.count - launches[key].count)) if key in not_helped else shape
