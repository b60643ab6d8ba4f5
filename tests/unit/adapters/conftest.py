"""The three tables in DynamoDB's own engine (moto)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from node_fleet.settings import Settings
from tests.support.simulated_aws import create_table


@pytest.fixture
def dynamo(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client that finds the state, history and events tables of the default settings."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    settings = Settings()
    with mock_aws():
        client = boto3.client("dynamodb", region_name="ap-southeast-1")
        create_table(client, settings.state_table, "cluster_id")
        for table in (settings.history_table, settings.events_table):
            create_table(client, table, "cluster_id", "sk")
        yield client
