"""Unschedulable pods as a signal: which of them a new worker would help, and which of them joining workers will hold.

Pods that no new worker could run, and pods that earlier launches did not help, are listed but not counted.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Sequence
from dataclasses import replace

from node_fleet.domain.fit.placement import Misfit, Node, Placement, Pod
from node_fleet.domain.model.memory import ShapeLaunch
from node_fleet.domain.model.snapshot import MARKETS, NewWorker, PodShape, Worker
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.scaling.check import Check
from node_fleet.domain.scaling.signals.new_workers import (
    accepting_kinds,
    empty_workers,
    launched_markets,
    node_of,
    place,
    pod_of,
    templates,
)
from node_fleet.domain.scaling.signals.type_mix import choose_new_workers
from node_fleet.domain.scaling.tick import Tick

OWNERS_KEPT = 40


@value_class
class LeftPods:
    """Pods of one shape for which no joining or newly usable worker has room. key: the name of the shape."""

    key: str
    shape: PodShape
    count: int


@value_class
class PendingPods:
    """The pending pods of one reading.

    waiting: pods that a worker would help; helpful: their shapes. left: those of them that no joining or newly usable
    worker will hold; left_shapes: the same by shape. oldest_seconds: the longest wait among `left`, or among `waiting`
    when nothing is left. unfit: shapes that no new worker could run, each with the reason; stuck: shapes that launches
    did not help. Both are listed and not counted.
    """

    waiting: int = 0
    left: int = 0
    oldest_seconds: int = 0
    left_shapes: tuple[LeftPods, ...] = ()
    helpful: tuple[PodShape, ...] = ()
    unfit: tuple[tuple[PodShape, str], ...] = ()
    stuck: tuple[PodShape, ...] = ()
    launched_for: tuple[ShapeLaunch, ...] = ()
    not_helped: tuple[tuple[str, int], ...] = ()

    @property
    def listed(self) -> int:
        """The number of pods that are listed and not counted."""
        return sum(s.count for s in (*(shape for shape, _ in self.unfit), *self.stuck))


_NONE = PendingPods()


def shape_key(shape: PodShape) -> str:
    """The name of a shape, e.g. "500m/256Mi": its requests, and a checksum of everything else that it demands."""
    others = {k: v for k, v in shape.demand.items() if k not in ("requests", "namespace", "labels")}
    more = {r: n for r, n in shape.demand.get("requests", {}).items() if r not in ("cpu", "memory", "pods")}
    text = json.dumps([others, more, shape.problem], sort_keys=True) if others or more or shape.problem else ""
    return f"{shape.cpu_milli}m/{shape.memory_mib}Mi" + (f"@{zlib.crc32(text.encode()):08x}" if text else "")


def evaluate_pending_pods(tick: Tick, fresh: dict[str, int]) -> PendingPods | None:
    """The pending pods of this reading; None when unknown. fresh: instance id -> first seen usable (epoch)."""
    pending = tick.snapshot.pending
    if pending is None:
        return None
    if not pending:
        return _NONE
    shapes, launched = _merged(pending), templates(tick, launched_markets(tick.policy))
    empty = empty_workers(launched)
    pods = {key: pod_of(shape) for key, shape in shapes.items()}
    reasons = {key: _unfit_reason(tick, shape, pods[key], empty) for key, shape in shapes.items()}
    fitting = {key: shape for key, shape in shapes.items() if not reasons[key]}
    launches = _evaluate_launches(tick, fitting)
    not_helped = _not_helped(tick, launches)
    counted = {key: _without_listed(key, shape, launches, not_helped) for key, shape in fitting.items()}
    helpful = {key: shape for key, shape in counted.items() if shape.count > 0}
    coming = Placement(_coming_nodes(tick, fresh))
    left = [
        LeftPods(key=key, shape=shape, count=count)
        for key, shape in helpful.items()
        if (count := place(pods[key], shape.count, coming))
    ]
    return PendingPods(
        waiting=sum(s.count for s in helpful.values()),
        left=sum(one.count for one in left),
        oldest_seconds=max((s.oldest_seconds for s in ([one.shape for one in left] or helpful.values())), default=0),
        left_shapes=tuple(left),
        helpful=tuple(helpful.values()),
        unfit=tuple((shape, reasons[key]) for key, shape in shapes.items() if reasons[key]),
        stuck=tuple(shape for key, shape in fitting.items() if key in not_helped),
        launched_for=tuple(launches.values()),
        not_helped=tuple(sorted(not_helped.items())),
    )


def new_workers_for(tick: Tick, pending_pods: PendingPods) -> tuple[NewWorker, ...]:
    """The workers that would hold the pods that are left."""
    left = [replace(one.shape, count=one.count) for one in pending_pods.left_shapes]
    return choose_new_workers(left, [], templates(tick, launched_markets(tick.policy)), tick.policy)


def plain_owners(tick: Tick) -> tuple[str, ...]:
    """The owners whose pods ask for CPU and memory only, those of this listing first."""
    if tick.snapshot.unlisted or not tick.snapshot.pending:
        return tick.memory.plain_owners
    seen = [shape.owner for shape in tick.snapshot.pending if shape.is_plain]
    other = {shape.owner for shape in tick.snapshot.pending if not shape.is_plain}
    kept = [owner for owner in tick.memory.plain_owners if owner not in other]
    return tuple(dict.fromkeys([*sorted(seen), *kept]))[:OWNERS_KEPT]


def _unfit_reason(tick: Tick, shape: PodShape, pod: Pod, empty: Sequence[Placement]) -> str:
    """Why no new worker could run such a pod; empty when one could."""
    if shape.problem:
        return f"no new worker helps: {shape.problem}" if shape.lasting else f"waits: {shape.problem}"
    if tick.snapshot.unlisted and shape.owner not in tick.memory.plain_owners:
        return f"not counted, because what it demands of a worker is not known: {tick.snapshot.unlisted}"
    if next(accepting_kinds(pod, empty), None):
        return ""
    if next(accepting_kinds(pod, empty_workers(templates(tick, MARKETS))), None):
        return "it runs on Spot instances only, and spot_percent is 0"
    kinds = [kind for alone in empty for kind in alone.nodes]
    return misfit_text(Placement(kinds).explain(pod, kinds))


_UNFIT: dict[str, str] = {
    "affinity": "no new worker matches its node selector or required node affinity",
    "taints": "it does not tolerate the taints of the workers",
    "volume": "its volume is in a zone, or on a node, that no new worker has",
    "pod-affinity": "no new worker satisfies its required pod affinity",
    "anti-affinity": "a required pod anti-affinity refuses every new worker",
    "spread": "its topology spread constraint refuses every new worker",
}
"""Why no new worker could run a pod, by the predicate of the scheduler; every other predicate is a resource."""


def misfit_text(misfit: Misfit) -> str:
    """For example: requests 8000m CPU, the largest worker offers 2000m."""
    if misfit.predicate in _UNFIT:
        return _UNFIT[misfit.predicate]
    resource = {"cpu": "CPU"}.get(misfit.predicate, misfit.predicate)
    return f"requests {misfit.requested} {resource}, the largest worker offers {misfit.free}"


def add_launch(pending_pods: PendingPods, now: int) -> tuple[ShapeLaunch, ...]:
    """The launches to evaluate later, with one more at `now` (epoch) for every shape that is left and not listed."""
    launches = {t.shape: t for t in pending_pods.launched_for}
    listed = dict(pending_pods.not_helped)
    for one in pending_pods.left_shapes:
        if one.key not in listed:
            before = launches.get(one.key, ShapeLaunch(shape=one.key, at=0, count=0))
            launches[one.key] = replace(before, at=now, count=one.shape.count)
    return tuple(launches[key] for key in sorted(launches))


def listed_checks(pending_pods: PendingPods) -> list[Check]:
    """One check for every shape that is listed and not counted, with the reason."""
    checks = []
    for shape, reason in pending_pods.unfit:
        name, setting = ("pod_too_large", "instance_types") if reason.startswith("requests") else ("pod_unfit", "")
        text = f"pod {_example(shape)}: {reason}"
        checks.append(Check(name=name, verdict="hold", text=text, value=shape.count, setting=setting))
    until = dict(pending_pods.not_helped)
    for shape in pending_pods.stuck:
        end = time.strftime("%H:%M", time.gmtime(until[shape_key(shape)]))
        text = f"pod {_example(shape)} stays unschedulable after launches for it: not counted until {end} UTC"
        checks.append(
            Check(name="pods_not_helped", verdict="hold", text=text, value=shape.count, setting="not_helped_seconds")
        )
    return checks


def _example(shape: PodShape) -> str:
    return shape.example or shape_key(shape)


def _merged(pending: tuple[PodShape, ...]) -> dict[str, PodShape]:
    """Name -> shape, the largest first; the example is the pod that waits longest."""
    found: dict[str, PodShape] = {}
    for shape in sorted(pending, key=lambda s: (-s.oldest_seconds, s.example)):
        if shape.count > 0:
            key = shape_key(shape)
            first = found.get(key)
            found[key] = replace(first, count=first.count + shape.count) if first else shape
    return dict(
        sorted(found.items(), key=lambda named: (named[1].cpu_milli, named[1].memory_mib, named[0]), reverse=True)
    )


def _coming_nodes(tick: Tick, fresh: dict[str, int]) -> list[Node]:
    """Joining workers, and usable ones that the scheduler has had no time to fill."""
    grace = tick.policy.scheduling_grace_seconds
    fresh_now = [w for w in tick.usable if w.instance_id in fresh and tick.now - fresh[w.instance_id] < grace]
    return [node_of(tick, w) for w in sorted((*tick.joining, *fresh_now), key=lambda w: w.instance_id)]


def _evaluate_launches(tick: Tick, shapes: dict[str, PodShape]) -> dict[str, ShapeLaunch]:
    """Shape -> its launch, for shapes that are still pending; a launch that has since succeeded is evaluated."""
    launches = {t.shape: _allow_retry(tick, t) for t in tick.memory.launched_for}
    return {key: _evaluate_launch(tick, s, launches[key]) for key, s in shapes.items() if key in launches}


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
    stuck = same_pods and any(_has_capacity(tick, w, shape) for w in tick.usable)
    return replace(launch, at=0, unhelped=launch.unhelped + 1 if stuck else 0)


def _has_capacity(tick: Tick, worker: Worker, shape: PodShape) -> bool:
    """Whether the worker could hold one such pod; a worker with unknown requests could."""
    if None in (worker.cpu_requested_milli, worker.memory_requested_mib, worker.cpu_allocatable_milli):
        return True
    return place(pod_of(shape), 1, Placement([node_of(tick, worker)])) == 0


def _not_helped(tick: Tick, launches: dict[str, ShapeLaunch]) -> dict[str, int]:
    """Shape -> until when (epoch) its pods are not counted."""
    now, policy = tick.now, tick.policy
    listed = {k: until for k, until in tick.memory.not_helped.items() if until > now and k in launches}
    for key, launch in launches.items():
        if launch.unhelped >= policy.not_helped_launches:
            listed.setdefault(key, now + policy.not_helped_seconds)
    return listed


def _without_listed(
    key: str, shape: PodShape, launches: dict[str, ShapeLaunch], not_helped: dict[str, int]
) -> PodShape:
    return replace(shape, count=max(0, shape.count - launches[key].count)) if key in not_helped else shape
