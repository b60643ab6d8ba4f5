"""Notify: publishes one message for the run. The state machine catches its errors, so the run's result stands."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.cost.run_cost import FleetBefore, fleet_before, usd_per_hour_after
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.run import Alert, Run
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.domain.notify.message import Message, Outcome, compose, plain_failure
from node_fleet.logs import logger
from node_fleet.payload import from_payload, known, put, take, to_payload
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
    return put(event, failure=plain_failure(event["failure"])) if "failure" in event else event


def message_of(event: dict[str, Any], settings: Settings) -> Message:
    """The message for this payload."""
    run = take(event, "run", Run)
    snapshot, operation = known(event, "snapshot", Snapshot), known(event, "operation", Operation)
    before = known(event, "fleet_before", FleetBefore) or fleet_before(snapshot, operation, settings.region)
    return compose(
        cluster_id=settings.cluster_id,
        execution_id=run.execution_id,
        trigger=run.trigger,
        snapshot=_maybe(event, "snapshot", Snapshot),
        operation=_maybe(event, "operation", Operation),
        outcome=_maybe(event, "outcome", Outcome),
        sentence=event.get("decision", {}).get("sentence", ""),
        failure=plain_failure(event["failure"]) if "failure" in event else None,
        alerts=from_payload(tuple[Alert, ...], event.get("alerts", [])) + _decision_alerts(event),
        notes=tuple(event.get("notes", ())),
        workers_at_start=before.workers if before else None,
        cost_before_usd_per_hour=before.usd_per_hour if before else None,
        cost_after_usd_per_hour=usd_per_hour_after(snapshot, operation, settings.region),
    )


def _decision_alerts(event: dict[str, Any]) -> tuple[Alert, ...]:
    alerts: tuple[Alert, ...] = from_payload(tuple[Alert, ...], event.get("decision", {}).get("alerts", []))
    return alerts


def _maybe(event: dict[str, Any], key: str, kind: Any) -> Any:
    return from_payload(kind, event[key], path=key) if event.get(key) is not None else None
