"""Frequent calls are answered without HTTP: as botocore would have parsed them, errors included."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError, ParamValidationError

from simulator.aws import Cloud, FaultRule
from simulator.aws.recorder import AwsCall, Recorder
from simulator.clock import VirtualClock
from tests.support.compared_calls import compared_calls
from tests.support.simulated_aws import create_table, launch

KEY = {"cluster_id": {"S": "prod"}}
ITEM = {**KEY, "count": {"N": "1"}, "tags": {"L": [{"S": "a"}, {"M": {"b": {"NULL": True}}}]}}
TABLE = {"TableName": "state"}


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
        for _ in range(4):
            with contextlib.suppress(ClientError):
                client.update_item(**TABLE, Key=KEY, **update)
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
