"""Builds the JSON of Grafana dashboards, panels and queries. The panels themselves are listed in dashboards.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Json = dict[str, Any]
PROMETHEUS: Json = {"type": "prometheus", "uid": "prometheus"}
CLOUDWATCH: Json = {"type": "cloudwatch", "uid": "cloudwatch"}
METRIC_QUERY: Json = {"datasource": CLOUDWATCH, "queryMode": "Metrics", "metricQueryType": 0, "region": "default"}
SCHEMA_VERSION = 39
COLUMNS = 24


def query(expression: str, legend: str) -> Json:
    """One PromQL query and the name of its series."""
    return {"datasource": PROMETHEUS, "expr": expression, "legendFormat": legend, "range": True}


def annotation(name: str, expression: str, text: str, colour: str) -> Json:
    """Marks the minutes for which the expression has a value; text may name its labels ({{node}})."""
    return {
        "name": name,
        "datasource": PROMETHEUS,
        "enable": True,
        "iconColor": colour,
        "expr": expression,
        "step": "60s",
        "titleFormat": name,
        "textFormat": text,
    }


def metric(
    name: str,
    legend: str,
    *,
    statistic: str = "Sum",
    period_seconds: int = 300,
    identifier: str = "",
    hidden: bool = False,
) -> Json:
    """One CloudWatch metric of the chosen cluster; a hidden metric is only the input of a formula."""
    return {
        **METRIC_QUERY,
        "metricEditorMode": 0,
        "namespace": "NodeFleet",
        "metricName": name,
        "dimensions": {"ClusterId": ["$cluster"]},
        "matchExact": True,
        "statistic": statistic,
        "period": str(period_seconds),
        "label": legend,
        "id": identifier or "m{letter}",
        "hide": hidden,
    }


def formula(expression: str, legend: str, *, period_seconds: int = 300) -> Json:
    """CloudWatch metric math, or a SEARCH over metrics."""
    return {
        **METRIC_QUERY,
        "metricEditorMode": 1,
        "expression": expression,
        "label": legend,
        "id": "e{letter}",
        "period": str(period_seconds),
    }


def log_query(expression: str, log_group: str) -> Json:
    """A Logs Insights query over one log group. Grafana accepts its name in place of the ARN."""
    return {
        "datasource": CLOUDWATCH,
        "queryMode": "Logs",
        "region": "default",
        "expression": expression,
        "logGroups": [{"arn": log_group, "name": log_group}],
        "id": "",
    }


Kind = Literal["timeseries", "stat", "heatmap", "table", "bars", "gauge"]


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. Colours are by series name; marks are the values, or the settings, above which it changes.

    unit: its id in Grafana. limits: names of series that are drawn as dashed lines.
    """

    title: str
    description: str
    targets: tuple[Json, ...]
    unit: str
    kind: Kind = "timeseries"
    width: int = 12
    height: int = 8
    minimum: float | None = 0
    maximum: float | None = None
    marks: tuple[tuple[str, float | str], ...] = ()
    colours: tuple[tuple[str, str], ...] = ()
    limits: tuple[str, ...] = ()

    def to_json(self, number: int, x: int, y: int) -> Json:
        return {
            "id": number,
            "type": "timeseries" if self.kind == "bars" else self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": self.targets[0]["datasource"],
            "gridPos": {"h": self.height, "w": self.width, "x": x, "y": y},
            "fieldConfig": {"defaults": self._defaults(), "overrides": self._overrides()},
            "options": self._options(),
            "targets": [_with_reference(target, chr(ord("A") + n)) for n, target in enumerate(self.targets)],
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
        found: dict[str, list[Json]] = {name: [] for name, _ in self.colours}
        for name, colour in self.colours:
            found[name].append({"id": "color", "value": {"mode": "fixed", "fixedColor": colour}})
        for name in self.limits:
            dashed = {"fill": "dash", "dash": [10, 10]}
            found.setdefault(name, []).extend(
                [{"id": "custom.lineStyle", "value": dashed}, {"id": "custom.fillOpacity", "value": 0}]
            )
        return [
            {"matcher": {"id": "byName", "options": name}, "properties": properties}
            for name, properties in found.items()
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


def _with_reference(target: Json, reference: str) -> Json:
    """The target under its letter, which is also part of its id."""
    identified = {"id": target["id"].format(letter=reference.lower())} if "id" in target else {}
    return {"refId": reference, **target, **identified}


def cluster_variable() -> Json:
    """A selection of the clusters that publish metrics."""
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
    """A value that the reader can change."""
    return {"name": name, "label": label, "type": "textbox", "query": value, "current": {"text": value, "value": value}}


def dashboard(
    *,
    uid: str,
    title: str,
    description: str,
    panels: list[Panel],
    variables: list[Json],
    annotations: tuple[Json, ...] = (),
) -> Json:
    """A dashboard with its panels placed from left to right and from top to bottom."""
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
        "annotations": {"list": list(annotations)},
        "panels": laid_out,
    }
