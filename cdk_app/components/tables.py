"""The three DynamoDB tables. They outlive the stack, and can be restored to any second of the last 35 days."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

from node_fleet.settings import Settings


class FleetTables(Construct):
    """State (one item a cluster, no expiry), history and events (by time, with expiry)."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: Settings) -> None:
        super().__init__(scope, construct_id)
        self.state = self._table("State", settings.state_table, by_time=False)
        self.history = self._table("History", settings.history_table, by_time=True)
        self.events = self._table("Events", settings.events_table, by_time=True)

    def _table(self, construct_id: str, name: str, *, by_time: bool) -> dynamodb.Table:
        text = dynamodb.AttributeType.STRING
        return dynamodb.Table(
            self,
            construct_id,
            table_name=name,
            partition_key=dynamodb.Attribute(name="cluster_id", type=text),
            sort_key=dynamodb.Attribute(name="sk", type=text) if by_time else None,
            time_to_live_attribute="expires_at" if by_time else None,
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            removal_policy=cdk.RemovalPolicy.RETAIN,
        )
