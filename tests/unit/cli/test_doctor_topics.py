"""The check of the topics: a critical topic that cannot be read is named before the first incident needs it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from cli.doctor import topic
from cli.findings import Finding

GENERAL, CRITICAL = (f"arn:aws:sns:ap-southeast-1:123456789012:{name}" for name in ("shop-messages", "on-call"))


def found(critical: str, *missing: str) -> Finding:
    def get_topic_attributes(**asked: Any) -> None:
        if asked["TopicArn"] in missing:
            raise ClientError({"Error": {"Code": "NotFound", "Message": "no such topic"}}, "GetTopicAttributes")

    settings = SimpleNamespace(topic_arn=GENERAL, alert_topic_critical=critical)
    sns = SimpleNamespace(get_topic_attributes=get_topic_attributes)
    target: Any = SimpleNamespace(services=SimpleNamespace(settings=settings), client=lambda name: sns)
    return topic(target)


@pytest.mark.parametrize(("critical", "saw"), [("", "shop-messages"), (CRITICAL, "shop-messages, on-call")])
def test_topics_that_exist_are_named(critical: str, saw: str) -> None:
    assert (found(critical).verdict, found(critical).saw) == ("ok", saw)


def test_a_critical_topic_that_does_not_exist_is_a_warning_with_its_setting() -> None:
    warning = found(CRITICAL, CRITICAL)
    assert (warning.verdict, warning.fix) == ("warn", "check the ARN in alert_topic_critical")
    assert f"{CRITICAL} cannot be read" in warning.saw and "NotFound" in warning.saw


def test_a_general_topic_that_does_not_exist_fails_the_check() -> None:
    with pytest.raises(ClientError):
        found(CRITICAL, GENERAL)
