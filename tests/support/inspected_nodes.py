"""Inspected nodes and their machines: workers that may be removed, changed by what a test is about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from node_fleet.domain.model.snapshot import Instance
from node_fleet.domain.scale_down.inspection import InspectedNode


def inspected_node(instance_id: str, **changed: Any) -> InspectedNode:
    plain = InspectedNode(
        instance_id=instance_id,
        node_name=instance_id,
        zone="a",
        ready=True,
        cordoned=False,
        server=False,
        needs_force=False,
        tainted=False,
        worker=True,
        age_seconds=900,
        pods_to_move=2,
        daemon_pods=1,
        mirror_pods=0,
        finished_pods=0,
        cpu_requested_milli=500,
        cpu_allocatable_milli=2000,
        memory_requested_mib=400,
        memory_allocatable_mib=1900,
        pods_allocatable=110,
    )
    return replace(plain, **changed)


def machine(instance_id: str, **changed: Any) -> Instance:
    usual = {"zone": "a", "instance_type": "t3.small", "market": "spot", "state": "running", "launched_at": 0}
    return Instance(instance_id=instance_id, **{**usual, **changed})
