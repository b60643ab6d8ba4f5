"""One cause is one incident: one message at its beginning and one at its end, however many runs it lasts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.workflow_harness import Stage, stage


def sent(fleet: Stage) -> list[dict[str, Any]]:
    return [json.loads(record["Message"]) for record in fleet.deployment.messages]


def alarm(fleet: Stage, name: str, state: str = "ALARM") -> None:
    """CloudWatch publishes an alarm of this cluster to the topic."""
    topic = fleet.deployment.messages[0]["TopicArn"]
    cluster_id = sent(fleet)[0]["cluster_id"]
    text = {"AlarmName": f"{cluster_id}-{name}", "NewStateValue": state, "AlarmDescription": "d"}
    fleet.deployment.publish(topic, json.dumps(text), f"{state}: {name}")
    fleet.deployment.settle()


@pytest.mark.whole
def test_an_outage_of_prometheus_is_one_message_at_its_beginning_and_one_at_its_end() -> None:
    with stage(workers=3, min_workers=3) as fleet:
        fleet.deployment.transport.fault = "down"
        fleet.tick_until(lambda e: e.status == "FAILED")
        failed = fleet.ticks(6)
        assert {(e.status, e.error) for e in failed} == {("FAILED", "MetricsUnavailableError")}
        posts = len(fleet.deployment.transport.slack)
        for name in ("ScalingFailures", "PrometheusUnavailable"):
            alarm(fleet, name)
        assert len(fleet.deployment.transport.slack) == posts == 1
        fleet.deployment.transport.fault = ""
        end = fleet.tick_until(lambda e: "Notify" in e.path, limit=9)
        later = fleet.ticks(2)
        assert end.status == "SUCCEEDED" and not any("Notify" in e.path for e in later)
        messages = [one for one in sent(fleet) if "AlarmName" not in one]
        keys = ["metrics_unavailable", "RunFailedError"]
        assert [(one["incidents"], one["is_end"]) for one in messages] == [(keys, False), (keys[:1], True)]
        subjects = {record["Subject"] for record in fleet.deployment.messages if "[node-fleet" in record["Subject"]}
        assert len(subjects) == 1
        assert len(fleet.deployment.transport.slack) == 2
