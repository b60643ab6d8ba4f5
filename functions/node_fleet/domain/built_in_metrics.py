"""Custom metrics that come with the product. They stay out of every decision until their series exist.

Marks are those of the documents the presets follow; a setting may give any of them other marks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from node_fleet.domain.policy import CustomMetric

# Jobs waiting in the application's queue: a count; empty when no application reports one.
_QUEUE = 'sum(max by (queue) (app_queue_depth{queue="default"}))'
# Time within which 95 (99) of 100 requests are answered: ms; NaN without requests, empty without the series.
_P95 = "1000 * histogram_quantile(0.95, sum by (le) (rate(http_request_duration_seconds_bucket[5m])))"
_P99 = "1000 * histogram_quantile(0.99, sum by (le) (rate(http_request_duration_seconds_bucket[5m])))"
# Requests per second over all replicas; empty without the series.
_RATE = "sum(rate(http_requests_total[2m]))"
# Share of requests answered 5xx: percent; NaN without requests, 0 when the series exist and none is 5xx.
_ERRORS = (
    '100 * (sum(rate(http_requests_total{status=~"5.."}[2m])) or 0 * sum(rate(http_requests_total[2m])))'
    " / sum(rate(http_requests_total[2m]))"
)

BUILT_IN: tuple[CustomMetric, ...] = (
    CustomMetric(name="queue_depth", query=_QUEUE, high=1000, low=100, unit="jobs"),
    CustomMetric(name="latency_p95", query=_P95, high=2000, low=500, unit="ms", traffic_query=_RATE, minimum_traffic=1),
    CustomMetric(
        name="latency_p99", query=_P99, high=4000, low=1000, unit="ms", traffic_query=_RATE, minimum_traffic=1
    ),
    CustomMetric(name="request_rate", query=_RATE, high=5000, low=2500, unit="requests/s"),
    CustomMetric(name="error_rate", query=_ERRORS, high=5, low=1, unit="%", traffic_query=_RATE, minimum_traffic=1),
)


def built_in(name: str, **changes: Any) -> CustomMetric:
    """The built-in metric of that name with some of its marks changed."""
    return replace(next(m for m in BUILT_IN if m.name == name), **changes)


def completed(entry: Any) -> Any:
    """A configured metric's fields; one that names a built-in metric keeps what it does not say itself."""
    if not isinstance(entry, Mapping):
        return entry
    known = next((m for m in BUILT_IN if m.name == entry.get("name")), None)
    if known is None:
        return entry
    fields = ("name", "query", "high", "low", "readings", "when_absent", "traffic_query", "minimum_traffic", "unit")
    return {**{name: getattr(known, name) for name in fields}, **entry}
