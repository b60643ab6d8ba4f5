"""How functions reach AWS and Prometheus without a NAT gateway, and which connections are open."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ConnectTimeoutError

from cdk_app.permissions import NEEDS
from cdk_app.workflow import HANDLERS, handlers
from node_fleet import services
from node_fleet.adapters.ec2 import Ec2Fleet
from node_fleet.adapters.records import Records
from node_fleet.adapters.secrets import Secrets
from node_fleet.adapters.server import ServerCommands
from node_fleet.adapters.state_store import StateStore
from node_fleet.settings import Settings
from tests.cdk.conftest import ATTACHED, NEW, App

REGION = "ap-southeast-1"
# The most that boto3 pauses between three attempts in its standard mode.
BACK_OFF_SECONDS = 3
Template = dict[str, Any]


def in_vpc(app: App, cluster: str) -> list[dict[str, Any]]:
    found = app.resources(f"{cluster}-autoscaler", "AWS::Lambda::Function").values()
    return [copy.deepcopy(f) for f in found if "VpcConfig" in f]


def test_functions_in_the_vpc_have_a_way_out_over_ipv6_and_an_endpoint_of_dynamodb(app: App) -> None:
    """Which names they ask, and that these names answer over IPv6, is held by the tests of endpoints."""
    stack = f"{NEW}-network"
    private = {n for n, s in app.resources(stack, "AWS::EC2::Subnet").items() if not s["MapPublicIpOnLaunch"]}
    assert all("Ipv6CidrBlock" in app.resources(stack, "AWS::EC2::Subnet")[name] for name in private)
    tables = {
        link["SubnetId"]["Ref"]: link["RouteTableId"]["Ref"]
        for link in app.resources(stack, "AWS::EC2::SubnetRouteTableAssociation").values()
    }
    routes = app.resources(stack, "AWS::EC2::Route").values()
    out = {r["RouteTableId"]["Ref"] for r in routes if "EgressOnlyInternetGatewayId" in r}
    assert {r["DestinationIpv6CidrBlock"] for r in routes if "EgressOnlyInternetGatewayId" in r} == {"::/0"}
    assert {tables[name] for name in private} == out
    names = [e["ServiceName"] for e in app.resources(stack, "AWS::EC2::VPCEndpoint").values()]
    assert ".dynamodb" in json.dumps(names)
    functions = in_vpc(app, NEW)
    assert functions
    assert all(f["VpcConfig"]["Ipv6AllowedForDualStack"] is True for f in functions)


@pytest.mark.parametrize("service", ["ec2", "ssm", "dynamodb", "secretsmanager", "sns", "stepfunctions"])
def test_a_client_times_out_well_before_the_shortest_function(app: App, service: str) -> None:
    deployed = app.resources(f"{NEW}-autoscaler", "AWS::Lambda::Function").values()
    shortest = min(f["Timeout"] for f in deployed if NEEDS[f["FunctionName"].removeprefix(f"{NEW}-")].grants)
    config = services._client(service, REGION, 3).meta.config
    attempts = config.retries["total_max_attempts"]
    assert 3 <= config.connect_timeout <= 5
    assert config.read_timeout <= 10
    assert config.connect_timeout * attempts + BACK_OFF_SECONDS < shortest


class Hanging:
    """Every call of every client ends as a call does that finds no way out."""

    def get_paginator(self, name: str) -> Hanging:
        return self

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(**arguments: Any) -> Any:
            raise ConnectTimeoutError(endpoint_url="https://nowhere.example")

        return call


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda s: Ec2Fleet(Hanging(), s).instances(), "EC2"),
        (lambda s: StateStore(Hanging(), s, None).load(), "k3s-autoscaler-state"),
        (lambda s: Records(Hanging(), s).latest_snapshot(0), "k3s-autoscaler-events"),
        (lambda s: Secrets(Hanging()).text("node-fleet/prometheus-auth"), "secret node-fleet/prometheus-auth"),
        (lambda s: ServerCommands(Hanging(), _Server(), s, _Clock()).send("CheckNode", {"NodeName": "n"}), "SSM"),
    ],
    ids=["ec2", "state", "records", "secrets", "ssm"],
)
def test_the_error_names_the_service(call: Callable[[Settings], Any], names: str) -> None:
    with pytest.raises(Exception, match=names) as caught:
        call(Settings())
    assert type(caught.value).__module__.startswith("node_fleet.")


class _Server:
    instance_id = "i-0123456789abcdef0"

    def server(self) -> _Server:
        return self


class _Clock:
    def now(self) -> int:
        return 0


def test_there_is_no_nat_gateway_and_the_gateway_endpoints_are_the_free_ones(app: App) -> None:
    stack = f"{NEW}-network"
    assert not app.resources(stack, "AWS::EC2::NatGateway")
    kinds = [e["VpcEndpointType"] for e in app.resources(stack, "AWS::EC2::VPCEndpoint").values()]
    assert kinds == ["Gateway", "Gateway"]


def test_there_are_two_zones_named_without_a_look_up(app: App) -> None:
    subnets = app.resources(f"{NEW}-network", "AWS::EC2::Subnet").values()
    assert {s["AvailabilityZone"] for s in subnets} == {"ap-southeast-1a", "ap-southeast-1b"}


@pytest.mark.parametrize("cluster", [NEW, ATTACHED])
def test_prometheus_is_open_to_the_reading_functions_only(app: App, cluster: str) -> None:
    (rule,) = app.resources(f"{cluster}-autoscaler", "AWS::EC2::SecurityGroupIngress").values()
    assert (rule["FromPort"], rule["ToPort"], rule["IpProtocol"]) == (30090, 30090, "tcp")
    assert rule["SourceSecurityGroupId"]["Fn::GetAtt"][0].startswith("FunctionGroup")
    assert "CidrIp" not in rule


def test_nothing_is_open_to_the_world(app: App) -> None:
    stack = f"{NEW}-cluster"
    rules = [
        r for g in app.resources(stack, "AWS::EC2::SecurityGroup").values() for r in g.get("SecurityGroupIngress", [])
    ]
    rules += app.resources(stack, "AWS::EC2::SecurityGroupIngress").values()
    assert rules
    assert not [r for r in rules if "CidrIp" in r or "CidrIpv6" in r]
    assert 22 not in {r["FromPort"] for r in rules}


def test_exactly_the_functions_whose_code_reads_prometheus_are_inside_the_vpc(app: App) -> None:
    inside = {f["FunctionName"].removeprefix(f"{NEW}-") for f in in_vpc(app, NEW)}
    code = {name: (HANDLERS / f"{module}.py").read_text(encoding="utf-8") for name, module in handlers().items()}
    assert inside == {name for name, text in code.items() if "services.prometheus" in text}


def test_an_attached_network_with_its_own_way_out_uses_the_usual_names(app: App) -> None:
    for function in in_vpc(app, ATTACHED):
        assert "AWS_USE_DUALSTACK_ENDPOINT" not in function["Environment"]["Variables"]
        assert function["VpcConfig"]["SubnetIds"] == ["subnet-0aaaaaaaaaaaaaaa1", "subnet-0aaaaaaaaaaaaaaa2"]
