"""CollectMetrics: one snapshot of EC2 and Prometheus for Decide. Changes nothing; what is missing stays missing."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from node_fleet.domain.model.errors import MetricsUnavailableError
from node_fleet.domain.model.fleet import assemble, refresh
from node_fleet.domain.model.snapshot import HourlyLoad, Snapshot
from node_fleet.domain.record import replace
from node_fleet.logs import log
from node_fleet.payload import put
from node_fleet.services import Wiring, wiring

LEAST_HOURLY_DAYS = 14


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Put `snapshot` into the payload; when Prometheus cannot be read, its `problem` says why in one sentence."""
    tools = wiring()
    now = tools.clock.now()
    snapshot = _snapshot(tools, now)
    if snapshot.source == "live" and _says_something(snapshot):
        tools.records.put_reading(snapshot)
    log("metrics", source=snapshot.source, problem=snapshot.problem, missing=snapshot.missing)
    return put(event, snapshot=snapshot)


def _snapshot(tools: Wiring, now: int) -> Snapshot:
    policy = tools.settings.policy()
    instances, notices = tools.ec2.instances(), tools.state.load().notices
    hourly = _hourly(tools, now)
    try:
        reading = tools.prometheus.read(now)
    except MetricsUnavailableError as error:
        cached = tools.records.latest_snapshot()
        if cached is not None and now - cached.read_at <= tools.settings.cached_reading_seconds:
            return refresh(cached, instances, notices, policy, now, problem=str(error), hourly=hourly)
        return assemble(instances, None, notices, policy, now, problem=str(error), hourly=hourly)
    return assemble(instances, reading, notices, policy, now, hourly=hourly)


def _says_something(snapshot: Snapshot) -> bool:
    """An answer in which every figure is missing must not take the place of the last good reading."""
    return any(value is not None for value in (snapshot.cpu_percent, snapshot.memory_percent, snapshot.pending))


def _hourly(tools: Wiring, now: int) -> tuple[HourlyLoad, ...]:
    """What prediction needs, fetched only at the minutes at which it is asked; rounded, as hundreds of rows travel."""
    settings = tools.settings
    minute = datetime.fromtimestamp(now, ZoneInfo(settings.timezone)).minute
    if not settings.predictive or minute < settings.predictive_minute:
        return ()
    days = max(LEAST_HOURLY_DAYS, settings.predictive_min_days + 1)
    return tuple(
        replace(hour, cpu_percent=round(hour.cpu_percent, 1), workers=round(hour.workers, 1))
        for hour in tools.records.hourly_loads(now - days * 86400, now)
    )
