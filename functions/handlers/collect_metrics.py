"""CollectMetrics: one snapshot of EC2 and Prometheus for Decide. Missing values stay missing; nothing is changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from node_fleet.adapters.node_listing import list_pending, nodes_from_server
from node_fleet.domain.fit.listing import with_listing
from node_fleet.domain.model.assembly import assemble, refresh, with_set_aside
from node_fleet.domain.model.errors import MetricsUnavailableError
from node_fleet.domain.model.fleet_state import Notice
from node_fleet.domain.model.snapshot import HourlyLoad, Instance, Snapshot
from node_fleet.domain.scale_up.launch import with_promised
from node_fleet.domain.scale_up.orphans import describe_stale_exporter
from node_fleet.domain.scaling.prediction import is_prediction_due
from node_fleet.logs import logger
from node_fleet.payload import known, put
from node_fleet.services import Services, load_services

LEAST_HOURLY_DAYS = 14


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Put `snapshot` into the payload. Its `problem` says in a sentence why Prometheus cannot be used."""
    services = load_services()
    now = services.clock.now()
    snapshot = _snapshot(services, event, now)
    if snapshot.source == "live" and snapshot.has_values:
        services.records.put_reading(snapshot)
    logger.info("metrics", source=snapshot.source, problem=snapshot.problem, missing=snapshot.missing)
    return put(event, snapshot=snapshot)


def _snapshot(services: Services, event: dict[str, Any], now: int) -> Snapshot:
    listed, state = services.ec2.instances(), services.state.load()
    snapshot = _read(services, event, with_promised(listed, state, now), state.due_notices, now)
    return with_set_aside(snapshot, state.set_aside)


def _read(
    services: Services, event: dict[str, Any], instances: tuple[Instance, ...], notices: tuple[Notice, ...], now: int
) -> Snapshot:
    policy = services.settings.policy()
    hourly = _hourly(services, now)
    try:
        reading = services.prometheus.read(now)
    except MetricsUnavailableError as error:
        if cached := _last_live(services, event, now - services.settings.cached_reading_seconds):
            return refresh(cached, instances, notices, policy, now, problem=str(error), hourly=hourly)
        return assemble(instances, None, notices, policy, now, problem=str(error), hourly=hourly)
    snapshot = assemble(instances, reading, notices, policy, now, hourly=hourly)
    if problem := _stale_exporter(services, snapshot):
        reading = replace(reading, nodes=(), pending=None, missing=(*reading.missing, "nodes", "pending"))
        return assemble(instances, reading, notices, policy, now, problem=problem, hourly=hourly)
    if not snapshot.pending:  # a quiet tick asks nothing more
        return snapshot
    return with_listing(snapshot, list_pending(services.server))


def _stale_exporter(services: Services, snapshot: Snapshot) -> str:
    """Why nodes and pods of the reading cannot be used; asks the server only when a worker lacks a node for long."""
    without_node = snapshot.without_node
    return describe_stale_exporter(without_node, nodes_from_server(services.server)) if without_node else ""


def _last_live(services: Services, event: dict[str, Any], since: int) -> Snapshot | None:
    """The live snapshot of the round before, which no record holds yet; else that of an earlier run."""
    before: Snapshot | None = known(event, "snapshot", Snapshot)
    if before is not None and before.source == "live" and before.has_values and before.read_at >= since:
        return before
    return services.records.latest_snapshot(since)


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
