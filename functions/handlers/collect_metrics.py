"""CollectMetrics: one snapshot of EC2 and Prometheus for Decide. Missing values stay missing; nothing is changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from node_fleet.adapters.launcher import launch_facts
from node_fleet.adapters.node_listing import list_pending, nodes_from_server
from node_fleet.domain.disruption.drift import is_image_due, with_drift, with_standby_workers
from node_fleet.domain.fit.listing import with_listing
from node_fleet.domain.model.assembly import assemble, refresh, with_set_aside
from node_fleet.domain.model.errors import Ec2Error, MetricsUnavailableError
from node_fleet.domain.model.fleet_state import Notice
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.snapshot import HourlyLoad, Instance, LaunchImage, Snapshot
from node_fleet.domain.model.timed_minimum import minimum_in_force
from node_fleet.domain.scale_up.join import console_end
from node_fleet.domain.scale_up.launch import fleet_weight, with_promised
from node_fleet.domain.scale_up.orphans import describe_stale_exporter
from node_fleet.domain.scaling.launch_version import launch_hold, with_server_version
from node_fleet.domain.scaling.prediction import is_prediction_due
from node_fleet.domain.scaling.roll_out import lost_replacement
from node_fleet.domain.scaling.unhealthy import is_status_due, with_status_checks
from node_fleet.logs import logger
from node_fleet.payload import known, put, take
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
    (listed, standby), state = services.ec2.with_standby(), services.state.load(with_memory="memory" not in event)
    snapshot = _read(services, event, with_promised(listed, state, now), state.due_notices, now)
    memory, configured = take(event, "memory", Memory, default=state.memory), services.settings.launch_template_version
    roll_out, k3s_version = with_server_version(memory.roll_out, snapshot), services.settings.k3s_version
    version = roll_out.launch_version(configured, k3s_version)
    image = _launch_image(services, memory.launch_image, version, now)
    template_id = services.settings.launch_template_id
    snapshot = replace(
        with_set_aside(snapshot, state.set_aside),
        launch_image=image,
        timed_minimum=minimum_in_force(state.timed_minimums, now),
        launch_hold=launch_hold(roll_out, configured, k3s_version),
        template_id=template_id,
        template_version=configured if template_id else "",
    )
    if limits := services.settings.limits():
        snapshot = replace(snapshot, limits=limits.uses(fleet_weight(listed, state, limits, now)))
    if services.settings.repair and is_status_due(memory, now, services.settings.interval_seconds):
        snapshot = with_status_checks(snapshot, _impaired(services, now))
    if lost := lost_replacement(snapshot, memory.roll_out.current):
        snapshot = replace(snapshot, console=_console(services, lost))
    today = launch_facts(services.settings, image, version)
    return with_standby_workers(with_drift(snapshot, listed, today), standby, today, services.settings.policy())


def _console(services: Services, instance_id: str) -> str:
    """The end of the console output; why it is unknown when EC2 refuses to say."""
    try:
        return console_end(services.ec2.console_output(instance_id))
    except Ec2Error as error:
        return str(error)


def _impaired(services: Services, now: int) -> dict[str, str]:
    """The instances whose status check is impaired for long; none when EC2 refuses to say."""
    try:
        return services.ec2.impaired(now - services.settings.unhealthy_seconds)
    except Ec2Error as error:
        logger.warning("the status checks of EC2 are unknown, so no worker is repaired for them", problem=str(error))
        return {}


def _launch_image(services: Services, known_image: LaunchImage, version: str, now: int) -> LaunchImage:
    """The image of today's launches, asked at most once an hour. A refusal leaves what was known of that version."""
    if not services.settings.launch_template_id or not version or not is_image_due(known_image, version, now):
        return known_image
    kept = known_image if known_image.version == version else LaunchImage(version=version)
    try:
        return LaunchImage(version=version, image_id=services.ec2.launch_image(version), at=now, answered_at=now)
    except Ec2Error as error:
        logger.warning("the image of new workers is unknown, so images are not compared", problem=str(error))
    return replace(kept, at=now)


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
