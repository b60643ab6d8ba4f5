"""SlackMessage: posts the topic's messages to Slack. A message that cannot be sent is logged and counted."""

from __future__ import annotations

import json
from typing import Any

from node_fleet.adapters.secrets import SecretError
from node_fleet.adapters.slack import Sent, SlackHook, slack_session
from node_fleet.adapters.slack_threads import IncidentThreads
from node_fleet.domain.model.errors import InvalidInputError, NodeFleetError
from node_fleet.domain.notify.message import Message
from node_fleet.domain.notify.slack_blocks import (
    alarm_payload,
    dropped_event_payload,
    message_payload,
    text_payload,
)
from node_fleet.domain.notify.threads import Notice, notice_of_alarm, notice_of_message
from node_fleet.logs import logger
from node_fleet.payload import from_payload
from node_fleet.services import Services, load_services
from node_fleet.settings import Settings

MARGIN_SECONDS = 2.0
SECRET_UNUSABLE = "the Slack secret cannot be used"


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Take SNS's event; return one outcome for each of its messages."""
    services = load_services()
    outcomes = [_send(services, record["Sns"], context) for record in event["Records"]]
    return {"outcomes": [one.outcome for one in outcomes]}


def _send(services: Services, message: dict[str, Any], context: Any) -> Sent:
    try:
        payload, notice = payload_of(message["Message"], message.get("Subject") or "", services.settings)
        sent = _threads(services, context).show(payload, notice)
    except (SecretError, NodeFleetError) as error:
        sent = Sent(outcome="failed", tries=0, detail=f"{SECRET_UNUSABLE}: {error}")
    logger.info(
        "slack",
        outcome=sent.outcome,
        tries=sent.tries,
        detail=sent.detail,
        failures=int(sent.outcome == "failed"),
        message_id=message.get("MessageId", ""),
    )
    return sent


def payload_of(text: str, subject: str, settings: Settings) -> tuple[dict[str, Any], Notice | None]:
    """The body and the incident of one message: of a run, an alarm, an event that Lambda dropped, or any text."""
    try:
        data = json.loads(text)
    except ValueError:
        return text_payload(text, subject), None
    if isinstance(data, dict) and "AlarmName" in data:
        return alarm_payload(data), notice_of_alarm(data, settings.cluster_id)
    if isinstance(data, dict) and "requestContext" in data:
        return dropped_event_payload(data), None
    try:
        message: Message = from_payload(Message, data)
    except InvalidInputError:
        return text_payload(text, subject), None
    return message_payload(message, region=settings.region, money=settings.money), notice_of_message(message)


def _threads(services: Services, context: Any) -> IncidentThreads:
    hook = SlackHook(
        slack_session(),
        services.secrets.text(services.settings.slack_secret),
        sleep=services.clock.sleep,
        time_left=lambda: context.get_remaining_time_in_millis() / 1000 - MARGIN_SECONDS,
    )
    quiet_seconds = services.settings.alert_quiet_seconds
    return IncidentThreads(hook, services.records, now=services.clock.now(), quiet_seconds=quiet_seconds)
