"""Launches, tables and refusals in the simulated AWS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from simulator.aws import Cloud


def launch(cloud: Cloud, **changes: Any) -> str:
    """Launches one instance and returns its id; the client does not retry, as the launcher's."""
    client = boto3.client("ec2", region_name=cloud.region, config=Config(retries={"total_max_attempts": 1}))
    usual = {"ImageId": "ami-12345678", "InstanceType": "t3.small", "MinCount": 1, "MaxCount": 1}
    return str(client.run_instances(**{**usual, **changes})["Instances"][0]["InstanceId"])


def create_table(dynamodb: Any, name: str, *keys: str) -> None:
    """A table with these keys of text, the partition key first."""
    dynamodb.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": k, "KeyType": t} for k, t in zip(keys, ("HASH", "RANGE"), strict=False)],
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
        BillingMode="PAY_PER_REQUEST",
    )


@contextmanager
def refused(code: str, status: int = 400, message: str | None = None) -> Iterator[None]:
    """The call inside is refused with this code of AWS, this HTTP status, and a message that matches."""
    with pytest.raises(ClientError, match=message) as failure:
        yield
    response = failure.value.response
    assert (response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]) == (code, status)
