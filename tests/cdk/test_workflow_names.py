"""State, handler, construct, placeholder and grant carry one name; the template holds the expanded definition."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdk_app.config import ConfigurationError
from cdk_app.permissions import NEEDS
from cdk_app.stacks.autoscaler import SECONDS_BEFORE_STATE_TIMEOUT, check_names
from cdk_app.workflow import Workflow, camel_case, handlers, workflows
from node_fleet.settings import Settings, spec_of
from tests.cdk.conftest import ATTACHED, NEW, App

CLUSTERS = [NEW, ATTACHED]


def machine(app: App, cluster: str, flow: Workflow) -> dict[str, Any]:
    found = app.resources(f"{cluster}-autoscaler", "AWS::StepFunctions::StateMachine").values()
    return next(m for m in found if m["StateMachineName"] == f"{cluster}-{flow.name}")


def functions(app: App, cluster: str) -> dict[str, dict[str, Any]]:
    found = app.resources(f"{cluster}-autoscaler", "AWS::Lambda::Function").values()
    return {f["FunctionName"].removeprefix(f"{cluster}-"): f for f in found}


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("flow", workflows(), ids=lambda flow: flow.name)
def test_placeholders_substitutions_and_grants_match_one_to_one(app: App, cluster: str, flow: Workflow) -> None:
    deployed = machine(app, cluster, flow)
    role = app.templates[f"{cluster}-autoscaler"]["Resources"][deployed["RoleArn"]["Fn::GetAtt"][0]]["Properties"]
    versions = app.resources(f"{cluster}-autoscaler", "AWS::Lambda::Version")
    substituted = {
        name: versions[v["Ref"]]["FunctionName"]["Ref"] for name, v in deployed["DefinitionSubstitutions"].items()
    }
    (statement,) = role["Policies"][0]["PolicyDocument"]["Statement"]
    resources = statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]
    granted = [resource["Fn::Join"][1][0]["Fn::GetAtt"][0] for resource in resources]
    assert statement["Action"] == "lambda:InvokeFunction"
    assert set(flow.placeholders) == set(substituted)
    assert sorted(substituted.values()) == sorted(granted)
    for name, logical_id in substituted.items():
        handler = app.templates[f"{cluster}-autoscaler"]["Resources"][logical_id]["Properties"]["Handler"]
        assert camel_case(handler.split(".")[1]) + "FunctionArn" == name


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("flow", workflows(), ids=lambda flow: flow.name)
def test_the_template_holds_the_expanded_definition(app: App, cluster: str, flow: Workflow) -> None:
    assert machine(app, cluster, flow)["DefinitionString"] == flow.text


@pytest.mark.parametrize("flow", workflows(), ids=lambda flow: flow.name)
def test_every_placeholder_is_a_functions_and_has_its_handler(flow: Workflow) -> None:
    assert {name.removesuffix("FunctionArn") for name in flow.placeholders} <= set(handlers())
    assert all(name.endswith("FunctionArn") for name in flow.placeholders)


def test_a_placeholder_without_handler_is_refused_by_name() -> None:
    flow = Workflow("night", '{"StartAt": "Sing", "States": {"Sing": {"Resource": "${SingFunctionArn}"}}}')
    with pytest.raises(ConfigurationError, match=r"night\.asl\.yaml names .*SingFunctionArn.* no module"):
        check_names((flow,))


def test_a_handler_without_permissions_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(NEEDS, "Decide")
    with pytest.raises(ConfigurationError, match=r"decide\.py has no entry Decide"):
        check_names(())


@pytest.mark.parametrize("flow", workflows(), ids=lambda flow: flow.name)
def test_a_task_state_is_called_as_its_function(flow: Workflow) -> None:
    tasks = {name: state["Resource"] for name, state in flow.states().items() if state["Type"] == "Task"}
    own = {name: r for name, r in tasks.items() if "FunctionArn" in r}
    assert own == {name: f"${{{name}FunctionArn}}" for name in own}


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_every_handler_has_one_function_and_one_entry_of_needs(app: App, cluster: str) -> None:
    assert set(functions(app, cluster)) == set(handlers())
    assert set(handlers()) <= set(NEEDS)


@pytest.mark.parametrize("flow", workflows(), ids=lambda flow: flow.name)
def test_a_function_ends_before_its_state_gives_up(app: App, flow: Workflow) -> None:
    deployed = functions(app, NEW)
    for name in flow.functions:
        assert deployed[name]["Timeout"] <= flow.timeout_seconds(name) - SECONDS_BEFORE_STATE_TIMEOUT


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_functions_are_small_arm_and_log_for_thirty_days(app: App, cluster: str) -> None:
    stack = f"{cluster}-autoscaler"
    for function in functions(app, cluster).values():
        assert function["Architectures"] == ["arm64"]
        assert 128 <= function["MemorySize"] <= 256
        assert (
            app.resources(stack, "AWS::Logs::LogGroup")[function["LoggingConfig"]["LogGroup"]["Ref"]]["RetentionInDays"]
            == 30
        )
    assert {g["RetentionInDays"] for s in app.templates for g in app.resources(s, "AWS::Logs::LogGroup").values()} == {
        30
    }


def test_all_functions_share_one_package_and_one_layer(app: App) -> None:
    deployed = functions(app, NEW).values()
    assert len({json.dumps(f["Code"], sort_keys=True) for f in deployed}) == 1
    assert len({json.dumps(f["Layers"]) for f in deployed}) == 1


def test_published_versions_outlive_a_deployment(app: App) -> None:
    resources = app.templates[f"{NEW}-autoscaler"]["Resources"].values()
    versions = [r for r in resources if r["Type"] == "AWS::Lambda::Version"]
    assert {(r["DeletionPolicy"], r["UpdateReplacePolicy"]) for r in versions} == {("Retain", "Retain")}


def test_the_environment_gives_the_settings_back(app: App) -> None:
    for function in functions(app, ATTACHED).values():
        environment = {k: v for k, v in function["Environment"]["Variables"].items() if isinstance(v, str)}
        settings = Settings.from_env(environment)
        assert (settings.cluster_id, settings.max_workers, settings.state_table) == (ATTACHED, 6, "shop-state")
        assert settings.zones == {
            "ap-southeast-1a": "subnet-0bbbbbbbbbbbbbbb1",
            "ap-southeast-1b": "subnet-0bbbbbbbbbbbbbbb2",
        }
        assert (settings.launch_template_id, settings.launch_template_version) == ("lt-0123456789abcdef0", "3")


def test_the_environment_holds_settings_only_and_nothing_that_lambda_owns(app: App) -> None:
    known = {spec_of(f).env for f in Settings.__dataclass_fields__.values()} | {"AWS_USE_DUALSTACK_ENDPOINT"}
    for cluster in CLUSTERS:
        for function in functions(app, cluster).values():
            assert set(function["Environment"]["Variables"]) <= known - {"AWS_REGION"}


def test_a_new_cluster_launches_from_an_explicit_template_version(app: App) -> None:
    for function in functions(app, NEW).values():
        version = function["Environment"]["Variables"]["LAUNCH_TEMPLATE_VERSION"]["Fn::GetStackOutput"]
        output = app.templates[version["StackName"]]["Outputs"][version["OutputName"]]["Value"]
        assert output["Fn::GetAtt"][1] == "LatestVersionNumber"


def test_the_tick_carries_its_time_and_comes_every_two_minutes(app: App) -> None:
    rules = app.resources(f"{NEW}-autoscaler", "AWS::Events::Rule").values()
    (tick,) = [rule for rule in rules if rule["Name"] == f"{NEW}-autoscaler-trigger"]
    assert tick["ScheduleExpression"] == "rate(2 minutes)"
    transformer = tick["Targets"][0]["InputTransformer"]
    assert transformer["InputPathsMap"] == {"time": "$.time"}
    sent = transformer["InputTemplate"].replace("<time>", '"2026-11-28T00:00:00Z"')
    assert json.loads(sent) == {"trigger": "schedule", "scheduled_at": "2026-11-28T00:00:00Z"}


def test_every_unclean_end_of_every_workflow_starts_the_clean_up(app: App) -> None:
    rules = app.resources(f"{NEW}-autoscaler", "AWS::Events::Rule").values()
    (rule,) = [r for r in rules if r["Name"] == f"{NEW}-unclean-end"]
    assert rule["EventPattern"]["detail"]["status"] == ["FAILED", "TIMED_OUT", "ABORTED"]
    assert len(rule["EventPattern"]["detail"]["stateMachineArn"]) == len(workflows())
    version = app.resources(f"{NEW}-autoscaler", "AWS::Lambda::Version")[rule["Targets"][0]["Arn"]["Ref"]]
    target = app.resources(f"{NEW}-autoscaler", "AWS::Lambda::Function")[version["FunctionName"]["Ref"]]
    assert target["Handler"] == "handlers.clean_up.handler"


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize(
    ("rule", "retry"),
    [
        ("spot-interruption", {"MaximumEventAgeInSeconds": 120}),
        ("scheduled-change", None),
        ("instance-state-change", None),
        ("unclean-end", None),
    ],
)
def test_only_spot_notices_expire_and_no_event_is_lost_without_a_trace(
    app: App, cluster: str, rule: str, retry: dict[str, int] | None
) -> None:
    """A target without a RetryPolicy has EventBridge's own: 185 retries in 24 hours."""
    stack = f"{cluster}-autoscaler"
    rules = app.resources(stack, "AWS::Events::Rule")
    ((construct, found),) = [(i, r) for i, r in rules.items() if r["Name"] == f"{cluster}-{rule}"]
    (target,) = found["Targets"]
    assert target.get("RetryPolicy") == retry
    ((queue, kept),) = app.resources(stack, "AWS::SQS::Queue").items()
    assert target["DeadLetterConfig"] == {"Arn": {"Fn::GetAtt": [queue, "Arn"]}}
    assert kept["MessageRetentionPeriod"] == 14 * 86_400
    statements = [
        s for p in app.resources(stack, "AWS::SQS::QueuePolicy").values() for s in p["PolicyDocument"]["Statement"]
    ]
    assert {"ArnEquals": {"aws:SourceArn": {"Fn::GetAtt": [construct, "Arn"]}}} in [
        s["Condition"]
        for s in statements
        if (s["Effect"], s["Action"], s["Principal"])
        == ("Allow", "sqs:SendMessage", {"Service": "events.amazonaws.com"})
    ]


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_an_alarm_watches_the_queue_of_undelivered_events(app: App, cluster: str) -> None:
    (queue,) = app.resources(f"{cluster}-autoscaler", "AWS::SQS::Queue").values()
    alarms = app.resources(f"{cluster}-observability", "AWS::CloudWatch::Alarm").values()
    (alarm,) = [a for a in alarms if a.get("Namespace") == "AWS/SQS"]
    (dimension,) = alarm["Dimensions"]
    name = dimension["Value"]
    if isinstance(name, dict):
        reference = name["Fn::GetStackOutput"]
        output = app.templates[reference["StackName"]]["Outputs"][reference["OutputName"]]["Value"]
        name = app.templates[reference["StackName"]]["Resources"][output["Fn::GetAtt"][0]]["Properties"]["QueueName"]
    assert (dimension["Name"], name, alarm["Threshold"]) == ("QueueName", queue["QueueName"], 1)


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("name", ["CleanUp", "WeeklyReport"])
def test_people_hear_of_a_clean_up_and_of_a_weekly_report_whose_last_try_failed(
    app: App, cluster: str, name: str
) -> None:
    stack = f"{cluster}-autoscaler"
    resources = app.templates[stack]["Resources"]
    configs = app.resources(stack, "AWS::Lambda::EventInvokeConfig").values()
    by_name = {resources[c["FunctionName"]["Ref"]]["Properties"]["FunctionName"]: c for c in configs}
    given = by_name[f"{cluster}-{name}"]
    assert len(by_name) == 2
    assert resources[given["Qualifier"]["Fn::GetAtt"][0]]["Type"] == "AWS::Lambda::Version"
    assert given["MaximumRetryAttempts"] == 2
    topic = resources[given["DestinationConfig"]["OnFailure"]["Destination"]["Ref"]]
    assert topic["Type"] == "AWS::SNS::Topic"
    role = resources[resources[given["FunctionName"]["Ref"]]["Properties"]["Role"]["Fn::GetAtt"][0]]
    assert "sns:Publish" in json.dumps(role["Properties"]["Policies"])
