"""The three tables in DynamoDB's own engine (moto)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from node_fleet.settings import Settings


@pytest.fixture
def dynamo(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client that finds the state, history and events tables of the default settings."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    settings = Settings()
    keys = {settings.state_table: ["HASH"], settings.history_table: ["HASH", "RANGE"]}
    keys[settings.events_table] = keys[settings.history_table]
    with mock_aws():
        client = boto3.client("dynamodb", region_name="ap-southeast-1")
        for table, kinds in keys.items():
            schema = list(zip(("cluster_id", "sk"), kinds, strict=False))
            client.create_table(
                TableName=table,
                KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in schema],
                AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name, _ in schema],
                BillingMode="PAY_PER_REQUEST",
            )
        yield client
