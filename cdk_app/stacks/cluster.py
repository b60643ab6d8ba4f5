"""The machines of a new cluster: the K3s server, the workers' launch template, their roles, groups and secrets.

A deployment creates the server once and never replaces it: its image is chosen at creation, its address is fixed, and a
changed bundle reaches it by a restart. What changes often and needs no restart is not in the bundle: the SSM documents,
the workers' user data, and the dashboards, whose location the server reads from a parameter. The autoscaler launches
the workers from the launch template.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as s3_assets
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from cdk_app.components.facts import ClusterFacts
from cdk_app.components.findings import accept
from cdk_app.components.grafana import dashboards_asset
from cdk_app.components.machine_roles import dashboards_parameter, k3s_parameter, server_role, worker_role
from cdk_app.components.resources import AMAZON_LINUX
from cdk_app.components.server_backup import BACKUP_TAG, back_up_server
from cdk_app.config import ClusterConfig
from cdk_app.scripts import read_script
from cdk_app.workflow import ROOT
from node_fleet.domain.model.instance_types import architecture_of, baseline_percent
from node_fleet.settings import Settings

BUNDLE = ROOT / "cluster"
DASHBOARDS = "monitoring/grafana/dashboards"
NOT_IN_BUNDLE = ("**/__pycache__", "**/*.pyc", "commands", "demo/load", DASHBOARDS, "worker")
DEVICE = "/dev/xvda"
USER_DATA_LIMIT_BYTES = 16 * 1024


class ClusterStack(cdk.Stack):
    """`facts` is what the autoscaler needs of this stack."""

    def __init__(
        self, scope: Construct, construct_id: str, *, config: ClusterConfig, vpc: ec2.Vpc, env: cdk.Environment
    ) -> None:
        super().__init__(scope, construct_id, env=env, description=f"node-fleet {config.cluster_id}: cluster")
        self.config = config
        self.vpc = vpc
        self._secrets()
        self.bundle = s3_assets.Asset(self, "Bundle", path=str(BUNDLE), exclude=list(NOT_IN_BUNDLE))
        self.dashboards = dashboards_asset(self, BUNDLE / DASHBOARDS, config.settings)
        self.server_group, self.worker_group = self._groups()
        self.worker_role = worker_role(self, config)
        self._server(server_role(self, config, (self.bundle, self.dashboards)))
        back_up_server(self, config)
        self.facts = self._workers()

    def _secrets(self) -> None:
        """The token and the webhook start empty; the server and an operator write them. No template holds a value."""
        settings = self.config.settings
        self._login("PrometheusAuth", settings.prometheus_secret, user="prometheus", program="Prometheus")
        self._login("GrafanaAuth", self.config.server.grafana_secret, user="admin", program="Grafana")
        empty = {"JoinToken": self.config.server.token_secret, "SlackWebhook": settings.slack_secret}
        purpose = {"JoinToken": "written by the server, read by workers", "SlackWebhook": "written once by an operator"}
        for construct_id, name in empty.items():
            description = f"node-fleet: {purpose[construct_id]}"
            secret = secretsmanager.CfnSecret(self, construct_id, name=name, description=description)
            accept(secret, "SMG4", "K3s and Slack issue these values; a rotation function could not renew them")

    def _login(self, construct_id: str, name: str, *, user: str, program: str) -> None:
        secret = secretsmanager.Secret(
            self,
            construct_id,
            secret_name=name,
            description=f"node-fleet: username and password of {program}",
            generate_secret_string=secretsmanager.SecretStringGenerator(
                secret_string_template=json.dumps({"username": user}),
                generate_string_key="password",
                password_length=32,
                exclude_punctuation=True,
            ),
        )
        accept(
            secret,
            "SMG4",
            f"{program} reads it at each start: rotate it with put-secret-value and a restart of the server",
        )

    def _groups(self) -> tuple[ec2.SecurityGroup, ec2.SecurityGroup]:
        server = self._group("ServerGroup", "K3s server")
        worker = self._group("WorkerGroup", "K3s workers")
        server.add_ingress_rule(worker, ec2.Port.tcp(6443), "K3s API for workers")
        for group, others in ((server, (worker,)), (worker, (server, worker))):
            for other in others:
                group.add_ingress_rule(other, ec2.Port.udp(8472), "pod network (VXLAN)")
                group.add_ingress_rule(other, ec2.Port.tcp(10250), "kubelet")
        worker.add_ingress_rule(server, ec2.Port.tcp(9100), "node-exporter for Prometheus")
        if self.config.settings.registry_mirror:
            for group, other in ((server, worker), (worker, server), (worker, worker)):
                group.add_ingress_rule(other, ec2.Port.tcp(5001), "registry mirror: which node has which image")
            for other in (server, worker):
                worker.add_ingress_rule(other, ec2.Port.tcp(6443), "registry mirror: images")
        for network in self.config.network.http_from:
            peer = ec2.Peer.ipv6(network) if ":" in network else ec2.Peer.ipv4(network)
            server.add_ingress_rule(peer, ec2.Port.tcp(80), "Traefik")
            server.add_ingress_rule(peer, ec2.Port.tcp(443), "Traefik")
        return server, worker

    def _group(self, construct_id: str, machines: str) -> ec2.SecurityGroup:
        return ec2.SecurityGroup(
            self,
            construct_id,
            vpc=self.vpc,
            description=f"node-fleet {self.config.cluster_id}: {machines}",
            allow_all_outbound=True,
            allow_all_ipv6_outbound=True,
        )

    def _server(self, role: iam.Role) -> None:
        config = self.config
        creation = ec2.CfnLaunchTemplate(
            self,
            "ServerBirth",
            launch_template_data=ec2.CfnLaunchTemplate.LaunchTemplateDataProperty(
                image_id=_image(config.server.image, architecture_of(config.server.instance_type)),
                metadata_options=_metadata_options(),
            ),
        )
        profile = iam.CfnInstanceProfile(self, "ServerProfile", roles=[role.role_name])
        location = ssm.CfnParameter(
            self,
            "DashboardsLocation",
            name=dashboards_parameter(config),
            type="String",
            value=self.dashboards.s3_object_url,
            description="node-fleet: zip of Grafana's dashboards, which the server reads at every bootstrap",
        )
        release = ssm.CfnParameter(
            self,
            "K3sRelease",
            name=k3s_parameter(config),
            type="String",
            value=f"{config.k3s_version} {config.k3s_checksum}",
            description="node-fleet: release of K3s and SHA-256 of its binary for amd64, for a new server and upgrades",
        )
        instance = ec2.CfnInstance(
            self,
            "Server",
            # Always version 1: a newer image must not replace the machine that holds the state of the cluster.
            launch_template=ec2.CfnInstance.LaunchTemplateSpecificationProperty(
                launch_template_id=creation.ref, version="1"
            ),
            instance_type=config.server.instance_type,
            iam_instance_profile=profile.ref,
            subnet_id=self.vpc.public_subnets[0].subnet_id,
            private_ip_address=config.network.server_address,
            security_group_ids=[self.server_group.security_group_id],
            disable_api_termination=True,
            block_device_mappings=[
                ec2.CfnInstance.BlockDeviceMappingProperty(
                    device_name=DEVICE,
                    ebs=ec2.CfnInstance.EbsProperty(
                        volume_type="gp3", volume_size=config.server.volume_gib, encrypted=True
                    ),
                )
            ],
            user_data=cdk.Fn.base64(self._server_user_data()),
        )
        # It holds the state of the cluster. Only the failure of its first deployment removes it again.
        instance.apply_removal_policy(cdk.RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)
        instance.add_dependency(location)
        instance.add_dependency(release)
        accept(instance, "EC28", "Prometheus scrapes the server every 15 s; one-minute CloudWatch metrics cost extra")
        for key, value in {
            "Name": f"{config.cluster_id}-server",
            "Project": "node-fleet",
            "Role": config.settings.server_role_tag,
            "Cluster": config.cluster_id,
            BACKUP_TAG: config.cluster_id,
        }.items():
            cdk.Tags.of(instance).add(key, value)
        cdk.CfnOutput(self, "ServerInstanceId", value=instance.ref)
        cdk.CfnOutput(self, "ServerAddress", value=config.network.server_address)

    def _server_user_data(self) -> str:
        config = self.config
        topic = f"arn:{self.partition}:sns:{self.region}:{self.account}:{config.alert_topic_name}"
        return _filled(
            "server",
            {
                "CLUSTER_ID": config.cluster_id,
                "AWS_REGION": config.region,
                "BUNDLE_BUCKET": self.bundle.s3_bucket_name,
                "BUNDLE_KEY": self.bundle.s3_object_key,
                "TOKEN_SECRET_ID": config.server.token_secret,
                "PROMETHEUS_SECRET_ID": config.settings.prometheus_secret,
                "GRAFANA_SECRET_ID": config.server.grafana_secret,
                "ALERT_TOPIC_ARN": topic,
                "STATE_TABLE": config.settings.state_table,
                "FLUX_GIT_URL": config.server.flux_git_url,
                **_image_values(config.settings),
            },
        )

    def _workers(self) -> ClusterFacts:
        config = self.config
        profile = iam.CfnInstanceProfile(self, "WorkerProfile", roles=[self.worker_role.role_name])
        template = ec2.CfnLaunchTemplate(
            self,
            "Workers",
            launch_template_name=f"{config.cluster_id}-workers",
            launch_template_data=ec2.CfnLaunchTemplate.LaunchTemplateDataProperty(
                image_id=_image(config.workers.image, config.worker_architecture),
                instance_type=config.settings.instance_types[0],
                iam_instance_profile=ec2.CfnLaunchTemplate.IamInstanceProfileProperty(arn=profile.attr_arn),
                security_group_ids=[self.worker_group.security_group_id],
                metadata_options=_metadata_options(),
                block_device_mappings=[
                    ec2.CfnLaunchTemplate.BlockDeviceMappingProperty(
                        device_name=DEVICE,
                        ebs=ec2.CfnLaunchTemplate.EbsProperty(
                            volume_type="gp3",
                            volume_size=config.workers.volume_gib,
                            encrypted=True,
                            delete_on_termination=True,
                        ),
                    )
                ],
                credit_specification=credit_specification(config.settings),
                user_data=cdk.Fn.base64(self._worker_user_data()),
            ),
        )
        # A strong reference would refuse every new version of the template while the autoscaler uses the last one.
        cdk.CrossStackReferences.of(template).produce(cdk.ReferenceStrength.WEAK)
        subnets = tuple(zip(config.zones, (s.subnet_id for s in self.vpc.public_subnets), strict=True))
        return ClusterFacts(
            vpc=self.vpc,
            function_subnets=ec2.SubnetSelection(subnet_group_name="functions"),
            functions_use_ipv6=True,
            worker_subnets=subnets,
            server_security_group_id=self.server_group.security_group_id,
            launch_template_id=template.ref,
            launch_template_version=template.attr_latest_version_number,
            launch_template_digest=self._digest(template),
            worker_role_arn=self.worker_role.role_arn,
            bootstrap_hash=hashlib.sha256(self._worker_user_data().encode()).hexdigest()[:12],
            k3s_version=config.k3s_version,
        )

    def _worker_user_data(self) -> str:
        text = _filled(
            "worker",
            {
                "SERVER_ADDRESS": self.config.network.server_address,
                "AWS_REGION": self.config.region,
                "TOKEN_SECRET_ID": self.config.server.token_secret,
                "K3S_VERSION": self.config.k3s_version,
                "K3S_SHA256_AMD64": self.config.k3s_checksum,
                **_image_values(self.config.settings),
            },
        )
        if len(text.encode()) > USER_DATA_LIMIT_BYTES:
            raise ValueError(f"worker user data has {len(text.encode())} bytes, EC2 allows {USER_DATA_LIMIT_BYTES}")
        return text

    def _digest(self, template: ec2.CfnLaunchTemplate) -> str:
        content: Any = self.resolve(template.launch_template_data)
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:12]


def _filled(machine: str, values: dict[str, str]) -> str:
    text = read_script(BUNDLE / machine / "user_data.sh")
    for name, value in values.items():
        text = text.replace(f"${{{name}}}", value)
    return text


def _image_values(settings: Settings) -> dict[str, str]:
    """What the bootstraps need to have the images of pods ready."""
    mirror, seconds = settings.registry_mirror, settings.image_wait_seconds
    return {"REGISTRY_MIRROR": "true" if mirror else "false", "IMAGE_WAIT_SECONDS": str(seconds)}


def _image(image: str, architecture: str) -> str:
    """A pinned image, or the public parameter of Amazon Linux 2023, which EC2 resolves at launch."""
    return image or f"resolve:ssm:{AMAZON_LINUX}{architecture}"


def credit_specification(settings: Settings) -> ec2.CfnLaunchTemplate.CreditSpecificationProperty | None:
    """The mode of CPU credits, only if every type has them: EC2 refuses it for the launch of any other type."""
    if any(baseline_percent(one) is None for one in settings.instance_types):
        return None
    return ec2.CfnLaunchTemplate.CreditSpecificationProperty(cpu_credits=settings.cpu_credits)


def _metadata_options() -> ec2.CfnLaunchTemplate.MetadataOptionsProperty:
    """Session tokens only, and one hop, so that pods cannot read the credentials of the machine."""
    return ec2.CfnLaunchTemplate.MetadataOptionsProperty(
        http_endpoint="enabled", http_tokens="required", http_put_response_hop_limit=1
    )
