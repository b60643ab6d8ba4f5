"""Puts a synthesised template into the simulated AWS: what moto can hold is created there, the rest is named.

It changes nothing of what the template says, but for environment variables that the caller overrides.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from node_fleet.domain.model.value_class import value_class
from simulator.aws.cloud import Cloud
from simulator.aws.lambdas import LambdaFunction
from simulator.aws.template import FakeNames, Resource, RuleSpec, Template


@value_class
class Made:
    """What a resource is called in the simulated AWS."""

    ref: str
    attributes: Mapping[str, str] = field(default_factory=dict)


@value_class
class Subscription:
    """The subscribers of a topic."""

    topic_arn: str
    protocol: str
    endpoint: str


class DeployedResources:
    """The resources of a template, created when they are first named and at the latest by `create`."""

    def __init__(self, cloud: Cloud, template: Template, *, environment: Mapping[str, str] | None = None) -> None:
        self.cloud = cloud
        self.template = template.named(self)
        self.machines: dict[str, str] = {}
        self.functions: dict[str, LambdaFunction] = {}
        self.subscriptions: list[Subscription] = []
        self.rules: list[RuleSpec] = []
        self.given_up: dict[str, str] = {}
        """By function: the topic that gets an asynchronous event whose last try has failed."""
        self._environment = dict(environment or {})
        self._fake = FakeNames(cloud.region, cloud.account)
        self._made: dict[str, Made] = {}
        self._makers: dict[str, Callable[[Resource, dict[str, Any]], Made]] = {
            "AWS::EC2::VPC": self._vpc,
            "AWS::EC2::Subnet": self._subnet,
            "AWS::EC2::SecurityGroup": self._security_group,
            "AWS::EC2::LaunchTemplate": self._launch_template,
            "AWS::EC2::Instance": self._instance,
            "AWS::DynamoDB::Table": self._table,
            "AWS::DynamoDB::GlobalTable": self._table,
            "AWS::SNS::Topic": self._topic,
            "AWS::SecretsManager::Secret": self._secret,
            "AWS::SSM::Document": self._document,
            "AWS::SSM::Parameter": self._parameter,
        }

    def create(self) -> None:
        """Creates everything: first the things, then the functions, then the state machines that call them."""
        for resource in self.template.resources(*self._makers):
            self._make(resource)
        for spec in self.template.functions():
            self.functions[spec.name] = self.cloud.lambdas.register(
                spec.name,
                spec.handler,
                environment={**spec.environment, **self._environment},
                timeout_seconds=spec.timeout_seconds,
                memory_mib=spec.memory_mib,
                role=spec.role,
            )
        for machine in self.template.state_machines():
            self.machines[machine.name] = self.cloud.create_state_machine(machine.name, machine.definition)
        self.subscriptions = [self._subscription(one) for one in self.template.resources("AWS::SNS::Subscription")]
        self.subscriptions += list(self._inline_subscriptions())
        self.rules = [rule for rule in self.template.rules() if rule.enabled]
        for one in map(self.template.properties, self.template.resources("AWS::Lambda::EventInvokeConfig")):
            if "DestinationConfig" in one:
                self.given_up[one["FunctionName"]] = one["DestinationConfig"]["OnFailure"]["Destination"]

    def override_environment(self, values: Mapping[str, str]) -> None:
        """Sets variables for every function, those already created too."""
        self._environment.update(values)
        for name, function in self.functions.items():
            self.functions[name] = self.cloud.lambdas.register(
                name,
                function.handler,
                environment={**function.environment, **values},
                timeout_seconds=function.timeout_seconds,
                memory_mib=function.memory_mib,
                role=function.role,
            )

    def setting(self, name: str, default: str = "") -> str:
        """The value of an environment variable that the functions share."""
        for function in self.functions.values():
            if name in function.environment:
                return function.environment[name]
        return default

    def ref(self, resource: Resource) -> Any:
        """For the template: what Ref gives."""
        if resource.type == "AWS::Lambda::Function":
            return str(resource.properties.get("FunctionName", resource.logical_id))
        if resource.type in ("AWS::Lambda::Version", "AWS::Lambda::Alias"):
            return f"{self._arn_of(resource)}:1"
        if resource.type == "AWS::StepFunctions::StateMachine":
            return self._machine_arn(resource)
        if resource.type in self._makers:
            return self._make(resource).ref
        return self._fake.ref(resource)

    def attribute(self, resource: Resource, name: str) -> Any:
        """For the template: what Fn::GetAtt gives."""
        if resource.type == "AWS::Lambda::Function" and name == "Arn":
            return f"arn:aws:lambda:{self.cloud.region}:{self.cloud.account}:function:{self.ref(resource)}"
        if resource.type == "AWS::Lambda::Version":
            return "1" if name == "Version" else self.ref(resource)
        if resource.type == "AWS::StepFunctions::StateMachine":
            return self._machine_arn(resource) if name == "Arn" else self._machine_name(resource)
        if resource.type in self._makers:
            made = self._make(resource)
            if name in made.attributes:
                return made.attributes[name]
        return self._fake.attribute(resource, name)

    def _arn_of(self, version: Resource) -> str:
        function = str(self.template.resolve(version.stack, version.properties["FunctionName"])).split(":")[-1]
        return f"arn:aws:lambda:{self.cloud.region}:{self.cloud.account}:function:{function}"

    def _machine_name(self, resource: Resource) -> str:
        name = resource.properties.get("StateMachineName", resource.logical_id)
        return str(self.template.resolve(resource.stack, name))

    def _machine_arn(self, resource: Resource) -> str:
        return f"arn:aws:states:{self.cloud.region}:{self.cloud.account}:stateMachine:{self._machine_name(resource)}"

    def _make(self, resource: Resource) -> Made:
        if resource.address not in self._made:
            properties = self.template.properties(resource)
            self._made[resource.address] = self._makers[resource.type](resource, properties)
        return self._made[resource.address]

    def _vpc(self, resource: Resource, properties: dict[str, Any]) -> Made:
        reply = self.cloud.client("ec2").create_vpc(CidrBlock=properties.get("CidrBlock", "10.0.0.0/16"))
        attributes = {"VpcId": reply["Vpc"]["VpcId"], "CidrBlock": reply["Vpc"]["CidrBlock"]}
        return Made(ref=reply["Vpc"]["VpcId"], attributes=attributes)

    def _subnet(self, resource: Resource, properties: dict[str, Any]) -> Made:
        zone = properties.get("AvailabilityZone") or f"{self.cloud.region}a"
        reply = self.cloud.client("ec2").create_subnet(
            VpcId=properties["VpcId"], CidrBlock=properties["CidrBlock"], AvailabilityZone=zone
        )
        subnet_id = reply["Subnet"]["SubnetId"]
        if properties.get("MapPublicIpOnLaunch"):
            self.cloud.client("ec2").modify_subnet_attribute(SubnetId=subnet_id, MapPublicIpOnLaunch={"Value": True})
        return Made(ref=subnet_id, attributes={"SubnetId": subnet_id, "AvailabilityZone": zone})

    def _security_group(self, resource: Resource, properties: dict[str, Any]) -> Made:
        name = properties.get("GroupName", resource.logical_id)
        description = properties.get("GroupDescription", name)
        arguments = {"GroupName": name, "Description": description}
        if properties.get("VpcId", "").startswith("vpc-") and self._exists_vpc(properties["VpcId"]):
            arguments["VpcId"] = properties["VpcId"]
        group_id = self.cloud.client("ec2").create_security_group(**arguments)["GroupId"]
        return Made(ref=group_id, attributes={"GroupId": group_id})

    def _exists_vpc(self, vpc_id: str) -> bool:
        return any(vpc["VpcId"] == vpc_id for vpc in self.cloud.client("ec2").describe_vpcs()["Vpcs"])

    def _launch_template(self, resource: Resource, properties: dict[str, Any]) -> Made:
        reply = self.cloud.client("ec2").create_launch_template(
            LaunchTemplateName=properties.get("LaunchTemplateName", resource.logical_id),
            LaunchTemplateData=properties["LaunchTemplateData"],
        )
        template_id = reply["LaunchTemplate"]["LaunchTemplateId"]
        versions = {"LatestVersionNumber": "1", "DefaultVersionNumber": "1", "LaunchTemplateId": template_id}
        return Made(ref=template_id, attributes=versions)

    def _instance(self, resource: Resource, properties: dict[str, Any]) -> Made:
        wanted = ("ImageId", "InstanceType", "SubnetId", "SecurityGroupIds", "PrivateIpAddress", "LaunchTemplate")
        arguments = {name: properties[name] for name in wanted if name in properties}
        arguments.setdefault("ImageId", "ami-12345678")
        tags = [{"ResourceType": "instance", "Tags": properties.get("Tags", [])}]
        reply = self.cloud.client("ec2").run_instances(MinCount=1, MaxCount=1, TagSpecifications=tags, **arguments)
        instance = reply["Instances"][0]
        attributes = {"InstanceId": instance["InstanceId"], "PrivateIp": instance["PrivateIpAddress"]}
        return Made(ref=instance["InstanceId"], attributes=attributes)

    def _table(self, resource: Resource, properties: dict[str, Any]) -> Made:
        client = self.cloud.client("dynamodb")
        name = properties.get("TableName", resource.logical_id)
        indexes = [
            {key: index[key] for key in ("IndexName", "KeySchema", "Projection")}
            for index in properties.get("GlobalSecondaryIndexes", [])
        ]
        client.create_table(
            TableName=name,
            KeySchema=properties["KeySchema"],
            AttributeDefinitions=properties["AttributeDefinitions"],
            BillingMode="PAY_PER_REQUEST",
            **({"GlobalSecondaryIndexes": indexes} if indexes else {}),
        )
        ttl = properties.get("TimeToLiveSpecification")
        if ttl:
            wanted = {"Enabled": True, "AttributeName": ttl["AttributeName"]}
            client.update_time_to_live(TableName=name, TimeToLiveSpecification=wanted)
        arn = f"arn:aws:dynamodb:{self.cloud.region}:{self.cloud.account}:table/{name}"
        return Made(ref=name, attributes={"Arn": arn})

    def _topic(self, resource: Resource, properties: dict[str, Any]) -> Made:
        name = properties.get("TopicName", resource.logical_id)
        arn = self.cloud.client("sns").create_topic(Name=name)["TopicArn"]
        return Made(ref=arn, attributes={"TopicName": name, "TopicArn": arn})

    def _secret(self, resource: Resource, properties: dict[str, Any]) -> Made:
        text = properties.get("SecretString")
        if text is None:
            generate = properties.get("GenerateSecretString", {})
            fields = json.loads(generate.get("SecretStringTemplate", "{}"))
            fields[generate.get("GenerateStringKey", "password")] = "generated-by-the-simulator"
            text = json.dumps(fields)
        name = properties.get("Name", resource.logical_id)
        arn = self.cloud.client("secretsmanager").create_secret(Name=name, SecretString=text)["ARN"]
        return Made(ref=arn, attributes={"Id": arn})

    def _document(self, resource: Resource, properties: dict[str, Any]) -> Made:
        name = properties.get("Name", resource.logical_id)
        self.cloud.client("ssm").create_document(
            Name=name, Content=json.dumps(properties["Content"]), DocumentType="Command", DocumentFormat="JSON"
        )
        return Made(ref=name)

    def _parameter(self, resource: Resource, properties: dict[str, Any]) -> Made:
        name = properties.get("Name", f"/{resource.logical_id}")
        self.cloud.client("ssm").put_parameter(Name=name, Value=str(properties["Value"]), Type="String")
        return Made(ref=name, attributes={"Value": str(properties["Value"])})

    def _subscription(self, resource: Resource) -> Subscription:
        properties = self.template.properties(resource)
        return Subscription(
            topic_arn=properties["TopicArn"], protocol=properties["Protocol"], endpoint=str(properties["Endpoint"])
        )

    def _inline_subscriptions(self) -> list[Subscription]:
        return [
            Subscription(topic_arn=self.ref(topic), protocol=one["Protocol"], endpoint=str(one["Endpoint"]))
            for topic in self.template.resources("AWS::SNS::Topic")
            for one in self.template.properties(topic).get("Subscription", [])
        ]
