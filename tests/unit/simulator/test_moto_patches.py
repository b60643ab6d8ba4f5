"""Each place where the simulator reaches into moto, by what it must do; an upgrade of moto fails here first."""

from __future__ import annotations

import threading
from enum import Enum
from typing import Any

import boto3
import botocore.session
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError
from hypothesis import given
from hypothesis import strategies as st
from moto import mock_aws

from simulator.aws import Cloud, FaultRule
from simulator.aws.faults import CONNECTION_REFUSED, REPLY_LOST
from simulator.aws.moto_patches import PatchError, expect, swapped
from simulator.aws.moto_patches.speed import json_copy
from simulator.clock import VirtualClock
from tests.support.simulated_aws import create_table, launch, refused

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def nested(value: Any) -> list[Any]:
    """The lists and dictionaries in a value, itself included, in order."""
    if isinstance(value, dict):
        return [value, *(found for item in value.values() for found in nested(item))]
    if isinstance(value, list):
        return [value, *(found for item in value for found in nested(item))]
    return []


def states(cloud: Cloud, **filters: Any) -> list[str]:
    pages = cloud.client("ec2").get_paginator("describe_instances").paginate(**filters)
    return [one["State"]["Name"] for page in pages for group in page["Reservations"] for one in group["Instances"]]


def spot(cloud: Cloud) -> str:
    return launch(cloud, InstanceMarketOptions={"MarketType": "spot"})


# the guard itself


def test_a_seam_whose_place_is_gone_is_named() -> None:
    with pytest.raises(PatchError, match=r"Thread\.no_such: it does not exist"):
        expect(threading.Thread, "no_such")


def test_a_seam_whose_parameters_changed_says_which() -> None:
    with (
        pytest.raises(PatchError, match="the patch was written for"),
        swapped(threading.Thread, "join", None, "self", "x"),
    ):
        pass


def test_every_seam_is_gone_after_closing() -> None:
    from botocore.client import BaseClient
    from moto.core.botocore_stubber import BotocoreStubber
    from moto.ec2.models.instances import Instance
    from moto.ssm.responses import SimpleSystemManagerResponse as Response

    def places() -> list[Any]:
        return [
            BaseClient._make_api_call,
            BotocoreStubber.__call__,
            Instance.terminate,
            hasattr(Response, "cancel_command"),
        ]

    before = places()
    with Cloud(VirtualClock()):
        assert not any(now is then for now, then in zip(places(), before, strict=True))
    assert places() == before


# EC2


def test_an_instance_is_pending_then_running_then_shuts_down_and_vanishes(cloud: Cloud) -> None:
    instance_id = launch(cloud)
    assert states(cloud) == ["pending"]
    cloud.clock.advance(8)
    assert states(cloud) == ["running"]
    cloud.client("ec2").terminate_instances(InstanceIds=[instance_id])
    assert states(cloud) == ["shutting-down"]
    cloud.clock.advance(20)
    assert states(cloud) == ["terminated"]
    cloud.clock.advance(3600)
    assert states(cloud) == []
    with refused("InvalidInstanceID.NotFound"):
        states(cloud, InstanceIds=[instance_id])


def test_terminating_twice_succeeds(cloud: Cloud) -> None:
    instance_id = launch(cloud)
    for _ in range(2):
        cloud.client("ec2").terminate_instances(InstanceIds=[instance_id])
    cloud.clock.advance(20)
    reply = cloud.client("ec2").terminate_instances(InstanceIds=[instance_id])
    assert reply["TerminatingInstances"][0]["PreviousState"]["Name"] == "terminated"


def test_the_same_client_token_launches_once(cloud: Cloud) -> None:
    assert launch(cloud, ClientToken="slot-1") == launch(cloud, ClientToken="slot-1")
    assert launch(cloud, ClientToken="slot-2") != launch(cloud, ClientToken="slot-1")
    assert len(states(cloud)) == 2


def test_a_client_token_with_other_parameters_is_a_mismatch(cloud: Cloud) -> None:
    launch(cloud, ClientToken="slot-1")
    with refused("IdempotentParameterMismatch"):
        launch(cloud, ClientToken="slot-1", InstanceType="t3.large")


