"""How functions reach AWS and Prometheus without a NAT gateway, and which connections are open."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ConnectTimeoutError

from cdk_app.permissions import NEEDS
from cdk_app.workflow import handlers
from node_fleet import services
from node_fleet.adapters.ec2 import Ec2Fleet
from node_fleet.adapters.records import Records
from node_fleet.adapters.secrets import Secrets
from node_fleet.adapters.server import ServerCommands
from node_fleet.adapters.state_store import StateStore
from node_fleet.settings import Settings
from tests.cdk.conftest import ATTACHED, NEW, App
from tests.support.endpoint_requests import dual_stack_name, ordinary_name, published_names, requested_hosts

REGION = "ap-southeast-1"
# The most that boto3 pauses between three attempts in its standard mode.
BACK_OFF_SECONDS = 3
Template = dict[str, Any]


def services_called_from_the_vpc() -> set[str]:
    needs = [NEEDS[name] for name in handlers() if NEEDS[name].prometheus]
    return {a.split(":")[0] for n in needs for g in n.grants if not g.by_aws for a in g.actions}


def unreachable(network: Template, functions: list[dict[str, Any]], services: set[str]) -> list[str]:
    """What would hang: services that a function in the VPC cannot reach, each with the reason."""
    by_type = lambda kind: [r["Properties"] for r in network["Resources"].values() if r["Type"] == kind]  # noqa: E731
    if by_type("AWS::EC2::NatGateway"):
        return []
    out = [r for r in by_type("AWS::EC2::Route") if r.get("DestinationIpv6CidrBlock") == "::/0"]
    way_out = [r for r in out if "EgressOnlyInternetGatewayId" in r]
    private = [s for s in by_type("AWS::EC2::Subnet") if not s["MapPublicIpOnLaunch"]]
    gateways = json.dumps(
        [e["ServiceName"] for e in by_type("AWS::EC2::VPCEndpoint") if e["VpcEndpointType"] == "Gateway"]
    )
    environments = {json.dumps(f["Environment"]["Variables"], sort_keys=True) for f in functions}
    requested = [requested_hosts(services, json.loads(environment), REGION) for environment in sorted(environments)]
    found = []
    for service in sorted(services):
        hosts = set().union(*(hosts[service] for hosts in requested))
        if not hosts <= published_names(service, REGION):
            found.append(f"{service}: a function asks a name that does not exist")
        elif hosts == {ordinary_name(service, REGION)} and f".{service}" in gateways:
            continue
        elif hosts != {dual_stack_name(service, REGION)}:
            found.append(f"{service}: a function asks a name that answers over IPv4 only")
        elif len(way_out) < len(private) or not all("Ipv6CidrBlock" in s for s in private):
            found.append(f"{service}: the subnets have no way out over IPv6")
        elif not all(f["VpcConfig"].get("Ipv6AllowedForDualStack") for f in functions):
            found.append(f"{service}: a function has no IPv6 address")
    return found


def in_vpc(app: App, cluster: str) -> list[dict[str, Any]]:
    found = app.resources(f"{cluster}-autoscaler", "AWS::Lambda::Function").values()
    return [copy.deepcopy(f) for f in found if "VpcConfig" in f]


def test_every_service_called_from_the_vpc_is_reachable(app: App) -> None:
    functions = in_vpc(app, NEW)
    assert {f["FunctionName"].removeprefix(f"{NEW}-") for f in functions} == {
        n for n in handlers() if NEEDS[n].prometheus
    }
    assert unreachable(app.templates[f"{NEW}-network"], functions, services_called_from_the_vpc()) == []


def _no_route(network: Template, functions: list[dict[str, Any]]) -> None:
    resources = network["Resources"]
    for name in [n for n, r in resources.items() if "EgressOnlyInternetGatewayId" in r.get("Properties", {})]:
        del resources[name]


def _ipv4_subnet(network: Template, functions: list[dict[str, Any]]) -> None:
    next(
        r["Properties"]
        for r in network["Resources"].values()
        if r["Type"] == "AWS::EC2::Subnet" and not r["Properties"]["MapPublicIpOnLaunch"]
    ).pop("Ipv6CidrBlock")


def _no_ipv6_function(network: Template, functions: list[dict[str, Any]]) -> None:
    functions[0]["VpcConfig"]["Ipv6AllowedForDualStack"] = False


def _ipv4_names(network: Template, functions: list[dict[str, Any]]) -> None:
    del functions[-1]["Environment"]["Variables"]["AWS_USE_DUALSTACK_ENDPOINT"]


def _no_gateway(network: Template, functions: list[dict[str, Any]]) -> None:
    resources = network["Resources"]
    for name in [n for n, r in resources.items() if r["Type"] == "AWS::EC2::VPCEndpoint"]:
        del resources[name]


def test_a_missing_gateway_endpoint_of_dynamodb_is_noticed(app: App) -> None:
    network, functions = copy.deepcopy(app.templates[f"{NEW}-network"]), in_vpc(app, NEW)
    _no_gateway(network, functions)
    assert unreachable(network, functions, services_called_from_the_vpc()) == [
        "dynamodb: a function asks a name that answers over IPv4 only"
    ]


@pytest.mark.parametrize("spoil", [_no_route, _ipv4_subnet, _no_ipv6_function, _ipv4_names])
def test_every_missing_part_of_the_path_is_noticed(app: App, spoil: Callable[..., None]) -> None:
    network, functions = copy.deepcopy(app.templates[f"{NEW}-network"]), in_vpc(app, NEW)
    spoil(network, functions)
    problems = unreachable(network, functions, services_called_from_the_vpc())
    # Secrets Manager has one name for both address families: it survives a function that asks for ordinary names.
    lost = ["ec2", "ssm"] if spoil is _ipv4_names else ["ec2", "secretsmanager", "ssm"]
    assert [line.split(":")[0] for line in problems] == lost


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
        (lambda s: Records(Hanging(), s).latest_snapshot(), "k3s-metrics-history"),
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


def test_functions_that_do_not_read_prometheus_stay_outside_the_vpc(app: App) -> None:
    found = app.resources(f"{NEW}-autoscaler", "AWS::Lambda::Function").values()
    outside = {f["FunctionName"].removeprefix(f"{NEW}-") for f in found if "VpcConfig" not in f}
    assert outside == {name for name in handlers() if not NEEDS[name].prometheus}


def test_an_attached_network_with_its_own_way_out_uses_the_usual_names(app: App) -> None:
    for function in in_vpc(app, ATTACHED):
        assert "AWS_USE_DUALSTACK_ENDPOINT" not in function["Environment"]["Variables"]
        assert function["VpcConfig"]["SubnetIds"] == ["subnet-0aaaaaaaaaaaaaaa1", "subnet-0aaaaaaaaaaaaaaa2"]
