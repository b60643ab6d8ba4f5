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
from node_fleet.logs import logger
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
    assert published(MESSAGE) == [(ON_CALL, "[node-fleet shop] at_maximum"), (TOPIC, "[node-fleet shop] at_maximum")]
    end = replace(MESSAGE, level="success", is_end=True)
    assert published(end) == published(MESSAGE), "the end reaches whoever got the beginning"


def test_any_other_message_goes_to_the_general_topic_under_what_happened() -> None:
    scaled = replace(MESSAGE, incidents=(), what="scaled up\nto 3 workers")
    assert published(scaled) == [(TOPIC, "[node-fleet shop] scaled up to 3 workers")]
    assert published(replace(MESSAGE, incidents=("join_failed:i-1",)))[0][0] == TOPIC
    assert len(published(replace(scaled, what="x" * 300))[0][1]) == SUBJECT_LIMIT == 99


def test_a_subject_has_no_control_characters_because_sns_would_refuse_the_message() -> None:
    assert published(replace(MESSAGE, incidents=(), what="a\x1b[31m\r\n b\x00"))[0][1].isprintable()


def test_a_critical_topic_that_is_the_general_one_gets_one_copy() -> None:
    assert [topic for topic, _ in published(MESSAGE, replace(SETTINGS, alert_topic_critical=TOPIC))] == [TOPIC]


def test_without_topics_nothing_is_sent() -> None:
    assert published(MESSAGE, Settings()) == []
    assert [topic for topic, _ in published(MESSAGE, replace(SETTINGS, alert_topic_critical=""))] == [TOPIC]


def test_a_message_that_no_topic_accepts_is_an_error_that_names_each_topic() -> None:
    with pytest.raises(NotificationError) as raised:
        Publisher(Sns((TOPIC, ON_CALL)), SETTINGS).publish(MESSAGE)
    assert TOPIC in str(raised.value) and ON_CALL in str(raised.value)


def test_the_general_topic_says_that_the_person_on_call_did_not_get_a_message() -> None:
    client = Sns((ON_CALL,))
    Publisher(client, SETTINGS).publish(MESSAGE)
    (sent,) = client.sent
    assert sent["TopicArn"] == TOPIC
    (detail,) = json.loads(sent["Message"])["details"]
    assert detail.startswith(f"the person on call does not receive this message: cannot publish to {ON_CALL}: ")


def test_a_refusal_of_the_general_topic_costs_the_person_on_call_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[str] = []
    monkeypatch.setattr(logger, "error", lambda text, **fields: logged.append(fields["problem"]))
    client = Sns((TOPIC,))
    Publisher(client, SETTINGS).publish(MESSAGE)
    assert [one["TopicArn"] for one in client.sent] == [ON_CALL]
    assert TOPIC in logged[0]
