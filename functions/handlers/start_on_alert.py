"""StartOnAlert: Alertmanager's SNS message about unschedulable pods starts a run, once for each episode.

Outside the state machine. Starts nothing for any other topic, cluster, alert or status, and decides nothing.
"""

from __future__ import annotations

from typing import Any

from node_fleet.adapters.step_functions import Workflows
from node_fleet.domain.model.errors import InvalidInputError
from node_fleet.domain.notify.alert_input import execution_name, read_alert, reason_to_ignore
from node_fleet.logs import log
from node_fleet.services import Wiring, wiring


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Take SNS's event; answer one outcome for each of its messages."""
    tools = wiring()
    return {"outcomes": [_answer(tools, record["Sns"]) for record in event["Records"]]}


def _answer(tools: Wiring, message: dict[str, Any]) -> str:
    outcome = _start(tools, message)
    log("alert", outcome=outcome, message_id=message.get("MessageId", ""))
    return outcome


def _start(tools: Wiring, message: dict[str, Any]) -> str:
    if not tools.settings.alert_topic_arn or message["TopicArn"] != tools.settings.alert_topic_arn:
        return f"ignored: topic {message['TopicArn']} is not the alert topic"
    try:
        alert = read_alert(message["Message"])
    except InvalidInputError as error:
        return f"ignored: {error}"
    reason = reason_to_ignore(alert, tools.settings.cluster_id)
    if reason:
        return f"ignored: {reason}"
    name = execution_name(alert)
    started = Workflows(tools.workflows, tools.settings).start(name, {"trigger": "alert", "dry_run": False})
    return f"started {name}" if started else f"already started {name}"
