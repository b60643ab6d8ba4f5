"""Assembles the snapshot: joins EC2 instances with Kubernetes nodes by provider id and sums the fleet's load.

It fetches nothing. An unknown value stays None and never becomes 0.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from node_fleet.domain.model.bounds import MAX_NODES_LISTED, Bounds, confirm_capacity
from node_fleet.domain.model.identity import identify
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.set_aside import SetAside
from node_fleet.domain.model.snapshot import (
    FleetLoad,
    HourlyLoad,
    Instance,
    NodeReading,
    NodeUsage,
    Phase,
    Reading,
    Snapshot,
    Worker,
)
from node_fleet.domain.model.standby import KEPT, PREFIX

if TYPE_CHECKING:
    from node_fleet.domain.model.fleet_state import Notice

# Taints of a node that cannot run pods. A team's own taints are not among them: pods that tolerate those use the node.
_NOT_INITIALIZED = frozenset(
    {
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.kubernetes.io/network-unavailable",
        "node-fleet.io/starting",
    }
)
_NOT_WORKING = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
BLOCKING_TAINT_KEYS = _NOT_INITIALIZED | _NOT_WORKING
_BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")


def blocking(taints: Iterable[str]) -> tuple[str, ...]:
    """The taints, written `key=value:effect` or `key:effect`, that keep every ordinary pod away."""
    found = []
    for taint in taints:
        rest, _, effect = taint.rpartition(":")
        if rest.partition("=")[0] in BLOCKING_TAINT_KEYS and effect in _BLOCKING_EFFECTS:
            found.append(taint)
    return tuple(found)


def total_load(nodes: Iterable[NodeUsage]) -> FleetLoad:
    """CPU weighted by cores, memory by sums, and the maximum of each; a missing value is left out, not counted as 0."""
    nodes = tuple(nodes)
    cpu = [known for node in nodes if (known := node.cpu)]
    memory = [known for node in nodes if (known := node.memory)]
    cpu_percent = cpu_max = memory_percent = memory_max = None
    if cpu:
        percents, cores = zip(*cpu, strict=True)
        cpu_percent, cpu_max = sum(map(operator.mul, percents, cores)) / sum(cores), max(percents)
    if memory:
        used, total = zip(*memory, strict=True)
        memory_percent, memory_max = 100 * sum(used) / sum(total), max([100 * u / t for u, t in memory])
    return FleetLoad(
        cpu_percent=cpu_percent,
        cpu_max_percent=cpu_max,
        memory_percent=memory_percent,
        memory_max_percent=memory_max,
    )


def assemble(
    instances: Sequence[Instance],
    reading: Reading | None,
    notices: Iterable[Notice],
    policy: Policy,
    now: int,
    *,
    problem: str = "",
    hourly: tuple[HourlyLoad, ...] = (),
) -> Snapshot:
    """One snapshot from the instances in EC2 and the reading of Prometheus. Without a reading its source is "none".

    problem: why there is no reading, or why parts of it are missing.
    """
    noticed = {notice.instance_id for notice in notices}
    if reading is None:
        workers = tuple(_worker(i, None, "unknown", noticed) for i in instances)
        return Snapshot(at=now, source="none", workers=workers, missing=("reading",), problem=problem, hourly=hourly)
    known = "nodes" not in reading.missing
    identities = identify(instances, reading.nodes)
    disputed, bounds = identities.disputed, Bounds(list(reading.refused))
    types = {instance.instance_id: instance.instance_type for instance in instances}
    nodes = {i: confirm_capacity(node, types[i], bounds) for i, node in identities.confirmed.items()}
    ours = types.keys()
    workers = tuple(
        _worker(i, node, _phase(i, node, known and i.instance_id not in disputed, policy, now), noticed)
        for i in instances
        for node in [nodes.get(i.instance_id)]
    )
    load, missing = _fleet_load(reading, workers, known, policy, now)
    return Snapshot(
        at=now,
        source="live",
        pending=reading.pending,
        custom=reading.custom,
        workers=workers,
        unmanaged=_listed(node.node_name for node in reading.nodes if node.instance_id not in ours),
        dead_nodes=_listed(
            node.instance_id
            for node in reading.nodes
            if node.instance_id and node.instance_id not in ours and _is_dead(node, policy)
        ),
        disputes=tuple(disputed.values()),
        refused=tuple(bounds.refused),
        missing=missing,
        hourly=hourly,
        read_at=reading.at,
        problem=problem,
        server_version=reading.server_version,
        **_values(load, FleetLoad),
    )


def refresh(
    cached: Snapshot,
    instances: Sequence[Instance],
    notices: Iterable[Notice],
    policy: Policy,
    now: int,
    *,
    problem: str,
    hourly: tuple[HourlyLoad, ...] = (),
) -> Snapshot:
    """The values of an earlier snapshot for the instances that run now. Whether new ones joined since is unknown."""
    noticed = {notice.instance_id for notice in notices}
    before = {worker.instance_id: worker for worker in cached.workers}
    workers = tuple(_from_cached(i, before.get(i.instance_id), noticed, policy, now) for i in instances)
    return replace(cached, at=now, source="cached", workers=workers, dead_nodes=(), problem=problem, hourly=hourly)


def with_set_aside(snapshot: Snapshot, set_aside: Sequence[SetAside]) -> Snapshot:
    """The snapshot with the removals that are set aside; their nodes are neither unmanaged nor to be deleted yet."""
    ids, names = {r.instance_id for r in set_aside}, {r.node_name for r in set_aside}
    return replace(
        snapshot,
        set_aside=tuple(set_aside),
        unmanaged=tuple(name for name in snapshot.unmanaged if name not in names),
        dead_nodes=tuple(instance_id for instance_id in snapshot.dead_nodes if instance_id not in ids),
    )


def _from_cached(
    instance: Instance, before: Worker | None, noticed: Collection[str], policy: Policy, now: int
) -> Worker:
    if before is None or before.phase in ("joining", "unjoined"):
        return _worker(
            instance, None, "joining" if _is_within_join_limit(instance, policy, now) else "unknown", noticed
        )
    notice = instance.under_notice or instance.instance_id in noticed
    return replace(before, under_notice=notice, launched_at=instance.launched_at)


def _listed(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names))[:MAX_NODES_LISTED])


def _is_dead(node: NodeReading, policy: Policy) -> bool:
    """NotReady for longer than EC2 may fail to list an instance that it has just launched."""
    return not node.ready and node.not_ready_seconds >= min(120, policy.not_ready_replace_seconds)


def _is_within_join_limit(instance: Instance, policy: Policy, now: int) -> bool:
    return now - instance.launched_at <= policy.join_limit_seconds and not instance.join_failed


def _phase(instance: Instance, node: NodeReading | None, known: bool, policy: Policy, now: int) -> Phase:
    """The worker's phase. Without node data, and with a disputed Node, it is unknown, never unjoined."""
    if not known:
        return "unknown"
    if node is not None and node.usable:
        return "usable"
    if node is not None and node.unschedulable:
        return "cordoned"
    if _is_within_join_limit(instance, policy, now):
        return "joining"
    if node is None:
        return "unjoined"
    is_starting = node.ready and any(
        t.partition("=")[0].partition(":")[0] in _NOT_INITIALIZED for t in node.blocking_taints
    )
    return "unjoined" if is_starting else "not_ready"


