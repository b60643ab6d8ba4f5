"""WeeklyReport: the cost of the workers in the last seven days and the settings that would save money.

It runs by a schedule of its own, outside the state machine. It reads the recorded runs day by day and changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from node_fleet.adapters.records import Event
from node_fleet.domain.cost.week import FleetSample, ReportInputs, SampledWorker, Volume
from node_fleet.domain.cost.weekly_report import WeeklyReport, headline, lines, summarise
from node_fleet.domain.model.errors import Ec2Error
from node_fleet.domain.model.snapshot import Snapshot, Worker
from node_fleet.domain.notify.message import Message
from node_fleet.domain.scaling.signals.idle import requests_percent
from node_fleet.logs import logger
from node_fleet.payload import known
from node_fleet.services import Services, load_services
from node_fleet.settings import Settings

DAY_SECONDS = 86400
DAYS = 7


@dataclass(slots=True)
class RecordedWeek:
    """The samples and counts of a week of events."""

    samples: list[FleetSample] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Publish the report; answer its headline and its lines."""
    services = load_services()
    now = services.clock.now()
    recorded = _read(services, now)
    inputs = inputs_of(services.settings, recorded.counts, now, _volumes(services))
    week = summarise(recorded.samples, inputs)
    message = message_of(week, inputs, services.settings, recorded)
    logger.info("weekly report", what=message.what, details=message.details)
    services.publisher.publish(message)
    return {"headline": message.what, "lines": list(message.details)}


def inputs_of(settings: Settings, counts: Counter[str], now: int, volumes: tuple[Volume, ...]) -> ReportInputs:
    """The counts of the week and the settings of the report."""
    return ReportInputs(
        since=now - DAYS * DAY_SECONDS,
        until=now,
        policy=settings,
        tariff=settings.tariff(),
        spot_percent=settings.spot_percent,
        baseline_workers=settings.baseline_workers,
        scale_ups=counts["scaled_up"],
        scale_downs=counts["scaled_down"],
        failures=counts["failed"],
        interruptions=counts["interruption"],
        volumes=volumes,
    )


def message_of(week: WeeklyReport, inputs: ReportInputs, settings: Settings, recorded: RecordedWeek) -> Message:
    """The report as a message to operators."""
    return Message(
        cluster_id=settings.cluster_id,
        level="info",
        what=headline(week, inputs, settings.money),
        why=f"weekly cost report, {len(recorded.samples)} runs",
        execution_id="",
        trigger="weekly",
        workers_before=len(recorded.samples[0].workers) if recorded.samples else 0,
        workers_after=len(recorded.samples[-1].workers) if recorded.samples else 0,
        details=lines(week, inputs, settings.money),
    )


def _read(services: Services, now: int) -> RecordedWeek:
    recorded, zone = RecordedWeek(), ZoneInfo(services.settings.timezone)
    for day in range(DAYS, 0, -1):
        start = now - day * DAY_SECONDS
        _add_events(recorded, services.records.events(start, start + DAY_SECONDS), zone)
    return recorded


def _add_events(recorded: RecordedWeek, events: Iterable[Event], zone: ZoneInfo) -> None:
    for event in events:
        if event.kind != "decision":
            recorded.counts[event.kind] += 1
            continue
        recorded.counts["failed" if event.data.get("failure") else _outcome_kind(event)] += 1
        sample = _sample(event, zone)
        if sample is not None:
            recorded.samples.append(sample)


def _outcome_kind(event: Event) -> str:
    return str((event.data.get("outcome") or {}).get("kind", "none"))


def _sample(event: Event, zone: ZoneInfo) -> FleetSample | None:
    """The fleet in the snapshot of that run; None without a snapshot that this version can read."""
    snapshot: Snapshot | None = known(event.data, "snapshot", Snapshot)
    if snapshot is None:
        return None
    requests = requests_percent(snapshot.usable, 0)
    return FleetSample(
        at=event.at,
        hour=datetime.fromtimestamp(event.at, zone).hour,
        workers=tuple(_sampled(worker) for worker in snapshot.counted),
        cpu_percent=snapshot.cpu_percent,
        memory_percent=snapshot.memory_percent,
        requested_workers=requests / 100 * len(snapshot.usable) if requests else None,  # 0: the cluster reports none
        leaving=tuple(_sampled(worker) for worker in snapshot.workers if worker.under_notice),
        standby=len(snapshot.standby),
    )


def _sampled(worker: Worker) -> SampledWorker:
    return SampledWorker(
        instance_id=worker.instance_id,
        instance_type=worker.instance_type,
        market=worker.market,
        cpu_percent=worker.cpu_percent,
    )


def _volumes(services: Services) -> tuple[Volume, ...]:
    """The unattached volumes; none when EC2 refuses the request, so that the report is still sent."""
    try:
        return tuple(Volume(volume_id=name, gib=gib) for name, gib in services.ec2.unattached_volumes())
    except Ec2Error as error:
        logger.info("volumes are not known", detail=str(error))
        return ()
