"""Notify: publishes the run's news and the ends of incidents, then has the server write its Events and the status.

A run that only repeats known incidents has no news. What no topic accepts is reported again by the next run, while its
cause lasts, and critical alerts also when it is over. The state machine catches other errors, so the run's result
stands.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from node_fleet.adapters.cluster_report import send_report
from node_fleet.domain.cost.run_cost import FleetBefore, fleet_before, hourly_cost_after
from node_fleet.domain.model.errors import NotificationError
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.run import Alert, Run
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.domain.notify.cluster_report import run_report
from node_fleet.domain.notify.incident_state import (
    EndedIncident,
    Failure,
    News,
    is_worth_sending,
    kept_unsent,
    news_of,
    remembered,
    unreported,
)
from node_fleet.domain.notify.message import Message, Outcome, compose, end_message, plain_failure
from node_fleet.logs import logger
from node_fleet.payload import known, put, take
from node_fleet.services import Services, load_services
from node_fleet.settings import Settings


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Publish the messages; return the payload with its failure in plain words, and the incidents in its memory."""
    services = load_services()
    message, memory = message_of(event, services.settings), known(event, "memory", Memory)
    now, failure = services.clock.now(), _failure(event)
    news, is_dry = _news(event, memory, services, failure), take(event, "run", Run).dry_run
    kinds = " ".join(alert.kind for alert in message.alerts)  # alarms count log lines by these words
    logger.info(
        message.what, level_shown=message.level, why=message.why, alerts=kinds, execution_id=message.execution_id
    )
    over = () if is_dry else known(event, "ended", tuple[EndedIncident, ...]) or ()  # a dry run stores no memory
    ended = [one for one in over if one.key not in news.keys]
    lost: list[str] = []
    alerted = memory.alerted if memory else {}
    outcome, has_notes = known(event, "outcome", Outcome), bool(event.get("notes"))
    is_sent = is_worth_sending(news, outcome.kind if outcome else "", has_notes=has_notes, has_ended=bool(ended))
    unsent: tuple[Alert, ...] = ()
    if is_sent and not _is_published(services, message, lost):
        alerted, unsent = unreported(alerted, news.keys, ()), kept_unsent(message.alerts)
    elif news.keys:
        alerted = remembered(alerted, news.keys, failure, now)
    for one in ended:
        if not _is_published(services, end_message(one, message.cluster_id, message.execution_id), lost):
            alerted = unreported(alerted, (), (one,))
    if memory is not None:
        event = put(event, memory=replace(memory, alerted=alerted, unsent=unsent))
    answer = put(event, failure=plain_failure(event["failure"])) if "failure" in event else event
    if lost:
        answer = put(answer, notify_failure={"Error": NotificationError.__name__, "Cause": "; ".join(lost)})
    if not is_dry:
        snapshot, operation = known(event, "snapshot", Snapshot), known(event, "operation", Operation)
        report = run_report(message, at=now, snapshot=snapshot, operation=operation, failure=answer.get("failure"))
        send_report(services.reports, report)
    return answer


def _is_published(services: Services, message: Message, lost: list[str]) -> bool:
    """False, with the reason in `lost`, when no topic accepted the message."""
    try:
        services.publisher.publish(message)
    except NotificationError as error:
        logger.error("a message was not sent", what=message.what, problem=str(error))
        lost.append(str(error))
        return False
    return True


def _failure(event: dict[str, Any]) -> Failure:
    if "failure" not in event:
        return Failure()
    plain = plain_failure(event["failure"])
    return Failure(error=plain["Error"], text=plain["Cause"])


def _news(event: dict[str, Any], memory: Memory | None, services: Services, failure: Failure) -> News:
    return news_of(
        _alerts(event.get("decision", {})),
        _alerts(event),
        failure,
        alerted=memory.alerted if memory else {},
        started_at=take(event, "run", Run).started_at,
        now=services.clock.now(),
        quiet_seconds=services.settings.alert_quiet_seconds,
    )


def message_of(event: dict[str, Any], settings: Settings) -> Message:
    """The message for this payload."""
    run = take(event, "run", Run)
    snapshot, operation = known(event, "snapshot", Snapshot), known(event, "operation", Operation)
    before = known(event, "fleet_before", FleetBefore) or fleet_before(snapshot, operation, settings.tariff())
    sentence = event.get("decision", {}).get("sentence", "") or event.get("hibernate", {}).get("detail", "")
    base = Message(
        cluster_id=settings.cluster_id,
        level="info",
        what=sentence,
        why=sentence,
        execution_id=run.execution_id,
        trigger=run.trigger,
        alerts=(*_alerts(event), *_alerts(event.get("decision", {}))),
        details=tuple(event.get("notes", ())),
        hourly_cost_before=before.hourly_cost if before else None,
        hourly_cost_after=hourly_cost_after(snapshot, operation, settings.tariff()),
    )
    return compose(
        base,
        snapshot=snapshot,
        operation=operation,
        outcome=known(event, "outcome", Outcome),
        failure=plain_failure(event["failure"]) if "failure" in event else None,
        workers_at_start=before.workers if before else None,
    )


def _alerts(data: dict[str, Any]) -> tuple[Alert, ...]:
    alerts: tuple[Alert, ...] = take(data, "alerts", tuple[Alert, ...], default=())
    return alerts
