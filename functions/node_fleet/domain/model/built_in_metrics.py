"""Custom metrics that come with the product. They stay out of every decision until their series exist.

Marks are those of the documents the presets follow; a setting may give any of them other marks. The query texts stand
with all the others in adapters/prometheus/queries.py and are named here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from node_fleet.domain.model.policy import CustomMetric

_TRAFFIC = "built-in:request_traffic"

BUILT_IN: tuple[CustomMetric, ...] = (
    CustomMetric(name="queue_depth", query="built-in:queue_depth", high=1000, low=100, unit="jobs"),
    CustomMetric(
        name="latency_p95",
        query="built-in:latency_p95",
        high=2000,
        low=500,
        unit="ms",
        traffic_query=_TRAFFIC,
        minimum_traffic=1,
    ),
    CustomMetric(
        name="latency_p99",
        query="built-in:latency_p99",
        high=4000,
        low=1000,
        unit="ms",
        traffic_query=_TRAFFIC,
        minimum_traffic=1,
    ),
    CustomMetric(name="request_rate", query="built-in:request_rate", high=5000, low=2500, unit="requests/s"),
    CustomMetric(
        name="error_rate",
        query="built-in:error_rate",
        high=5,
        low=1,
        unit="%",
        traffic_query=_TRAFFIC,
        minimum_traffic=1,
    ),
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
