"""Publishes messages to the SNS topic of one cluster, which Slack and e-mail subscribe to.

The topic of `alert_topic_critical` receives the critical ones as well.
"""

from __future__ import annotations

import json
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from node_fleet.domain.model.errors import NotificationError
from node_fleet.domain.notify.message import Message
from node_fleet.payload import to_payload
from node_fleet.settings import Settings

SUBJECT_LIMIT = 100


class Publisher:
    """The topic of one cluster. Without a configured topic nothing is published."""

    def __init__(self, client: Any, settings: Settings) -> None:
        self._client = client
        self._topic = settings.topic_arn
        self._critical_topic = settings.alert_topic_critical
        self._cluster_id = settings.cluster_id

    def publish(self, message: Message) -> None:
        """Publish one message as JSON; the subject names the cluster and the incident.

        Every topic is tried. Raises NotificationError naming each topic that refused.
        """
        subject = " ".join(f"[node-fleet {self._cluster_id}] {message.subject}".split())[:SUBJECT_LIMIT]
        topics = [self._topic, self._critical_topic if message.severity == "critical" else ""]
        problems = []
        for topic in filter(None, topics):
            try:
                self._client.publish(TopicArn=topic, Subject=subject, Message=json.dumps(to_payload(message)))
            except (ClientError, BotoCoreError) as error:
                problems.append(f"cannot publish to {topic}: {error}")
        if problems:
            raise NotificationError("; ".join(problems))
