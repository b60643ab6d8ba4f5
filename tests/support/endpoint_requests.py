"""The host names that a function asks, caught from real requests of its clients, and the names that AWS publishes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

import boto3

from cdk_app.endpoints import endpoint_names
from cdk_app.permissions import NEEDS
from node_fleet import services
from node_fleet.adapters.ec2 import Ec2Fleet
from node_fleet.domain.notify.message import Message
from node_fleet.services import Services
from node_fleet.settings import Settings

TABLE = endpoint_names()
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "t"}
TOPIC = "arn:aws:sns:ap-southeast-1:123456789012:messages"
IAM_PREFIX = {"secrets-manager": "secretsmanager", "sfn": "states"}


def _ask_ssm(made: Services) -> None:
    server = SimpleNamespace(instance_id="i-0123456789abcdef0")
    with mock.patch.object(Ec2Fleet, "server", return_value=server):
        made.server.result("00000000-0000-4000-8000-000000000000")


MESSAGE = Message(cluster_id="c", level="info", what="hello", why="hello", execution_id="e", trigger="schedule")
CALLS: dict[str, tuple[Callable[[Services], Any], ...]] = {
    "dynamodb": (lambda s: s.state.load(), lambda s: s.records.readings(0, 1)),
    "ec2": (lambda s: s.ec2.instances(), lambda s: s.ec2.launched_by("operation")),
    "secretsmanager": (lambda s: s.secrets.text("node-fleet/prometheus-auth"),),
    "sns": (lambda s: s.publisher.publish(MESSAGE),),
    "ssm": (_ask_ssm,),
    "states": (lambda s: s.workflows.start_execution(stateMachineArn="arn:aws:states:::stateMachine:m"),),
}
"""Calls that send a request through every client of a service; the keys are the prefixes of IAM actions."""


class CaughtRequestError(Exception):
    """Ends a call before anything leaves the machine."""


def services_of(function: str) -> set[str]:
    """The services that the code of a function calls, from its permissions."""
    return {a.split(":")[0] for g in NEEDS[function].grants if not g.by_aws for a in g.actions}


def requested_hosts(called: set[str], environment: Mapping[str, Any], region: str) -> dict[str, set[str]]:
    """The host names by service, for functions that call these services in this environment of the deployment."""
    texts = {key: value for key, value in environment.items() if isinstance(value, str)} | {"SNS_TOPIC_ARN": TOPIC}
    with _lambda(texts | CREDENTIALS | {"AWS_REGION": region}) as caught:
        made = Services(Settings.from_env({**texts, "AWS_REGION": region}))
        for call in (call for service in sorted(called) for call in CALLS[service]):
            with suppress(Exception):
                call(made)
    return {service: caught.get(service, set()) for service in called}


@contextmanager
def _lambda(environment: dict[str, str]) -> Iterator[dict[str, set[str]]]:
    caught: dict[str, set[str]] = {}

    def catch(request: Any, event_name: str, **_: Any) -> None:
        service = event_name.split(".")[1]
        caught.setdefault(IAM_PREFIX.get(service, service), set()).add(urlsplit(request.url).hostname or "")
        raise CaughtRequestError

    with mock.patch.dict("os.environ", environment, clear=True), mock.patch.object(boto3, "DEFAULT_SESSION", None):
        boto3.setup_default_session()
        session: Any = boto3.DEFAULT_SESSION
        session.events.register_first("before-send", catch)
        services._client.cache_clear()
        try:
            yield caught
        finally:
            services._client.cache_clear()


def ordinary_name(service: str, region: str) -> str:
    """The name that answers over IPv4."""
    return f"{service}.{region}.amazonaws.com"


def dual_stack_name(service: str, region: str) -> str:
    """The name that answers over IPv4 and IPv6, where AWS publishes it."""
    name: str = TABLE["services"][service]["dual_stack_name"]
    return name.replace("REGION", region)


def published_names(service: str, region: str) -> set[str]:
    """Every name of the service that AWS publishes in the region."""
    if region not in TABLE["regions"]:
        return set()
    has_dual_stack = region in TABLE["services"][service]["dual_stack"]
    return {ordinary_name(service, region)} | ({dual_stack_name(service, region)} if has_dual_stack else set())
