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
from node_fleet.services import Services
from node_fleet.settings import Settings

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
            raise ClientError({"Error": {"Code": "ExecutionAlreadyExists", "Message": name}}, "StartExecution")
        self.started[name] = json.loads(input)
        return {"executionArn": f"{MACHINE}:{name}"}


ENVIRONMENT = {"ALERT_TOPIC_ARN": TOPIC, "STATE_MACHINE_ARN": MACHINE, "CLUSTER_ID": "node-fleet-prod"}


def equip(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> StepFunctions:
    """Gives the handler these settings and a fake Step Functions."""
    tools, fake = Services(Settings.from_env(environment)), StepFunctions()
    tools.__dict__["workflows"] = fake
    monkeypatch.setattr(start_on_alert, "load_services", lambda: tools)
    return fake


@pytest.fixture
def workflows(monkeypatch: pytest.MonkeyPatch) -> StepFunctions:
    return equip(monkeypatch, ENVIRONMENT)


def event(*messages: Any, topic: str = TOPIC) -> dict[str, Any]:
    texts = [m if isinstance(m, str) else json.dumps(m) for m in messages]
    return {"Records": [{"Sns": {"TopicArn": topic, "MessageId": str(n), "Message": t}} for n, t in enumerate(texts)]}


def test_an_alert_starts_a_run_that_says_what_started_it(workflows: StepFunctions) -> None:
    answer = start_on_alert.handler(event(FIRING), None)
    ((name, data),) = workflows.started.items()
    assert answer == {"outcomes": [f"started {name}"]}
    assert data == {"trigger": "alert", "dry_run": False}
    run = read_input(data, execution_id=name, started_at="2026-11-27T18:00:06Z")
    assert (run.trigger, run.scheduled_at) == ("alert", 0)


def test_repeated_alerts_start_one_run(workflows: StepFunctions) -> None:
    start_on_alert.handler(event(FIRING, FIRING), None)
    answer = start_on_alert.handler(event(FIRING), None)
    assert len(workflows.started) == 1
    assert answer["outcomes"][0].startswith("already started alert-")


def test_a_new_episode_starts_a_new_run(workflows: StepFunctions) -> None:
    start_on_alert.handler(event(FIRING, {**FIRING, "starts_at": "2026-11-27T19:00:05.000Z"}), None)
    assert len(workflows.started) == 2


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({**FIRING, "status": "resolved"}, "status 'resolved' is not firing"),
        ({**FIRING, "cluster": "other"}, "cluster 'other' is not node-fleet-prod"),
        ({**FIRING, "alertname": "WorkerNotScraped"}, "is not UnschedulablePods"),
        ({**FIRING, "starts_at": ""}, "starts_at must be text"),
        ({"status": "firing"}, "alertname, cluster, starts_at must be text"),
        ({**FIRING, "cluster": 7}, "cluster must be text"),
        ([FIRING], "is not an object"),
        ("firing!", "is not JSON"),
        ("", "is not JSON"),
    ],
)
def test_any_other_message_starts_nothing_and_says_why(workflows: StepFunctions, message: Any, reason: str) -> None:
    (outcome,) = start_on_alert.handler(event(message), None)["outcomes"]
    assert outcome.startswith("ignored: ") and reason in outcome
    assert not workflows.started


def test_a_message_of_another_topic_starts_nothing(workflows: StepFunctions) -> None:
    (outcome,) = start_on_alert.handler(event(FIRING, topic=TOPIC + "-other"), None)["outcomes"]
    assert "is not the alert topic" in outcome
    assert not workflows.started


def test_without_a_configured_topic_nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    workflows = equip(monkeypatch, {**ENVIRONMENT, "ALERT_TOPIC_ARN": ""})
    start_on_alert.handler(event(FIRING, topic=""), None)
    assert not workflows.started


@pytest.mark.parametrize(
    "error",
    [
        ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "StartExecution"),
        ClientError({"Error": {"Code": "StateMachineDoesNotExist", "Message": "no"}}, "StartExecution"),
        ConnectTimeoutError(endpoint_url="https://states"),
    ],
    ids=["denied", "no such machine", "timeout"],
)
def test_a_failed_start_is_raised_so_that_sns_delivers_again(workflows: StepFunctions, error: Exception) -> None:
    workflows.next_error = error
    with pytest.raises(NodeFleetError, match=f"cannot start {MACHINE}"):
        start_on_alert.handler(event(FIRING), None)


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
