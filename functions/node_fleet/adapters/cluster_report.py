"""Has the server write what kubectl shows of a run, without waiting. A failure is logged and changes nothing."""

from __future__ import annotations

from typing import Any

from node_fleet.adapters.node_listing import UNREACHABLE
from node_fleet.domain.notify.cluster_report import ClusterReport
from node_fleet.logs import logger


def send_report(server: Any, report: ClusterReport) -> None:
    """Start the command RecordEvents on the server."""
    try:
        server.send("RecordEvents", {"Report": report.packed})
    except UNREACHABLE as error:
        logger.warning("no Events were written; the run goes on", problem=str(error))
