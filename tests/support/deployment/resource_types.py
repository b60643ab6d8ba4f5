"""The resource types that moto's CloudFormation lacks, or makes differently from AWS, for the stacks of node-fleet.

Each is made by calls of the service's API, which moto has.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import boto3
from moto.core.common_models import CloudFormationModel

from node_fleet.domain.model.value_class import value_class

ACCOUNT, REGION = "123456789012", "ap-southeast-1"

Properties = Mapping[str, Any]
Request = dict[str, Any]


@value_class
class ResourceType:
    """A type of resource that moto's services know and its CloudFormation does not. It is made by calls of the API."""

    name: str
    service: str
    put: str
    """The method of the client that creates the resource, and that changes one which exists where `updates` is true."""
    identity: Callable[[Properties, Properties], str]
    """The physical id, from the properties and the reply."""
    remove: str
    removal: Callable[[str, Properties], Request]
    request: Callable[[Properties], Request] = dict
    attributes: Callable[[str, Properties], Mapping[str, str]] = lambda identity, reply: {}
    updates: bool = True


def _lower_keys(value: Any) -> Any:
    """CloudFormation begins a property with a capital letter where CloudWatch Logs does not."""
    if isinstance(value, dict):
        return {name[0].lower() + name[1:]: _lower_keys(part) for name, part in value.items()}
    return [_lower_keys(part) for part in value] if isinstance(value, list) else value


def _statement(permission: Properties) -> str:
    return hashlib.sha256(json.dumps(permission, sort_keys=True).encode()).hexdigest()[:12]


def _filter(filter_: Properties) -> str:
    return f"filter-{filter_['MetricTransformations'][0]['MetricName']}"


TYPES = (
    ResourceType(  # moto's ignores the launch template, the security groups and the protection from termination
        name="AWS::EC2::Instance",
        service="ec2",
        put="run_instances",
        request=lambda p: {
            **{name: value for name, value in p.items() if name not in ("IamInstanceProfile", "Tags")},
            "IamInstanceProfile": {"Name": p["IamInstanceProfile"]},
            "TagSpecifications": [{"ResourceType": "instance", "Tags": p["Tags"]}],
            "MinCount": 1,
            "MaxCount": 1,
        },
        identity=lambda _, reply: reply["Instances"][0]["InstanceId"],
        remove="terminate_instances",
        removal=lambda identity, _: {"InstanceIds": [identity]},
        updates=False,
    ),
    ResourceType(  # moto's has no physical id, which is the ARN of the version
        name="AWS::Lambda::Version",
        service="lambda",
        put="publish_version",
        identity=lambda _, reply: reply["FunctionArn"],
        attributes=lambda _, reply: {"Version": reply["Version"]},
        remove="delete_function",
        removal=lambda identity, _: {"FunctionName": identity},
        updates=False,
    ),
    ResourceType(  # moto's has no physical id, which is the ARN of the version
        name="AWS::Lambda::LayerVersion",
        service="lambda",
        put="publish_layer_version",
        request=lambda p: {"LayerName": "layer", **p},
        identity=lambda _, reply: reply["LayerVersionArn"],
        remove="delete_layer_version",
        removal=lambda identity, _: {"LayerName": "layer", "VersionNumber": int(identity.rpartition(":")[2])},
    ),
    ResourceType(  # moto's cannot be updated
        name="AWS::Lambda::Permission",
        service="lambda",
        put="add_permission",
        request=lambda p: {"StatementId": _statement(p), **p},
        identity=lambda p, _: _statement(p),
        remove="remove_permission",
        removal=lambda identity, p: {"FunctionName": p["FunctionName"], "StatementId": identity},
    ),
    ResourceType(
        name="AWS::EC2::VPCCidrBlock",
        service="ec2",
        put="associate_vpc_cidr_block",
        identity=lambda _, reply: reply["Ipv6CidrBlockAssociation"]["AssociationId"],
        remove="disassociate_vpc_cidr_block",
        removal=lambda identity, _: {"AssociationId": identity},
        updates=False,
    ),
    ResourceType(
        name="AWS::EC2::EgressOnlyInternetGateway",
        service="ec2",
        put="create_egress_only_internet_gateway",
        request=lambda p: {"VpcId": p["VpcId"]},
        identity=lambda _, reply: reply["EgressOnlyInternetGateway"]["EgressOnlyInternetGatewayId"],
        remove="delete_egress_only_internet_gateway",
        removal=lambda identity, _: {"EgressOnlyInternetGatewayId": identity},
        updates=False,
    ),
    ResourceType(
        name="AWS::SecretsManager::Secret",
        service="secretsmanager",
        put="create_secret",
        request=lambda p: {
            "Name": p["Name"],
            "Description": p["Description"],
            "SecretString": json.dumps(p.get("GenerateSecretString")),
        },
        identity=lambda _, reply: reply["ARN"],
        remove="delete_secret",
        removal=lambda identity, _: {"SecretId": identity, "ForceDeleteWithoutRecovery": True},
        updates=False,
    ),
    ResourceType(
        name="AWS::SNS::TopicPolicy",
        service="sns",
        put="set_topic_attributes",
        request=lambda p: {
            "TopicArn": p["Topics"][0],
            "AttributeName": "Policy",
            "AttributeValue": json.dumps(p["PolicyDocument"]),
        },
        identity=lambda p, _: f"policy of {p['Topics'][0]}",
        remove="get_topic_attributes",
        removal=lambda _, p: {"TopicArn": p["Topics"][0]},
    ),
    ResourceType(
        name="AWS::SQS::QueuePolicy",
        service="sqs",
        put="set_queue_attributes",
        request=lambda p: {"QueueUrl": p["Queues"][0], "Attributes": {"Policy": json.dumps(p["PolicyDocument"])}},
        identity=lambda p, _: f"policy of {p['Queues'][0]}",
        remove="get_queue_attributes",
        removal=lambda _, p: {"QueueUrl": p["Queues"][0]},
    ),
    ResourceType(
        name="AWS::SNS::Subscription",
        service="sns",
        put="subscribe",
        identity=lambda _, reply: reply["SubscriptionArn"],
        remove="unsubscribe",
        removal=lambda identity, _: {"SubscriptionArn": identity},
    ),
    ResourceType(
        name="AWS::Lambda::EventInvokeConfig",
        service="lambda",
        put="put_function_event_invoke_config",
        identity=lambda p, _: f"{p['FunctionName']}|{p['Qualifier']}",
        remove="delete_function_event_invoke_config",
        removal=lambda _, p: {"FunctionName": p["FunctionName"], "Qualifier": p["Qualifier"]},
    ),
    ResourceType(
        name="AWS::CloudWatch::Alarm",
        service="cloudwatch",
        put="put_metric_alarm",
        identity=lambda p, _: p["AlarmName"],
        attributes=lambda identity, _: {"Arn": f"arn:aws:cloudwatch:{REGION}:{ACCOUNT}:alarm:{identity}"},
        remove="delete_alarms",
        removal=lambda identity, _: {"AlarmNames": [identity]},
    ),
    ResourceType(
        name="AWS::Logs::MetricFilter",
        service="logs",
        put="put_metric_filter",
        request=lambda p: {
            "filterName": f"filter-{p['MetricTransformations'][0]['MetricName']}",
            **_lower_keys(dict(p)),
        },
        identity=lambda p, _: f"filter-{p['MetricTransformations'][0]['MetricName']}",
        remove="delete_metric_filter",
        removal=lambda identity, p: {"filterName": identity, "logGroupName": p["LogGroupName"]},
    ),
)


