"""The rows of the CloudWatch dashboard: alarms, fleet and load, cost, scaling and executions."""

from __future__ import annotations

from collections.abc import Mapping

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_stepfunctions as sfn

from cdk_app.config import ClusterConfig

NAMESPACE = "NodeFleet"
THIRD = 8
HALF = 12
FULL = 24


def rows(
    config: ClusterConfig, machines: Mapping[str, sfn.StateMachine], alarms: list[cloudwatch.Alarm]
) -> list[list[cloudwatch.IWidget]]:
    """Widgets, row by row."""
    settings = config.settings
    fleet_lines = {"fewest": settings.min_workers, "most": settings.max_workers}
    return [
        [cloudwatch.AlarmStatusWidget(title=f"{config.cluster_id}: alarms", alarms=list(alarms), width=FULL, height=3)],
        [
            _graph(config, "Workers", ["CurrentNodeCount"], HALF, lines=fleet_lines, statistic="Maximum"),
            _graph(config, "Unschedulable pods", ["PendingPods"], HALF, statistic="Maximum"),
        ],
        [
            _graph(
                config,
                "Load, percent",
                ["CpuPercent", "MemoryPercent"],
                HALF,
                lines={"CPU up": settings.cpu_up_percent, "CPU down": settings.cpu_down_percent},
                statistic="Average",
            ),
            _graph(config, "Cost, USD per hour", ["EstimatedHourlyCost"], HALF, statistic="Average"),
        ],
        [
            _graph(config, "Scaling", ["ScaleUpEvents", "ScaleDownEvents", "ScalingFailures"], THIRD, statistic="Sum"),
            _graph(config, "Join and drain, seconds", ["NodeJoinSeconds", "DrainSeconds"], THIRD, statistic="Maximum"),
            _executions(machines),
        ],
    ]


def _graph(
    config: ClusterConfig,
    title: str,
    names: list[str],
    width: int,
    *,
    statistic: str,
    lines: Mapping[str, float] | None = None,
) -> cloudwatch.IWidget:
    metrics = [
        cloudwatch.Metric(
            namespace=NAMESPACE,
            metric_name=name,
            dimensions_map={"ClusterId": config.cluster_id},
            statistic=statistic,
            period=cdk.Duration.minutes(5),
        )
        for name in names
    ]
    marks = [cloudwatch.HorizontalAnnotation(label=label, value=value) for label, value in (lines or {}).items()]
    return cloudwatch.GraphWidget(title=title, left=list(metrics), left_annotations=marks, width=width)


def _executions(machines: Mapping[str, sfn.StateMachine]) -> cloudwatch.IWidget:
    metrics: list[cloudwatch.IMetric] = []
    for name, machine in machines.items():
        metrics += [
            machine.metric_succeeded(label=f"{name}: succeeded"),
            machine.metric_failed(label=f"{name}: failed"),
            machine.metric_timed_out(label=f"{name}: timed out"),
        ]
    return cloudwatch.GraphWidget(title="Executions", left=metrics, width=THIRD)
