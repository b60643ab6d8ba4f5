"""The headroom that an operator chooses as a signal: the workers that are missing for it, and whether it stays.

Free capacity is what the requests of all pods leave on usable and joining workers. Pending pods take theirs first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from node_fleet.domain.fit.placement import Node, Placement
from node_fleet.domain.model.chosen_headroom import HeadroomPods
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import PodShape, Worker
from node_fleet.domain.scaling.check import Check, Verdict
from node_fleet.domain.scaling.signals.new_workers import launched_markets, node_of, pack, place, pod_of, templates
from node_fleet.domain.scaling.signals.pending_pods import PendingPods
from node_fleet.domain.scaling.tick import Tick

_MIB = 1024 * 1024
_ANY_TAINT = [{"operator": "Exists"}]


def evaluate_headroom(tick: Tick, pending_pods: PendingPods | None) -> tuple[int, Check | None]:
    """How many workers are missing for the chosen headroom, and the check; no check when none is chosen."""
    policy = tick.policy
    if not is_chosen(policy):
        return 0, None
    if not _known(tick.usable):
        return 0, _check(policy, "missing", "headroom unknown: requests of some workers are missing")
    kinds = templates(tick, launched_markets(policy))
    nodes = _nodes_with_pending(tick, pending_pods)
    if policy.headroom_pods:
        shape = _shape(policy.headroom_pods)
        opened, unplaced = pack([shape], nodes, kinds, policy.max_workers)
        missing = len(opened) or (1 if unplaced else 0)
        fitting = policy.headroom_pods.count - unplaced - sum(_placed(one.node, shape) for one in opened)
        text = f"headroom for {fitting} of {policy.headroom_pods.text}"
        return missing, _check(policy, "up" if missing else "ok", text, fitting)
    free = _free_workers(nodes, kinds[0], policy)
    missing = max(0, math.ceil(round(policy.headroom_workers - free, 6)))
    text = f"headroom of {free:.1f} workers, {'under' if missing else 'at least'} {policy.headroom_workers}"
    return missing, _check(policy, "up" if missing else "ok", text, round(free, 2))


def keeps_headroom(tick: Tick, removed: int) -> Check | None:
    """Whether the headroom stays when so many of the largest workers are removed and their pods run on the others.

    The pods of a removed worker count as equal ones. None when it stays, or when no headroom is chosen.
    """
    policy = tick.policy
    if not is_chosen(policy):
        return None
    if not _known(tick.usable):
        return _check(policy, "missing", "headroom unknown: requests of some workers are missing")
    ordered = sorted(tick.usable, key=lambda w: (-_cpu(w), _requested(w), w.instance_id))
    leaving, staying = ordered[:removed], ordered[removed:]
    nodes = [node_of(tick, worker) for worker in staying]
    homeless = sum(_spread(_moved(worker), nodes) for worker in leaving)
    if policy.headroom_pods:
        unplaced = place(pod_of(_shape(policy.headroom_pods)), policy.headroom_pods.count, Placement(nodes))
        fitting = policy.headroom_pods.count - unplaced
        if not unplaced and not homeless:
            return None
        text = f"headroom would be {fitting} of {policy.headroom_pods.text}"
        return _check(policy, "hold", text, fitting)
    free = _free_workers(nodes, templates(tick, launched_markets(policy))[0], policy)
    if free >= policy.headroom_workers and not homeless:
        return None
    return _check(policy, "hold", f"headroom would be {free:.1f} workers, under {policy.headroom_workers}", free)


def is_chosen(policy: Policy) -> bool:
    """Whether the settings ask for headroom."""
    return bool(policy.headroom_workers or policy.headroom_pods)


def _nodes_with_pending(tick: Tick, pending_pods: PendingPods | None) -> list[Node]:
    """The usable workers, and the joining ones after the pending pods that they will hold."""
    joining = [node_of(tick, worker) for worker in tick.joining]
    placement = Placement(joining)
    for shape in pending_pods.helpful if pending_pods else ():
        place(pod_of(shape), shape.count, placement)
    return [*(node_of(tick, worker) for worker in tick.usable), *joining]


def _free_workers(nodes: Iterable[Node], kind: Node, policy: Policy) -> float:
    """The free capacity in workers of that kind. A worker holds projection_margin_percent less than it offers."""
    share = 1 - policy.projection_margin_percent / 100
    every = list(nodes)
    return min(
        sum(max(0, node.free[resource]) for node in every) / (kind.allocatable[resource] * share)
        for resource in ("cpu", "memory")
    )


def _shape(pods: HeadroomPods) -> PodShape:
    requests = {"cpu": pods.cpu_milli, "memory": pods.memory_mib * _MIB, "pods": 1}
    return PodShape(
        cpu_milli=pods.cpu_milli,
        memory_mib=pods.memory_mib,
        count=pods.count,
        demand={"requests": requests, "tolerations": _ANY_TAINT},
    )


def _placed(node: Node, shape: PodShape) -> int:
    return (node.allocatable["cpu"] - node.free["cpu"]) // shape.cpu_milli


def _moved(worker: Worker) -> PodShape:
    """The pods of a worker as equal ones, rounded up."""
    count = worker.pods or 1
    cpu, memory = -(-_requested(worker) // count), -(-(worker.memory_requested_mib or 0) // count)
    requests = {"cpu": cpu, "memory": memory * _MIB, "pods": 1}
    demand = {"requests": {name: n for name, n in requests.items() if n}, "tolerations": _ANY_TAINT}
    return PodShape(cpu_milli=cpu, memory_mib=memory, count=count, demand=demand)


def _spread(shape: PodShape, nodes: Sequence[Node]) -> int:
    """Place each pod on the node with most free CPU and memory, as the scheduler does. Returns how many do not fit."""
    placement, pod = Placement(nodes), pod_of(shape)
    for number in range(shape.count):
        freest = sorted(nodes, key=lambda n: -sum(n.free[r] / (n.allocatable[r] or 1) for r in ("cpu", "memory")))
        if not any(placement.fill(pod, node, 1) for node in freest):
            return shape.count - number
    return 0


def _known(workers: Sequence[Worker]) -> bool:
    return all(
        None not in (w.cpu_requested_milli, w.cpu_allocatable_milli, w.memory_requested_mib, w.memory_allocatable_mib)
        for w in workers
    )


def _cpu(worker: Worker) -> int:
    return worker.cpu_allocatable_milli or 0


def _requested(worker: Worker) -> int:
    return worker.cpu_requested_milli or 0


def _check(policy: Policy, verdict: Verdict, text: str, value: float | None = None) -> Check:
    return Check(
        name="headroom",
        verdict=verdict,
        text=text,
        value=value,
        threshold=policy.headroom_pods.count if policy.headroom_pods else policy.headroom_workers,
        setting="headroom_pods" if policy.headroom_pods else "headroom_workers",
    )
