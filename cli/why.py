"""Why a worker is still here, and why there is no worker for a pod: one sentence each, from the code that decides."""

from __future__ import annotations

import time
from collections.abc import Sequence

from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import PodShape, Snapshot
from node_fleet.domain.model.text import count_of
from node_fleet.domain.scaling.decision import Decision
from node_fleet.domain.scaling.memory_update import newly_usable
from node_fleet.domain.scaling.signals.pending_pods import PendingPods, evaluate_pending_pods, shape_key
from node_fleet.domain.scaling.tick import make_tick

NAMES_SHOWN = 5


def why_worker(instance_id: str, judged: Sequence[tuple[str, str, str]], decision: Decision) -> str:
    """Why the worker is still here. judged: (instance id, "yes" or "no", reason) of every worker."""
    found = next((row for row in judged if row[0] == instance_id), None)
    if found is None:
        known = ", ".join(row[0] for row in judged[:NAMES_SHOWN]) or "none"
        return f"{instance_id} is not a worker of this fleet; workers: {known}"
    _, eligible, reason = found
    if eligible == "no":
        return f"{instance_id} is still here because it is kept: {reason}"
    if decision.action == "scale_down":
        text = "this decision removes"
        return f"{instance_id} is eligible for removal ({reason}), and {text} {count_of(decision.count, 'worker')}"
    return f"{instance_id} is eligible for removal ({reason}), but no worker is removed: {decision.sentence}"


def why_pod(pod: str, snapshot: Snapshot, memory: Memory, policy: Policy, decision: Decision) -> str:
    """Why no worker holds the pod ("namespace/name"), or that it is not pending."""
    if snapshot.pending is None:
        return f"the pending pods are not known: {snapshot.problem or 'Prometheus does not list them'}"
    shape = _shape_of(pod, snapshot.pending)
    if shape is None:
        others = ", ".join(one.example or shape_key(one) for one in snapshot.pending[:NAMES_SHOWN])
        which = f"unschedulable pods: {others}" if others else "no pod is unschedulable"
        return f"{pod} is not among the pods that the scheduler found no worker for; {which}"
    tick = make_tick(snapshot, memory, policy, snapshot.at)
    pending = evaluate_pending_pods(tick, newly_usable(tick))
    return f"{pod} {_why_waiting(shape, pending or PendingPods(), decision)}"


def _shape_of(pod: str, pending: Sequence[PodShape]) -> PodShape | None:
    """The shape of which the pod is the example, else one of the same owner."""
    owner = pod.rpartition("-")[0]
    exact = (one for one in pending if one.example == pod)
    return next(exact, None) or next((one for one in pending if owner and one.owner == owner), None)


def _why_waiting(shape: PodShape, pending: PendingPods, decision: Decision) -> str:
    key = shape_key(shape)
    for unfit, reason in pending.unfit:
        if shape_key(unfit) == key:
            return f"gets no new worker: {reason}"
    if key in (shape_key(one) for one in pending.stuck):
        until = dict(pending.not_helped)[key]
        end = time.strftime("%H:%M", time.gmtime(until))
        return f"stayed unschedulable after launches for it, so it is not counted until {end} UTC"
    if key not in (one.key for one in pending.left_shapes):
        return "fits on a worker that is joining or has just joined; it waits for the scheduler"
    if decision.action == "scale_up":
        return f"is counted, and this decision launches {count_of(decision.count, 'worker')}"
    return f"is counted, but no worker is launched: {decision.sentence}"
