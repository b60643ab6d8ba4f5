"""One Lambda function of ours: shared code, its own role with exactly its grants, a published version, 30-day logs."""

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
# Why a resource with a wildcard is still narrow, by the grant's condition or else its resource.
WHERE_WILDCARDS_END = {
    "anything": "AWS knows no resource for this action",
    "our_worker": "Only instances that carry this cluster's tags",
    "tagged_as_ours": "Only if the launched instance gets this cluster's tags",
    "while_launching": "Only as part of RunInstances",
    "the_server": "Only the instance that carries the server's tag",
    "launch_inputs": "Image and group come from our launch template, which is named",
    "launch_parts": "A volume and an interface have no name before they exist",
    "image_parameter": "Public parameters of Amazon Linux 2023, read only",
}


@dataclass(frozen=True, kw_only=True)
class FunctionNetwork:
    """Where functions stand that must reach Prometheus."""

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
    """The function of one handler module. `invoke_arn` names the published version."""

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
        self.log_group = self._log_group(f"/aws/lambda/{cluster_id}-{name}")
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

        accept(self.function, "L1", "3.13 is the runtime that the layer's packages are built for; it is supported")

    @property
    def version(self) -> lambda_.Version:
        """The published version: code and environment that no later deployment changes."""
        return self.function.current_version

    @property
    def invoke_arn(self) -> str:
        """ARN that the workflow names."""
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
        statements = [_log_statement(self.log_group), *(statement(grant, shared.resources) for grant in needs.grants)]
        if needs.prometheus:
            statements.append(_interface_statement())
        # Inside the role, not beside it: a function in a network cannot be made before its role may make interfaces.
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description=f"node-fleet: what {name} may do",
            inline_policies={"Own": iam.PolicyDocument(statements=_once(statements))},
        )
        for grant in needs.grants:
            limit = WHERE_WILDCARDS_END.get(grant.when or grant.on, "")
            accept_wildcards(role, shared.resources.arns(grant.on), f"{', '.join(grant.actions)}: {grant.why}. {limit}")
        if needs.prometheus:
            accept_wildcards(
                role, ["*"], "Lambda manages the function's network interfaces; EC2 names no resource here"
            )
        return role


def statement(grant: Grant, resources: FleetResources) -> iam.PolicyStatement:
    """The policy statement of one grant."""
    return iam.PolicyStatement(
        actions=list(grant.actions), resources=resources.arns(grant.on), conditions=resources.condition(grant.when)
    )


def _once(statements: list[iam.PolicyStatement]) -> list[iam.PolicyStatement]:
    seen: dict[str, iam.PolicyStatement] = {}
    for entry in statements:
        seen.setdefault(str(entry.to_json()), entry)
    return list(seen.values())


def _log_statement(group: logs.LogGroup) -> iam.PolicyStatement:
    return iam.PolicyStatement(actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[group.log_group_arn])


def _interface_statement() -> iam.PolicyStatement:
    """Lambda makes and removes the network interface with the function's role; these take no resource."""
    actions = ["CreateNetworkInterface", "DescribeNetworkInterfaces", "DescribeSubnets", "DeleteNetworkInterface"]
    more = ["AssignPrivateIpAddresses", "UnassignPrivateIpAddresses"]
    return iam.PolicyStatement(actions=[f"ec2:{action}" for action in (*actions, *more)], resources=["*"])


def _environment(name: str, shared: SharedParts, *, in_vpc: bool) -> dict[str, str]:
    environment = dict(shared.environment)
    if in_vpc and shared.network.ipv6:
        # No NAT: AWS is reached over IPv6, which only the dual-stack names answer.
        environment["AWS_USE_DUALSTACK_ENDPOINT"] = "true"
    size = sum(len(key) + len(value) for key, value in environment.items())
    if size > ENVIRONMENT_LIMIT_BYTES:
        raise ValueError(
            f"the environment of {name} has {size} bytes, Lambda allows {ENVIRONMENT_LIMIT_BYTES}: "
            "shorten custom_metrics or schedules in the settings"
        )
    return environment
