"""The server of a new cluster is backed up daily by a role that can do nothing else."""

from __future__ import annotations

import json
import re
from typing import Any

import botocore.session
from botocore.validate import ParamValidator

from tests.cdk.conftest import ATTACHED, NEW, App
from tests.support.iam_reference import listed, text

STACK = f"{NEW}-cluster"
# Of the managed policy AWSDataLifecycleManagerServiceRole (read on 2026-11-28) what one account and region needs:
# https://docs.aws.amazon.com/aws-managed-policy/latest/reference/AWSDataLifecycleManagerServiceRole.html
ACTIONS = {
    *("ec2:CreateSnapshots", "ec2:CreateTags", "ec2:DeleteSnapshot"),
    *("ec2:DescribeInstances", "ec2:DescribeVolumes", "ec2:DescribeSnapshots"),
}


def policy(app: App) -> dict[str, Any]:
    (found,) = app.resources(STACK, "AWS::DLM::LifecyclePolicy").values()
    return found


def role_statements(app: App) -> list[dict[str, Any]]:
    policies = app.resources(STACK, "AWS::IAM::Policy").values()
    (found,) = [p for p in policies if p["PolicyName"].startswith("ServerBackupRole")]
    statements: list[dict[str, Any]] = found["PolicyDocument"]["Statement"]
    return statements


def test_a_snapshot_is_taken_every_day_and_seven_are_kept(app: App) -> None:
    assert policy(app)["State"] == "ENABLED"
    (schedule,) = policy(app)["PolicyDetails"]["Schedules"]
    assert (schedule["CreateRule"]["Interval"], schedule["CreateRule"]["IntervalUnit"]) == (24, "HOURS")
    assert schedule["RetainRule"] == {"Count": 7}


def test_the_policy_takes_the_server_and_no_other_instance(app: App) -> None:
    details = policy(app)["PolicyDetails"]
    (target,) = details["TargetTags"]
    assert details["ResourceTypes"] == ["INSTANCE"]
    (server,) = app.resources(STACK, "AWS::EC2::Instance").values()
    assert target in server["Tags"] and target["Value"] == NEW
    everything_else = json.dumps([t for name, t in app.templates.items() if name != STACK])
    assert target["Key"] not in everything_else + json.dumps(
        list(app.resources(STACK, "AWS::EC2::LaunchTemplate").values())
    )


def test_data_lifecycle_manager_accepts_the_policy(app: App) -> None:
    shape = botocore.session.get_session().get_service_model("dlm").operation_model("CreateLifecyclePolicy").input_shape
    assert shape is not None
    request = {**policy(app), "ExecutionRoleArn": f"arn:aws:iam::123456789012:role/{STACK}-ServerBackupRole"}
    assert ParamValidator().validate(request, shape).generate_report() == ""
    description = shape.members["Description"].metadata
    assert len(request["Description"]) <= description["max"]
    assert re.fullmatch(description["pattern"], request["Description"])
    details = shape.members["PolicyDetails"].members
    assert request["PolicyDetails"]["PolicyType"] in details["PolicyType"].enum
    assert set(request["PolicyDetails"]["ResourceTypes"]) <= set(details["ResourceTypes"].member.enum)


def test_the_role_takes_snapshots_of_the_server_and_deletes_only_those_of_this_cluster(app: App) -> None:
    statements = role_statements(app)
    assert {action for s in statements for action in listed(s["Action"])} == ACTIONS
    (instances,) = [s for s in statements if "instance/" in text(s["Resource"])]
    (tag,) = policy(app)["PolicyDetails"]["TargetTags"]
    assert instances["Condition"] == {"StringEquals": {f"aws:ResourceTag/{tag['Key']}": NEW}}
    (deleting,) = [s for s in statements if s["Action"] == "ec2:DeleteSnapshot"]
    tags = {t["Key"]: t["Value"] for t in policy(app)["PolicyDetails"]["Schedules"][0]["TagsToAdd"]}
    needed = {key.rpartition("/")[2]: value for key, value in deleting["Condition"]["StringEquals"].items()}
    assert needed.items() <= tags.items() and needed["Cluster"] == NEW


def test_only_data_lifecycle_manager_of_this_account_may_take_the_role(app: App) -> None:
    roles = app.resources(STACK, "AWS::IAM::Role")
    name = policy(app)["ExecutionRoleArn"]["Fn::GetAtt"][0]
    (statement,) = roles[name]["AssumeRolePolicyDocument"]["Statement"]
    assert statement["Principal"] == {"Service": "dlm.amazonaws.com"}
    assert statement["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}


def test_an_attached_server_is_backed_up_by_its_owner(app: App) -> None:
    assert not app.resources(f"{ATTACHED}-autoscaler", "AWS::DLM::LifecyclePolicy")
