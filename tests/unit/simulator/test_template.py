"""Reading synthesised templates: intrinsic functions, several stacks, and what is wrong said by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simulator.aws.template import Template, TemplateError
from tests.support import toy_template

TOY = toy_template.stack()


def template(**stacks: dict[str, Any]) -> Template:
    return Template(stacks=stacks)


def resolved(value: Any, **parameters: str) -> Any:
    body = {
        "Parameters": {"Size": {"Type": "String", "Default": "small"}},
        "Conditions": {"Big": {"Fn::Equals": [{"Ref": "Size"}, "big"]}},
        "Mappings": {"Table": {"a": {"b": "c"}}},
        "Resources": {"Topic": {"Type": "AWS::SNS::Topic", "Properties": {"TopicName": "news"}}},
    }
    return Template(stacks={"S": body}, parameters=parameters).resolve("S", value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"Ref": "AWS::Region"}, "ap-southeast-1"),
        ({"Ref": "Size"}, "small"),
        ({"Ref": "Topic"}, "arn:aws:sns:ap-southeast-1:123456789012:news"),
        ({"Fn::GetAtt": ["Topic", "TopicArn"]}, "arn:aws:sns:ap-southeast-1:123456789012:news"),
        ({"Fn::GetAtt": "Topic.TopicName"}, "Topic.TopicName"),
        ({"Fn::Join": ["-", ["a", {"Ref": "Size"}]]}, "a-small"),
        ({"Fn::Sub": "${AWS::Partition}:${Size}:${!Literal}"}, "aws:small:${Literal}"),
        ({"Fn::Sub": ["${X}/${Size}", {"X": {"Ref": "AWS::AccountId"}}]}, "123456789012/small"),
        ({"Fn::Select": [1, {"Fn::Split": ["|", "a|b|c"]}]}, "b"),
        ({"Fn::If": ["Big", 1, 2]}, 2),
        ({"Fn::FindInMap": ["Table", "a", "b"]}, "c"),
        ({"Fn::GetAZs": ""}, ["ap-southeast-1a", "ap-southeast-1b", "ap-southeast-1c"]),
        ({"Fn::Base64": "hello"}, "aGVsbG8="),
        ({"kept": 1, "gone": {"Ref": "AWS::NoValue"}}, {"kept": 1}),
        ([1, {"Ref": "AWS::NoValue"}], [1]),
    ],
)
def test_intrinsic_functions_resolve(value: Any, expected: Any) -> None:
    assert resolved(value) == expected


def test_parameters_may_be_given() -> None:
    assert resolved({"Fn::If": ["Big", 1, 2]}, Size="big") == 1


def test_the_functions_carry_their_resolved_environment_and_limits() -> None:
    functions = {function.logical_id: function for function in template(Toy=TOY).functions()}
    assert sorted(functions) == ["CleanUpFunction", "LookFunction", "SlackMessageFunction"]
    look = functions["LookFunction"]
    assert (look.handler, look.timeout_seconds, look.memory_mib) == ("handlers.toy_look.handler", 30.0, 256)
    assert look.environment["STATE_MACHINE_ARN"].endswith("stateMachine:toy-autoscaler")
    assert look.environment["SUBNETS"].startswith("ap-southeast-1a=subnet-")


def test_the_definition_carries_the_arn_of_the_published_version() -> None:
    (machine,) = template(Toy=TOY).state_machines()
    assert machine.name == "toy-autoscaler"
    assert json.loads(machine.definition)["States"]["Look"]["Resource"] == "LookVersion"


def test_rules_come_with_pattern_or_schedule_and_targets() -> None:
    rules = {rule.name: rule for rule in template(Toy=TOY).rules()}
    assert rules["Schedule"].schedule == "rate(2 minutes)"
    assert rules["EndRule"].pattern is not None
    assert not rules["OffRule"].enabled


def test_a_resource_whose_condition_fails_is_not_there() -> None:
    topics = [resource.logical_id for resource in template(Toy=TOY).resources("AWS::SNS::Topic")]
    assert topics == ["Topic"]


def test_a_value_is_imported_from_another_stack() -> None:
    other = {"Resources": {}}
    both = template(Toy=TOY, Other=other)
    assert (
        both.resolve("Other", {"Fn::ImportValue": "Toy:Topic"})
        == "arn:aws:sns:ap-southeast-1:123456789012:toy-messages"
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"Ref": "Nowhere"}, "no resource, parameter or pseudo parameter 'Nowhere'"),
        ({"Fn::ImportValue": "Elsewhere"}, "no stack exports 'Elsewhere'"),
        ({"Fn::Transform": {}}, "Fn::Transform is not known here"),
    ],
)
def test_what_cannot_be_resolved_is_named(value: Any, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        resolved(value)


def test_a_placeholder_without_substitution_is_named() -> None:
    body = {
        "Resources": {
            "M": {
                "Type": "AWS::StepFunctions::StateMachine",
                "Properties": {"DefinitionString": '{"Resource": "${DecideFunctionArn}"}'},
            }
        }
    }
    with pytest.raises(TemplateError, match="no substitution for DecideFunctionArn"):
        template(S=body).state_machines()


def test_an_empty_directory_says_to_run_the_synth(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match="run the synth first"):
        Template.load(tmp_path)