def test_instances_are_filtered_by_lifecycle_and_token(cloud: Cloud) -> None:
    wanted = spot(cloud)
    launch(cloud, ClientToken="mine")
    reply = cloud.client("ec2").describe_instances(Filters=[{"Name": "instance-lifecycle", "Values": ["spot"]}])
    assert [one["InstanceId"] for group in reply["Reservations"] for one in group["Instances"]] == [wanted]
    assert reply["Reservations"][0]["Instances"][0]["InstanceLifecycle"] == "spot"
    assert len(states(cloud, Filters=[{"Name": "client-token", "Values": ["mine"]}])) == 1


def test_pages_can_be_small(cloud: Cloud) -> None:
    for _ in range(5):
        launch(cloud)
    cloud.ec2.page_size = 2
    assert len(cloud.client("ec2").describe_instances()["Reservations"]) == 2
    assert len(states(cloud)) == 5


def test_a_new_instance_can_be_unknown_for_some_seconds(cloud: Cloud) -> None:
    cloud.ec2.delays.invisible_seconds = 5
    instance_id = launch(cloud)
    assert states(cloud) == []
    with refused("InvalidInstanceID.NotFound"):
        states(cloud, InstanceIds=[instance_id])
    cloud.clock.advance(5)
    assert states(cloud, InstanceIds=[instance_id]) == ["pending"]


def test_a_spot_instance_is_announced_and_then_taken(cloud: Cloud) -> None:
    events: list[tuple[float, str, Any]] = []
    cloud.ec2.events.append(lambda source, kind, detail, arns: events.append((cloud.clock.now(), kind, detail)))
    instance_id = spot(cloud)
    cloud.clock.advance(10)
    warned = cloud.clock.now()
    cloud.ec2.warn_spot(instance_id)
    cloud.clock.advance(121)
    warning = {"instance-id": instance_id, "instance-action": "terminate"}
    assert (warned, "EC2 Spot Instance Interruption Warning", warning) in events
    end = {"instance-id": instance_id, "state": "shutting-down"}
    assert (warned + 120, "EC2 Instance State-change Notification", end) in events
    reply = cloud.client("ec2").describe_instances(InstanceIds=[instance_id])
    assert reply["Reservations"][0]["Instances"][0]["StateReason"]["Code"] == "Server.SpotInstanceTermination"


def test_an_announced_spot_instance_can_be_spared(cloud: Cloud) -> None:
    instance_id = spot(cloud)
    handle = cloud.ec2.warn_spot(instance_id)
    assert handle is not None
    cloud.clock.cancel(handle)
    cloud.clock.advance(600)
    assert states(cloud) == ["running"]


def test_a_dry_pool_fails_as_ec2_does_and_the_others_do_not(cloud: Cloud) -> None:
    rule = cloud.ec2.dry_pool(market="spot", instance_type="t3.small", count=1)
    with refused("InsufficientInstanceCapacity", 500):
        spot(cloud)
    launch(cloud)
    spot(cloud)
    assert rule.hits == 1


def test_a_dry_pool_of_one_zone_recovers_at_its_time(cloud: Cloud) -> None:
    subnets = cloud.client("ec2").describe_subnets()["Subnets"]
    by_zone = {subnet["AvailabilityZone"]: subnet["SubnetId"] for subnet in subnets}
    zone = f"{cloud.region}b"
    cloud.ec2.dry_pool(az=zone, code="Unsupported", until=cloud.clock.now() + 60)
    with refused("Unsupported"):
        launch(cloud, SubnetId=by_zone[zone])
    launch(cloud, SubnetId=by_zone[f"{cloud.region}a"])
    cloud.clock.advance(60)
    launch(cloud, SubnetId=by_zone[zone])


def test_a_changed_tag_is_seen_at_once(cloud: Cloud) -> None:
    instance_id = launch(cloud)
    client = cloud.client("ec2")
    filters = [{"Name": "tag:Role", "Values": ["k3s-worker"]}]
    assert states(cloud, Filters=filters) == []
    client.create_tags(Resources=[instance_id], Tags=[{"Key": "Role", "Value": "k3s-worker"}])
    assert states(cloud, Filters=filters) == ["pending"]
    client.delete_tags(Resources=[instance_id], Tags=[{"Key": "Role"}])
    assert states(cloud, Filters=filters) == []


@given(json_values)
def test_payloads_are_copied_deeply_and_unchanged(value: Any) -> None:
    copied = json_copy(value)
    assert copied == value
    for one, other in zip(nested(copied), nested(value), strict=True):
        assert one is not other


