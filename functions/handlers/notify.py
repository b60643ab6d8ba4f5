"""Notify: publishes one message for the run, then has the server write its Events and the status.

The state machine catches its errors, so the run's result stands.
"""

from __future__ import annotations

from typing import Any

from node_fleet.adapters.cluster_report import send_report
from node_fleet.domain.cost.run_cost import FleetBefore, fleet_before, hourly_cost_after
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.run import Alert, Run
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.domain.notify.cluster_report import run_report
from node_fleet.domain.notify.message import Message, Outcome, compose, plain_failure
from node_fleet.logs import logger
from node_fleet.payload import known, put, take, to_payload
from node_fleet.services import load_services
from node_fleet.settings import Settings


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Publish the message; return the payload with its failure in plain words."""
    services = load_services()
    message = message_of(event, services.settings)
    kinds = " ".join(alert.kind for alert in message.alerts)  # alarms count log lines by these words
    logger.info(
        message.what, level_shown=message.level, why=message.why, alerts=kinds, execution_id=message.execution_id
    )
    services.publisher.publish(message.what, to_payload(message))
    answer = put(event, failure=plain_failure(event["failure"])) if "failure" in event else event
    if not take(event, "run", Run).dry_run:
        snapshot, operation = known(event, "snapshot", Snapshot), known(event, "operation", Operation)
        now = services.clock.now()
        report = run_report(message, at=now, snapshot=snapshot, operation=operation, failure=answer.get("failure"))
        send_report(services.server, report)
    return answer


def message_of(event: dict[str, Any], settings: Settings) -> Message:
    """The message for this payload."""
    run = take(event, "run", Run)
    snapshot, operation = known(event, "snapshot", Snapshot), known(event, "operation", Operation)
    before = known(event, "fleet_before", FleetBefore) or fleet_before(snapshot, operation, settings.tariff())
    sentence = event.get("decision", {}).get("sentence", "")
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
