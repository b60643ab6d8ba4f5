"""The nodes and the pending pods as Prometheus shows them, or as kubectl on the server lists the nodes.

A source that cannot be read gives unknown; a missing answer never becomes an empty list.
"""

from __future__ import annotations

from typing import Any

from node_fleet.domain.fit.listing import PendingListing
from node_fleet.domain.model.errors import (
    Ec2Error,
    MetricsUnavailableError,
    ServerNotFoundError,
    ServerUnreachableError,
)
from node_fleet.domain.model.snapshot import NodeReading
from node_fleet.domain.scale_down.inspection import InspectedNode, Inspection
from node_fleet.domain.scale_up.join import NodeList

UNREACHABLE = (Ec2Error, ServerNotFoundError, ServerUnreachableError)


def list_nodes(prometheus: Any, server: Any, now: int) -> NodeList:
    """The nodes from Prometheus, else from the server: the cheap order, for polling."""
    first = nodes_from_prometheus(prometheus, now)
    return first if first.known else _with_problems(nodes_from_server(server), first)


def list_nodes_closely(prometheus: Any, server: Any, now: int) -> NodeList:
    """The nodes from the server, else from Prometheus: the exact order, before a worker is given up."""
    first = nodes_from_server(server)
    return first if first.known else _with_problems(nodes_from_prometheus(prometheus, now), first)


def nodes_from_prometheus(prometheus: Any, now: int) -> NodeList:
    """The nodes that kube-state-metrics shows."""
    try:
        return NodeList(nodes=prometheus.nodes(now), source="prometheus")
    except (MetricsUnavailableError, *UNREACHABLE) as error:
        return _unknown(str(error))


def nodes_from_server(server: Any) -> NodeList:
    """The nodes that kubectl on the server lists; unknown when the answer does not hold every node."""
    return node_list_of(inspect_server(server))


def inspect_server(server: Any) -> Inspection:
    """What the server shows; not known when it cannot be reached."""
    try:
        inspection: Inspection = server.inspect()
    except UNREACHABLE as error:
        return Inspection(known=False, detail=str(error))
    return inspection


def node_list_of(inspection: Inspection) -> NodeList:
    """The nodes of an inspection; unknown when it does not hold every node."""
    if not inspection.known:
        return _unknown(inspection.detail)
    if not inspection.nodes or inspection.left_out:
        return _unknown(f"the server listed {len(inspection.nodes)} nodes and left out {inspection.left_out}")
    return NodeList(nodes=tuple(map(_node_reading, inspection.nodes)), source="server")


def list_pending(server: Any) -> PendingListing:
    """The pending pods with what they demand, as the API server shows them; not known when it cannot be reached."""
    try:
        listing: PendingListing = server.list_pending()
    except UNREACHABLE as error:
        return PendingListing(known=False, detail=str(error))
    return listing


def pending_pod_count(prometheus: Any, now: int) -> int | None:
    """Pods that the scheduler cannot place; None when Prometheus does not know."""
    try:
        shapes = prometheus.pending(now)
    except (MetricsUnavailableError, *UNREACHABLE):
        return None
    return None if shapes is None else sum(shape.count for shape in shapes)


def _unknown(problem: str) -> NodeList:
    return NodeList(nodes=None, source="none", problem=problem)


def _with_problems(second: NodeList, first: NodeList) -> NodeList:
    return second if second.known else _unknown(f"{first.problem}; {second.problem}")


def _node_reading(node: InspectedNode) -> NodeReading:
    return NodeReading(
        node_name=node.node_name,
        provider_id=f"aws:///{node.zone}/{node.instance_id}",
        address=node.address,
        ready=node.ready,
        unschedulable=node.cordoned,
        blocking_taints=("tainted",) if node.tainted else (),
    )
