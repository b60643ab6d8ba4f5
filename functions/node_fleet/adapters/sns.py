"""Publishes messages to the SNS topic of one cluster, which Slack and e-mail subscribe to.

The topic of `alert_topic_critical` receives the critical ones as well.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from node_fleet.domain.model.errors import NotificationError
from node_fleet.domain.model.text import printable
from node_fleet.domain.notify.message import Message
from node_fleet.logs import logger
from node_fleet.payload import to_payload
from node_fleet.settings import Settings

SUBJECT_LIMIT = 99
"""SNS accepts less than 100 characters, without line breaks and control characters."""


class Publisher:
    """The topic of one cluster. Without a configured topic nothing is published."""

    def __init__(self, client: Any, settings: Settings) -> None:
        self._client = client
        self._topic = settings.topic_arn
        self._critical_topic = settings.alert_topic_critical
        self._cluster_id = settings.cluster_id

    def publish(self, message: Message) -> None:
        """Publish one message as JSON; the subject names the cluster and the incident.

        The copy in the general topic says when the critical one was refused. Raises NotificationError when no topic
        accepted the message.
        """
        critical = self._critical_topic if message.severity == "critical" else ""
        topics = [topic for topic in dict.fromkeys((critical, self._topic)) if topic]
        problems: list[str] = []
        for topic in topics:
            lost = tuple(f"the person on call does not receive this message: {problem}" for problem in problems)
            try:
                self._send(topic, replace(message, details=(*lost, *message.details)))
            except (ClientError, BotoCoreError) as error:
                problems.append(f"cannot publish to {topic}: {error}")
        if problems and len(problems) == len(topics):
            raise NotificationError("; ".join(problems))
        for problem in problems:
            logger.error("a topic refused a message that another one accepted", problem=problem, what=message.what)

    def _send(self, topic: str, message: Message) -> None:
        subject = " ".join(printable(f"[node-fleet {self._cluster_id}] {message.subject}").split())[:SUBJECT_LIMIT]
        self._client.publish(TopicArn=topic, Subject=subject, Message=json.dumps(to_payload(message)))
