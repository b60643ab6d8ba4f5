"""References between stacks: strong for what must not be replaced, and weak only where the consumer follows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cdk_app.synth import synthesise
from tests.cdk.conftest import NEW, App

LAUNCHERS = ("LaunchNodes", "LaunchReplacement")
# The property that holds the name which the deployment gives to a resource.
NAMES = {
    "AWS::SNS::Topic": "TopicName",
    "AWS::SQS::Queue": "QueueName",
    "AWS::StepFunctions::StateMachine": "StateMachineName",
}


def references(value: Any, kind: str) -> Iterator[Any]:
    """The arguments of every intrinsic function of this kind."""
    if isinstance(value, dict):
        if kind in value:
            yield value[kind]
        for inner in value.values():
            yield from references(inner, kind)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner, kind)


def produced_by(app: App, reference: dict[str, str]) -> dict[str, Any]:
    """The resource whose value a weak reference takes."""
    template = app.templates[reference["StackName"]]
    value = template["Outputs"][reference["OutputName"]]["Value"]
    name = value.get("Ref") or value["Fn::GetAtt"][0]
    found: dict[str, Any] = template["Resources"][name]
    return found


@pytest.mark.parametrize("stack", ["cluster", "autoscaler"])
def test_only_the_launch_template_is_referenced_weakly_by_what_node_fleet_runs(app: App, stack: str) -> None:
    template = app.templates[f"{NEW}-{stack}"]
    weak = [produced_by(app, reference)["Type"] for reference in references(template, "Fn::GetStackOutput")]
    assert set(weak) == ({"AWS::EC2::LaunchTemplate"} if stack == "autoscaler" else set())
    exported = {
        o["Export"]["Name"] for t in app.templates.values() for o in t.get("Outputs", {}).values() if "Export" in o
    }
    strong = set(references(template, "Fn::ImportValue"))
    assert strong and strong <= exported


def test_the_observability_stack_refers_weakly_only_to_what_has_a_given_name(app: App) -> None:
    found = [produced_by(app, one) for one in references(app.templates[f"{NEW}-observability"], "Fn::GetStackOutput")]
    assert {one["Type"] for one in found} == set(NAMES)
    assert all(isinstance(one["Properties"][NAMES[one["Type"]]], str) for one in found)


def test_no_weak_reference_feeds_a_property_whose_change_replaces_its_resource(app: App) -> None:
    """CloudFormation plans a replacement wherever it cannot know before the update that such a value stays."""
    from cfnlint.schema import PROVIDER_SCHEMA_MANAGER  # loads for a second, in one of the processes

    wrong = []
    for stack, template in app.templates.items():
        for name, resource in template["Resources"].items():
            schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema("ap-southeast-1", resource["Type"]).schema
            fixed = {path.split("/")[2] for path in schema.get("createOnlyProperties", [])}
            properties = resource.get("Properties", {})
            wrong += [
                f"{stack} {name}.{key}"
                for key in fixed & set(properties)
                if [*references(properties[key], "Fn::GetStackOutput")]
            ]
    assert wrong == []


def test_a_changed_launch_template_changes_the_launching_functions_and_the_workflows_that_call_them(
    app: App, both_context: dict[str, Any]
) -> None:
    cluster = both_context["clusters"][0]
    renewed = {**cluster, "workers": {**cluster["workers"], "image": "ami-0123456789abcdef0"}}
    paths = synthesise(context={"clusters": [renewed]})
    (path,) = [p for p in paths if p.name == f"{NEW}-autoscaler.template.json"]
    after = json.loads(path.read_text(encoding="utf-8"))["Resources"]
    before = app.templates[f"{NEW}-autoscaler"]["Resources"]
    changed = {name for name in before if before[name] != after.get(name)}
    functions = {n: r["Properties"] for n, r in before.items() if r["Type"] == "AWS::Lambda::Function"}
    assert {functions[n]["FunctionName"] for n in changed & set(functions)} == {f"{NEW}-{name}" for name in LAUNCHERS}
    replaced = {
        before[n]["Properties"]["FunctionName"]["Ref"] for n in changed if before[n]["Type"] == "AWS::Lambda::Version"
    }
    assert replaced == changed & set(functions)
    assert {before[n]["Type"] for n in changed} >= {"AWS::StepFunctions::StateMachine"}
