"""Log lines and metrics of the functions, through Powertools: one line for each decision, never a secret."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

NAMESPACE = "NodeFleet"
UNITS: dict[str, MetricUnit] = {
    "CpuPercent": MetricUnit.Percent,
    "MemoryPercent": MetricUnit.Percent,
    "PendingPods": MetricUnit.Count,
    "CurrentNodeCount": MetricUnit.Count,
    "ScaleUpEvents": MetricUnit.Count,
    "ScaleDownEvents": MetricUnit.Count,
    "ScalingFailures": MetricUnit.Count,
    "NodeJoinSeconds": MetricUnit.Seconds,
    "DrainSeconds": MetricUnit.Seconds,
    "EstimatedHourlyCost": MetricUnit.NoUnit,
}


class _StdoutHandler(logging.Handler):
    """Prints each line to the standard output of the moment: the simulator gives each invocation its own."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line."""
        print(self.format(record), flush=True)


logger = Logger(service="node-fleet", level=logging.INFO, logger_handler=_StdoutHandler())


def write_metrics(cluster_id: str, values: Mapping[str, float | None]) -> None:
    """Write one CloudWatch embedded-metric line. Missing values are left out, never written as 0."""
    metrics = EphemeralMetrics(namespace=NAMESPACE)
    metrics.add_dimension(name="ClusterId", value=cluster_id)
    for name, value in values.items():
        if value is not None:
            metrics.add_metric(name=name, unit=UNITS[name], value=value)
    metrics.flush_metrics()
