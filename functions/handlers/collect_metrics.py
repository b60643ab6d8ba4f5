"""CollectMetrics: one snapshot of EC2 and Prometheus for Decide. Missing values stay missing; nothing is changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from node_fleet.domain.model.assembly import assemble, refresh
from node_fleet.domain.model.errors import MetricsUnavailableError
from node_fleet.domain.model.snapshot import HourlyLoad, Snapshot
from node_fleet.domain.scaling.prediction import is_prediction_due
from node_fleet.logs import logger
from node_fleet.payload import put
from node_fleet.services import Services, load_services

LEAST_HOURLY_DAYS = 14


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Put `snapshot` into the payload. When Prometheus cannot be read, its `problem` holds the reason as a sentence."""
    services = load_services()
    now = services.clock.now()
    snapshot = _snapshot(services, now)
    if snapshot.source == "live" and _has_values(snapshot):
        services.records.put_reading(snapshot)
    logger.info("metrics", source=snapshot.source, problem=snapshot.problem, missing=snapshot.missing)
    return put(event, snapshot=snapshot)


def _snapshot(services: Services, now: int) -> Snapshot:
    policy = services.settings.policy()
    instances, notices = services.ec2.instances(), services.state.load().notices
    hourly = _hourly(services, now)
    try:
        reading = services.prometheus.read(now)
    except MetricsUnavailableError as error:
        cached = services.records.latest_snapshot()
        if cached is not None and now - cached.read_at <= services.settings.cached_reading_seconds:
            return refresh(cached, instances, notices, policy, now, problem=str(error), hourly=hourly)
        return assemble(instances, None, notices, policy, now, problem=str(error), hourly=hourly)
    return assemble(instances, reading, notices, policy, now, hourly=hourly)


def _has_values(snapshot: Snapshot) -> bool:
    """Whether any value was read: a reading without values must not replace the last good one in the records."""
    return any(value is not None for value in (snapshot.cpu_percent, snapshot.memory_percent, snapshot.pending))


def _hourly(services: Services, now: int) -> tuple[HourlyLoad, ...]:
    """The history for a prediction, read only in the minutes that predict; rounded to keep the payload small."""
    settings = services.settings
    if not is_prediction_due(now, settings.policy()):
        return ()
    days = max(LEAST_HOURLY_DAYS, settings.predictive_min_days + 1)
    return tuple(
        replace(hour, cpu_percent=round(hour.cpu_percent, 1), workers=round(hour.workers, 1))
        for hour in services.records.hourly_loads(now - days * 86400, now)
    )