class Market(Enum):
    SPOT = "spot"


class Plain:
    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)


class Slotted:
    __slots__ = ("part",)

    def __init__(self, part: Any) -> None:
        self.part = part


def test_an_object_is_copied_with_its_parts_and_one_with_rules_of_its_own_by_them() -> None:
    value = Plain(name="a", parts=[Plain(deep=1)], market=Market.SPOT, slotted=Slotted([1]))
    copied = json_copy(value)
    assert type(copied) is Plain
    assert (copied.name, copied.market) == ("a", Market.SPOT)
    assert copied.market is Market.SPOT
    assert copied.parts[0].deep == 1
    assert copied.slotted.part == [1]
    for one, other in ((copied, value), (copied.parts[0], value.parts[0]), (copied.slotted.part, value.slotted.part)):
        assert one is not other


# faults on the wire


def test_throttling_is_retried_by_botocore_in_virtual_time(cloud: Cloud) -> None:
    rule = FaultRule(operation="DescribeInstances", code="RequestLimitExceeded", status=503, count=2)
    cloud.faults.inject(rule)
    before = cloud.clock.now()
    assert states(cloud) == []
    assert rule.hits == 2
    assert cloud.clock.now() > before
    assert [call.attempts for call in cloud.recorder.of("DescribeInstances")] == [3]


@pytest.mark.parametrize(
    ("service", "call"),
    [
        ("ec2", "describe_instances"),
        ("dynamodb", "list_tables"),
        ("ssm", "describe_parameters"),
        ("stepfunctions", "list_state_machines"),
        ("sns", "list_topics"),
        ("secretsmanager", "list_secrets"),
        ("events", "list_rules"),
        ("cloudwatch", "list_metrics"),
    ],
)
def test_an_injected_error_arrives_in_the_wire_format_of_every_service(cloud: Cloud, service: str, call: str) -> None:
    rule = FaultRule(operation="*", service=service, code="AccessDeniedException", status=403, message="not yours")
    cloud.faults.inject(rule)
    with refused("AccessDeniedException", 403, "not yours"):
        getattr(cloud.client(service), call)()
    cloud.faults.remove(rule)
    getattr(cloud.client(service), call)()


def test_a_refused_connection_has_no_effect_and_a_lost_reply_has(cloud: Cloud) -> None:
    cloud.faults.inject(FaultRule(operation="RunInstances", code=CONNECTION_REFUSED, count=1))
    with pytest.raises(EndpointConnectionError):
        launch(cloud)
    assert states(cloud) == []
    cloud.faults.inject(FaultRule(operation="RunInstances", code=REPLY_LOST, count=1))
    with pytest.raises(ReadTimeoutError):
        launch(cloud, ClientToken="once")
    assert len(states(cloud)) == 1
    launch(cloud, ClientToken="once")
    assert len(states(cloud)) == 1


def test_calls_are_recorded_with_parameters_result_and_error(cloud: Cloud) -> None:
    launch(cloud, ClientToken="t")
    cloud.ec2.dry_pool(count=1)
    with pytest.raises(ClientError):
        launch(cloud)
    first, second = cloud.recorder.of("RunInstances")
    assert (first.service, first.parameters["ClientToken"], first.error) == ("ec2", "t", None)
    assert first.result is not None
    assert second.error == "InsufficientInstanceCapacity"
    assert [call.operation for call in cloud.recorder.changes()] == ["RunInstances"] * 2


# DynamoDB


def table(cloud: Cloud) -> Any:
    create_table(cloud.client("dynamodb"), "state", "id")
    return cloud.client("dynamodb")


def acquire(client: Any, owner: str) -> bool:
    try:
        client.update_item(
            TableName="state",
            Key={"id": {"S": "c"}},
            UpdateExpression="SET #o = :o",
            ConditionExpression="attribute_not_exists(#o)",
            ExpressionAttributeNames={"#o": "owner"},
            ExpressionAttributeValues={":o": {"S": owner}},
        )
    except client.exceptions.ConditionalCheckFailedException:
        return False
    return True


