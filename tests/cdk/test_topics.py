"""The topics are encrypted with a key that their publishers may use through SNS, and no other principal."""

from __future__ import annotations

import json
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import assertions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns

from tests.cdk.conftest import ATTACHED, LONG_ATTACHED, LONG_NEW, NEW, ON_CALL, App
from tests.cdk.test_permissions import listed, statements, with_action
from tests.support.iam_reference import text

THROUGH_SNS = {"StringEquals": {"kms:ViaService": "sns.ap-southeast-1.amazonaws.com"}}
PUBLISHING_ACTIONS = {"kms:GenerateDataKey", "kms:Decrypt"}


def key_of(app: App, cluster: str) -> tuple[str, dict[str, Any]]:
    ((name, key),) = app.resources(f"{cluster}-autoscaler", "AWS::KMS::Key").items()
    return name, key


def uses_of_keys(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [s for s in found if any(action.startswith("kms:") for action in listed(s["Action"]))]


@pytest.mark.parametrize("cluster", [NEW, ATTACHED])
def test_both_topics_have_the_key_of_the_cluster_which_rotates_every_year(app: App, cluster: str) -> None:
    name, key = key_of(app, cluster)
    topics = app.resources(f"{cluster}-autoscaler", "AWS::SNS::Topic").values()
    assert [topic["KmsMasterKeyId"] for topic in topics] == [{"Fn::GetAtt": [name, "Arn"]}] * 2
    assert key["EnableKeyRotation"] is True


@pytest.mark.parametrize("cluster", [NEW, ATTACHED])
def test_the_key_knows_its_account_and_the_alarms_of_its_cluster_and_no_other_principal(app: App, cluster: str) -> None:
    account, alarms = key_of(app, cluster)[1]["KeyPolicy"]["Statement"]
    assert text(account["Principal"]["AWS"]).endswith(":root")
    assert alarms["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert alarms["Condition"]["StringEquals"] == {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
    (source,) = alarms["Condition"]["ArnLike"].values()
    assert text(source).endswith(f":alarm:{cluster}-*")
    observed = app.resources(f"{cluster}-observability", "AWS::CloudWatch::Alarm").values()
    assert all(alarm["AlarmName"].startswith(f"{cluster}-") for alarm in observed)


def test_the_actions_are_those_that_the_cdk_grants_to_a_publisher_of_an_encrypted_topic(app: App) -> None:
    stack = cdk.Stack(cdk.App(builtin_cloud_formation_validation=False))
    role = iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    sns.Topic(stack, "Topic", master_key=kms.Key(stack, "Key")).grant_publish(role)
    (policy,) = assertions.Template.from_stack(stack).find_resources("AWS::IAM::Policy").values()
    (granted,) = uses_of_keys(policy["Properties"]["PolicyDocument"]["Statement"])
    alarms = key_of(app, NEW)[1]["KeyPolicy"]["Statement"][1]
    assert set(alarms["Action"]) == set(granted["Action"])
    assert {action.removesuffix("*") for action in granted["Action"]} == PUBLISHING_ACTIONS


@pytest.mark.parametrize("cluster", [NEW, ATTACHED])
def test_exactly_the_functions_that_publish_may_use_the_key_and_only_through_sns(app: App, cluster: str) -> None:
    name, _ = key_of(app, cluster)
    template = app.templates[f"{cluster}-autoscaler"]["Resources"]
    roles = {
        logical: [s for policy in role["Properties"].get("Policies", []) for s in policy["PolicyDocument"]["Statement"]]
        for logical, role in template.items()
        if role["Type"] == "AWS::IAM::Role"
    }
    publishers = {logical for logical, found in roles.items() if with_action(found, "sns:Publish")}
    assert publishers == {logical for logical, found in roles.items() if uses_of_keys(found)}
    for logical in publishers:
        (use,) = uses_of_keys(roles[logical])
        assert set(use["Action"]) == PUBLISHING_ACTIONS and use["Condition"] == THROUGH_SNS
        assert use["Resource"] == {"Fn::GetAtt": [name, "Arn"]}


def test_the_server_may_use_only_the_key_with_the_alias_of_the_topics(app: App) -> None:
    (alias,) = app.resources(f"{NEW}-autoscaler", "AWS::KMS::Alias").values()
    (use,) = uses_of_keys(list(statements(app, f"{NEW}-cluster")))
    assert set(use["Action"]) == PUBLISHING_ACTIONS
    only = {"ForAnyValue:StringEquals": {"kms:ResourceAliases": alias["AliasName"]}}
    assert use["Condition"] == {**THROUGH_SNS, **only}


def test_without_encryption_there_is_no_key_and_no_permission_for_one(variants: App) -> None:
    texts = [json.dumps(found) for name, found in variants.templates.items() if name.startswith(LONG_ATTACHED)]
    assert len(texts) == 2
    assert not any("kms:" in text or "AWS::KMS" in text or "KmsMasterKeyId" in text for text in texts)


def publishing(app: App, cluster: str) -> list[dict[str, Any]]:
    """The statements with which the functions publish messages."""
    found = with_action(list(statements(app, f"{cluster}-autoscaler")), "sns:Publish")
    return [s for s in found if len(listed(s["Resource"])) > 1]


def critical_topics(app: App, cluster: str, topic: Any) -> None:
    """Functions and critical alarms publish to it beside the general topic, and every function knows it."""
    assert publishing(app, cluster)
    for statement in publishing(app, cluster):
        assert topic in listed(statement["Resource"])
    for function in app.resources(f"{cluster}-autoscaler", "AWS::Lambda::Function").values():
        variables = function.get("Environment", {}).get("Variables", {})
        assert "SNS_TOPIC_ARN" not in variables or variables["ALERT_TOPIC_CRITICAL"] == topic


def test_the_stack_creates_a_topic_for_critical_messages_with_the_key_and_lets_alarms_publish(variants: App) -> None:
    stack = f"{LONG_NEW}-autoscaler"
    topics = variants.resources(stack, "AWS::SNS::Topic")
    ((logical, topic),) = [(n, t) for n, t in topics.items() if t["TopicName"] == f"{LONG_NEW}-critical"]
    name, _ = key_of(variants, LONG_NEW)
    assert topic["KmsMasterKeyId"] == {"Fn::GetAtt": [name, "Arn"]}
    critical_topics(variants, LONG_NEW, {"Ref": logical})
    (policy,) = [
        p for p in variants.resources(stack, "AWS::SNS::TopicPolicy").values() if {"Ref": logical} in p["Topics"]
    ]
    alarms, ssl = policy["PolicyDocument"]["Statement"]
    alarms, ssl = (alarms, ssl) if alarms["Effect"] == "Allow" else (ssl, alarms)
    assert alarms["Principal"] == {"Service": "cloudwatch.amazonaws.com"} and alarms["Resource"] == {"Ref": logical}
    assert ssl["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert any("CriticalTopicArn" in output for output in variants.templates[stack]["Outputs"])


def test_a_topic_that_exists_is_used_as_it_is(variants: App) -> None:
    topics = variants.resources(f"{LONG_ATTACHED}-autoscaler", "AWS::SNS::Topic").values()
    assert len(topics) == 2
    critical_topics(variants, LONG_ATTACHED, ON_CALL)


@pytest.mark.parametrize("cluster", [LONG_NEW, LONG_ATTACHED])
def test_critical_alarms_go_to_both_topics_and_the_others_to_the_general_one(variants: App, cluster: str) -> None:
    for alarm in variants.resources(f"{cluster}-observability", "AWS::CloudWatch::Alarm").values():
        is_critical = "Severity: critical." in alarm["AlarmDescription"]
        assert len(alarm["AlarmActions"]) == (2 if is_critical else 1), alarm["AlarmName"]
        assert alarm["AlarmActions"] == alarm["OKActions"]


def test_without_the_setting_there_is_no_topic_for_critical_messages(app: App) -> None:
    assert not publishing(app, NEW) and not publishing(app, ATTACHED)
    alarms = app.resources(f"{NEW}-observability", "AWS::CloudWatch::Alarm").values()
    assert all(len(alarm["AlarmActions"]) == 1 for alarm in alarms)
