"""Grafana's dashboards as the asset that the server fetches, with the thresholds of the cluster's settings as marks."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from node_fleet.settings import Settings

MARK = re.compile(r'"value": "(\w+_percent)"')
"""A mark of a panel that names a setting in place of its number."""


def dashboards_asset(scope: Construct, source: Path, settings: Settings) -> s3_assets.Asset:
    """The dashboards of that folder. The CDK copies what is in the asset when it is made."""
    with tempfile.TemporaryDirectory() as folder:
        for file in sorted(source.glob("*.json")):
            Path(folder, file.name).write_text(marked(file.read_text(encoding="utf-8"), settings), encoding="utf-8")
        return s3_assets.Asset(scope, "Dashboards", path=folder)


def marked(text: str, settings: Settings) -> str:
    """The dashboard with the numbers of its marks."""
    return MARK.sub(lambda mark: f'"value": {getattr(settings, mark[1]):g}', text)
