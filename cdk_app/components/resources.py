"""Translates the resources and conditions that permissions.py names into ARNs and policy conditions of one cluster."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import aws_cdk as cdk

from cdk_app.components.facts import ClusterFacts
from cdk_app.components.tables import FleetTables
from cdk_app.config import ClusterConfig

AMAZON_LINUX = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-"
_EC2_KINDS = {
    "instances": ("instance",),
    "launch_parts": ("volume", "network-interface"),
    "fleet_kinds": ("fleet", "instance", "volume"),
    "interfaces": ("network-interface",),
}
LAUNCH_TAG_KEYS = (
    "Project",
    "Role",
    "ManagedBy",
    "Cluster",
    "Operation",
    "Slot",
    "Name",
    "TemplateVersion",
    "Bootstrap",
    "K3sVersion",
)
"""Every tag of a launch; a test compares them with the request of the code."""


@dataclass(frozen=True, kw_only=True)
class FleetResources:
    """Every resource of a grant. ARNs of known names are composed, so that no stack depends on another."""

    config: ClusterConfig
    stack: cdk.Stack
    tables: FleetTables
    topic_arns: list[str]
    topic_key_arn: str | None
    facts: ClusterFacts

    @property
    def autoscaler_arn(self) -> str:
        """The autoscaler's state machine."""
        return self._arn("states", f"stateMachine:{self.config.cluster_id}-autoscaler")

    def arns(self, name: str) -> list[str]:
        """The ARNs of the resource of a Grant; none where this cluster has no such resource."""
        if name.startswith("document:"):
            document = self.config.settings.document_prefix + name.removeprefix("document:")
            return [self._arn("ssm", f"document/{document}")]
        if name in _EC2_KINDS:
            return [self._arn("ec2", f"{kind}/*") for kind in _EC2_KINDS[name]]
        return self._named[name]

    def condition(self, name: str) -> dict[str, dict[str, Any]]:
        """The policy condition of a Grant."""
        return self._conditions[name]

    @cached_property
    def _named(self) -> dict[str, list[str]]:
        """Made once for all grants: each reading of a property of the stack is a call of the CDK's own process."""
        settings, attach = self.config.settings, self.config.attach
        return {
            "anything": ["*"],
            "state_table": [self.tables.state.table_arn],
            "history_table": [self.tables.history.table_arn],
            "events_table": [self.tables.events.table_arn],
            "topic": self.topic_arns,
            "messages_topic": self.topic_arns[:1],
            "topic_key": [self.topic_key_arn] if self.topic_key_arn else [],
            "autoscaler": [self.autoscaler_arn],
            "server_machine": [self._arn("ec2", f"instance/{attach.server_instance_id if attach else '*'}")],
            "prometheus_secret": [secret_arn(self.stack, settings.prometheus_secret)],
            "slack_secret": [secret_arn(self.stack, settings.slack_secret)],
            "worker_role": [self.facts.worker_role_arn],
            "launch_inputs": self._launch_inputs(),
            "template_parts": self._template_parts(),
            "image_parameter": [self._public(f"ssm:{self.stack.region}::parameter{AMAZON_LINUX}*")],
        }

    @cached_property
    def _conditions(self) -> dict[str, dict[str, dict[str, Any]]]:
        ours = {"ManagedBy": "node-fleet", "Cluster": self.config.cluster_id}
        owned = {f"aws:ResourceTag/{key}": value for key, value in ours.items()}
        requested = {f"aws:RequestTag/{key}": value for key, value in {**ours, "Role": "k3s-worker"}.items()}
        template = {"ArnLike": {"ec2:LaunchTemplate": self._template_arn}}
        tags = {"Role": self.config.settings.server_role_tag}
        if self.config.mode == "new":
            tags["Cluster"] = self.config.cluster_id
        launching = {"ec2:CreateAction": ["CreateFleet", "RunInstances"]}
        return {
            "": {},
            "own_items": {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": [self.config.cluster_id]}},
            "our_worker": {"StringEquals": owned},
            "our_standby": {"StringEquals": {**owned, "aws:ResourceTag/Standby": "ready"}},
            "our_worker_standby_tag": {
                "StringEquals": {**owned, "aws:RequestTag/Standby": ["ready", "started", "failed", "kept"]},
                "ForAllValues:StringEquals": {"aws:TagKeys": ["Standby"]},
            },
            "our_worker_join_failed": {
                "StringEquals": {**owned, "aws:RequestTag/JoinFailed": "true"},
                "ForAllValues:StringEquals": {"aws:TagKeys": ["JoinFailed"]},
            },
            "our_template": template,
            "set_by_our_template": {**template, "Bool": {"ec2:IsLaunchTemplateResource": "true"}},
            "tags_of_ours": {"StringEquals": requested},
            "tagged_as_ours": {**template, "StringEquals": requested},
            "worker_tags": {"StringEquals": {**launching, **requested}, **self._launch_tag_keys},
            "while_launching": {"StringEquals": launching},
            "to_ec2": {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}},
            "the_server": {"StringEquals": {f"ssm:resourceTag/{key}": value for key, value in tags.items()}},
            "tagged_server": {"StringEquals": {f"aws:ResourceTag/{key}": value for key, value in tags.items()}},
            "through_sns": {"StringEquals": through_sns(self.stack)},
        }

    @property
    def _launch_tag_keys(self) -> dict[str, dict[str, Any]]:
        """The launch template of an attached cluster may add tags of its own."""
        if self.config.mode == "attach":
            return {}
        return {"ForAllValues:StringEquals": {"aws:TagKeys": list(LAUNCH_TAG_KEYS)}}

    @property
    def _template_arn(self) -> str:
        return self._arn("ec2", f"launch-template/{self.facts.launch_template_id}")

    def _launch_inputs(self) -> list[str]:
        return [self._template_arn, *(self._arn("ec2", f"subnet/{subnet}") for _, subnet in self.facts.worker_subnets)]

    def _template_parts(self) -> list[str]:
        parts = [self._arn("ec2", "security-group/*"), self._public(f"ec2:{self.stack.region}::image/*")]
        return [*parts, self._arn("ec2", "key-pair/*")] if self.config.mode == "attach" else parts

    def _arn(self, service: str, rest: str) -> str:
        return arn(self.stack, service, rest)

    def _public(self, rest: str) -> str:
        return f"arn:{self.stack.partition}:{rest}"


def arn(stack: cdk.Stack, service: str, rest: str) -> str:
    """The ARN of a resource in the account and region of the stack."""
    partition, region, account = _place(stack)
    return f"arn:{partition}:{service}:{region}:{account}:{rest}"


@cache
def _place(stack: cdk.Stack) -> tuple[str, str, str]:
    """Read once: each reading of a property of the stack is a call of the CDK's own process."""
    return stack.partition, stack.region, stack.account


def through_sns(stack: cdk.Stack) -> dict[str, str]:
    """The condition that SNS of this region makes the call of KMS."""
    return {"kms:ViaService": f"sns.{stack.region}.amazonaws.com"}


def secret_arn(stack: cdk.Stack, name: str) -> str:
    """The ARN of a secret; Secrets Manager adds a dash and six characters to the name."""
    return arn(stack, "secretsmanager", f"secret:{name}-??????")