def race(client: Any, rivals: int) -> list[str]:
    won: list[str] = []

    def run(owner: str) -> None:
        if acquire(client, owner):
            won.append(owner)

    threads = [threading.Thread(target=run, args=(str(number),)) for number in range(rivals)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won


def test_a_conditional_write_has_exactly_one_winner_among_threads(cloud: Cloud) -> None:
    client = table(cloud)
    for _ in range(10):
        client.delete_item(TableName="state", Key={"id": {"S": "c"}})
        assert len(race(client, 12)) == 1


# memory


def test_the_offerings_of_a_region_are_those_of_moto(cloud: Cloud) -> None:
    ec2 = cloud.client("ec2")
    question = {"Filters": [{"Name": "instance-type", "Values": ["t3.small"]}]}
    zones = ec2.describe_instance_type_offerings(LocationType="availability-zone", **question)
    region = ec2.describe_instance_type_offerings(LocationType="region", **question)
    assert {one["Location"] for one in zones["InstanceTypeOfferings"]} == {f"ap-southeast-1{zone}" for zone in "abc"}
    assert region["InstanceTypeOfferings"] == [
        {"InstanceType": "t3.small", "LocationType": "region", "Location": "ap-southeast-1"}
    ]


def test_a_region_that_moto_does_not_know_offers_no_type(cloud: Cloud) -> None:
    from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS

    assert INSTANCE_TYPE_OFFERINGS["region"].get("xx-nowhere-1", []) == []


def test_two_sessions_read_the_model_of_a_service_once(cloud: Cloud) -> None:
    first, second = (botocore.session.get_session().get_component("data_loader") for _ in range(2))
    assert first.load_service_model("ec2", "service-2") is second.load_service_model("ec2", "service-2")


def test_a_simulation_leaves_nothing_of_ec2_to_the_next_user_of_moto() -> None:
    with Cloud(VirtualClock()) as cloud:
        launch(cloud)
        cloud.client("autoscaling").describe_auto_scaling_groups()  # whose reset makes a region of EC2 again
    with mock_aws():
        ec2 = boto3.client("ec2", region_name="ap-southeast-1")
        assert ec2.describe_instances()["Reservations"] == []
        assert {one["Architecture"] for one in ec2.describe_images()["Images"]} >= {"x86_64", "arm64"}


# status checks and reboots


def impaired(cloud: Cloud, check: str) -> dict[str, Any]:
    """The instances whose check EC2 lists as impaired, with the time since when."""
    wanted = [{"Name": f"{check}-status.status", "Values": ["impaired"]}]
    found = cloud.client("ec2").describe_instance_status(Filters=wanted)["InstanceStatuses"]
    name = {"instance": "InstanceStatus", "system": "SystemStatus"}[check]
    return {one["InstanceId"]: one[name]["Details"][0]["ImpairedSince"].timestamp() for one in found}


@pytest.mark.parametrize(("check", "other"), [("instance", "system"), ("system", "instance")])
def test_only_an_impaired_instance_is_listed_under_its_check_and_since_when(
    cloud: Cloud, check: Any, other: str
) -> None:
    ill, _ = launch(cloud), launch(cloud)
    cloud.clock.advance(60)
    assert impaired(cloud, check) == {}
    cloud.ec2.impair(ill, check=check)
    since = cloud.clock.now()
    cloud.clock.advance(600)
    assert (impaired(cloud, check), impaired(cloud, other)) == ({ill: since}, {})
    cloud.ec2.heal(ill)
    assert impaired(cloud, check) == {}
    cloud.ec2.impair(ill, check=check)
    cloud.client("ec2").terminate_instances(InstanceIds=[ill])
    assert impaired(cloud, check) == {}


@pytest.mark.parametrize("heals", [True, False])
def test_a_reboot_keeps_the_instance_and_ends_an_impairment_that_it_heals(cloud: Cloud, heals: bool) -> None:
    ill = launch(cloud)
    cloud.clock.advance(60)
    cloud.ec2.impair(ill, heals=heals)
    cloud.client("ec2").reboot_instances(InstanceIds=[ill])
    assert (states(cloud), list(impaired(cloud, "instance"))) == (["running"], [] if heals else [ill])


def test_a_reboot_of_an_instance_that_has_ended_is_ignored(cloud: Cloud) -> None:
    ended = launch(cloud)
    cloud.clock.advance(60)
    cloud.client("ec2").terminate_instances(InstanceIds=[ended])
    cloud.client("ec2").reboot_instances(InstanceIds=[ended])
    assert states(cloud) == ["shutting-down"]
