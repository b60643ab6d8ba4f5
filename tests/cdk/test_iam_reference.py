"""Every policy of the templates, held to IAM's service authorization reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cdk.conftest import NEW, STACKS, App
from tests.support.iam_reference import problems, text


def statements(value: Any) -> Iterator[dict[str, Any]]:
    """Every statement of every policy document in a template."""
    if isinstance(value, dict):
        if isinstance(value.get("Statement"), list):
            yield from value["Statement"]
        for inner in value.values():
            yield from statements(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from statements(inner)


@pytest.mark.parametrize("stack", STACKS)
def test_every_action_resource_condition_key_and_policy_variable_is_in_the_reference(app: App, stack: str) -> None:
    found = [problem for statement in statements(app.templates[stack]) for problem in problems(statement)]
    assert found == []


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ({"Action": "ec2:CreateTag"}, "ec2:CreateTag is no action"),
        (
            {"Action": "sns:Publish", "Resource": "arn:aws:sqs:*:*:queue"},
            "sns:Publish supports no resource arn:aws:sqs:*:*:queue",
        ),
        (
            {
                "Action": "ec2:CreateTags",
                "Resource": "arn:aws:ec2:*:*:instance/*",
                "Condition": {"StringEquals": {"ec2:InstanceID": "${ec2:SourceInstanceID}"}},
            },
            "ec2:CreateTags has no policy variable ec2:SourceInstanceID",
        ),
        (
            {
                "Action": "ec2:RunInstances",
                "Resource": "arn:aws:ec2:*::image/*",
                "Condition": {"StringEquals": {"ec2:MetadataHttpTokens": "required"}},
            },
            "ec2:RunInstances has no condition key ec2:MetadataHttpTokens",
        ),
    ],
    ids=["action", "resource", "policy variable", "condition key"],
)
def test_what_the_reference_does_not_know_is_named(statement: dict[str, Any], problem: str) -> None:
    assert problems({"Effect": "Allow", **statement}) == [problem]


def test_a_machine_may_tag_only_itself(app: App) -> None:
    found = [s for s in statements(app.templates[f"{NEW}-cluster"]) if s["Action"] == "ec2:CreateTags"]
    tagging = [s for s in found if "instance/" in text(s["Resource"])]
    assert len(tagging) == 2
    keys = []
    for statement in tagging:
        (key, pattern), *others = statement["Condition"]["ArnLike"].items()
        assert key == "ec2:SourceInstanceARN"
        assert str(pattern).endswith(":ec2:*:*:instance/${ec2:InstanceId}']]}")
        assert not others
        keys += [statement["Condition"]["ForAllValues:StringEquals"]["aws:TagKeys"]]
    assert sorted(keys) == [["BootstrapError"], ["BootstrapError", "ImagePull"]]
