"""One Lambda function: shared code, a role of its own with exactly its grants, a published version, 30-day logs."""

from __future__ import annotations

from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from cdk_app.components.findings import accept, accept_wildcards
from cdk_app.components.resources import FleetResources
from cdk_app.permissions import FunctionNeeds, Grant

ENVIRONMENT_LIMIT_BYTES = 4096
# Why a resource with a wildcard is still narrow, by the condition of the grant or else its resource.
WILDCARD_LIMITS = {
    "anything": "AWS supports no resource for this action",
    "our_worker": "Only instances with the tags of this cluster",
    "our_worker_join_failed": "Only the tag JoinFailed of instances with the tags of this cluster",
    "our_standby": "Only stopped standby workers with the tags of this cluster",
    "our_worker_standby_tag": "Only the tag Standby of instances with the tags of this cluster",
    "our_template": "Only from the launch template of the workers",
    "set_by_our_template": "Only what the launch template of the workers names",
    "tagged_as_ours": "Only from the workers' launch template, and only with the tags of a worker of this cluster",
    "tags_of_ours": "Only with the tags of a worker of this cluster",
    "worker_tags": "Only as part of CreateFleet or RunInstances, and only the tags of a worker of this cluster",
    "while_launching": "Only as part of CreateFleet or RunInstances",
    "template_parts": "RunInstances limits them to what the launch template of the workers names",
    "interfaces": "RunInstances limits them to the launch template of the workers",
    "the_server": "Only the instance with the tag of the server",
    "tagged_server": "Only the instance with the tag of the server",
    "image_parameter": "Public parameters of Amazon Linux 2023, read only",
}


@dataclass(frozen=True, kw_only=True)
class FunctionNetwork:
    """The network of the functions that read Prometheus."""

    vpc: ec2.IVpc
    subnets: ec2.SubnetSelection
    security_group: ec2.ISecurityGroup
    ipv6: bool


@dataclass(frozen=True, kw_only=True)
class SharedParts:
    """What all functions of a cluster have in common."""

    code: lambda_.Code
    layer: lambda_.ILayerVersion
    environment: dict[str, str]
    network: FunctionNetwork
    resources: FleetResources


class HandlerFunction(Construct):
    """The function of one handler module. `invoke_arn` names the published version, `log_group_name` its log."""

    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        module: str,
        needs: FunctionNeeds,
        timeout_seconds: int,
        shared: SharedParts,
    ) -> None:
        super().__init__(scope, name)
        cluster_id = shared.resources.config.cluster_id
        self.log_group_name = f"/aws/lambda/{cluster_id}-{name}"
        self.log_group = self._log_group(self.log_group_name)
        self.role = self._role(name, needs, shared)
        network = shared.network if needs.prometheus else None
        self.function = lambda_.Function(
            self,
            "Function",
            function_name=f"{cluster_id}-{name}",
            description=f"node-fleet {cluster_id}: {name}",
            code=shared.code,
            handler=f"handlers.{module}.handler",
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64,
            layers=[shared.layer],
            memory_size=needs.memory_mib,
            timeout=cdk.Duration.seconds(timeout_seconds),
            environment=_environment(name, shared, in_vpc=network is not None),
            role=self.role,
            log_group=self.log_group,
            current_version_options=lambda_.VersionOptions(removal_policy=cdk.RemovalPolicy.RETAIN),
            vpc=network.vpc if network else None,
            vpc_subnets=network.subnets if network else None,
            security_groups=[network.security_group] if network else None,
            ipv6_allowed_for_dual_stack=network.ipv6 if network else None,
        )

        accept(self.function, "L1", "The packages of the layer are built for 3.13, a supported runtime")

    @property
    def version(self) -> lambda_.Version:
        """The published version: no later deployment changes its code or environment."""
        return self.function.current_version

    @property
    def invoke_arn(self) -> str:
        """The ARN in the workflow's definition."""
        return self.version.function_arn

    def _log_group(self, name: str) -> logs.LogGroup:
        return logs.LogGroup(
            self,
            "Logs",
            log_group_name=name,
            retention=logs.RetentionDays.ONE_MONTH,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )

    def _role(self, name: str, needs: FunctionNeeds, shared: SharedParts) -> iam.Role:
        settings = shared.resources.config.settings
        wanted = (one for one in needs.grants if not one.setting or getattr(settings, one.setting))
        grants = [grant for grant in wanted if shared.resources.arns(grant.resource)]
        statements = [_log_statement(self.log_group), *(statement(grant, shared.resources) for grant in grants)]
        if needs.prometheus:
            statements.append(_interface_statement())
        # Inline in the role: the role of a function in a network needs these permissions when the function is created.
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description=f"node-fleet: role of {name}",
            inline_policies={"Own": iam.PolicyDocument(statements=statements)},
        )
        reasons = {arn: _reason(grant) for grant in grants for arn in shared.resources.arns(grant.resource)}
        if needs.prometheus:
            reasons["*"] = "Lambda manages the network interfaces of the function; EC2 supports no resource here"
        accept_wildcards(role, reasons)
        return role


def _reason(grant: Grant) -> str:
    limit = WILDCARD_LIMITS.get(grant.condition or grant.resource, "")
    return f"{', '.join(grant.actions)}: {grant.reason}. {limit}"


def statement(grant: Grant, resources: FleetResources) -> iam.PolicyStatement:
    """The policy statement of one grant."""
    return iam.PolicyStatement(
        actions=list(grant.actions),
        resources=resources.arns(grant.resource),
        conditions=resources.condition(grant.condition),
    )


def _log_statement(group: logs.LogGroup) -> iam.PolicyStatement:
    return iam.PolicyStatement(actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[group.log_group_arn])


def _interface_statement() -> iam.PolicyStatement:
    """Lambda creates and deletes network interfaces with the role of the function; these actions take no resource."""
    actions = ["CreateNetworkInterface", "DescribeNetworkInterfaces", "DescribeSubnets", "DeleteNetworkInterface"]
    more = ["AssignPrivateIpAddresses", "UnassignPrivateIpAddresses"]
    return iam.PolicyStatement(actions=[f"ec2:{action}" for action in (*actions, *more)], resources=["*"])


def _environment(name: str, shared: SharedParts, *, in_vpc: bool) -> dict[str, str]:
    environment = dict(shared.environment)
    if in_vpc and shared.network.ipv6:
        # Without NAT the function reaches AWS over IPv6, which only the dual-stack endpoints answer.
        environment["AWS_USE_DUALSTACK_ENDPOINT"] = "true"
    size = sum(len(key) + len(value) for key, value in environment.items())
    if size > ENVIRONMENT_LIMIT_BYTES:
        raise ValueError(
            f"the environment of {name} has {size} bytes, Lambda allows {ENVIRONMENT_LIMIT_BYTES}: "
            "shorten custom_metrics or schedules in cdk.json"
        )
    return environment
