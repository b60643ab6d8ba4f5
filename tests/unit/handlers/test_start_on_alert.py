"""StartOnAlert: one episode of unschedulable pods starts one run; nothing else starts any."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError
from hypothesis import given
from hypothesis import strategies as st

from handlers import start_on_alert
from node_fleet.domain.model.errors import InvalidInputError, NodeFleetError
from node_fleet.domain.model.run import read_input
from node_fleet.domain.notify.alert_input import ScalingAlert, execution_name, read_alert
from node_fleet.settings import Settings
from tests.support.handlers.fakes import FakeServices

TOPIC = "arn:aws:sns:ap-southeast-1:123456789012:node-fleet-alerts"
MACHINE = "arn:aws:states:ap-southeast-1:123456789012:stateMachine:node-fleet"
FIRING = {
    "alertname": "UnschedulablePods",
    "cluster": "node-fleet-prod",
    "status": "firing",
    "starts_at": "2026-11-27T18:00:05.000Z",
}


class StepFunctions:
    """Records starts and refuses a name that was used before, as AWS does once an execution has ended."""

    def __init__(self) -> None:
        self.started: dict[str, Any] = {}
        self.next_error: Exception | None = None

    def start_execution(self, *, stateMachineArn: str, name: str, input: str) -> dict[str, str]:
        assert stateMachineArn == MACHINE
        if self.next_error:
            raise self.next_error
        if name in self.started:
            raise error("ExecutionAlreadyExists")
        self.started[name] = json.loads(input)
        return {"executionArn": f"{MACHINE}:{name}"}


def error(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "StartExecution")


@pytest.fixture
def workflows(services: FakeServices) -> StepFunctions:
    services.settings = settings()
    services.workflows = StepFunctions()
    return services.workflows


def settings(topic: str = TOPIC) -> Settings:
    environment = {"ALERT_TOPIC_ARN": topic, "STATE_MACHINE_ARN": MACHINE, "CLUSTER_ID": "node-fleet-prod"}
    return Settings.from_env(environment)


def outcomes(*messages: Any, topic: str = TOPIC) -> list[str]:
    texts = [m if isinstance(m, str) else json.dumps(m) for m in messages]
    records = [{"Sns": {"TopicArn": topic, "MessageId": str(n), "Message": t}} for n, t in enumerate(texts)]
    answer = start_on_alert.handler({"Records": records}, None)
    assert list(answer) == ["outcomes"]
    return [str(outcome) for outcome in answer["outcomes"]]


def test_an_alert_starts_one_run_that_says_what_started_it(workflows: StepFunctions) -> None:
    first, second = outcomes(FIRING, FIRING)
    (third,) = outcomes(FIRING)
    ((name, data),) = workflows.started.items()
    assert first == f"started {name}"
    assert second.startswith("already started alert-") and third.startswith("already started alert-")
    assert data == {"trigger": "alert", "dry_run": False}
    run = read_input(data, execution_id=name, started_at="2026-11-27T18:00:06Z")
    assert (run.trigger, run.scheduled_at) == ("alert", 0)


def test_a_new_episode_starts_a_new_run(workflows: StepFunctions) -> None:
    outcomes(FIRING, {**FIRING, "starts_at": "2026-11-27T19:00:05.000Z"})
    assert len(workflows.started) == 2


@pytest.mark.parametrize(
    ("message", "topic", "reason"),
    [
        ({**FIRING, "status": "resolved"}, TOPIC, "status 'resolved' is not firing"),
        ({**FIRING, "cluster": "other"}, TOPIC, "cluster 'other' is not node-fleet-prod"),
        ({**FIRING, "alertname": "WorkerNotScraped"}, TOPIC, "is not UnschedulablePods"),
        ({**FIRING, "starts_at": ""}, TOPIC, "starts_at must be text"),
        ({"status": "firing"}, TOPIC, "alertname, cluster, starts_at must be text"),
        ({**FIRING, "cluster": 7}, TOPIC, "cluster must be text"),
        ([FIRING], TOPIC, "is not an object"),
        ("firing!", TOPIC, "is not JSON"),
        ("", TOPIC, "is not JSON"),
        (FIRING, TOPIC + "-other", "is not the alert topic"),
    ],
)
def test_any_other_message_starts_nothing_and_says_why(
    workflows: StepFunctions, message: Any, topic: str, reason: str
) -> None:
    (outcome,) = outcomes(message, topic=topic)
    assert outcome.startswith("ignored: ") and reason in outcome
    assert not workflows.started


def test_without_a_configured_topic_nothing_starts(services: FakeServices, workflows: StepFunctions) -> None:
    services.settings = settings(topic="")
    outcomes(FIRING, topic="")
    assert not workflows.started


@pytest.mark.parametrize(
    "failure",
    [
        error("AccessDeniedException"),
        error("StateMachineDoesNotExist"),
        ConnectTimeoutError(endpoint_url="https://states"),
    ],
    ids=["denied", "no such machine", "timeout"],
)
def test_a_failed_start_is_raised_so_that_sns_delivers_again(workflows: StepFunctions, failure: Exception) -> None:
    workflows.next_error = failure
    with pytest.raises(NodeFleetError, match=f"cannot start {MACHINE}"):
        outcomes(FIRING)


@given(st.text(max_size=200))
def test_no_text_whatever_is_an_alert_unless_it_has_every_field(text: str) -> None:
    try:
        alert = read_alert(text)
    except InvalidInputError:
        return
    assert all((alert.alertname, alert.cluster, alert.status, alert.starts_at))


@given(cluster=st.text(min_size=1), starts_at=st.text(min_size=1))
def test_an_execution_name_is_one_that_step_functions_takes(cluster: str, starts_at: str) -> None:
    alert = ScalingAlert(alertname="UnschedulablePods", cluster=cluster, status="firing", starts_at=starts_at)
    name = execution_name(alert)
    assert len(name) <= 80 and name.replace("-", "").isalnum()