def _worker(instance: Instance, node: NodeReading | None, phase: Phase, noticed: Collection[str]) -> Worker:
    return Worker(
        instance_id=instance.instance_id,
        zone=instance.zone,
        market=instance.market,
        instance_type=instance.instance_type,
        phase=phase,
        launched_at=instance.launched_at,
        under_notice=instance.under_notice or instance.instance_id in noticed,
        join_failed=instance.join_failed,
        refill=instance.operation_id.startswith(PREFIX) and instance.standby in ("", KEPT),
        **({} if node is None else {"node_name": node.node_name, **_values(node, NodeUsage)}),
    )


def _values(source: object, kind: type[NodeUsage | FleetLoad]) -> dict[str, Any]:
    return {f.name: getattr(source, f.name) for f in fields(kind)}


def _fleet_load(
    reading: Reading, workers: Sequence[Worker], known: bool, policy: Policy, now: int
) -> tuple[FleetLoad, tuple[str, ...]]:
    """The fleet's load, and the names of everything that is missing.

    Without node data the reading's own values are used, which cover every live worker. A value known for less than
    policy.live_share_percent of the usable workers is missing as a whole; workers within the join limit may be unknown.
    """
    missing = [name for name in reading.missing if name not in ("cpu_percent", "memory_percent")]
    if not known:
        load = FleetLoad(**_values(reading, FleetLoad))
    else:
        usable = [worker for worker in workers if worker.phase == "usable"]
        settled = [w for w in usable if now - w.launched_at > policy.join_limit_seconds]
        load = total_load(usable)
        for name in ("cpu", "memory"):
            unknown = [w for w in settled if not getattr(w, name)]
            missing += [f"{name}_percent:{w.instance_id}" for w in unknown]
            known_count = sum(getattr(w, name) is not None for w in usable)
            if unknown and 100 * known_count < policy.live_share_percent * (known_count + len(unknown)):
                load = replace(load, **{f"{name}_percent": None, f"{name}_max_percent": None})
    missing += [name for name in ("cpu_percent", "memory_percent") if getattr(load, name) is None]
    return load, tuple(dict.fromkeys(missing))
