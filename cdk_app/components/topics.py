"""The topics, messages, alerts and critical messages, and the key that encrypts what they hold.

AWS's own key alias/aws/sns does not do: CloudWatch alarms cannot publish to a topic that it encrypts.
"""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from constructs import Construct

from cdk_app.components.resources import arn
from cdk_app.config import ClusterConfig
from node_fleet.settings import CREATE

DAYS_BEFORE_DELETION = 7


class FleetTopics(Construct):
    """`key` is None where the configuration wants no encryption. critical: None where no topic for it is configured."""

    def __init__(self, scope: Construct, construct_id: str, *, config: ClusterConfig) -> None:
        super().__init__(scope, construct_id)
        self._config = config
        self.key = self._key() if config.topic_encryption == "kms" else None
        self.messages = self._topic("Messages", f"{config.cluster_id}-messages")
        self.alerts = self._topic("Alerts", config.alert_topic_name)
        self._let_alarms_publish(self.messages)
        self.critical = self._critical(config.settings.alert_topic_critical)

    @property
    def publish_arns(self) -> list[str]:
        """The topics to which functions publish messages."""
        return [self.messages.topic_arn, *([self.critical.topic_arn] if self.critical else [])]

    def _critical(self, wanted: str) -> sns.ITopic | None:
        if wanted != CREATE:
            return sns.Topic.from_topic_arn(self, "Critical", wanted) if wanted else None
        topic = self._topic("Critical", f"{self._config.cluster_id}-critical")
        self._let_alarms_publish(topic)
        cdk.CfnOutput(cdk.Stack.of(self), "CriticalTopicArn", value=topic.topic_arn)
        return topic

    def _let_alarms_publish(self, topic: sns.Topic) -> None:
        topic.add_to_resource_policy(self._for_alarms("Alarms", ["sns:Publish"], topic.topic_arn))

    def _topic(self, construct_id: str, name: str) -> sns.Topic:
        # In the scope of the stack: the names in its template do not depend on this construct.
        return sns.Topic(cdk.Stack.of(self), construct_id, topic_name=name, enforce_ssl=True, master_key=self.key)

    def _key(self) -> kms.Key:
        key = kms.Key(
            self,
            "Key",
            alias=self._config.topic_key_alias,
            description=f"node-fleet {self._config.cluster_id}: encrypts the messages in the topics",
            enable_key_rotation=True,
            pending_window=cdk.Duration.days(DAYS_BEFORE_DELETION),
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        key.add_to_resource_policy(self._for_alarms("Alarms", ["kms:GenerateDataKey*", "kms:Decrypt"], "*"))
        return key

    def _for_alarms(self, sid: str, actions: list[str], resource: str) -> iam.PolicyStatement:
        """Only the alarms of this cluster, in this account."""
        stack = cdk.Stack.of(self)
        return iam.PolicyStatement(
            sid=sid,
            principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
            actions=actions,
            resources=[resource],
            conditions={
                "StringEquals": {"aws:SourceAccount": stack.account},
                "ArnLike": {"aws:SourceArn": arn(stack, "cloudwatch", f"alarm:{self._config.cluster_id}-*")},
            },
        )
