"""Calls are answered without HTTP: as botocore would have parsed them, errors included."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError, ParamValidationError
from moto.dynamodb.exceptions import ItemSizeTooLarge
from moto.dynamodb.models.dynamo_type import Item

from simulator.aws import Cloud, FaultRule
from simulator.aws.recorder import AwsCall, Recorder
from simulator.clock import VirtualClock
from simulator.scenario.files import parse_scenario
from simulator.simulation import Simulation, synthesised_template
from tests.support.compared_calls import compared_calls
from tests.support.simulated_aws import create_table, launch

KEY = {"cluster_id": {"S": "prod"}}
ITEM = {**KEY, "count": {"N": "1"}, "tags": {"L": [{"S": "a"}, {"M": {"b": {"NULL": True}}}]}}
TABLE = {"TableName": "state"}
SECOND_TABLE = {
    **TABLE,
    "KeySchema": [{"AttributeName": "cluster_id", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "cluster_id", "AttributeType": "S"}],
    "BillingMode": "PAY_PER_REQUEST",
}
STOCK_ITEM, ITEM_BYTES = Item.__init__, 405_000
EXECUTION = "arn:aws:states:ap-southeast-1:123456789012:execution:none:none"
TAGS = {"empty": "", "spaces": " a ", "marks": "<&>\"'"}
SCENARIO = """
name: test
description: One worker.
duration: 1h
workers:
  - {count: 1, market: spot}
