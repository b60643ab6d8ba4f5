"""Unschedulable pods as demand for workers: which of them a new worker would help, and who will hold them already.

Pods too large for any worker, and pods that earlier launches did not help, are listed and not counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from node_fleet.domain.model.instance_types import offered
from node_fleet.domain.model.memory import ShapeLaunch
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import PodShape, Worker
from node_fleet.domain.scaling.check import Check
from node_fleet.domain.scaling.tick import Tick

_PODS_PER_NODE = 110


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingPods:
    """waiting: pods a worker would help. left: those no joining or fresh worker will hold; left_shapes: their shapes.
    helpful: the shapes of all that wait.

    oldest_seconds belongs to what is left, or to the waiting pods when nothing is left.
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


@dataclass(slots=True)
class FreeCapacity_:
    """Free room of one worker while pods are packed into it."""

    zone: str
    cpu_milli: int
    memory_mib: int
    pods: int

    def take(self, shape: PodShape, wanted: int) -> int:
        """Put in as many of the wanted pods as fit; returns how many."""
        if shape.zone and self.zone and shape.zone != self.zone:
            return 0
        fits = min(wanted, self.pods)
        if shape.cpu_milli > 0:
            fits = min(fits, self.cpu_milli // shape.cpu_milli)
        if shape.memory_mib > 0:
            fits = min(fits, self.memory_mib // shape.memory_mib)
        fits = max(0, fits)
        self.cpu_milli -= fits * shape.cpu_milli
        self.memory_mib -= fits * shape.memory_mib
        self.pods -= fits
        return fits


def shape_key(shape: PodShape) -> str:
    """Name of a shape: what its pods ask for and where they may run."""
    where = "|".join((shape.zone, *sorted(shape.node_selector), *sorted(shape.tolerations))).strip("|")
    return f"{shape.cpu_milli}m/{shape.memory_mib}Mi{where and '@' + where}"


def evaluate_pending_pods(tick: Tick, fresh: dict[str, int]) -> PendingPods | None:
    """The demand of this reading; None when pending pods are not known. `fresh`: instance -> first known usable."""
    pending = tick.snapshot.pending
    if pending is None:
        return None
    if not pending:
        return _NONE
    shapes = _merged(pending)
    sizes = worker_sizes(tick.snapshot.workers, tick.policy)
    too_large = tuple(s for s in shapes if not _fits_any(s, sizes))
    fitting = [s for s in shapes if s not in too_large]
    tries = _evaluate_launches(tick, fitting)
    not_helped = _not_helped(tick, tries)
    helpful = [h for s in fitting if (h := _without_listed(s, tries, not_helped)).count > 0]
    left = _place(helpful, _capacities(tick, fresh, sizes))
    return PendingPods(
        waiting=sum(s.count for s in helpful),
        left=sum(rest for _, rest in left),
        oldest_seconds=max((s.oldest_seconds for s in ([s for s, _ in left] or helpful)), default=0),
        left_shapes=tuple(shape for shape, _ in left),
        helpful=tuple(helpful),
        too_large=too_large,
        stuck=tuple(s for s in fitting if shape_key(s) in not_helped),
        launched_for=tuple(tries.values()),
        not_helped=tuple(sorted(not_helped.items())),
        largest=sizes[0] if sizes else None,
    )


def add_launch(pending_pods: PendingPods, now: int) -> tuple[ShapeLaunch, ...]:
    """The launches to judge later, with one more for every shape that is left over and not on the list."""
    tries = {t.shape: t for t in pending_pods.launched_for}
    listed = dict(pending_pods.not_helped)
    for shape in pending_pods.left_shapes:
        key = shape_key(shape)
        if key in listed:
            continue
        before = tries.get(key, ShapeLaunch(shape=key, at=0, count=0))
        tries[key] = replace(before, at=now, count=shape.count)
    return tuple(tries[key] for key in sorted(tries))


def listed_checks(pending_pods: PendingPods) -> list[Check]:
    """The pods that are listed and not counted, each with the reason in words."""
    found = []
    for shape in pending_pods.too_large:
        text = (
            f"pod {_who(shape)} asks for {shape.cpu_milli}m CPU and {shape.memory_mib} MiB, more than any worker offers"
        )
        if pending_pods.largest:
            text += f" (largest {pending_pods.largest[0]}m and {pending_pods.largest[1]} MiB)"
        found.append(
            Check(name="pod_too_large", verdict="hold", text=text, value=shape.count, setting="INSTANCE_TYPES")
        )
    for shape in pending_pods.stuck:
        text = f"pod {_who(shape)} stays unschedulable although workers were launched for it: not counted for a while"
        found.append(
            Check(name="pods_not_helped", verdict="hold", text=text, value=shape.count, setting="NOT_HELPED_SECONDS")
        )
    return found


def _who(shape: PodShape) -> str:
    return shape.example or shape_key(shape)


def worker_sizes(workers: tuple[Worker, ...], policy: Policy) -> list[tuple[int, int]]:
    """CPU milli and memory MiB of every kind of worker there is or may be launched, largest first."""
    seen = {
        (w.cpu_allocatable_milli, w.memory_allocatable_mib)
        for w in workers
        if w.cpu_allocatable_milli is not None and w.memory_allocatable_mib is not None
    }
    known_types = {w.instance_type for w in workers if w.cpu_allocatable_milli is not None}
    by_type = {offered(t) for t in policy.instance_types if t not in known_types}
    return sorted(seen | {size for size in by_type if size}, reverse=True)


def _merged(pending: tuple[PodShape, ...]) -> list[PodShape]:
    """One entry for each shape, the largest first; the example is a pod that waits longest."""
    found: dict[str, PodShape] = {}
    for shape in sorted(pending, key=lambda s: (-s.oldest_seconds, s.example)):
        if shape.count > 0:
            key = shape_key(shape)
            first = found.get(key)
            found[key] = replace(first, count=first.count + shape.count) if first else shape
    return sorted(found.values(), key=_size, reverse=True)


def _size(shape: PodShape) -> tuple[int, int, str]:
    return shape.cpu_milli, shape.memory_mib, shape_key(shape)


def _fits_any(shape: PodShape, sizes: list[tuple[int, int]]) -> bool:
    return not sizes or any(shape.cpu_milli <= cpu and shape.memory_mib <= memory for cpu, memory in sizes)


def _capacities(tick: Tick, fresh: dict[str, int], sizes: list[tuple[int, int]]) -> list[FreeCapacity_]:
    grace = tick.policy.scheduling_grace_seconds
    by_type = {
        w.instance_type: (w.cpu_allocatable_milli, w.memory_allocatable_mib)
        for w in tick.usable
        if w.cpu_allocatable_milli is not None and w.memory_allocatable_mib is not None
    }
    fresh_now = [w for w in tick.usable if w.instance_id in fresh and tick.now - fresh[w.instance_id] < grace]
    capacities = []
    for w in sorted((*tick.joining, *fresh_now), key=lambda w: w.instance_id):
        guess = by_type.get(w.instance_type) or offered(w.instance_type) or (sizes[-1] if sizes else None)
        capacities.append(_free_capacity(w, guess))
    return capacities


def _free_capacity(w: Worker, guess: tuple[int | None, int | None] | None) -> FreeCapacity_:
    cpu, memory = w.cpu_allocatable_milli, w.memory_allocatable_mib
    if cpu is None or memory is None:
        cpu, memory = (guess[0] or 0, guess[1] or 0) if guess else (0, 0)
    slots = _PODS_PER_NODE if w.pods_allocatable is None else w.pods_allocatable
    return FreeCapacity_(
        zone=w.zone,
        cpu_milli=cpu - (w.cpu_requested_milli or 0),
        memory_mib=memory - (w.memory_requested_mib or 0),
        pods=slots - (w.pods or 0),
    )


def _place(shapes: list[PodShape], capacities: list[FreeCapacity_]) -> list[tuple[PodShape, int]]:
    """The shapes that do not fit whole, each with the number of its pods that are left over."""
    left = []
    for shape in shapes:
        rest = shape.count
        for free in capacities:
            rest -= free.take(shape, rest)
        if rest:
            left.append((shape, rest))
    return left


def _evaluate_launches(tick: Tick, shapes: list[PodShape]) -> dict[str, ShapeLaunch]:
    """The launches of still pending shapes, those whose launch has since succeeded judged helped or not."""
    tries = {t.shape: _allow_retry(tick, t) for t in tick.memory.launched_for}
    return {key: _evaluated_launch(tick, s, tries[key]) for s in shapes if (key := shape_key(s)) in tries}


def _allow_retry(tick: Tick, launch: ShapeLaunch) -> ShapeLaunch:
    """Once the time on the list is over, one more launch may be tried before the pods are listed again."""
    until = tick.memory.not_helped.get(launch.shape)
    over = until is not None and until <= tick.now
    return replace(launch, unhelped=tick.policy.not_helped_launches - 1) if over else launch


def _evaluated_launch(tick: Tick, shape: PodShape, launch: ShapeLaunch) -> ShapeLaunch:
    memory, now = tick.memory, tick.now
    done = memory.last_action == "scale_up" and memory.last_action_at >= launch.at > 0
    if not done or now - memory.last_action_at < tick.policy.scheduling_grace_seconds:
        return launch
    same_pods = shape.count >= launch.count and shape.oldest_seconds >= now - launch.at
    stuck = same_pods and any(_has_capacity(w, shape) for w in tick.usable)
    return replace(launch, at=0, unhelped=launch.unhelped + 1 if stuck else 0)


def _has_capacity(w: Worker, shape: PodShape) -> bool:
    """Whether the worker could hold one such pod by its requests; unknown requests count as room."""
    if w.cpu_requested_milli is None or w.memory_requested_mib is None or w.cpu_allocatable_milli is None:
        return True
    return _free_capacity(w, None).take(shape, 1) == 1


def _not_helped(tick: Tick, tries: dict[str, ShapeLaunch]) -> dict[str, int]:
    now, policy = tick.now, tick.policy
    running = {k: until for k, until in tick.memory.not_helped.items() if until > now and k in tries}
    for key, launch in tries.items():
        if launch.unhelped >= policy.not_helped_launches:
            running.setdefault(key, now + policy.not_helped_seconds)
    return running


def _without_listed(shape: PodShape, tries: dict[str, ShapeLaunch], not_helped: dict[str, int]) -> PodShape:
    key = shape_key(shape)
    return replace(shape, count=max(0, shape.count - tries[key].count)) if key in not_helped else shape
