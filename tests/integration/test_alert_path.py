"""From a pod that finds no node to StartExecution: real Prometheus, real Alertmanager, a local SNS that checks SigV4.

Configuration and rules are the shipped ones; only addresses, the scrape interval (5 s) and Alertmanager's repetition
(seconds instead of minutes) are changed. What a test asserts is order and number; the time is printed.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from moto import mock_aws

from handlers import start_on_alert
from node_fleet.domain.model.value_class import value_class
from node_fleet.services import Services
from node_fleet.settings import Settings
from tests.support.real_servers import (
    VALUES,
    Prometheus,
    alertmanager,
    free_port,
    local_server,
    prometheus,
    rendered,
    wait_until,
)

SCRAPE_SECONDS = 5
LIMIT_SECONDS = 25
KEYS = {"AWS_ACCESS_KEY_ID": "server-role-key", "AWS_SECRET_ACCESS_KEY": "server-role-secret"}
POD = '{namespace="demo",pod="web-1",uid="u1"}'
GATED = '{namespace="demo",pod="gated",uid="u2"}'
ROLE = "arn:aws:iam::123456789012:role/states"


@dataclass(slots=True)
class Exporter:
    """kube-state-metrics as Prometheus sees it; a test says which pods find no node."""

    unschedulable: bool = False
    scrapes: int = 0

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, str, str]:
        self.scrapes += 1
        lines = [
            f'kube_pod_status_phase{{namespace="demo",pod="web-1",uid="u1",phase="Pending"}} {int(self.unschedulable)}',
            f"kube_pod_status_unschedulable{GATED} 1",
            'kube_pod_status_reason{namespace="demo",pod="gated",uid="u2",reason="SchedulingGated"} 1',
        ]
        if self.unschedulable:
            lines.append(f"kube_pod_status_unschedulable{POD} 1")
        return 200, "text/plain; version=0.0.4", "\n".join(lines) + "\n"


def signature_is_right(request: BaseHTTPRequestHandler, body: bytes) -> bool:
    """Recomputes the SigV4 signature over the headers that it names."""
    scheme, _, rest = request.headers.get("Authorization", "").partition(" ")
    parts = dict(part.strip().split("=", 1) for part in rest.split(",")) if rest else {}
    scope = f"{KEYS['AWS_ACCESS_KEY_ID']}/{request.headers.get('X-Amz-Date', '')[:8]}/ap-southeast-1/sns/aws4_request"
    if scheme != "AWS4-HMAC-SHA256" or parts.get("Credential") != scope:
        return False
    signed = {name: request.headers[name] for name in parts["SignedHeaders"].split(";")}
    url = f"http://{request.headers['Host']}{request.path}"
    again = AWSRequest(method="POST", url=url, data=body, headers=signed)
    again.context["timestamp"] = request.headers["X-Amz-Date"]
    signer = SigV4Auth(Credentials(*KEYS.values()), "sns", "ap-southeast-1")
    text = signer.string_to_sign(again, signer.canonical_request(again))
    return signer.signature(text, again) == parts["Signature"]


@dataclass(slots=True)
class Sns:
    """Takes signed Publish calls on the alert topic and delivers each to the function, as the subscription does."""

    tools: Services
    outcomes: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, str, str]:
        form = dict(urllib.parse.parse_qsl(body.decode()))
        if not signature_is_right(request, body):
            self.refused.append("signature")
            return 403, "text/xml", "<ErrorResponse><Error><Code>SignatureDoesNotMatch</Code></Error></ErrorResponse>"
        assert form["Action"] == "Publish"
        with self.lock:
            self.deliver(form["TopicArn"], form["Message"])
        answer = "<PublishResponse><PublishResult><MessageId>m</MessageId></PublishResult></PublishResponse>"
        return 200, "text/xml", answer

    def deliver(self, topic: str, message: str) -> None:
        event = {"Records": [{"Sns": {"TopicArn": topic, "Message": message, "MessageId": "m"}}]}
        self.outcomes.extend(start_on_alert.handler(event, None)["outcomes"])


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    """The handler's tools over an in-process Step Functions that holds one state machine."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        client: Any = boto3.client("stepfunctions", region_name="ap-southeast-1")
        definition = json.dumps({"StartAt": "Only", "States": {"Only": {"Type": "Succeed"}}})
        machine = client.create_state_machine(name="node-fleet", definition=definition, roleArn=ROLE)
        environment = {"STATE_MACHINE_ARN": machine["stateMachineArn"], **VALUES}
        tools = Services(Settings.from_env(environment))
        tools.__dict__["workflows"] = client
        monkeypatch.setattr(start_on_alert, "load_services", lambda: tools)
        yield tools


