"""Grafana's dashboards of one cluster: the files of the repository with the limits of its fleet."""

from __future__ import annotations

import json
from pathlib import Path

from node_fleet.settings import Settings


def write_dashboards(source: Path, target: Path, settings: Settings) -> None:
    """Copy every dashboard; its fields `minimum` and `maximum` get the values of the cluster."""
    values = {"minimum": str(settings.min_workers), "maximum": str(settings.max_workers)}
    for file in sorted(source.glob("*.json")):
        dashboard = json.loads(file.read_text(encoding="utf-8"))
        for variable in dashboard["templating"]["list"]:
            if value := values.get(variable["name"]):
                variable |= {"query": value, "current": {"text": value, "value": value}}
        text = json.dumps(dashboard, indent=2, ensure_ascii=False) + "\n"
        (target / file.name).write_text(text, encoding="utf-8")
