"""Structured log lines and the metrics line: one for each decision, never a secret, never a whole environment."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

NAMESPACE = "NodeFleet"
UNITS: dict[str, str] = {
    "CpuPercent": "Percent",
    "MemoryPercent": "Percent",
    "PendingPods": "Count",
    "CurrentNodeCount": "Count",
    "ScaleUpEvents": "Count",
    "ScaleDownEvents": "Count",
    "ScalingFailures": "Count",
    "NodeJoinSeconds": "Seconds",
    "DrainSeconds": "Seconds",
    "EstimatedHourlyCost": "None",
}


def log(message: str, **fields: Any) -> None:
    """Write one JSON line; CloudWatch Logs indexes its fields."""
    _write({"level": "INFO", "message": message, **fields})


def metrics_line(cluster_id: str, values: Mapping[str, float | None], *, at_seconds: int) -> None:
    """Write one CloudWatch embedded-metric line. Missing values are left out, never written as 0.

    Source of the form: CloudWatch embedded metric format specification, `_aws.CloudWatchMetrics`.
    """
    present = {name: value for name, value in values.items() if value is not None}
    names = [{"Name": name, "Unit": UNITS[name]} for name in present]
    directive = {"Namespace": NAMESPACE, "Dimensions": [["ClusterId"]], "Metrics": names}
    _write(
        {"_aws": {"Timestamp": at_seconds * 1000, "CloudWatchMetrics": [directive]}, "ClusterId": cluster_id, **present}
    )


def _write(record: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(record, default=str) + "\n")
