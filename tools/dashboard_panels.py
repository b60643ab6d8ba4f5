"""Builds Grafana's JSON from a few typed parts: what a panel shows, where from, in which unit.

Plain data in, plain data out; which panels there are is dashboards.py's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Json = dict[str, Any]
PROMETHEUS: Json = {"type": "prometheus", "uid": "prometheus"}
CLOUDWATCH: Json = {"type": "cloudwatch", "uid": "cloudwatch"}
SCHEMA_VERSION = 39
COLUMNS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One PromQL query and the name of its series."""

    expression: str
    legend: str

    def target(self, reference: str) -> Json:
        return {
            "refId": reference,
            "datasource": PROMETHEUS,
            "expr": self.expression,
            "legendFormat": self.legend,
            "range": True,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One CloudWatch metric of this cluster; hidden ones only feed a Formula."""

    name: str
    legend: str
    statistic: str = "Sum"
    namespace: str = "NodeFleet"
    period_seconds: int = 300
    identifier: str = ""
    hidden: bool = False

    def target(self, reference: str) -> Json:
        return {
            "refId": reference,
            "datasource": CLOUDWATCH,
            "queryMode": "Metrics",
            "metricQueryType": 0,
            "metricEditorMode": 0,
            "region": "default",
            "namespace": self.namespace,
            "metricName": self.name,
            "dimensions": {"ClusterId": ["$cluster"]},
            "matchExact": True,
            "statistic": self.statistic,
            "period": str(self.period_seconds),
            "label": self.legend,
            "id": self.identifier or f"m{reference.lower()}",
            "hide": self.hidden,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """CloudWatch metric math or a SEARCH over metrics."""

    expression: str
    legend: str
    period_seconds: int = 300

    def target(self, reference: str) -> Json:
        return {
            "refId": reference,
            "datasource": CLOUDWATCH,
            "queryMode": "Metrics",
            "metricQueryType": 0,
            "metricEditorMode": 1,
            "region": "default",
            "expression": self.expression,
            "label": self.legend,
            "id": f"e{reference.lower()}",
            "period": str(self.period_seconds),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """A Logs Insights query over one log group. The identifier may be a name wherever Grafana asks for an ARN."""

    expression: str
    log_group: str

    def target(self, reference: str) -> Json:
        return {
            "refId": reference,
            "datasource": CLOUDWATCH,
            "queryMode": "Logs",
            "region": "default",
            "expression": self.expression,
            "logGroups": [{"arn": self.log_group, "name": self.log_group}],
            "id": "",
        }


Target = Query | Metric | Formula | LogQuery
Kind = Literal["timeseries", "stat", "heatmap", "table", "bars", "gauge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel. Colours are by series name, marks are where a value turns from green to red."""

    title: str
    description: str
    targets: tuple[Target, ...]
    kind: Kind = "timeseries"
    unit: str = "short"
    width: int = 12
    height: int = 8
    minimum: float | None = 0
    maximum: float | None = None
    marks: tuple[tuple[str, float], ...] = ()
    colours: tuple[tuple[str, str], ...] = ()

    def source(self) -> Json:
        return PROMETHEUS if isinstance(self.targets[0], Query) else CLOUDWATCH

    def to_json(self, number: int, x: int, y: int) -> Json:
        return {
            "id": number,
            "type": "timeseries" if self.kind == "bars" else self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": self.source(),
            "gridPos": {"h": self.height, "w": self.width, "x": x, "y": y},
            "fieldConfig": {"defaults": self._defaults(), "overrides": self._overrides()},
            "options": self._options(),
            "targets": [target.target(chr(ord("A") + n)) for n, target in enumerate(self.targets)],
        }

    def _defaults(self) -> Json:
        steps: list[Json] = [{"color": "green", "value": None}]
        steps += [{"color": colour, "value": value} for colour, value in self.marks]
        defaults: Json = {"unit": self.unit, "thresholds": {"mode": "absolute", "steps": steps}}
        if self.minimum is not None:
            defaults["min"] = self.minimum
        if self.maximum is not None:
            defaults["max"] = self.maximum
        if self.kind == "bars":
            defaults["custom"] = {"drawStyle": "bars", "fillOpacity": 80, "lineWidth": 0}
        elif self.kind == "timeseries":
            defaults["custom"] = {
                "lineWidth": 1,
                "fillOpacity": 10,
                "spanNulls": False,
                "thresholdsStyle": {"mode": "line" if self.marks else "off"},
            }
        return defaults

    def _overrides(self) -> list[Json]:
        return [
            {
                "matcher": {"id": "byName", "options": name},
                "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}],
            }
            for name, colour in self.colours
        ]

    def _options(self) -> Json:
        if self.kind == "heatmap":
            scale = {"mode": "scheme", "scheme": "Greens", "steps": 32}
            return {"calculate": False, "color": scale, "yAxis": {"unit": "short"}, "cellGap": 2}
        if self.kind in ("stat", "gauge"):
            return {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
        if self.kind == "table":
            return {"showHeader": True}
        return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}


def cluster_variable() -> Json:
    """Chooses the cluster among those that publish metrics."""
    return {
        "name": "cluster",
        "label": "Cluster",
        "type": "query",
        "datasource": CLOUDWATCH,
        "query": {
            "queryType": "dimensionValues",
            "region": "default",
            "namespace": "NodeFleet",
            "metricName": "CurrentNodeCount",
            "dimensionKey": "ClusterId",
        },
        "refresh": 1,
        "sort": 1,
    }


def text_variable(name: str, label: str, value: str) -> Json:
    """A value that the reader may type over."""
    return {
        "name": name,
        "label": label,
        "type": "textbox",
        "query": value,
        "current": {"text": value, "value": value},
    }


def dashboard(*, uid: str, title: str, description: str, panels: list[Panel], variables: list[Json]) -> Json:
    """A whole dashboard, panels laid out from left to right and top to bottom."""
    laid_out, x, y, row_height = [], 0, 0, 0
    for number, panel in enumerate(panels, start=1):
        if x + panel.width > COLUMNS:
            x, y, row_height = 0, y + row_height, 0
        laid_out.append(panel.to_json(number, x, y))
        x, row_height = x + panel.width, max(row_height, panel.height)
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["node-fleet"],
        "timezone": "browser",
        "schemaVersion": SCHEMA_VERSION,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": variables},
        "panels": laid_out,
    }