def executions(tools: Services) -> list[dict[str, Any]]:
    listed = tools.workflows.list_executions(stateMachineArn=tools.settings.state_machine_arn)["executions"]
    assert isinstance(listed, list)
    return listed


def scraping(exporter_port: int, alertmanager_port: int) -> dict[str, Any]:
    """The shipped configuration with this machine's addresses and a 5 s scrape."""
    configuration = rendered("monitoring/prometheus/prometheus.yml")
    configuration["global"]["scrape_interval"] = f"{SCRAPE_SECONDS}s"
    configuration["global"]["scrape_timeout"] = "2s"
    (exporter,) = [one for one in configuration["scrape_configs"] if one["job_name"] == "kube-state-metrics"]
    exporter["static_configs"] = [{"targets": [f"127.0.0.1:{exporter_port}"]}]
    configuration["scrape_configs"] = [exporter]
    configuration["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{alertmanager_port}"]
    return configuration


def notifying(sns_port: int) -> dict[str, Any]:
    """The shipped configuration with the local SNS, repeating every few seconds."""
    configuration = rendered("monitoring/alertmanager/alertmanager.yml")
    (route,) = configuration["route"]["routes"]
    route.update(group_interval="2s", repeat_interval="3s")
    (receiver,) = [one for one in configuration["receivers"] if one["name"] == "start-workflow"]
    receiver["sns_configs"][0]["api_url"] = f"http://127.0.0.1:{sns_port}"
    return configuration


@value_class
class AlertPath:
    exporter: Exporter
    sns: Sns
    tools: Services
    prometheus: Prometheus


@pytest.fixture
def path(tools: Services, tmp_path: Path) -> Iterator[AlertPath]:
    exporter, sns, port = Exporter(), Sns(tools), free_port()
    with (
        local_server(exporter.answer) as exporter_port,
        local_server(sns.answer) as sns_port,
        alertmanager(tmp_path / "alertmanager", notifying(sns_port), port, **KEYS),
        prometheus(tmp_path / "prometheus", scraping(exporter_port, port)) as server,
    ):
        wait_until(lambda: exporter.scrapes >= 2, "two scrapes")
        yield AlertPath(exporter=exporter, sns=sns, tools=tools, prometheus=server)


def test_an_unschedulable_pod_starts_one_run_within_25_seconds_of_a_5_second_scrape(path: AlertPath) -> None:
    exporter, sns = path.exporter, path.sns
    assert not sns.outcomes, "a gated pod fires nothing"
    scrapes, since = exporter.scrapes, time.monotonic()
    exporter.unschedulable = True
    wait_until(lambda: executions(path.tools), "StartExecution")
    print(f"unschedulable to StartExecution: {time.monotonic() - since:.1f} s, scrape interval {SCRAPE_SECONDS} s")
    assert exporter.scrapes - scrapes <= LIMIT_SECONDS / SCRAPE_SECONDS

    wait_until(lambda: len(sns.outcomes) >= 3, "Alertmanager's repetitions")
    (execution,) = executions(path.tools)
    assert execution["name"].startswith("alert-")
    assert {one.split()[-1] for one in sns.outcomes} == {execution["name"]}, "every repetition names the same run"
    started = path.tools.workflows.describe_execution(executionArn=execution["executionArn"])
    assert json.loads(started["input"]) == {"trigger": "alert", "dry_run": False}
    assert not sns.refused

    exporter.unschedulable = False
    wait_until(lambda: not path.prometheus.vector('ALERTS{alertstate="firing"}'), "the end of the episode")
    assert len(executions(path.tools)) == 1
    exporter.unschedulable = True
    wait_until(lambda: len(executions(path.tools)) == 2, "the second episode's run")
    runs = {one["name"] for one in executions(path.tools)}
    wait_until(lambda: {one.split()[-1] for one in sns.outcomes} == runs, "the answer that names the second run")


def test_a_message_that_the_servers_role_did_not_sign_reaches_nobody(tools: Services) -> None:
    """Stands for the topic's policy: here the local SNS refuses, on AWS the policy admits the server's role alone."""
    import urllib.error
    import urllib.request

    sns = Sns(tools)
    message = {"alertname": "UnschedulablePods", "cluster": "node-fleet-prod", "status": "firing", "starts_at": "t"}
    form = {"Action": "Publish", "TopicArn": VALUES["ALERT_TOPIC_ARN"], "Message": json.dumps(message)}
    with local_server(sns.answer) as port:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/", data=urllib.parse.urlencode(form).encode())
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=5)
        refused.value.close()
        assert refused.value.code == 403
    assert (sns.outcomes, sns.refused) == ([], ["signature"])
    assert not executions(tools)
