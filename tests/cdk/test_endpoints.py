"""Every request of a function goes to a name that AWS publishes and that the function's network reaches."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdk_app.permissions import NEEDS
from tests.cdk.conftest import ATTACHED, LONG_ATTACHED, NEW, App
from tests.support.endpoint_requests import (
    TABLE,
    dual_stack_name,
    ordinary_name,
    published_names,
    requested_hosts,
    services_of,
)

REGION = "ap-southeast-1"
# The gateway endpoint of DynamoDB: mode new creates it, mode attach with ipv6 requires it.
SERVED_BY_GATEWAY = {"dynamodb"}


def functions(app: App, cluster: str) -> list[dict[str, Any]]:
    return list(app.resources(f"{cluster}-autoscaler", "AWS::Lambda::Function").values())


def requests(
    cluster: str, deployed: list[dict[str, Any]], *, in_vpc: bool, region: str = REGION
) -> set[tuple[str, str]]:
    """Service and host of each request of the functions inside or outside the VPC."""
    called: dict[str, set[str]] = {}
    for function in deployed:
        if ("VpcConfig" in function) is in_vpc:
            environment = json.dumps(function["Environment"]["Variables"], sort_keys=True)
            called.setdefault(environment, set()).update(
                services_of(function["FunctionName"].removeprefix(f"{cluster}-"))
            )
    made = set()
    for environment, services in called.items():
        for service, hosts in requested_hosts(services, json.loads(environment), region).items():
            assert hosts, f"no request went to {service}"
            made |= {(service, host) for host in hosts}
    return made


def expected_over_ipv6(service: str, region: str) -> str:
    return (ordinary_name if service in SERVED_BY_GATEWAY else dual_stack_name)(service, region)


@pytest.mark.parametrize("region", [REGION, "us-east-1", "eu-central-1"])
def test_functions_in_the_network_of_mode_new_ask_published_names_that_they_reach(app: App, region: str) -> None:
    made = requests(NEW, functions(app, NEW), in_vpc=True, region=region)
    assert {service for service, _ in made} == {"dynamodb", "ec2", "secretsmanager", "ssm"}
    for service, host in made:
        assert host in published_names(service, region)
        assert host == expected_over_ipv6(service, region)


def test_functions_of_an_attached_network_with_ipv6_ask_published_names_that_they_reach(
    variants: App,
) -> None:
    made = requests(LONG_ATTACHED, functions(variants, LONG_ATTACHED), in_vpc=True)
    assert {service for service, _ in made} == {"dynamodb", "ec2", "secretsmanager", "ssm"}
    for service, host in made:
        assert host in published_names(service, REGION)
        assert host == expected_over_ipv6(service, REGION)


@pytest.mark.parametrize(("cluster", "in_vpc"), [(NEW, False), (ATTACHED, False), (ATTACHED, True)])
def test_functions_with_a_way_out_over_ipv4_ask_the_ordinary_names(app: App, cluster: str, in_vpc: bool) -> None:
    made = requests(cluster, functions(app, cluster), in_vpc=in_vpc)
    assert "dynamodb" in {service for service, _ in made}
    for service, host in made:
        assert host in published_names(service, REGION)
        assert host == ordinary_name(service, REGION)


def test_the_table_names_its_sources_and_every_service_of_the_functions() -> None:
    called = {service for name in NEEDS for service in services_of(name)}
    assert called == set(TABLE["services"])
    for entry in TABLE["services"].values():
        assert entry["source"]
        assert entry["date"] >= "2026-09-01"
        assert set(entry["dual_stack"]) <= set(TABLE["regions"])


def test_dynamodb_has_no_dual_stack_name_where_the_example_cluster_runs() -> None:
    assert published_names("dynamodb", REGION) == {f"dynamodb.{REGION}.amazonaws.com"}
