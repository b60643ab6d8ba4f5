"""StartOnAlert: Alertmanager's SNS message about unschedulable pods starts one run for each time the alert fires.

Outside the state machine. Any other topic, cluster, alert or status starts nothing.
"""

from __future__ import annotations

from typing import Any

from node_fleet.adapters.step_functions import Workflows
from node_fleet.domain.model.errors import InvalidInputError
from node_fleet.domain.notify.alert_input import execution_name, read_alert, reason_to_ignore
from node_fleet.logs import logger
from node_fleet.services import Services, load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Take SNS's event; return one outcome for each of its messages."""
    services = load_services()
    return {"outcomes": [_answer(services, record["Sns"]) for record in event["Records"]]}


def _answer(services: Services, message: dict[str, Any]) -> str:
    outcome = _start(services, message)
    logger.info("alert", outcome=outcome, message_id=message.get("MessageId", ""))
    return outcome


def _start(services: Services, message: dict[str, Any]) -> str:
    if not services.settings.alert_topic_arn or message["TopicArn"] != services.settings.alert_topic_arn:
        return f"ignored: topic {message['TopicArn']} is not the alert topic"
    try:
        alert = read_alert(message["Message"])
    except InvalidInputError as error:
        return f"ignored: {error}"
    reason = reason_to_ignore(alert, services.settings.cluster_id)
    if reason:
        return f"ignored: {reason}"
    name = execution_name(alert)
    started = Workflows(services.workflows, services.settings).start(name, {"trigger": "alert", "dry_run": False})
    return f"started {name}" if started else f"already started {name}"
