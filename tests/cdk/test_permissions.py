"""Each role allows what its handler does, on named resources, and nothing by wildcard action."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import botocore.session
import pytest

from cdk_app.permissions import NEEDS
from cdk_app.workflow import handlers
from node_fleet.adapters.ec2 import Ec2Fleet
from node_fleet.adapters.fleet_request import MANAGED_BY, WORKER_ROLE
from node_fleet.settings import Settings
from tests.cdk.conftest import ATTACHED, LONG_ATTACHED, LONG_NEW, NEW, SERVER, App
from tests.support.iam_reference import managed_kinds, text
from tests.support.launches import request

CLUSTERS = [NEW, ATTACHED]
GIVEN = ("", "standby_workers")
"""The settings of the new cluster with grants of their own."""
# IAM's prefix where botocore's service has another name.
SERVICE_OF_PREFIX = {"states": "stepfunctions"}


def statements(app: App, stack: str) -> Iterator[dict[str, Any]]:
    for resource in app.templates[stack]["Resources"].values():
        properties = resource.get("Properties", {})
        documents = (
            [p["PolicyDocument"] for p in properties.get("Policies", [])]
            if resource["Type"] == "AWS::IAM::Role"
            else []
        )
        documents += [properties["PolicyDocument"]] if resource["Type"] == "AWS::IAM::Policy" else []
        for document in documents:
            yield from document["Statement"]


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def role_statements(app: App, cluster: str, function: str) -> list[dict[str, Any]]:
    resources = app.templates[f"{cluster}-autoscaler"]["Resources"]
    deployed = next(
        r["Properties"]
        for r in resources.values()
        if r["Type"] == "AWS::Lambda::Function" and r["Properties"]["FunctionName"] == f"{cluster}-{function}"
    )
    role = resources[deployed["Role"]["Fn::GetAtt"][0]]["Properties"]
    return [s for policy in role["Policies"] for s in policy["PolicyDocument"]["Statement"]]


def with_action(found: list[dict[str, Any]], action: str) -> list[dict[str, Any]]:
    return [s for s in found if action in listed(s["Action"])]


def test_no_role_has_a_wildcard_action(app: App) -> None:
    for stack in app.templates:
        for statement in statements(app, stack):
            assert not [a for a in listed(statement["Action"]) if "*" in a], statement


@pytest.mark.parametrize("function", sorted(handlers()))
def test_a_role_holds_its_grants_and_what_lambda_itself_needs(app: App, function: str) -> None:
    allowed = {action for s in role_statements(app, NEW, function) for action in listed(s["Action"])}
    granted = {action for grant in NEEDS[function].grants if grant.setting in GIVEN for action in grant.actions}
    by_lambda = {a for a in allowed - granted if a.startswith("logs:") or "Interface" in a or "PrivateIp" in a}
    by_lambda |= {"ec2:DescribeSubnets"} & allowed if NEEDS[function].prometheus else set()
    assert allowed - by_lambda == granted


@pytest.mark.parametrize(("cluster", "instance"), [(LONG_NEW, "*"), (LONG_ATTACHED, SERVER)])
def test_only_hibernate_may_stop_the_server_and_only_where_it_is_set(
    app: App, variants: App, cluster: str, instance: str
) -> None:
    assert not with_action(role_statements(app, NEW, "Hibernate"), "ec2:StopInstances")
    (found,) = with_action(role_statements(variants, cluster, "Hibernate"), "ec2:StopInstances")
    assert found["Action"] == ["ec2:StopInstances", "ec2:StartInstances"]
    assert json.dumps(found["Resource"]).endswith(f':instance/{instance}"]]}}')
    tags = {"aws:ResourceTag/Role": "k3s-master"}
    tags |= {"aws:ResourceTag/Cluster": cluster} if instance == "*" else {}
    assert found["Condition"] == {"StringEquals": tags}


ASSUMED_IN_THIS_ACCOUNT = {"states.amazonaws.com", "events.amazonaws.com", "dlm.amazonaws.com"}
WITHOUT_SOURCE_ACCOUNT = {
    "lambda.amazonaws.com": "Lambda documents no source account for execution roles",
    "ec2.amazonaws.com": "an instance profile: EC2 assumes the role for its instance without a source account",
}


@pytest.mark.parametrize("stack", [f"{NEW}-cluster", f"{NEW}-autoscaler", f"{ATTACHED}-autoscaler"])
def test_a_service_that_states_its_account_may_take_a_role_only_for_this_account(app: App, stack: str) -> None:
    for name, role in app.resources(stack, "AWS::IAM::Role").items():
        (statement,) = role["AssumeRolePolicyDocument"]["Statement"]
        service = statement["Principal"]["Service"]
        assert service in ASSUMED_IN_THIS_ACCOUNT | WITHOUT_SOURCE_ACCOUNT.keys(), f"{name}: {service}"
        limit = {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}
        assert statement.get("Condition", {}) == (limit if service in ASSUMED_IN_THIS_ACCOUNT else {}), name


def test_every_action_that_code_calls_exists_in_botocore() -> None:
    session = botocore.session.get_session()
    actions = {a for needs in NEEDS.values() for g in needs.grants if not g.by_aws for a in g.actions}
    for prefix, operation in (action.split(":") for action in actions):
        model = session.get_service_model(SERVICE_OF_PREFIX.get(prefix, prefix))
        assert operation in model.operation_names, f"{prefix}:{operation}"


ENDING = ("ec2:TerminateInstances", "ec2:RebootInstances")


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize(
    ("function", "action"), [(name, a) for name, needs in NEEDS.items() for a in ENDING if a in str(needs)]
)
def test_terminating_and_rebooting_are_limited_to_this_clusters_tags(
    app: App, cluster: str, function: str, action: str
) -> None:
    (statement,) = with_action(role_statements(app, cluster, function), action)
    assert statement["Condition"] == {
        "StringEquals": {"aws:ResourceTag/ManagedBy": "node-fleet", "aws:ResourceTag/Cluster": cluster}
    }


def test_only_standby_workers_are_stopped_and_started_and_only_where_they_are_configured(app: App) -> None:
    owned = {"aws:ResourceTag/ManagedBy": "node-fleet", "aws:ResourceTag/Cluster": NEW}
    wanted = {
        ("TerminateNodes", "ec2:StopInstances"): owned,
        ("LaunchNodes", "ec2:StartInstances"): {**owned, "aws:ResourceTag/Standby": "ready"},
    }
    for (function, action), condition in wanted.items():
        (statement,) = with_action(role_statements(app, NEW, function), action)
        assert statement["Condition"] == {"StringEquals": condition}
    for function in set(handlers()) - {"Hibernate"}:
        roles = [(cluster, s) for cluster in CLUSTERS for s in role_statements(app, cluster, function)]
        found = [(cluster, action) for cluster, s in roles for action in listed(s["Action"])]
        stops = {(cluster, a) for cluster, a in found if a in ("ec2:StopInstances", "ec2:StartInstances")}
        assert {cluster for cluster, _ in stops} <= {NEW}
        assert {(function, a) for _, a in stops} <= wanted.keys()


@pytest.mark.parametrize("function", ["TerminateNodes", "ConfirmTermination", "CompleteScaleUp"])
def test_a_standby_worker_gets_only_its_tag(app: App, function: str) -> None:
    (statement,) = with_action(role_statements(app, NEW, function), "ec2:CreateTags")
    assert statement["Condition"]["ForAllValues:StringEquals"] == {"aws:TagKeys": ["Standby"]}
    assert statement["Condition"]["StringEquals"]["aws:RequestTag/Standby"] == ["ready", "started", "failed", "kept"]
    assert statement["Condition"]["StringEquals"]["aws:ResourceTag/Cluster"] == NEW
    assert not with_action(role_statements(app, ATTACHED, function), "ec2:CreateTags")


LAUNCHERS = [name for name, needs in NEEDS.items() if "ec2:CreateFleet" in str(needs)]
LAUNCHING = {"ec2:CreateAction": ["CreateFleet", "RunInstances"]}
TAGGERS = [name for name, needs in NEEDS.items() if "our_worker_join_failed" in str(needs)]


def kinds(statement: dict[str, Any]) -> set[str]:
    """The resource types of EC2 that a statement names."""
    return {text(resource).split(":", 5)[5].partition("/")[0] for resource in listed(statement["Resource"])}


@pytest.mark.parametrize("function", LAUNCHERS)
def test_launching_is_limited_to_template_subnets_tags_and_role(app: App, function: str) -> None:
    found = role_statements(app, ATTACHED, function)
    for action in ("ec2:CreateFleet", "ec2:RunInstances"):
        launches = json.dumps(with_action(found, action))
        assert "launch-template/lt-0123456789abcdef0" in launches
        assert "subnet/subnet-0bbbbbbbbbbbbbbb1" in launches
        assert not [wide for wide in ("subnet/*", "launch-template/*") if wide in launches]
    (passing,) = with_action(found, "iam:PassRole")
    assert passing["Resource"] == "arn:aws:iam::123456789012:role/shop-k3s-worker"


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("function", LAUNCHERS)
def test_instances_are_launched_from_our_template_only(app: App, cluster: str, function: str) -> None:
    """Every resource of a launch that knows the key ec2:LaunchTemplate must come with our template."""
    launches = with_action(role_statements(app, cluster, function), "ec2:RunInstances")
    launched = {"launch-template", "subnet", "image", "security-group", "instance", "volume", "network-interface"}
    assert set().union(*map(kinds, launches)) == launched | ({"key-pair"} if cluster == ATTACHED else set())
    for statement in launches:
        (template,) = statement["Condition"]["ArnLike"].items()
        assert template[0] == "ec2:LaunchTemplate"
        assert ":launch-template/" in text(template[1])
        assert "*" not in json.dumps(template[1])
        from_template = {"ec2:IsLaunchTemplateResource": "true"} if "image" in kinds(statement) else None
        assert statement["Condition"].get("Bool") == from_template
    (parts,) = [s for s in launches if "image" in kinds(s)]
    assert kinds(parts) >= {"image", "security-group"}


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("function", LAUNCHERS)
def test_a_launched_worker_can_never_carry_the_tags_of_the_server(app: App, cluster: str, function: str) -> None:
    worker = {"ManagedBy": MANAGED_BY, "Cluster": cluster, "Role": WORKER_ROLE}
    requested = {f"aws:RequestTag/{key}": value for key, value in worker.items()}
    found = role_statements(app, cluster, function)
    (launching,) = [s for s in with_action(found, "ec2:RunInstances") if "instance" in kinds(s)]
    assert launching["Condition"]["StringEquals"] == requested
    (tagging,) = [s for s in with_action(found, "ec2:CreateTags") if "instance" in kinds(s)]
    assert kinds(tagging) == {"fleet", "instance", "volume"}
    assert tagging["Condition"]["StringEquals"] == {**LAUNCHING, **requested}
    (interfaces,) = [s for s in with_action(found, "ec2:CreateTags") if "instance" not in kinds(s)]
    assert kinds(interfaces) == {"network-interface"}
    assert interfaces["Condition"] == {"StringEquals": LAUNCHING}


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("function", LAUNCHERS)
def test_a_fleet_is_created_from_our_template_with_the_tags_of_a_worker(app: App, cluster: str, function: str) -> None:
    """AWS demands a launch template for every fleet, so that the ARN of ours is enough."""
    found = with_action(role_statements(app, cluster, function), "ec2:CreateFleet")
    named = {kind: statement for statement in found for kind in kinds(statement)}
    parts = {"image", "security-group", "network-interface"} | ({"key-pair"} if cluster == ATTACHED else set())
    assert set(named) == {"launch-template", "subnet", "fleet", "instance", "volume"} | parts
    worker = {"ManagedBy": MANAGED_BY, "Cluster": cluster, "Role": WORKER_ROLE}
    requested = {"StringEquals": {f"aws:RequestTag/{key}": value for key, value in worker.items()}}
    assert all(named[kind]["Condition"] == requested for kind in ("fleet", "instance", "volume"))
    assert not [kind for kind in ("launch-template", "subnet", *parts) if "Condition" in named[kind]]


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_a_fleet_may_use_each_kind_of_resource_that_aws_services_grant_themselves(app: App, cluster: str) -> None:
    not_used = {"capacity-reservation", "dedicated-host", "group", "placement-group"}
    ours = set().union(*map(kinds, with_action(role_statements(app, cluster, "LaunchNodes"), "ec2:CreateFleet")))
    assert managed_kinds("ec2:CreateFleet") - not_used - ours == (set() if cluster == ATTACHED else {"key-pair"})


@pytest.mark.parametrize("function", LAUNCHERS)
def test_a_launch_sets_exactly_the_tags_that_its_role_allows(app: App, function: str) -> None:
    sent: list[dict[str, Any]] = []
    settings = Settings.from_mapping(
        {
            "launch_template_id": "lt-0123456789abcdef0",
            "cluster_id": NEW,
            "bootstrap_hash": "b1",
            "k3s_version": "v1.35.5+k3s1",
        }
    )
    launcher = SimpleNamespace(
        create_fleet=lambda **given: sent.append(given) or {"Instances": [{"InstanceIds": ["i"], "InstanceType": "t"}]}
    )
    Ec2Fleet(None, settings, launcher=launcher).launch(request(), operation_id="up-1")
    (tagging,) = [
        s for s in with_action(role_statements(app, NEW, function), "ec2:CreateTags") if "instance" in kinds(s)
    ]
    allowed = set(tagging["Condition"]["ForAllValues:StringEquals"]["aws:TagKeys"])
    for specification in sent[0]["TagSpecifications"]:
        tags = {tag["Key"]: tag["Value"] for tag in specification["Tags"]}
        assert specification["ResourceType"] in kinds(tagging)
        assert set(tags) == allowed
        assert (tags["Role"], tags["ManagedBy"], tags["Cluster"]) == (WORKER_ROLE, MANAGED_BY, NEW)


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("function", TAGGERS)
def test_a_running_worker_can_get_the_tag_join_failed_and_no_other(app: App, cluster: str, function: str) -> None:
    (tagging,) = with_action(role_statements(app, cluster, function), "ec2:CreateTags")
    assert tagging["Condition"] == {
        "StringEquals": {
            "aws:ResourceTag/ManagedBy": MANAGED_BY,
            "aws:ResourceTag/Cluster": cluster,
            "aws:RequestTag/JoinFailed": "true",
        },
        "ForAllValues:StringEquals": {"aws:TagKeys": ["JoinFailed"]},
    }


@pytest.mark.parametrize("function", [name for name, needs in NEEDS.items() if "ssm:SendCommand" in str(needs)])
def test_commands_are_limited_to_our_documents_and_the_server(app: App, function: str) -> None:
    for statement in with_action(role_statements(app, ATTACHED, function), "ssm:SendCommand"):
        target = json.dumps(statement["Resource"])
        if "Condition" in statement:
            assert statement["Condition"] == {"StringEquals": {"ssm:resourceTag/Role": "k3s-master"}}
            assert target.endswith(':instance/*"]]}')
        else:
            assert ":document/shop-" in target
            assert "*" not in target


def test_no_function_may_send_a_command_that_terminates() -> None:
    sent = {grant.resource for needs in NEEDS.values() for grant in needs.grants if "ssm:SendCommand" in grant.actions}
    inspecting, changing = ("InspectNodes", "ListPendingPods", "CheckNode"), ("DrainNode", "UncordonNode", "ForgetNode")
    others = ("RecordEvents", "HibernateServer")
    assert sent <= {"instances", *(f"document:{d}" for d in (*inspecting, *changing, *others))}


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_tables_are_opened_for_this_clusters_items_only(app: App, cluster: str) -> None:
    touched = [
        s for s in statements(app, f"{cluster}-autoscaler") if any("dynamodb:" in a for a in listed(s["Action"]))
    ]
    assert touched
    for statement in touched:
        assert statement["Condition"] == {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": [cluster]}}
        assert all("Fn::GetAtt" in r for r in listed(statement["Resource"]))


def test_only_functions_that_read_prometheus_may_read_its_password() -> None:
    readers = {name for name, needs in NEEDS.items() if "prometheus_secret" in str(needs)}
    assert readers == {name for name, needs in NEEDS.items() if needs.prometheus}


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_tables_are_kept_and_can_be_put_back(app: App, cluster: str) -> None:
    tables = [
        r for r in app.templates[f"{cluster}-autoscaler"]["Resources"].values() if r["Type"] == "AWS::DynamoDB::Table"
    ]
    assert len(tables) == 3
    for table in tables:
        assert (table["DeletionPolicy"], table["UpdateReplacePolicy"]) == ("Retain", "Retain")
        assert table["Properties"]["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
        assert table["Properties"]["BillingMode"] == "PAY_PER_REQUEST"


def test_history_and_events_expire_and_the_state_item_never_does(app: App) -> None:
    tables = app.resources(f"{NEW}-autoscaler", "AWS::DynamoDB::Table").values()
    shape = {
        t["TableName"]: (t.get("TimeToLiveSpecification", {}).get("AttributeName"), len(t["KeySchema"])) for t in tables
    }
    assert shape == {
        "k3s-autoscaler-state": (None, 1),
        "k3s-metrics-history": ("expires_at", 2),
        "k3s-autoscaler-events": ("expires_at", 2),
    }
