"""The workers that a launch would add and those that join, as nodes that pending pods are placed on.

A new worker has the zone, type and market of its pool, and the labels and taints that all workers have in common.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from node_fleet.domain.fit.placement import Node, Placement, Pod
from node_fleet.domain.model.assembly import blocking
from node_fleet.domain.model.instance_types import PODS_PER_NODE, offered
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import MARKETS, Market, PodShape, Worker
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.scaling.tick import Tick

UNKNOWN_AMOUNT = 2**60
_MIB = 1024 * 1024
_ARM = re.compile(r"^[a-z]+\d+g")
_HOSTNAME = "kubernetes.io/hostname"


def pod_of(shape: PodShape) -> Pod:
    """One pod of the shape. Without a listed demand it asks for CPU and memory only."""
    requests = {"cpu": shape.cpu_milli, "memory": shape.memory_mib * _MIB, "pods": 1}
    return Pod(shape.example, shape.demand or {"requests": {r: n for r, n in requests.items() if n > 0}})


def launched_markets(policy: Policy) -> tuple[Market, ...]:
    """The markets in which node-fleet launches workers; each is the other one's alternative when EC2 refuses."""
    return MARKETS if policy.spot_percent else ("on-demand",)


def templates(tick: Tick, markets: Sequence[Market]) -> list[Node]:
    """An empty node of every configured pool: types in their order, then zones, then markets."""
    zones = tick.policy.zone_names or sorted({w.zone for w in tick.snapshot.workers}) or [""]
    return [
        _node(tick, "a new worker", (zone, kind, market), size)
        for kind in tick.policy.instance_types
        for size in [_size(tick, kind)]
        for zone in zones
        for market in markets
    ]


def node_of(tick: Tick, worker: Worker) -> Node:
    """A worker with what its pods leave. Taints that keep every pod away until it is ready do not count."""
    size = _size(tick, worker.instance_type)
    if worker.cpu_allocatable_milli is not None and worker.memory_allocatable_mib is not None:
        pods = PODS_PER_NODE if worker.pods_allocatable is None else worker.pods_allocatable
        size = (worker.cpu_allocatable_milli, worker.memory_allocatable_mib, pods)
    node = _node(tick, worker.instance_id, (worker.zone, worker.instance_type, worker.market), size)
    node.taints += [_taint(text) for text in worker.taints if text not in blocking(worker.taints) and _repels(text)]
    node.free["cpu"] -= worker.cpu_requested_milli or 0
    node.free["memory"] -= (worker.memory_requested_mib or 0) * _MIB
    node.free["pods"] -= worker.pods or 0
    return node


def _repels(taint: str) -> bool:
    return not taint.endswith(":PreferNoSchedule")


def _taint(text: str) -> dict[str, str]:
    """A taint that Prometheus shows as key=value:effect or key:effect."""
    label, _, effect = text.rpartition(":")
    key, _, value = label.partition("=")
    return {"key": key, "value": value, "effect": effect}


def _node(tick: Tick, name: str, pool: tuple[str, str, str], size: tuple[int, int, int]) -> Node:
    zone, kind, market = pool
    labels = {
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "arm64" if _ARM.match(kind) else "amd64",
        **tick.snapshot.worker_labels,
        _HOSTNAME: name,
        "topology.kubernetes.io/zone": zone,
        "topology.kubernetes.io/region": zone[:-1],
        "node.kubernetes.io/instance-type": kind,
        "node-fleet.io/market": market,
        "node-fleet.io/role": "worker",
    }
    amounts = {"cpu": size[0], "memory": size[1] * _MIB, "pods": size[2], "ephemeral-storage": UNKNOWN_AMOUNT}
    return Node(name, labels, amounts, tick.snapshot.worker_taints)


def _size(tick: Tick, kind: str) -> tuple[int, int, int]:
    """CPU milli, memory MiB and pods of a type: as a worker of the type shows it, else by the type's name.

    A type whose name says nothing counts as large as the largest worker that runs.
    """
    shown = {
        (w.cpu_allocatable_milli, w.memory_allocatable_mib, w.pods_allocatable or PODS_PER_NODE): w.instance_type
        for w in tick.snapshot.workers
        if w.cpu_allocatable_milli and w.memory_allocatable_mib
    }
    if same := [size for size, of in shown.items() if of == kind]:
        return max(same)
    if by_name := offered(kind):
        return (*by_name, PODS_PER_NODE)
    return max(shown, default=(UNKNOWN_AMOUNT, UNKNOWN_AMOUNT // _MIB, PODS_PER_NODE))


def type_of(node: Node) -> str:
    """For example: t3.small."""
    return node.labels["node.kubernetes.io/instance-type"]


def pool_name(node: Node) -> str:
    """For example: ap-southeast-1a/t3.small/spot."""
    keys = ("topology.kubernetes.io/zone", "node.kubernetes.io/instance-type", "node-fleet.io/market")
    return "/".join(node.labels[key] for key in keys)


def place(pod: Pod, count: int, placement: Placement) -> int:
    """Place so many equal pods on the first nodes that hold them. Returns the number that does not fit."""
    for node in placement.nodes:
        if count <= 0:
            break
        count -= placement.fill(pod, node, count)
    return count


@value_class
class OpenedNode:
    """A new worker in a packing, with its pods. accepting: the kinds of new workers that accept its first pod."""

    node: Node
    accepting: tuple[Node, ...]


def pack(
    shapes: Iterable[PodShape], nodes: Sequence[Node], kinds: Sequence[Node], most_new: int
) -> tuple[list[OpenedNode], int]:
    """First-fit decreasing over `nodes` and then over at most `most_new` new workers, each of the first accepting kind.

    Returns the new workers, and the number of pods that fit nowhere. `nodes` hold the placed pods afterwards.
    """
    ordered = sorted(shapes, key=lambda s: (-s.cpu_milli, -s.memory_mib, str(s.demand)))
    placement, empty, opened, unplaced = Placement(nodes), empty_workers(kinds), list[OpenedNode](), 0
    for shape in ordered:
        pod = pod_of(shape)
        remaining = place(pod, shape.count, placement)
        accepting = list(accepting_kinds(pod, empty)) if remaining else []
        while remaining > 0 and accepting and len(opened) < most_new:
            node = Node(f"new {len(opened)}", accepting[0].labels, accepting[0].allocatable, accepting[0].taints)
            node.labels = {**node.labels, _HOSTNAME: node.name}
            placement.nodes.append(node)
            placed = placement.fill(pod, node, remaining)
            if not placed:
                placement.nodes.pop()
                break
            opened.append(OpenedNode(node=node, accepting=tuple(accepting)))
            remaining -= placed
        unplaced += remaining
    return opened, unplaced


def accepting_kinds(pod: Pod, empty: Iterable[Placement]) -> Iterator[Node]:
    """The kinds of new workers on which such a pod runs. empty: each kind alone, see empty_workers()."""
    for alone in empty:
        for kind in alone.nodes:
            if not alone.refusal(pod, kind, alone.rules_for(pod)):
                yield kind


def empty_workers(kinds: Iterable[Node]) -> list[Placement]:
    """Each kind of new worker alone and empty, to judge many pods against."""
    return [Placement([kind]) for kind in kinds]
