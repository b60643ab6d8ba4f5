"""Messages reach the general topic, and critical ones also the topic of the person on call."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from node_fleet.adapters.sns import SUBJECT_LIMIT, Publisher
from node_fleet.domain.model.errors import NotificationError
from node_fleet.domain.notify.message import Message
from node_fleet.settings import Settings

TOPIC, ON_CALL = (f"arn:aws:sns:ap-southeast-1:123456789012:{name}" for name in ("messages", "on-call"))
SETTINGS = Settings(cluster_id="shop", topic_arn=TOPIC, alert_topic_critical=ON_CALL)
MESSAGE = Message(
    cluster_id="shop",
    level="error",
    what="at the maximum: pods wait",
    why="y",
    execution_id="e",
    trigger="schedule",
    incidents=("at_maximum",),
)


@dataclass
class Sns:
    refused: tuple[str, ...] = ()
    sent: list[dict[str, Any]] = field(default_factory=list)

    def publish(self, **request: Any) -> None:
        if request["TopicArn"] in self.refused:
            raise ClientError({"Error": {"Code": "AuthorizationError", "Message": "no"}}, "Publish")
        self.sent.append(request)


def published(message: Message, settings: Settings = SETTINGS) -> list[tuple[str, str]]:
    """The topic and the subject of each copy."""
    client = Sns()
    Publisher(client, settings).publish(message)
    assert all(json.loads(one["Message"])["what"] == message.what for one in client.sent)
    return [(one["TopicArn"], one["Subject"]) for one in client.sent]


def test_a_critical_message_goes_to_both_topics_under_the_subject_of_its_incident() -> None:
    assert published(MESSAGE) == [(TOPIC, "[node-fleet shop] at_maximum"), (ON_CALL, "[node-fleet shop] at_maximum")]
    end = replace(MESSAGE, level="success", is_end=True)
    assert published(end) == published(MESSAGE), "the end reaches whoever got the beginning"


def test_any_other_message_goes_to_the_general_topic_under_what_happened() -> None:
    scaled = replace(MESSAGE, incidents=(), what="scaled up\nto 3 workers")
    assert published(scaled) == [(TOPIC, "[node-fleet shop] scaled up to 3 workers")]
    assert published(replace(MESSAGE, incidents=("join_failed:i-1",)))[0][0] == TOPIC
    assert len(published(replace(scaled, what="x" * 300))[0][1]) == SUBJECT_LIMIT


def test_without_topics_nothing_is_sent() -> None:
    assert published(MESSAGE, Settings()) == []
    assert [topic for topic, _ in published(MESSAGE, replace(SETTINGS, alert_topic_critical=""))] == [TOPIC]


@pytest.mark.parametrize(("refused", "sent"), [((TOPIC,), [ON_CALL]), ((ON_CALL,), [TOPIC]), ((TOPIC, ON_CALL), [])])
def test_a_topic_that_refuses_is_named_and_the_other_one_still_gets_the_message(
    refused: tuple[str, ...], sent: list[str]
) -> None:
    client = Sns(refused)
    with pytest.raises(NotificationError) as raised:
        Publisher(client, SETTINGS).publish(MESSAGE)
    assert all(topic in str(raised.value) for topic in refused)
    assert [one["TopicArn"] for one in client.sent] == sent
