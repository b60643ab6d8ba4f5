"""When EC2 is asked for its status checks, and the workers that fail one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.snapshot import Snapshot, Worker

STATUS_SECONDS = 600
"""How often EC2 is asked while nothing is suspicious."""


def is_status_due(memory: Memory, now: int, interval_seconds: int) -> bool:
    """Every ten minutes, and in each tick while a worker is repaired, because its removal needs the reason again."""
    current = memory.roll_out.current
    return now % STATUS_SECONDS < interval_seconds or (current is not None and current.reason == "unhealthy")


def with_status_checks(snapshot: Snapshot, impaired: Mapping[str, str]) -> Snapshot:
    """The snapshot in which these instances have a failed status check. impaired: instance id -> the condition."""

    def checked(worker: Worker) -> Worker:
        if worker.instance_id not in impaired:
            return worker
        return replace(worker, conditions=(*worker.conditions, impaired[worker.instance_id]))

    return replace(snapshot, workers=tuple(checked(w) for w in snapshot.workers))
