"""The roles of the machines. No machine accepts an SSH key; an operator opens a session with Session Manager."""

from __future__ import annotations

from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as s3_assets

from cdk_app.components.findings import accept_wildcards
from cdk_app.components.resources import arn, secret_arn, through_sns
from cdk_app.config import ClusterConfig

# The SSM agent needs these for commands and sessions; they take no resource.
AGENT_ACTIONS = (
    "ssm:UpdateInstanceInformation",
    "ssm:ListInstanceAssociations",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
    "ec2messages:AcknowledgeMessage",
    "ec2messages:DeleteMessage",
    "ec2messages:FailMessage",
    "ec2messages:GetEndpoint",
    "ec2messages:GetMessages",
    "ec2messages:SendReply",
)
# The CloudWatch data source of Grafana: metrics and decision reasons of the functions.
DASHBOARD_ACTIONS = (
    "cloudwatch:GetMetricData",
    "cloudwatch:ListMetrics",
    "logs:DescribeLogGroups",
    "logs:GetQueryResults",
    "logs:StopQuery",
)
DISCOVERY_ACTIONS = ("ec2:DescribeInstances", "ec2:DescribeAvailabilityZones")


EXPORTED_ATTRIBUTES = ("exposition", "lock_acquired_at", "operation", "pause")
"""The attributes of the state item that cluster/server/state_metrics.py reads."""


def dashboards_parameter(config: ClusterConfig) -> str:
    """The name of the SSM parameter with the S3 URL of the dashboards; cluster/server/monitoring.sh reads it."""
    return f"/node-fleet/{config.cluster_id}/dashboards"


def k3s_parameter(config: ClusterConfig) -> str:
    """The name of the SSM parameter with version and checksum of K3s; cluster/server/install_k3s.sh reads it."""
    return f"/node-fleet/{config.cluster_id}/k3s"


def server_role(stack: cdk.Stack, config: ClusterConfig, downloads: Sequence[s3_assets.Asset]) -> iam.Role:
    """The K3s server: runs commands, finds workers, stores the join token, sends alerts."""
    token = secret_arn(stack, config.server.token_secret)
    role = _role(stack, "ServerRole")
    _allow(role, AGENT_ACTIONS, ["*"])
    _allow(role, DISCOVERY_ACTIONS, ["*"])
    _allow(role, DASHBOARD_ACTIONS, ["*"])
    accept_wildcards(role, {"*": "The actions of the SSM agent, of discovery and of Grafana support no resource"})
    logs = arn(stack, "logs", f"log-group:/aws/lambda/{config.cluster_id}-*")
    _allow(role, ["logs:StartQuery"], [logs])
    accept_wildcards(role, {logs: "Grafana queries the logs of this cluster's functions, whose names have this prefix"})
    _allow(role, ["secretsmanager:GetSecretValue", "secretsmanager:PutSecretValue"], [token])
    logins = (config.settings.prometheus_secret, config.server.grafana_secret)
    _allow(role, ["secretsmanager:GetSecretValue"], [secret_arn(stack, login) for login in logins])
    _publish_alerts(role, stack, config)
    _read_metrics(role, stack, config)
    parameters = (dashboards_parameter(config), k3s_parameter(config))
    _allow(role, ["ssm:GetParameter"], [arn(stack, "ssm", f"parameter{name}") for name in parameters])
    _allow(role, ["s3:GetObject"], [f"{one.bucket.bucket_arn}/{one.s3_object_key}" for one in downloads])
    _tag_itself(role, stack, "BootstrapError")
    return role


def worker_role(stack: cdk.Stack, config: ClusterConfig) -> iam.Role:
    """A worker: reads the join token, reports on its bootstrap in its tags, and accepts sessions of an operator."""
    role = _role(stack, "WorkerRole")
    _allow(role, AGENT_ACTIONS, ["*"])
    accept_wildcards(role, {"*": "The actions of the SSM agent support no resource"})
    _allow(role, ["secretsmanager:GetSecretValue"], [secret_arn(stack, config.server.token_secret)])
    _tag_itself(role, stack, "BootstrapError", "ImagePull")
    return role


def _role(stack: cdk.Stack, construct_id: str) -> iam.Role:
    return iam.Role(stack, construct_id, assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))


def _publish_alerts(role: iam.Role, stack: cdk.Stack, config: ClusterConfig) -> None:
    """The topic and its key belong to a later stack, so the role names both by the names that they will have."""
    _allow(role, ["sns:Publish"], [arn(stack, "sns", config.alert_topic_name)])
    if config.topic_encryption == "none":
        return
    keys = arn(stack, "kms", "key/*")
    accept_wildcards(role, {keys: "Only the key whose alias is that of the topics, and only through SNS"})
    role.add_to_policy(
        iam.PolicyStatement(
            actions=["kms:GenerateDataKey", "kms:Decrypt"],
            resources=[keys],
            conditions={
                "StringEquals": through_sns(stack),
                "ForAnyValue:StringEquals": {"kms:ResourceAliases": config.topic_key_alias},
            },
        )
    )


def _read_metrics(role: iam.Role, stack: cdk.Stack, config: ClusterConfig) -> None:
    """The metrics of node-fleet for Prometheus: four attributes of the item of this cluster, and no others.

    AWS describes dynamodb:Select as a key of Query and Scan, and its policies for GetItem require the value only where
    the key is present. A request that names no attributes is refused by the Null condition.
    """
    role.add_to_policy(
        iam.PolicyStatement(
            actions=["dynamodb:GetItem"],
            resources=[arn(stack, "dynamodb", f"table/{config.settings.state_table}")],
            conditions={
                "ForAllValues:StringEquals": {
                    "dynamodb:LeadingKeys": [config.cluster_id],
                    "dynamodb:Attributes": ["cluster_id", *EXPORTED_ATTRIBUTES],
                },
                "StringEqualsIfExists": {"dynamodb:Select": "SPECIFIC_ATTRIBUTES"},
                "Null": {"dynamodb:Attributes": "false"},
            },
        )
    )


def _tag_itself(role: iam.Role, stack: cdk.Stack, *keys: str) -> None:
    """These tags, only on the instance that makes the call."""
    instances = arn(stack, "ec2", "instance/*")
    reason = f"CreateTags: only {' and '.join(keys)}, only on the instance that makes the call"
    accept_wildcards(role, {instances: reason})
    role.add_to_policy(
        iam.PolicyStatement(
            actions=["ec2:CreateTags"],
            resources=[instances],
            conditions={
                "ArnLike": {"ec2:SourceInstanceARN": f"arn:{stack.partition}:ec2:*:*:instance/${{ec2:InstanceId}}"},
                "ForAllValues:StringEquals": {"aws:TagKeys": list(keys)},
            },
        )
    )


def _allow(role: iam.Role, actions: list[str] | tuple[str, ...], resources: list[str]) -> None:
    role.add_to_policy(iam.PolicyStatement(actions=list(actions), resources=resources))
