"""`node-fleet cdk deploy` refuses a change that would replace the server, and a launch template that EC2 refuses."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from cdk_app.clusters import read_clusters
from cdk_app.config import ClusterConfig
from cdk_app.synth import attach_context, project_context
from cli import deploy_check, start
from cli.deploy_check import changed_fixed_settings, k3s_refusals, main, refusals
from cli.doctor import fixed_settings
from cli.launch_template import image_problems, template_problems
from node_fleet.adapters.clock import SystemClock
from node_fleet.adapters.state_store import StateStore
from node_fleet.domain.model.memory import Memory, RollOut
from node_fleet.domain.model.run import Run
from node_fleet.settings import Settings
from tests.cdk.conftest import NEW, App

pytestmark = pytest.mark.sampled(15)  # with --all, every one

INTERFACE = {"DeviceIndex": 0, "AssociatePublicIpAddress": True, "Groups": ["sg-0123456789abcdef0"]}


def tags(kind: str) -> dict[str, Any]:
    return {"TagSpecifications": [{"ResourceType": kind, "Tags": [{"Key": "team", "Value": "shop"}]}]}


def new_cluster(**sections: dict[str, Any]) -> ClusterConfig:
    (raw,) = project_context()["clusters"]
    merged = {name: {**raw.get(name, {}), **section} for name, section in sections.items()}
    (cluster,) = read_clusters([{**raw, **merged}])
    return cluster


class Stacks:
    """CloudFormation with the synthesised templates as deployed."""

    def __init__(self, templates: dict[str, Any]) -> None:
        self._templates = templates

    def get_template(self, *, StackName: str, TemplateStage: str) -> dict[str, Any]:
        if StackName not in self._templates:
            error = {"Code": "ValidationError", "Message": f"Stack with id {StackName} does not exist"}
            raise ClientError({"Error": error}, "GetTemplate")
        return {"TemplateBody": self._templates[StackName]}


def test_the_deployed_configuration_may_be_deployed_again(app: App) -> None:
    assert not list(changed_fixed_settings(new_cluster(), Stacks(app.templates)))


@pytest.mark.parametrize(
    "sections",
    [
        {"server": {"instance_type": "t3.large"}},
        {"server": {"image": "ami-0123456789abcdef0"}},
        {"workers": {"volume_gib": 40}},
        {"network": {"http_from": ["203.0.113.0/24"]}},
    ],
)
def test_a_change_that_keeps_the_server_is_not_refused(app: App, sections: dict[str, Any]) -> None:
    assert not list(changed_fixed_settings(new_cluster(**sections), Stacks(app.templates)))


@pytest.mark.parametrize(
    ("sections", "setting", "deployed"),
    [
        ({"server": {"volume_gib": 50}}, "server.volume_gib=50", "30"),
        ({"network": {"cidr": "10.30.0.0/16"}}, "network.cidr=10.30.0.0/16", "10.20.0.0/16"),
        ({"network": {"zones": ["a", "b", "c"]}}, "network.zones=a, b, c", "a, b"),
        ({"network": {"zones": ["b", "a"]}}, "network.zones=b, a", "a, b"),
        ({"server": {"instance_type": "t4g.medium"}}, "server.instance_type=t4g.medium", "t3.medium"),
    ],
)
def test_a_change_that_would_replace_the_server_is_refused_with_the_value_to_keep(
    app: App, sections: dict[str, Any], setting: str, deployed: str
) -> None:
    (problem,) = changed_fixed_settings(new_cluster(**sections), Stacks(app.templates))
    assert problem.startswith(f"clusters[{NEW}].{setting}: the deployed cluster has {deployed}")
    assert f"Keep {deployed}" in problem and "docs/deployment.md#settings-that-are-fixed" in problem


def test_doctor_warns_of_a_difference_and_passes_without_one(app: App) -> None:
    assert fixed_settings(new_cluster(), Stacks(app.templates)).verdict == "ok"
    found = fixed_settings(new_cluster(server={"volume_gib": 50}), Stacks(app.templates))
    assert found.verdict == "warn" and "server.volume_gib=50" in found.saw


def test_a_first_deployment_has_nothing_to_compare_with() -> None:
    assert not list(changed_fixed_settings(new_cluster(server={"volume_gib": 50}), Stacks({})))


@pytest.mark.parametrize(
    ("data", "names", "fix"),
    [
        ({"NetworkInterfaces": [INTERFACE]}, "NetworkInterfaces", "SecurityGroupIds"),
        (tags("spot-instances-request"), "spot-instances-request", "create a version without them"),
        ({"InstanceMarketOptions": {"MarketType": "spot"}}, "InstanceMarketOptions", "names the market of each launch"),
        ({"Placement": {"GroupName": "rack"}}, "placement group", "no permission"),
        ({"LicenseSpecifications": [{"LicenseConfigurationArn": "arn"}]}, "license", "no permission"),
        (
            {"CapacityReservationSpecification": {"CapacityReservationTarget": {"CapacityReservationId": "cr-1"}}},
            "reservation",
            "no permission",
        ),
        ({"BlockDeviceMappings": [{"Ebs": {"SnapshotId": "snap-1"}}]}, "snapshot", "no permission"),
    ],
)
def test_each_part_of_a_template_that_makes_launches_fail_is_named_with_its_fix(
    data: dict[str, Any], names: str, fix: str
) -> None:
    ((problem, instead),) = template_problems(data)
    assert names in problem and fix in instead


@pytest.mark.parametrize("kind", ["instance", "volume", "network-interface"])
def test_tags_of_what_a_launch_creates_are_no_problem(kind: str) -> None:
    allowed = {
        "ImageId": "ami-1",
        "KeyName": "ops",
        "SecurityGroupIds": ["sg-1"],
        "Placement": {"Tenancy": "default"},
        "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 20}}],
        "CapacityReservationSpecification": {"CapacityReservationPreference": "open"},
    }
    assert not list(template_problems({**allowed, **tags(kind)}))


@pytest.mark.parametrize(
    ("types", "refused"),
    [(("t3.small", "t4g.small"), None), (("t3.small", "m5.large"), "m5.large"), ((), None)],
    ids=["burstable", "mixed", "not known"],
)
def test_a_template_with_cpu_credits_is_a_problem_for_a_type_that_has_none(
    types: tuple[str, ...], refused: str | None
) -> None:
    found = list(template_problems({"CreditSpecification": {"CpuCredits": "standard"}}, types))
    assert [problem.endswith(f"such as {refused}") for problem, _ in found] == ([True] if refused else [])


def test_the_shipped_template_of_the_workers_has_no_problem(app: App) -> None:
    for template in app.resources(f"{NEW}-cluster", "AWS::EC2::LaunchTemplate").values():
        assert not list(template_problems(template["LaunchTemplateData"], Settings().instance_types))


def attached_to(template_id: str, version: int) -> dict[str, Any]:
    (raw,) = attach_context()["clusters"]
    changed = {"launch_template_id": template_id, "launch_template_version": version}
    return {**raw, "attach": {**raw["attach"], **changed}}


def images_of_amazon_linux(ec2: Any) -> dict[str, str]:
    """An image for each architecture. moto takes a second to list all that it knows."""
    found = ec2.describe_images(Filters=[{"Name": "name", "Values": ["al2023-ami-ecs-hvm-*"]}])["Images"]
    return {one["Architecture"]: one["ImageId"] for one in found}


@mock_aws
def test_a_deployment_in_mode_attach_is_refused_while_the_named_version_of_the_template_is_wrong(
    capsys: pytest.CaptureFixture[str],
) -> None:
    client = boto3.Session(region_name="ap-southeast-1").client
    ec2 = client("ec2")
    made = ec2.create_launch_template(
        LaunchTemplateName="shop",
        LaunchTemplateData={"NetworkInterfaces": [INTERFACE], **tags("spot-instances-request")},
    )
    template = made["LaunchTemplate"]["LaunchTemplateId"]
    images = images_of_amazon_linux(ec2)
    for image in (images["x86_64"], images["arm64"], "ami-0123456789abcdef0", "resolve:ssm:/images/worker"):
        ec2.create_launch_template_version(LaunchTemplateId=template, LaunchTemplateData={"ImageId": image})
    wanted = {1: 2, 2: 0, 3: 1, 4: 1, 5: 0, 6: 1}
    for version, count in wanted.items():
        (cluster,) = read_clusters([attached_to(template, version)])
        assert len(list(refusals(cluster, client))) == count
    words = ["deploy", "--all", "-c", f"clusters={json.dumps([attached_to(template, 1)])}"]
    assert main(words) == 1
    err = capsys.readouterr().err
    assert "nothing was deployed" in err and "attach.launch_template_version=1: NetworkInterfaces" in err
    assert main([*words[:-1], f"clusters={json.dumps([attached_to(template, 2)])}"]) == 0


@mock_aws
def test_an_image_of_another_architecture_than_the_types_is_refused() -> None:
    client = boto3.Session(region_name="ap-southeast-1").client
    ec2 = client("ec2")
    images = images_of_amazon_linux(ec2)
    assert not list(refusals(new_cluster(workers={"image": images["x86_64"]}), client))
    (text,) = refusals(new_cluster(workers={"image": images["arm64"]}), client)
    assert text == (
        f"clusters[{NEW}].workers.image: image {images['arm64']} is for arm64, and t3.small is x86_64. "
        "Fix: name an image for x86_64, or instance types for arm64"
    )
    assert list(image_problems(ec2, images["arm64"], ["t4g.small"])) == []
    ((missing, _),) = image_problems(ec2, "ami-0123456789abcdef0", ["t3.small"])
    assert missing == "EC2 has no image ami-0123456789abcdef0 here"


@mock_aws
def test_only_the_clusters_that_the_command_names_are_checked() -> None:
    wrong = attached_to("lt-0123456789abcdef0", 1)
    (right,) = project_context()["clusters"]
    clusters = json.dumps([right, {**wrong, "region": "eu-west-1", "attach": {**wrong["attach"]}}])
    given = ["-c", f"clusters={clusters}"]
    assert main(["deploy", f"{right['cluster_id']}-network", *given]) == 0
    assert main(["deploy", "--all", *given]) == 1


def test_without_credentials_nothing_is_checked_and_the_cdk_continues(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    assert main(["deploy", "--all"]) == 0
    assert "was not compared with what is deployed" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "checked"), [(["deploy", "--all"], True), (["diff"], False)])
@pytest.mark.parametrize("refused", [0, 1])
def test_the_start_script_runs_the_check_before_a_deployment_and_stops_when_it_refuses(
    words: list[str], checked: bool, refused: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], folder: Any = None) -> int:
        commands.append(command[1:])
        return refused if deploy_check.__name__ in command else 0

    monkeypatch.setattr(start, "run", run)
    monkeypatch.setattr(start, "install", lambda requirements: None)
    ended = start.main(["cdk", *words])
    expected = [["-P", "-m", "cli.deploy_check", *words]] if checked else []
    assert commands == expected + ([] if checked and refused else [words])
    assert ended == (refused if checked else 0)


@mock_aws
@pytest.mark.parametrize(
    ("server", "version", "reason"),
    [
        ("v1.34.9+k3s1", "v1.35.5+k3s1", ""),
        ("v1.34.9+k3s1", "v1.36.2+k3s1", "v1.36.2+k3s1 leaves out minor versions"),
        ("v1.36.2+k3s1", "v1.35.5+k3s1", ""),
        ("", "v1.36.2+k3s1", ""),
    ],
)
def test_a_release_of_k3s_that_leaves_out_a_minor_version_of_the_server_is_refused(
    server: str, version: str, reason: str
) -> None:
    (raw,) = project_context()["clusters"]
    (cluster,) = read_clusters([{**raw, "k3s_version": version}])
    client = boto3.client("dynamodb", cluster.region)
    assert not list(k3s_refusals(cluster, client)), "without a table"
    client.create_table(
        TableName=cluster.settings.state_table,
        KeySchema=[{"AttributeName": "cluster_id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "cluster_id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    store = StateStore(client, cluster.settings, SystemClock())
    run = Run(execution_id="e", trigger="manual", scheduled_at=0, started_at=int(time.time()))
    held = replace(run, fence=store.acquire(run).state.fence)
    store.release(held, Memory(roll_out=RollOut(server_version=server)))
    found = list(k3s_refusals(cluster, client))
    assert [reason in one for one in found] == ([True] if reason else [])
    if found:
        assert found[0].startswith(f"clusters[{NEW}].k3s_version={version}: ") and "node-fleet upgrade" in found[0]
