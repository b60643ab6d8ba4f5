"""A custom metric with its thresholds, and the metrics that come with node-fleet: each once, with name and PromQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from node_fleet.domain.model.value_class import value_class

BUILT_IN_PREFIX = "built-in:"
REQUEST_TRAFFIC = "request_traffic"


@value_class
class CustomMetric:
    """A value from Prometheus that takes part in decisions: above `high` for `readings` readings it adds a worker.

    No worker is removed while the value is `low` or more. when_absent: a metric without a finite value forbids a
    scale-down ("hold") or is left out ("ignore"). Below minimum_traffic (of traffic_query) the value neither adds a
    worker nor forbids a removal. query: PromQL, or "built-in:NAME".
    """

    name: str
    query: str
    high: float
    low: float
    readings: int = 2
    when_absent: Literal["ignore", "hold"] = "hold"
    traffic_query: str = ""
    minimum_traffic: float = 0.0
    unit: str = ""

    def has_low_traffic(self, traffic: float | None) -> bool:
        """True when the traffic is known and so low that the value means nothing."""
        return bool(self.traffic_query) and traffic is not None and traffic < self.minimum_traffic


@dataclass(frozen=True, slots=True)
class BuiltInMetric:
    """One row of BUILT_IN_METRICS. needs_traffic: the value means nothing below one request per second."""

    name: str
    high: float
    low: float
    unit: str
    promql: str
    needs_traffic: bool = False

    @property
    def metric(self) -> CustomMetric:
        """The custom metric with these default thresholds. It stays out of decisions while its series is absent."""
        return CustomMetric(
            name=self.name,
            query=BUILT_IN_PREFIX + self.name,
            high=self.high,
            low=self.low,
            when_absent="ignore",
            traffic_query=BUILT_IN_PREFIX + REQUEST_TRAFFIC if self.needs_traffic else "",
            minimum_traffic=1 if self.needs_traffic else 0.0,
            unit=self.unit,
        )


_APPLICATION = 'job!~"node-exporter|kube-state-metrics|alertmanager"'
"""Every job but those of node-fleet's own targets: the exporter of a worker cannot state the load of an application."""


def _latency(quantile: float) -> str:
    buckets = f"sum by (le) (rate(http_request_duration_seconds_bucket{{{_APPLICATION}}}[5m]))"
    return f"1000 * histogram_quantile({quantile}, {buckets})"


_TRAFFIC = f"sum(rate(http_requests_total{{{_APPLICATION}}}[2m]))"
_ERRORS = f'sum(rate(http_requests_total{{{_APPLICATION},status=~"5.."}}[2m]))'
BUILT_IN_METRICS: tuple[BuiltInMetric, ...] = (
    # The longest queue of the demo application: every replica reports the same value.
    BuiltInMetric("queue_depth", 1000, 100, "jobs", f'max(app_queue_depth{{{_APPLICATION},queue="default"}})'),
    # The latency below which 95 and 99 of 100 requests stay. Without requests the answer is empty or NaN.
    BuiltInMetric("latency_p95", 2000, 500, "ms", _latency(0.95), needs_traffic=True),
    BuiltInMetric("latency_p99", 4000, 1000, "ms", _latency(0.99), needs_traffic=True),
    BuiltInMetric("request_rate", 5000, 2500, "requests/s", f"sum(rate(http_requests_total{{{_APPLICATION}}}[5m]))"),
    # The share of answers with a 5xx status. Without requests the answer is empty or NaN.
    BuiltInMetric("error_rate", 5, 1, "%", f"100 * ({_ERRORS} or 0 * {_TRAFFIC}) / {_TRAFFIC}", needs_traffic=True),
)
BUILT_IN: tuple[CustomMetric, ...] = tuple(row.metric for row in BUILT_IN_METRICS)
BUILT_IN_PROMQL: dict[str, str] = {row.name: row.promql for row in BUILT_IN_METRICS} | {REQUEST_TRAFFIC: _TRAFFIC}
"""PromQL by the name after "built-in:". An empty answer means that no application exports the series."""


def built_in(name: str, **changes: Any) -> CustomMetric:
    """The built-in metric of that name with other thresholds."""
    return replace(next(metric for metric in BUILT_IN if metric.name == name), **changes)


def built_in_name(query: str) -> str:
    """The name after "built-in:"; empty when the query is PromQL."""
    return query.removeprefix(BUILT_IN_PREFIX) if query.startswith(BUILT_IN_PREFIX) else ""


def with_built_in_defaults(entry: Any) -> Any:
    """A configured metric's fields; what an entry with a built-in name leaves out comes from that built-in metric."""
    known = next((m for m in BUILT_IN if isinstance(entry, Mapping) and m.name == entry.get("name")), None)
    return {**asdict(known), **entry} if known else entry
