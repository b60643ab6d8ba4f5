"""The autoscaler of one cluster: tables, functions, documents, workflows, and what starts them.

It takes the cluster's facts as given and creates no machine.
"""

from __future__ import annotations

from typing import cast

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from cdk_app import packages
from cdk_app.components.facts import ClusterFacts, attached
from cdk_app.components.function import FunctionNetwork, HandlerFunction, SharedParts
from cdk_app.components.resources import FleetResources
from cdk_app.components.state_machine import FleetStateMachine
from cdk_app.components.tables import FleetTables
from cdk_app.components.topics import FleetTopics
from cdk_app.components.triggers import Triggers, undelivered_events
from cdk_app.config import Attachment, ClusterConfig, ConfigurationError
from cdk_app.documents import documents
from cdk_app.permissions import NEEDS
from cdk_app.workflow import Workflow, handlers, workflows

# A function ends before its state times out: its own error is recorded, and a retry never overlaps it.
SECONDS_BEFORE_STATE_TIMEOUT = 3
# Replaces K3s on the server, which in mode attach belongs to someone else.
SERVER_UPGRADE = "UpgradeServer"


class AutoscalerStack(cdk.Stack):
    """`functions` and `state_machines` by name; construct LaunchNodes is state LaunchNodes."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        config: ClusterConfig,
        facts: ClusterFacts | None,
        env: cdk.Environment,
    ) -> None:
        super().__init__(scope, construct_id, env=env, description=f"node-fleet {config.cluster_id}: autoscaler")
        self.config = config
        self.facts = facts or attached(self, _attachment(config))
        self.tables = FleetTables(self, "Tables", settings=config.settings)
        self.topics = FleetTopics(self, "Topics", config=config)
        self.undelivered = undelivered_events(self, config)
        self._documents()
        shared = self._shared_parts()
        flows = workflows()
        check_names(flows)
        self.functions = {name: self._function(name, module, shared, flows) for name, module in handlers().items()}
        self.state_machines = {
            flow.name: FleetStateMachine(
                self,
                flow.name.capitalize(),
                workflow=flow,
                cluster_id=config.cluster_id,
                functions=self.functions,
            ).state_machine
            for flow in flows
        }
        Triggers(
            stack=self,
            config=config,
            functions=self.functions,
            state_machines=self.state_machines,
            messages=self.topics.messages,
            alerts=self.topics.alerts,
            undelivered=self.undelivered,
        ).create()
        cdk.CfnOutput(self, "StateMachineArn", value=shared.resources.autoscaler_arn)
        cdk.CfnOutput(self, "MessagesTopicArn", value=self.topics.messages.topic_arn)
        cdk.CfnOutput(self, "AlertTopicArn", value=self.topics.alerts.topic_arn)
        cdk.CfnOutput(
            self,
            "InstanceTypes",
            value=", ".join(config.settings.instance_types),
            description="Instance types of the workers, as configured or as instance_requirements resolve",
        )

    def _documents(self) -> None:
        for name, content in documents(self.config.settings).items():
            if self.config.attach and name.endswith(SERVER_UPGRADE):
                continue
            ssm.CfnDocument(
                self,
                name.removeprefix(self.config.settings.document_prefix) + "Document",
                name=name,
                content=content,
                document_type="Command",
                document_format="JSON",
                target_type="/AWS::EC2::Instance",
                update_method="NewVersion",
            )

    def _function(self, name: str, module: str, shared: SharedParts, flows: tuple[Workflow, ...]) -> HandlerFunction:
        needs = NEEDS[name]
        limits = [flow.timeout_seconds(name) for flow in flows if name in flow.functions]
        timeout = min(limits) - SECONDS_BEFORE_STATE_TIMEOUT if limits else needs.timeout_seconds
        handler = HandlerFunction(self, name, module=module, needs=needs, timeout_seconds=timeout, shared=shared)
        if "iam:PassRole" in {action for g in needs.grants for action in g.actions}:
            # The reference to the launch template is weak. A changed template must show in this template, else neither
            # the CDK nor CloudFormation updates the launching function.
            function = cast("lambda_.CfnFunction", handler.function.node.default_child)
            function.description = f"{function.description}, launch template {self.facts.launch_template_digest}"
        return handler

    def _shared_parts(self) -> SharedParts:
        resources = FleetResources(
            config=self.config,
            stack=self,
            tables=self.tables,
            topic_arns=self.topics.publish_arns,
            topic_key_arn=self.topics.key.key_arn if self.topics.key else None,
            facts=self.facts,
        )
        return SharedParts(
            code=lambda_.Code.from_asset(str(packages.FUNCTIONS), exclude=list(packages.NOT_SHIPPED)),
            layer=self._layer(),
            environment=self._environment(resources),
            network=self._function_network(),
            resources=resources,
        )

    def _layer(self) -> lambda_.LayerVersion:
        return lambda_.LayerVersion(
            self,
            "Layer",
            code=lambda_.Code.from_asset(
                str(packages.layer_file()),
                asset_hash=packages.layer_hash(),
                asset_hash_type=cdk.AssetHashType.CUSTOM,
            ),
            compatible_runtimes=[lambda_.Runtime.PYTHON_3_13],
            compatible_architectures=[lambda_.Architecture.ARM_64],
            description="node-fleet: requests, Powertools, time zones",
            removal_policy=cdk.RemovalPolicy.RETAIN,
        )

    def _environment(self, resources: FleetResources) -> dict[str, str]:
        """All settings, and the names that only the deployment knows. AWS_REGION is Lambda's own."""
        environment = self.config.settings.to_env()
        environment.pop("AWS_REGION", None)
        return {
            **environment,
            "SNS_TOPIC_ARN": self.topics.messages.topic_arn,
            **({"ALERT_TOPIC_CRITICAL": self.topics.critical.topic_arn} if self.topics.critical else {}),
            "ALERT_TOPIC_ARN": self.topics.alerts.topic_arn,
            "STATE_MACHINE_ARN": resources.autoscaler_arn,
            "LAUNCH_TEMPLATE_ID": self.facts.launch_template_id,
            "LAUNCH_TEMPLATE_VERSION": self.facts.launch_template_version,
            "SUBNETS": ",".join(f"{zone}={subnet}" for zone, subnet in self.facts.worker_subnets),
            **({"BOOTSTRAP_HASH": self.facts.bootstrap_hash} if self.facts.bootstrap_hash else {}),
            **({"K3S_VERSION": self.facts.k3s_version} if self.facts.k3s_version else {}),
        }

    def _function_network(self) -> FunctionNetwork:
        port = self.config.settings.prometheus_port
        group = ec2.SecurityGroup(
            self,
            "FunctionGroup",
            vpc=self.facts.vpc,
            description="node-fleet functions that read Prometheus",
            allow_all_outbound=False,
        )
        group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(443), "AWS over IPv4: gateway endpoint")
        group.add_egress_rule(ec2.Peer.any_ipv6(), ec2.Port.tcp(443), "AWS over IPv6: dual-stack endpoints")
        server = ec2.Peer.security_group_id(self.facts.server_security_group_id)
        group.add_egress_rule(server, ec2.Port.tcp(port), "Prometheus on the server")
        ec2.CfnSecurityGroupIngress(
            self,
            "PrometheusFromFunctions",
            group_id=self.facts.server_security_group_id,
            source_security_group_id=group.security_group_id,
            ip_protocol="tcp",
            from_port=port,
            to_port=port,
            description="Prometheus, only from the functions that read it",
        )
        return FunctionNetwork(
            vpc=self.facts.vpc,
            subnets=self.facts.function_subnets,
            security_group=group,
            ipv6=self.facts.functions_use_ipv6,
        )


def check_names(flows: tuple[Workflow, ...]) -> None:
    """Check that every function of a workflow has a handler, and every handler its permissions.

    Raises:
        ConfigurationError: lists the missing ones.
    """
    modules = handlers()
    problems = [
        f"statemachine/{flow.name}.asl.yaml names ${{{name}FunctionArn}}, but functions/handlers has no module for it"
        for flow in flows
        for name in flow.functions
        if name not in modules
    ]
    problems += [
        f"functions/handlers/{module}.py has no entry {name} in cdk_app/permissions.py"
        for name, module in modules.items()
        if name not in NEEDS
    ]
    if problems:
        raise ConfigurationError(problems)


def _attachment(config: ClusterConfig) -> Attachment:
    if config.attach is None:
        raise ValueError(f"{config.cluster_id}: mode attach needs section attach")
    return config.attach
