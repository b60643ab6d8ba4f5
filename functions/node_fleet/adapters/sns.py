"""Publishes messages to the SNS topic of one cluster, which Slack and e-mail subscribe to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from node_fleet.domain.model.errors import NotificationError
from node_fleet.settings import Settings

SUBJECT_LIMIT = 100


class Publisher:
    """The topic of one cluster. Without a configured topic nothing is published."""

    def __init__(self, client: Any, settings: Settings) -> None:
        self._client = client
        self._topic = settings.topic_arn
        self._cluster_id = settings.cluster_id

    def publish(self, what: str, message: Mapping[str, Any]) -> None:
        """Publish one JSON message; the subject names the cluster. Raises NotificationError naming the topic."""
        if not self._topic:
            return
        subject = " ".join(f"node-fleet {self._cluster_id}: {what}".split())[:SUBJECT_LIMIT]
        try:
            self._client.publish(TopicArn=self._topic, Subject=subject, Message=json.dumps(message))
        except (ClientError, BotoCoreError) as error:
            raise NotificationError(f"cannot publish to {self._topic}: {error}") from error