"""


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(VirtualClock()) as made:
        create_table(made.client("dynamodb"), "state", "cluster_id")
        yield made


def refused(cloud: Cloud, operation: str, **parameters: Any) -> ClientError:
    with pytest.raises(ClientError) as caught:
        getattr(cloud.client("dynamodb"), operation)(**{**TABLE, **parameters})
    return caught.value


def test_a_direct_answer_and_its_effect_are_those_of_the_wire(cloud: Cloud) -> None:
    client = cloud.client("dynamodb")
    with compared_calls() as differences:
        client.put_item(**TABLE, Item=ITEM)
        client.get_item(**TABLE, Key=KEY)
        client.get_item(**TABLE, Key={"cluster_id": {"S": "unknown"}})
        for values in ("NONE", "ALL_OLD", "ALL_NEW", "UPDATED_NEW"):
            client.update_item(
                **TABLE,
                Key=KEY,
                UpdateExpression="SET #c = #c + :one, tags = list_append(tags, :more) REMOVE gone",
                ConditionExpression="attribute_exists(cluster_id) AND (#c > :none OR #c = :none)",
                ExpressionAttributeNames={"#c": "count"},
                ExpressionAttributeValues={":one": {"N": "1"}, ":none": {"N": "0"}, ":more": {"L": [{"S": "c"}]}},
                ReturnValues=values,
            )
        client.query(
            **TABLE, KeyConditionExpression="cluster_id = :id", ExpressionAttributeValues={":id": {"S": "prod"}}
        )
    assert differences == []


UPDATES: dict[str, dict[str, Any]] = {
    "a value, a sum and a removal": {
        "UpdateExpression": "SET a = :text, #c = #c + :one REMOVE gone, #t",
        "ExpressionAttributeNames": {"#c": "count", "#t": "tags"},
        "ExpressionAttributeValues": {":text": {"S": "x"}, ":one": {"N": "1"}},
        "ReturnValues": "ALL_NEW",
    },
    "a default for a missing attribute": {
        "UpdateExpression": "SET fence = if_not_exists(fence, :zero) + :one",
        "ExpressionAttributeValues": {":zero": {"N": "0"}, ":one": {"N": "1"}},
        "ReturnValues": "ALL_OLD",
    },
    "a condition that holds at first only": {
        "UpdateExpression": "SET #c = #c + :one",
        "ConditionExpression": "#c < :limit OR attribute_type(#c, :text)",
        "ExpressionAttributeNames": {"#c": "count"},
        "ExpressionAttributeValues": {":one": {"N": "1"}, ":limit": {"N": "2"}, ":text": {"S": "S"}},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    },
    "an operand that a removal takes away": {
        "UpdateExpression": "SET copy = moved REMOVE moved",
        "ReturnValues": "ALL_NEW",
    },
    "a part of a map": {
        "UpdateExpression": "SET place.#z = :zone",
        "ExpressionAttributeNames": {"#z": "zone"},
        "ExpressionAttributeValues": {":zone": {"S": "b"}},
        "ReturnValues": "ALL_NEW",
    },
    "an addition to a set": {
        "UpdateExpression": "ADD names :more",
        "ExpressionAttributeValues": {":more": {"SS": ["b"]}},
        "ReturnValues": "ALL_NEW",
    },
    "only what was changed": {
        "UpdateExpression": "SET #c = #c + :one",
        "ExpressionAttributeNames": {"#c": "count"},
        "ExpressionAttributeValues": {":one": {"N": "1"}},
        "ReturnValues": "UPDATED_NEW",
    },
    "a sum with a text": {
        "UpdateExpression": "SET #c = moved + :one",
        "ExpressionAttributeNames": {"#c": "count"},
        "ExpressionAttributeValues": {":one": {"N": "1"}},
    },
    "an unused value": {"UpdateExpression": "REMOVE a", "ExpressionAttributeValues": {":unused": {"N": "1"}}},
}


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)
def test_a_repeated_update_answers_and_changes_what_the_wire_does(cloud: Cloud, update: dict[str, Any]) -> None:
    client = cloud.client("dynamodb")
    client.put_item(
        **TABLE,
        Item={**ITEM, "moved": {"S": "m"}, "place": {"M": {"zone": {"S": "a"}}}, "names": {"SS": ["a"]}},
    )
    with compared_calls() as differences:
        for name in ("prod", "prod", "new", "new", "newer", "prod"):
            with contextlib.suppress(ClientError):
                client.update_item(**TABLE, Key={"cluster_id": {"S": name}}, **update)
    assert differences == []


def test_an_update_of_a_new_item_or_beyond_the_size_of_an_item_is_that_of_the_wire(cloud: Cloud) -> None:
    client, given = cloud.client("dynamodb"), []
    with compared_calls() as differences:
        for key, characters in (("prod", 1), ("prod", 1), ("other", 1), ("prod", 200_000), ("prod", 500_000)):
            values = {":text": {"S": "x" * characters}}
            with contextlib.suppress(ClientError):
                client.update_item(
                    **TABLE,
                    Key={"cluster_id": {"S": key}},
                    UpdateExpression="SET a = :text",
                    ExpressionAttributeValues=values,
                )
                given.append(characters)
    assert differences == []
    assert given == [1, 1, 1, 200_000]


ATTRIBUTES: list[Any] = [
    *({"S": "text"}, {"N": "1"}, {"BOOL": True}, {"NULL": True}, {"L": [{"S": "a"}]}, {"M": {"a": {"N": "1"}}}),
    *({"S": 1}, {"N": 1}, {"N": "one"}, {"BOOL": 1}, {"L": [{"S": 1}]}, {"X": "text"}, {"S": "a", "N": "1"}),
    *(None, "text", ["S"]),
]


@pytest.mark.parametrize("name", ["a", 1])
@pytest.mark.parametrize("attribute", ATTRIBUTES, ids=str)
def test_each_attribute_is_stored_or_refused_as_by_the_wire(cloud: Cloud, name: Any, attribute: Any) -> None:
    client = cloud.client("dynamodb")
    with compared_calls() as differences:
        for call in (
            lambda: client.put_item(**TABLE, Item={**KEY, name: attribute}),
            lambda: client.update_item(
                **TABLE, Key=KEY, UpdateExpression="SET a = :a", ExpressionAttributeValues={":a": attribute}
            ),
        ):
            with contextlib.suppress(ClientError, ParamValidationError):
                call()
    assert differences == []


def test_the_largest_item_is_the_one_that_moto_allows(cloud: Cloud) -> None:
    client, allowed = cloud.client("dynamodb"), ITEM_BYTES - len("cluster_idprodab")
    for length, is_stored in ((allowed, True), (allowed + 1, False)):
        item = {**KEY, "a": {"S": "x" * 200_000}, "b": {"S": "x" * (length - 200_000)}}
        with contextlib.nullcontext() if is_stored else pytest.raises(ClientError, match="Item size"):
            client.put_item(**TABLE, Item=item)
        with contextlib.nullcontext() if is_stored else pytest.raises(ItemSizeTooLarge):
            STOCK_ITEM(Item.__new__(Item), None, None, item)


def test_a_refused_call_raises_what_botocore_raises(cloud: Cloud) -> None:
    cloud.client("dynamodb").put_item(**TABLE, Item={**KEY, "count": {"N": "1"}})
    with compared_calls() as differences:
        failed = refused(
            cloud,
            "update_item",
            Key=KEY,
            UpdateExpression="SET a = :v",
            ConditionExpression="attribute_not_exists(cluster_id)",
            ExpressionAttributeValues={":v": {"S": "x"}},
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        refused(cloud, "update_item", Key=KEY, UpdateExpression="SET a = :v, a = :v", ExpressionAttributeValues={})
        refused(cloud, "get_item", TableName="unknown", Key=KEY)
        with pytest.raises(ParamValidationError):
            cloud.client("dynamodb").get_item(**TABLE, Key={"cluster_id": "not an attribute"})
    assert differences == []
    assert failed.response["Item"]["count"] == {"N": "1"}  # type: ignore[typeddict-item]


def test_setting_a_simulation_up_is_answered_as_the_wire_does() -> None:
    simulation = Simulation(parse_scenario(SCENARIO, source="test"), template=synthesised_template(), alerts=False)
    with compared_calls() as differences, simulation:
        operations = {call.operation for call in simulation.deployment.cloud.recorder.calls}
    assert differences == []
    assert {"CreateVpc", "CreateTable", "CreateDocument", "CreateStateMachine", "RunInstances"} <= operations


REFUSED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "an instance that does not exist": ("ec2", "terminate_instances", {"InstanceIds": ["i-12345678"]}),
    "a subnet outside its network": ("ec2", "create_subnet", {"VpcId": "vpc-1", "CidrBlock": "10.0.0.0/24"}),
    "an instance in a subnet that does not exist": (
        "ec2",
        "run_instances",
        {"SubnetId": "subnet-1", "ImageId": "ami-12345678", "MinCount": 1, "MaxCount": 1},
    ),
    "a launch template that does not exist": ("ec2", "describe_launch_templates", {"LaunchTemplateNames": ["none"]}),
    "a call that only tries": ("ec2", "describe_vpcs", {"DryRun": True}),
    "a document that does not exist": ("ssm", "send_command", {"DocumentName": "none", "InstanceIds": ["i-1"]}),
    "a command that does not exist": ("ssm", "get_command_invocation", {"CommandId": "c" * 36, "InstanceId": "i-1"}),
    "a secret that does not exist": ("secretsmanager", "get_secret_value", {"SecretId": "none"}),
    "a topic that does not exist": ("sns", "publish", {"TopicArn": "arn:aws:sns:eu-west-1:1:none", "Message": "x"}),
    "an execution that does not exist": ("stepfunctions", "describe_execution", {"executionArn": EXECUTION}),
    "a table that exists": ("dynamodb", "create_table", SECOND_TABLE),
}


@pytest.mark.parametrize(("service", "method", "parameters"), REFUSED.values(), ids=REFUSED)
def test_each_service_refuses_as_by_the_wire(
    cloud: Cloud, service: str, method: str, parameters: dict[str, Any]
) -> None:
    with compared_calls() as differences, pytest.raises(ClientError) as caught:
        getattr(cloud.client(service), method)(**parameters)
    assert differences == []
    assert caught.value.response["Error"]["Code"]


def test_what_botocore_adds_to_a_call_and_leaves_out_of_it_is_added_and_left_out(cloud: Cloud) -> None:
    ec2 = cloud.client("ec2")
    with compared_calls() as differences:
        launched = ec2.run_instances(
            ImageId="ami-12345678", MinCount=1, MaxCount=1, UserData="#!/bin/sh", SecurityGroupIds=[]
        )["Instances"]
        instance_id = launched[0]["InstanceId"]
        data = ec2.describe_instance_attribute(InstanceId=instance_id, Attribute="userData")
        ec2.describe_instances(Filters=[])
        ec2.create_tags(Resources=[instance_id], Tags=[{"Key": name, "Value": text} for name, text in TAGS.items()])
        tags = ec2.describe_tags()["Tags"]
        ec2.get_console_output(InstanceId=instance_id)
    assert differences == []
    assert data["UserData"]["Value"] == base64.b64encode(b"#!/bin/sh").decode()
    assert {tag["Key"]: tag["Value"] for tag in tags} == TAGS


def test_a_page_of_instances_and_the_next_are_those_of_the_wire(cloud: Cloud) -> None:
    for _ in range(3):
        launch(cloud)
    cloud.ec2.page_size = 2
    with compared_calls() as differences:
        pages = list(cloud.client("ec2").get_paginator("describe_instances").paginate())
    assert differences == []
    assert [len(page["Reservations"]) for page in pages] == [2, 1]


def test_a_fault_arrives_by_the_wire_and_botocore_retries_it(cloud: Cloud) -> None:
    code = "ProvisionedThroughputExceededException"
    cloud.faults.inject(FaultRule(service="dynamodb", operation="GetItem", code=code, count=2))
    assert "Item" not in cloud.client("dynamodb").get_item(**TABLE, Key=KEY)
    assert cloud.recorder.calls[-1].attempts == 3


def test_an_answer_belongs_to_its_caller(cloud: Cloud) -> None:
    client, ec2 = cloud.client("dynamodb"), cloud.client("ec2")
    client.put_item(**TABLE, Item={**KEY, "tags": {"L": []}})
    client.get_item(**TABLE, Key=KEY)["Item"]["tags"]["L"].append({"S": "mine"})
    assert client.get_item(**TABLE, Key=KEY)["Item"]["tags"] == {"L": []}
    launch(cloud)
    ec2.describe_instances()["Reservations"].clear()
    assert len(ec2.describe_instances()["Reservations"]) == 1


def test_instances_are_described_anew_after_a_change(cloud: Cloud) -> None:
    ec2 = cloud.client("ec2")
    launch(cloud)
    first = ec2.describe_instances()
    assert ec2.describe_instances()["Reservations"] == first["Reservations"]
    launch(cloud)
    assert len(ec2.describe_instances()["Reservations"]) == 2


def test_the_recorder_keeps_rare_changes_longer_than_frequent_calls() -> None:
    recorder = Recorder(limit=5, frequent_limit=2)
    for number, (service, operation) in enumerate(
        [("ec2", "RunInstances"), *[("dynamodb", "UpdateItem")] * 2, *[("ec2", "DescribeInstances")] * 2]
    ):
        recorder.add(
            AwsCall(service=service, operation=operation, parameters={}, function=None, at=number, protocol="ec2")
        )
    assert [(call.operation, call.at) for call in recorder.calls] == [
        ("RunInstances", 0),
        ("DescribeInstances", 3),
        ("DescribeInstances", 4),
    ]
