"""The network of a new cluster: two zones or more, dual-stack, no NAT gateway.

Nodes run in public subnets behind closed security groups. Functions that read Prometheus run in subnets whose only
egress is IPv6 through an egress-only gateway, which is free.
"""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_logs as logs
from constructs import Construct

from cdk_app.config import SUBNET_PREFIX_LENGTH, ClusterConfig


class NetworkStack(cdk.Stack):
    """VPC, subnets `nodes` and `functions`, and the two gateway endpoints that are free."""

    def __init__(self, scope: Construct, construct_id: str, *, config: ClusterConfig, env: cdk.Environment) -> None:
        super().__init__(scope, construct_id, env=env, description=f"node-fleet {config.cluster_id}: network")
        self.vpc = ec2.Vpc(
            self,
            "Vpc",
            ip_protocol=ec2.IpProtocol.DUAL_STACK,
            ip_addresses=ec2.IpAddresses.cidr(config.network.cidr),
            availability_zones=list(config.zones),
            nat_gateways=0,
            restrict_default_security_group=False,
            subnet_configuration=[
                ec2.SubnetConfiguration(
                    name="nodes",
                    subnet_type=ec2.SubnetType.PUBLIC,
                    cidr_mask=SUBNET_PREFIX_LENGTH,
                    map_public_ip_on_launch=True,
                ),
                ec2.SubnetConfiguration(
                    name="functions",
                    subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS,
                    cidr_mask=SUBNET_PREFIX_LENGTH,
                ),
            ],
        )
        self.vpc.add_gateway_endpoint("DynamoDb", service=ec2.GatewayVpcEndpointAwsService.DYNAMODB)
        self.vpc.add_gateway_endpoint("S3", service=ec2.GatewayVpcEndpointAwsService.S3)
        self._log_refused_traffic(config)

    def _log_refused_traffic(self, config: ClusterConfig) -> None:
        group = logs.LogGroup(
            self,
            "RefusedTraffic",
            log_group_name=f"/node-fleet/{config.cluster_id}/refused-traffic",
            retention=logs.RetentionDays.ONE_MONTH,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        self.vpc.add_flow_log(
            "FlowLog",
            destination=ec2.FlowLogDestination.to_cloud_watch_logs(group),
            traffic_type=ec2.FlowLogTrafficType.REJECT,
        )