class ApiResource:
    """One resource of an added type, made by calls of the API."""

    kind: ResourceType
    endpoint: str

    def __init__(self, properties: Properties, reply: Properties) -> None:
        self.properties = properties
        self.physical_resource_id = self.kind.identity(properties, reply)
        self._attributes = self.kind.attributes(self.physical_resource_id, reply)

    @classmethod
    def client(cls) -> Any:
        return boto3.client(cls.kind.service, endpoint_url=cls.endpoint, region_name=REGION)

    @classmethod
    def cloudformation_name_type(cls) -> str:
        return ""

    @classmethod
    def cloudformation_type(cls) -> str:
        return cls.kind.name

    def get_cfn_attribute(self, attribute: str) -> str:
        return self._attributes[attribute]

    def is_created(self) -> bool:
        return True

    @classmethod
    def create_from_cloudformation_json(cls, name: str, cloudformation_json: Any, *_: Any, **__: Any) -> ApiResource:
        properties = cloudformation_json["Properties"]
        return cls(properties, getattr(cls.client(), cls.kind.put)(**cls.kind.request(properties)))

    @classmethod
    def update_from_cloudformation_json(
        cls, *, new_resource_name: str, cloudformation_json: Any, **_: Any
    ) -> ApiResource:
        if not cls.kind.updates:
            raise NotImplementedError(f"a change of {cls.kind.name} is not deployed here")
        return cls.create_from_cloudformation_json(new_resource_name, cloudformation_json)

    def delete(self, *_: Any) -> None:
        getattr(self.client(), self.kind.remove)(**self.kind.removal(self.physical_resource_id, self.properties))


def model(one: ResourceType, endpoint: str) -> type[CloudFormationModel]:
    """The class by which moto's CloudFormation makes the type; the API of its own server is at `endpoint`."""
    # moto reads the service from the name of the module.
    fields = {"__module__": "moto.cloudformation.additions", "kind": one, "endpoint": endpoint}
    return type("Resource", (ApiResource, CloudFormationModel), fields)
