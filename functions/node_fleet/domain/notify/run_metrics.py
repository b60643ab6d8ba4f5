"""The metrics of one run, from what its states left in the payload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def run_metrics(event: Mapping[str, Any], usd_per_hour: float | None) -> dict[str, float | None]:
    """Metric name -> value; None where the run has no such figure. Percent, counts, seconds and USD per hour."""
    snapshot = event.get("snapshot") or {}
    kind = (event.get("outcome") or {}).get("kind", "")
    return {
        "CpuPercent": snapshot.get("cpu_percent"),
        "MemoryPercent": snapshot.get("memory_percent"),
        "PendingPods": _pending(snapshot),
        "CurrentNodeCount": event.get("node_count"),
        "ScaleUpEvents": float(kind == "scaled_up"),
        "ScaleDownEvents": float(kind == "scaled_down"),
        "ScalingFailures": float("failure" in event),
        "NodeJoinSeconds": event.get("join", {}).get("seconds"),
        "DrainSeconds": event.get("drain", {}).get("seconds"),
        "EstimatedHourlyCost": usd_per_hour,
    }


def _pending(snapshot: Mapping[str, Any]) -> float | None:
    shapes = snapshot.get("pending")
    if shapes is None:
        return None
    if isinstance(shapes, Mapping):
        index = shapes["columns"].index("count")
        return float(sum(row[index] for row in shapes["rows"]))
    return float(sum(shape["count"] for shape in shapes))
