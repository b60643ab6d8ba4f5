"""The three tables in DynamoDB's own engine (moto)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from node_fleet.settings import Settings
from tests.support.simulated_aws import create_table


@pytest.fixture(scope="session")
def dynamo_client() -> Any:
    """One client: botocore reads the model of the service for each session anew."""
    with mock_aws():
        return boto3.client("dynamodb", region_name="ap-southeast-1")


@pytest.fixture
def dynamo(dynamo_client: Any) -> Iterator[Any]:
    """A client that finds the state, history and events tables of the default settings, empty."""
    settings = Settings()
    with mock_aws():
        create_table(dynamo_client, settings.state_table, "cluster_id")
        for table in (settings.history_table, settings.events_table):
            create_table(dynamo_client, table, "cluster_id", "sk")
        yield dynamo_client
