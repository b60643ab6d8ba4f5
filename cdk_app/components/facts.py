"""What the autoscaler must know of its cluster, from the cluster stack or from the configuration."""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from cdk_app.config import Attachment


@dataclass(frozen=True, kw_only=True)
class ClusterFacts:
    """`launch_template_digest` changes whenever the template's content does. Mode attach knows no bootstrap."""

    vpc: ec2.IVpc
    function_subnets: ec2.SubnetSelection
    functions_use_ipv6: bool
    worker_subnets: tuple[tuple[str, str], ...]
    server_security_group_id: str
    launch_template_id: str
    launch_template_version: str
    launch_template_digest: str
    worker_role_arn: str
    bootstrap_hash: str = ""
    k3s_version: str = ""


def attached(scope: Construct, attach: Attachment) -> ClusterFacts:
    """The facts of an existing cluster, from the configuration alone."""
    vpc = ec2.Vpc.from_vpc_attributes(
        scope,
        "AttachedVpc",
        vpc_id=attach.vpc_id,
        availability_zones=[f"zone-{index}" for index, _ in enumerate(attach.function_subnets)],
        private_subnet_ids=list(attach.function_subnets),
    )
    return ClusterFacts(
        vpc=vpc,
        function_subnets=ec2.SubnetSelection(subnets=vpc.private_subnets),
        functions_use_ipv6=attach.function_egress == "ipv6",
        worker_subnets=tuple(attach.worker_subnets.items()),
        server_security_group_id=attach.server_security_group,
        launch_template_id=attach.launch_template_id,
        launch_template_version=str(attach.launch_template_version),
        launch_template_digest=f"{attach.launch_template_id}:{attach.launch_template_version}",
        worker_role_arn=attach.worker_role_arn,
    )
