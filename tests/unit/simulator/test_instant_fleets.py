"""The simulated CreateFleet, held to the model of botocore and to moto's own where moto has an answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import botocore.session
import pytest
from botocore.exceptions import ClientError
from botocore.validate import validate_parameters
from moto import mock_aws

from simulator.aws.cloud import Cloud
from simulator.aws.faults import FaultRule
from simulator.aws.moto_patches.fleet import REQUEST
from simulator.clock import VirtualClock
from tests.support.handlers.bench import MOTO_IMAGE, START

TAGS = [{"Key": "Operation", "Value": "up-1"}]
MODEL = botocore.session.get_session().get_service_model("ec2").operation_model("CreateFleet")


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(VirtualClock(START)) as made:
        yield made


def request(ec2: Any, market: str, *types: str, count: int = 1, **more: Any) -> dict[str, Any]:
    """A request for one subnet and these types."""
    subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    known = ec2.describe_launch_templates()["LaunchTemplates"]
    made = known[0] if known else _template(ec2)
    return {
        "Type": "instant",
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {"LaunchTemplateId": made["LaunchTemplateId"], "Version": "1"},
                "Overrides": [
                    {"InstanceType": kind, "SubnetId": subnet, "Priority": float(place)}
                    for place, kind in enumerate(types)
                ],
            }
        ],
        "TargetCapacitySpecification": {"TotalTargetCapacity": count, "DefaultTargetCapacityType": market},
        "SpotOptions": {"AllocationStrategy": "price-capacity-optimized"},
        "OnDemandOptions": {"AllocationStrategy": "prioritized"},
        "TagSpecifications": [{"ResourceType": kind, "Tags": TAGS} for kind in ("fleet", "instance", "volume")],
        **more,
    }


def _template(ec2: Any) -> Any:
    data = {"ImageId": MOTO_IMAGE, "InstanceType": "t3.small"}
    return ec2.create_launch_template(LaunchTemplateName="workers", LaunchTemplateData=data)["LaunchTemplate"]


def create(cloud: Cloud, market: str, *types: str, **more: Any) -> Any:
    ec2 = cloud.client("ec2")
    return ec2.create_fleet(**request(ec2, market, *types, **more))


def launched(answer: Any) -> list[tuple[str, int]]:
    return [(part["InstanceType"], len(part["InstanceIds"])) for part in answer["Instances"]]


def refused(answer: Any) -> list[tuple[str, str]]:
    named = [(e["LaunchTemplateAndOverrides"]["Overrides"]["InstanceType"], e["ErrorCode"]) for e in answer["Errors"]]
    assert all(e["ErrorMessage"] and e["Lifecycle"] for e in answer["Errors"])
    return named


def shown(ec2: Any, market: str, count: int) -> Any:
    """What a fleet of one type is answered with, and its instances as EC2 describes them."""
    asked = request(ec2, market, "t3.small", count=count)
    answer = ec2.create_fleet(**asked)
    ids = [i for part in answer["Instances"] for i in part["InstanceIds"]]
    found = [one for each in ec2.describe_instances(InstanceIds=ids)["Reservations"] for one in each["Instances"]]
    subnet = asked["LaunchTemplateConfigs"][0]["Overrides"][0]["SubnetId"]
    return (
        {(part["InstanceType"], part["Lifecycle"]) for part in answer["Instances"]},
        [(i["InstanceType"], i.get("InstanceLifecycle"), i["SubnetId"] == subnet, TAGS[0] in i["Tags"]) for i in found],
    )


@pytest.mark.parametrize("market", ["spot", "on-demand"])
@pytest.mark.parametrize("count", [1, 3])
def test_where_every_pool_has_capacity_the_answer_is_that_of_moto(market: str, count: int) -> None:
    with mock_aws():
        of_moto = shown(boto3.client("ec2", region_name="eu-central-1"), market, count)
    with Cloud(VirtualClock(START)) as made:
        assert shown(made.client("ec2"), market, count) == of_moto


@pytest.mark.parametrize("market", ["spot", "on-demand"])
def test_the_answer_has_only_members_of_the_model_of_their_types(cloud: Cloud, market: str) -> None:
    cloud.ec2.dry_pool(instance_type="t3.small")
    answer = create(cloud, market, "t3.small", "t3a.small", count=2)
    del answer["ResponseMetadata"]
    assert MODEL.output_shape is not None and MODEL.input_shape is not None
    validate_parameters(answer, MODEL.output_shape)
    assert set(answer) <= set(MODEL.output_shape.members) and set(REQUEST) <= set(MODEL.input_shape.members)
    strategies = {
        name: MODEL.input_shape.members[name].members["AllocationStrategy"].enum
        for name in ("SpotOptions", "OnDemandOptions")
    }
    assert "price-capacity-optimized" in strategies["SpotOptions"]
    assert {"prioritized", "lowest-price"} <= set(strategies["OnDemandOptions"])


def test_of_spot_the_pool_with_the_lowest_price_is_taken_whatever_the_order(cloud: Cloud) -> None:
    cloud.fleets.prices.update({"t3.small": 0.03, "t3a.small": 0.02, "t3.medium": 0.01})
    assert launched(create(cloud, "spot", "t3.small", "t3a.small", "t3.medium", count=2)) == [("t3.medium", 2)]
    cloud.ec2.dry_pool(instance_type="t3.medium")
    answer = create(cloud, "spot", "t3.small", "t3a.small", "t3.medium", count=2)
    assert launched(answer) == [("t3a.small", 2)]
    assert refused(answer) == [("t3.medium", "InsufficientInstanceCapacity")]


@pytest.mark.parametrize(("strategy", "first"), [("prioritized", "t3.medium"), ("lowest-price", "t3.small")])
def test_of_on_demand_the_priority_or_the_price_decides(cloud: Cloud, strategy: str, first: str) -> None:
    options = {"AllocationStrategy": strategy}
    answer = create(cloud, "on-demand", "t3.medium", "t3.small", OnDemandOptions=options)
    assert launched(answer) == [(first, 1)]


def test_what_one_type_lacks_comes_from_the_next_and_the_rest_is_missing(cloud: Cloud) -> None:
    left = iter((False, False, True, False, True))
    cloud.ec2.dry_pool(when=lambda: next(left))
    answer = create(cloud, "on-demand", "t3.small", "t3a.small", count=5)
    assert launched(answer) == [("t3.small", 2), ("t3a.small", 1)]
    assert [kind for kind, _ in refused(answer)] == ["t3.small", "t3a.small"]


def test_the_same_token_returns_the_same_instances_and_other_parameters_are_a_mismatch(cloud: Cloud) -> None:
    first, second = (create(cloud, "spot", "t3.small", count=2, ClientToken="t") for _ in range(2))
    assert (first["FleetId"], first["Instances"]) == (second["FleetId"], second["Instances"])
    assert len(cloud.ec2.live_ids()) == 2
    with pytest.raises(ClientError, match="IdempotentParameterMismatch"):
        create(cloud, "spot", "t3.small", count=3, ClientToken="t")
    create(cloud, "spot", "t3.small", count=2, ClientToken="other")
    assert len(cloud.ec2.live_ids()) == 4


def test_an_answer_without_instances_is_the_answer_of_its_token_too(cloud: Cloud) -> None:
    rule = cloud.ec2.dry_pool()
    refused_first = create(cloud, "spot", "t3.small", ClientToken="t")
    cloud.faults.remove(rule)
    assert refused(create(cloud, "spot", "t3.small", ClientToken="t")) == refused(refused_first)
    cloud.clock.advance(86_400)
    assert launched(create(cloud, "spot", "t3.small", ClientToken="t")) == [("t3.small", 1)]


def test_a_fault_of_the_request_itself_launches_nothing_and_a_lost_connection_is_no_fault_of_a_pool(
    cloud: Cloud,
) -> None:
    cloud.faults.inject(FaultRule(operation="CreateFleet", code="VcpuLimitExceeded", count=1))
    with pytest.raises(ClientError, match="VcpuLimitExceeded"):
        create(cloud, "spot", "t3.small")
    cloud.faults.inject(FaultRule(operation="RunInstances", code="ReplyLost"))
    assert launched(create(cloud, "spot", "t3.small")) == [("t3.small", 1)]


def test_a_missing_template_is_named(cloud: Cloud) -> None:
    ec2 = cloud.client("ec2")
    asked = request(ec2, "spot", "t3.small")
    asked["LaunchTemplateConfigs"][0]["LaunchTemplateSpecification"]["LaunchTemplateId"] = "lt-0123456789abcdef0"
    with pytest.raises(ClientError, match="lt-0123456789abcdef0"):
        ec2.create_fleet(**asked)


def test_a_fleet_of_another_type_stays_as_moto_makes_it(cloud: Cloud) -> None:
    assert "Instances" not in create(cloud, "on-demand", "t3.small", Type="request")
