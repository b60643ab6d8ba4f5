"""Every name that the deployment gives fits its service, for a cluster id of the greatest length."""

from __future__ import annotations

import re
from typing import Any

import botocore.session
import pytest

from cdk_app.config import ClusterConfig
from tests.cdk.conftest import LONGEST, App

# Resource type and property: the greatest length and the allowed characters, from the service's own documents.
LIMITS: dict[tuple[str, str], tuple[int, str]] = {
    ("AWS::CloudWatch::Alarm", "AlarmName"): (255, r"[ -~]+"),
    ("AWS::CloudWatch::Dashboard", "DashboardName"): (255, r"[A-Za-z0-9_-]+"),
    ("AWS::DynamoDB::Table", "TableName"): (255, r"[A-Za-z0-9_.-]{3,}"),
    ("AWS::EC2::LaunchTemplate", "LaunchTemplateName"): (128, r"[A-Za-z0-9_().\-/]{3,}"),
    ("AWS::Events::Rule", "Name"): (64, r"[A-Za-z0-9_.-]+"),
    ("AWS::IAM::Policy", "PolicyName"): (128, r"[\w+=,.@-]+"),
    ("AWS::IAM::Role", "RoleName"): (64, r"[\w+=,.@-]+"),
    ("AWS::KMS::Alias", "AliasName"): (256, r"alias/[a-zA-Z0-9/_-]+"),
    ("AWS::Lambda::Function", "FunctionName"): (64, r"[A-Za-z0-9_-]+"),
    ("AWS::Logs::LogGroup", "LogGroupName"): (512, r"[A-Za-z0-9_.\-/#]+"),
    ("AWS::SecretsManager::Secret", "Name"): (512, r"[A-Za-z0-9/_+=.@-]+"),
    ("AWS::SNS::Topic", "TopicName"): (256, r"[A-Za-z0-9_-]+"),
    ("AWS::SQS::Queue", "QueueName"): (80, r"[A-Za-z0-9_-]+"),
    ("AWS::SSM::Document", "Name"): (128, r"[A-Za-z0-9_.-]{3,}"),
    ("AWS::SSM::Parameter", "Name"): (2048, r"(/[A-Za-z0-9_.-]+){1,15}"),
    ("AWS::StepFunctions::StateMachine", "StateMachineName"): (80, r"[A-Za-z0-9_-]+"),
}
STACK_NAME = (128, r"[A-Za-z][A-Za-z0-9-]*")
# The same limits where the service's model in botocore has them: service, operation, parameter.
MODELS = {
    ("AWS::CloudWatch::Alarm", "AlarmName"): ("cloudwatch", "PutMetricAlarm", "AlarmName"),
    ("AWS::Events::Rule", "Name"): ("events", "PutRule", "Name"),
    ("AWS::IAM::Policy", "PolicyName"): ("iam", "PutRolePolicy", "PolicyName"),
    ("AWS::IAM::Role", "RoleName"): ("iam", "CreateRole", "RoleName"),
    ("AWS::KMS::Alias", "AliasName"): ("kms", "CreateAlias", "AliasName"),
    ("AWS::Logs::LogGroup", "LogGroupName"): ("logs", "CreateLogGroup", "logGroupName"),
    ("AWS::SecretsManager::Secret", "Name"): ("secretsmanager", "CreateSecret", "Name"),
    ("AWS::SSM::Parameter", "Name"): ("ssm", "PutParameter", "Name"),
    ("AWS::StepFunctions::StateMachine", "StateMachineName"): ("stepfunctions", "CreateStateMachine", "name"),
}
# Properties that end in Name but name something that exists already.
REFERENCES = {("AWS::CloudWatch::Alarm", "MetricName"), ("AWS::Logs::MetricFilter", "LogGroupName")}


@pytest.fixture
def templates(variants: App) -> dict[str, dict[str, Any]]:
    """Both modes with cluster ids of the greatest length."""
    return variants.templates


def names(templates: dict[str, dict[str, Any]]) -> list[tuple[tuple[str, str], str]]:
    """Every literal name of a new resource, with its type and property."""
    return [
        ((resource["Type"], key), value)
        for template in templates.values()
        for resource in template["Resources"].values()
        for key, value in resource.get("Properties", {}).items()
        if isinstance(value, str) and (resource["Type"], key) in LIMITS
    ]


def test_forty_characters_are_the_most_that_a_cluster_id_may_have() -> None:
    (rule,) = [m for m in ClusterConfig.model_fields["cluster_id"].metadata if hasattr(m, "pattern")]
    assert re.fullmatch(rule.pattern, "n" * LONGEST)
    assert not re.fullmatch(rule.pattern, "n" * (LONGEST + 1))


def test_every_name_fits_its_service(templates: dict[str, dict[str, Any]]) -> None:
    found = names(templates)
    assert {kind for kind, _ in found} >= {kind for kind in LIMITS if kind[0] != "AWS::IAM::Role"}
    wrong = [
        f"{kind[0]} {name}: {len(name)} characters"
        for kind, name in found
        if len(name) > LIMITS[kind][0] or not re.fullmatch(LIMITS[kind][1], name)
    ]
    wrong += [f"stack {s}" for s in templates if len(s) > STACK_NAME[0] or not re.fullmatch(STACK_NAME[1], s)]
    assert wrong == []


def test_every_property_that_holds_a_name_has_a_limit_here(templates: dict[str, dict[str, Any]]) -> None:
    unknown = {
        (resource["Type"], key)
        for template in templates.values()
        for resource in template["Resources"].values()
        for key, value in resource.get("Properties", {}).items()
        if key.endswith("Name") and isinstance(value, str)
    } - set(LIMITS)
    unknown -= REFERENCES
    assert unknown == set()


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind[0].removeprefix("AWS::"))
def test_the_limits_are_those_of_the_services_models(kind: tuple[str, str]) -> None:
    service, operation, parameter = MODELS[kind]
    model = botocore.session.get_session().get_service_model(service).operation_model(operation)
    assert model.input_shape is not None
    assert model.input_shape.members[parameter].metadata["max"] == LIMITS[kind][0]
