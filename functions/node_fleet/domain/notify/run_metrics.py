"""The metrics of one run, from what its states left in the payload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from node_fleet.domain.model.snapshot import Snapshot


def run_metrics(
    event: Mapping[str, Any], snapshot: Snapshot | None, usd_per_hour: float | None
) -> dict[str, float | None]:
    """Metric name -> value; None where the run has no such figure. Percent, counts, seconds and USD per hour."""
    kind = (event.get("outcome") or {}).get("kind", "")
    return {
        "CpuPercent": snapshot.cpu_percent if snapshot else None,
        "MemoryPercent": snapshot.memory_percent if snapshot else None,
        "PendingPods": snapshot.pending_count if snapshot else None,
        "CurrentNodeCount": event.get("node_count"),
        "ScaleUpEvents": float(kind == "scaled_up"),
        "ScaleDownEvents": float(kind == "scaled_down"),
        "ScalingFailures": float("failure" in event),
        "NodeJoinSeconds": event.get("join", {}).get("seconds"),
        "DrainSeconds": event.get("drain", {}).get("seconds"),
        "EstimatedHourlyCost": usd_per_hour,
    }
