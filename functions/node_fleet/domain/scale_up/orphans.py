"""Instances of ours that no record knows: counted like every other, reaped only when they certainly never joined.

Certain means: past the join limit, and kubectl on the server listed nodes without it on two runs in a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.snapshot import Worker
from node_fleet.domain.scale_up.join import NodeList


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanCheck:
    """What one look came to: whom to reap (at most one), whom to look at again, and why in one sentence."""

    reap: str
    suspects: dict[str, int]
    sentence: str


def check_orphans(
    candidates: Iterable[Worker], node_list: NodeList, suspects: Mapping[str, int], *, now: int, run_seconds: int
) -> OrphanCheck:
    """Compare the candidates with what kubectl on the server lists.

    suspects: instance id -> when a run last missed it. run_seconds: two runs in a row are at most that far apart.
    A node that is listed, in whatever state, is not missing; a list that cannot be believed changes nothing.
    """
    if node_list.source != "server" or not node_list.nodes:
        return OrphanCheck(
            reap="", suspects=dict(suspects), sentence=f"nobody is reaped: {node_list.problem or 'no node list'}"
        )
    listed = {node.instance_id for node in node_list.nodes} | {node.node_name for node in node_list.nodes}
    missing = [w.instance_id for w in candidates if w.instance_id not in listed]
    again = [i for i in missing if 0 < now - suspects.get(i, 0) <= run_seconds]
    kept = {i: now for i in missing if i not in again[:1]}
    if again:
        return OrphanCheck(reap=again[0], suspects=kept, sentence=f"{again[0]} never became a node: seen on two runs")
    text = (
        f"no node of {', '.join(missing)} yet; looked at again on the next run"
        if missing
        else "every candidate has a node"
    )
    return OrphanCheck(reap="", suspects=kept, sentence=text)


def orphan_alert(worker: Worker, now: int, *, kept: bool) -> Alert:
    """What a person should hear."""
    age_minutes = (now - worker.launched_at) // 60
    fate = "kept for inspection (KEEP_UNJOINED)" if kept else "terminated"
    text = f"{worker.instance_id} in {worker.zone} ran {age_minutes} minutes without ever joining the cluster: {fate}"
    return Alert(kind=f"join_failed:{worker.instance_id}", text=text)
