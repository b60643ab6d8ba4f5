"""Publishes what people should know to the SNS topic; subscribers (Slack, e-mail) are somebody else's business."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from node_fleet.domain.model.errors import NotificationError
from node_fleet.settings import Settings

SUBJECT_LIMIT = 100


class Publisher:
    """The topic of one cluster. Without a configured topic nothing is published and nothing fails."""

    def __init__(self, client: Any, settings: Settings) -> None:
        self._client = client
        self._topic = settings.topic_arn

    def publish(self, subject: str, message: Mapping[str, Any]) -> None:
        """Publish one JSON message. Raises NotificationError naming the topic."""
        if not self._topic:
            return
        subject = " ".join(subject.split())[:SUBJECT_LIMIT]
        try:
            self._client.publish(TopicArn=self._topic, Subject=subject, Message=json.dumps(message))
        except (ClientError, BotoCoreError) as error:
            raise NotificationError(f"cannot publish to {self._topic}: {error}") from error
