"""Who can see the nodes: Prometheus, and when it cannot answer, kubectl on the server. Judges nothing.

Whoever could not look says so; an absent answer never becomes an empty list.
"""

from __future__ import annotations

from typing import Any

from node_fleet.domain.model.errors import (
    Ec2Error,
    MetricsUnavailableError,
    ServerNotFoundError,
    ServerUnreachableError,
)
from node_fleet.domain.model.snapshot import NodeReading
from node_fleet.domain.scale_down.inspection import InspectedNode, parse_inspection
from node_fleet.domain.scale_up.join import NodeList

BLIND = (Ec2Error, ServerNotFoundError, ServerUnreachableError)


def look(prometheus: Any, server: Any, now: int) -> NodeList:
    """The nodes as Prometheus shows them, else as the server does: for polling."""
    seen = by_metrics(prometheus, now)
    return seen if seen.known else _or_why(by_server(server), seen)


def look_closely(prometheus: Any, server: Any, now: int) -> NodeList:
    """The nodes as the server has them at this moment, else as Prometheus shows them: before a worker is given up."""
    seen = by_server(server)
    return seen if seen.known else _or_why(by_metrics(prometheus, now), seen)


def by_metrics(prometheus: Any, now: int) -> NodeList:
    """What kube-state-metrics shows through Prometheus."""
    try:
        return NodeList(nodes=prometheus.nodes(now), source="prometheus")
    except (MetricsUnavailableError, *BLIND) as error:
        return NodeList(nodes=None, source="none", problem=str(error))


def by_server(server: Any) -> NodeList:
    """What kubectl on the server lists. An answer that was cut or does not hold every node is not believed."""
    try:
        result = server.run("InspectNodes", {})
    except BLIND as error:
        return NodeList(nodes=None, source="none", problem=str(error))
    if not result.known:
        return NodeList(nodes=None, source="none", problem=f"the look at the nodes ended {result.status}")
    seen = parse_inspection(result.stdout)
    if not seen.known or not seen.nodes or seen.left_out:
        problem = seen.detail or f"the server listed {len(seen.nodes)} nodes and left out {seen.left_out}"
        return NodeList(nodes=None, source="none", problem=problem)
    return NodeList(nodes=tuple(map(_reading, seen.nodes)), source="server")


def pods_waiting(prometheus: Any, now: int) -> int | None:
    """Pods that the scheduler cannot place; None when nobody knows."""
    try:
        shapes = prometheus.pending(now)
    except (MetricsUnavailableError, *BLIND):
        return None
    return None if shapes is None else sum(shape.count for shape in shapes)


def _or_why(second: NodeList, first: NodeList) -> NodeList:
    if second.known:
        return second
    return NodeList(nodes=None, source="none", problem=f"{first.problem}; {second.problem}")


def _reading(node: InspectedNode) -> NodeReading:
    return NodeReading(
        node_name=node.node_name,
        provider_id=f"aws:///{node.zone}/{node.instance_id}" if node.instance_id else "",
        ready=node.ready,
        unschedulable=node.cordoned,
        blocking_taints=("tainted",) if node.tainted else (),
    )
