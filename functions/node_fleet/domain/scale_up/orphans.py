"""Orphan instances: instances of the fleet that no operation knows. They count as workers like every other.

One is terminated only when it certainly never joined: it is past the join limit, and two runs in a row got a node list
from the server in which it is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.snapshot import Worker
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.scale_up.join import NodeList, unjoined_action


@value_class
class OrphanCheck:
    """The result of one check: the instance to terminate (at most one), the suspects for the next run, and why."""

    terminate: str
    suspects: dict[str, int]
    sentence: str


def check_orphans(
    candidates: Iterable[Worker], node_list: NodeList, suspects: Mapping[str, int], *, now: int, run_seconds: int
) -> OrphanCheck:
    """Compare the candidates with the nodes that kubectl on the server lists.

    suspects: instance id -> when a run last found no node for it. run_seconds: two runs in a row are at most that far
    apart. A listed node is not missing, in whatever state it is; without a list nothing changes.
    """
    if node_list.source != "server" or not node_list.nodes:
        why = node_list.problem or "no node list"
        return OrphanCheck(terminate="", suspects=dict(suspects), sentence=f"no instance is terminated: {why}")
    listed = {node.instance_id for node in node_list.nodes} | {node.node_name for node in node_list.nodes}
    missing = [w.instance_id for w in candidates if w.instance_id not in listed]
    confirmed = [i for i in missing if 0 < now - suspects.get(i, 0) <= run_seconds][:1]
    sentence = "every candidate has a node"
    if confirmed:
        sentence = f"{confirmed[0]} never became a node: two runs in a row found none"
    elif missing:
        sentence = f"no node of {', '.join(missing)} yet; the next run checks again"
    kept = {i: now for i in missing if i not in confirmed}
    return OrphanCheck(terminate="".join(confirmed), suspects=kept, sentence=sentence)


def describe_stale_exporter(without_node: Iterable[Worker], node_list: NodeList) -> str:
    """Why kube-state-metrics is stale; empty when the server gives no proof.

    without_node: workers past the join limit for which kube-state-metrics shows no node at all. A Ready node of one of
    them in the API server is the proof.
    """
    if node_list.source != "server":
        return ""
    ready = {node.instance_id for node in node_list.nodes or () if node.ready}
    shown = [worker.instance_id for worker in without_node if worker.instance_id in ready]
    if not shown:
        return ""
    return (
        f"kube-state-metrics is stale: the API server shows node {shown[0]} Ready and kube-state-metrics does not "
        "show it, so its figures of nodes and pods are not used. Restart it on the server: sudo /usr/local/bin/k3s "
        "kubectl -n monitoring rollout restart deployment kube-state-metrics"
    )


def orphan_alert(worker: Worker, now: int, *, kept: bool) -> Alert:
    """The alert of an orphan instance that never joined."""
    minutes = (now - worker.launched_at) // 60
    instance = f"{worker.instance_id} in {worker.zone}"
    text = f"{instance} ran for {minutes} min and never joined the cluster: {unjoined_action(kept)}"
    return Alert(kind=f"join_failed:{worker.instance_id}", text=text)
