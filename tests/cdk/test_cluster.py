"""The machines of a new cluster: no key, no open metadata, no secret in sight, and a server that stays."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest

from cdk_app.clusters import read_clusters
from cdk_app.components.grafana import dashboards_asset
from cdk_app.components.machine_roles import AGENT_ACTIONS
from cdk_app.k3s_releases import checksums, shipped_version
from cdk_app.stacks import cluster
from cdk_app.stacks.cluster import BUNDLE, USER_DATA_LIMIT_BYTES, ClusterStack, credit_specification
from cdk_app.stacks.network import NetworkStack
from cdk_app.synth import project_context
from node_fleet.settings import Settings
from tests.cdk.conftest import ATTACHED, LONG_NEW, NEW, App
from tests.support.shipped_scripts import load_server

STACK = f"{NEW}-cluster"


def server(app: App) -> dict[str, Any]:
    (found,) = app.resources(STACK, "AWS::EC2::Instance").values()
    return found


def workers(app: App) -> dict[str, Any]:
    templates = app.resources(STACK, "AWS::EC2::LaunchTemplate").values()
    (found,) = [t for t in templates if t.get("LaunchTemplateName") == f"{NEW}-workers"]
    data: dict[str, Any] = found["LaunchTemplateData"]
    return data


def text_of(user_data: dict[str, Any]) -> str:
    inside = user_data["Fn::Base64"]
    return (
        inside
        if isinstance(inside, str)
        else "".join(p if isinstance(p, str) else "<token>" for p in inside["Fn::Join"][1])
    )


def opened(app: App, stack: str, port: int) -> int:
    """How many rules open this port to another machine of the cluster."""
    return sum(rule["FromPort"] == port for rule in app.resources(stack, "AWS::EC2::SecurityGroupIngress").values())


def test_the_registry_mirror_opens_its_two_ports_among_the_machines_alone(app: App, variants: App) -> None:
    assert (opened(app, STACK, 5001), opened(app, STACK, 6443)) == (0, 1)
    stack = f"{LONG_NEW}-cluster"
    assert (opened(variants, stack, 5001), opened(variants, stack, 6443)) == (3, 3)
    for rule in variants.resources(stack, "AWS::EC2::SecurityGroupIngress").values():
        assert "SourceSecurityGroupId" in rule and "CidrIp" not in rule


@pytest.mark.parametrize(("is_on", "mirror", "seconds"), [(False, "false", "0"), (True, "true", "120")])
def test_both_bootstraps_know_what_to_do_about_images(
    app: App, variants: App, is_on: bool, mirror: str, seconds: str
) -> None:
    found, stack = (variants, f"{LONG_NEW}-cluster") if is_on else (app, STACK)
    (machine,) = found.resources(stack, "AWS::EC2::Instance").values()
    templates = [t["LaunchTemplateData"] for t in found.resources(stack, "AWS::EC2::LaunchTemplate").values()]
    (template,) = [data for data in templates if "UserData" in data]
    for text in (text_of(machine["UserData"]), text_of(template["UserData"])):
        assert f'REGISTRY_MIRROR="{mirror}"' in text
        assert f'IMAGE_WAIT_SECONDS="{seconds}"' in text


def test_metadata_needs_a_session_token_everywhere(app: App) -> None:
    for template in app.resources(STACK, "AWS::EC2::LaunchTemplate").values():
        options = template["LaunchTemplateData"]["MetadataOptions"]
        assert (options["HttpTokens"], options["HttpPutResponseHopLimit"]) == ("required", 1)


def test_volumes_are_encrypted(app: App) -> None:
    mappings = server(app)["BlockDeviceMappings"] + workers(app)["BlockDeviceMappings"]
    assert [m["Ebs"]["Encrypted"] for m in mappings] == [True, True]


def test_no_machine_accepts_an_ssh_key(app: App) -> None:
    assert "KeyName" not in json.dumps(app.templates[STACK])


def test_the_server_is_found_by_its_tag_and_reached_at_a_fixed_address(app: App) -> None:
    tags = {t["Key"]: t["Value"] for t in server(app)["Tags"]}
    named = {"Name": f"{NEW}-server", "Project": "node-fleet", "Role": "k3s-master", "Cluster": NEW}
    assert tags == {**named, "DailySnapshot": NEW}
    assert server(app)["PrivateIpAddress"] == "10.20.0.10"
    assert 'SERVER_ADDRESS="10.20.0.10"' in text_of(workers(app)["UserData"])


def test_a_deployment_never_replaces_the_server(app: App) -> None:
    assert server(app)["LaunchTemplate"]["Version"] == "1"
    assert server(app)["DisableApiTermination"] is True
    assert "ImageId" not in server(app)


def test_the_server_outlives_an_update_that_replaces_it_and_the_deletion_of_its_stack(app: App) -> None:
    """RetainExceptOnCreate: when the first deployment fails, its rollback still removes the server."""
    (found,) = [r for r in app.templates[STACK]["Resources"].values() if r["Type"] == "AWS::EC2::Instance"]
    assert found["DeletionPolicy"] == "RetainExceptOnCreate"
    assert found["UpdateReplacePolicy"] == "Retain"


def server_user_data(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The server's user data in a synth of the cluster with the contents of this folder."""
    monkeypatch.setattr(cluster, "BUNDLE", bundle)
    (config,) = read_clusters(project_context()["clusters"])
    app = cdk.App(analytics_reporting=False, builtin_cloud_formation_validation=False)
    env = cdk.Environment(region=config.region)
    network = NetworkStack(app, f"{NEW}-network", config=config, env=env)
    stack = ClusterStack(app, STACK, config=config, vpc=network.vpc, env=env)
    template = app.synth().get_stack_by_name(stack.stack_name).template
    (found,) = [r for r in template["Resources"].values() if r["Type"] == "AWS::EC2::Instance"]
    return json.dumps(found["Properties"]["UserData"])


def test_a_changed_ssm_script_or_dashboard_does_not_restart_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "cluster"
    shutil.copytree(BUNDLE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    before = server_user_data(copy, monkeypatch)
    for part in ("commands/drain_node.sh", "monitoring/grafana/dashboards/app-metrics.json", "worker/user_data.sh"):
        (copy / part).write_text((copy / part).read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert server_user_data(copy, monkeypatch) == before
    (copy / "server/install.sh").write_text("exit 0\n", encoding="utf-8")
    assert server_user_data(copy, monkeypatch) != before, "a changed install script must reach the server"


def test_the_server_reads_the_location_of_the_dashboards_from_a_parameter(app: App) -> None:
    parameters = {p["Name"]: p for p in app.resources(STACK, "AWS::SSM::Parameter").values()}
    assert parameters.keys() == {f"/node-fleet/{NEW}/dashboards", f"/node-fleet/{NEW}/k3s"}
    parameter = parameters[f"/node-fleet/{NEW}/dashboards"]
    assert re.search(r"s3://.*\.zip", json.dumps(parameter["Value"]))
    script = (BUNDLE / "server/monitoring.sh").read_text(encoding="utf-8")
    assert "/node-fleet/$CLUSTER_ID/dashboards" in script
    policies = app.resources(STACK, "AWS::IAM::Policy").values()
    (policy,) = [p for p in policies if p["PolicyName"].startswith("ServerRole")]
    allowed = {str(s["Action"]): json.dumps(s["Resource"]) for s in policy["PolicyDocument"]["Statement"]}
    assert f"parameter/node-fleet/{NEW}/dashboards" in allowed["ssm:GetParameter"]
    assert allowed["s3:GetObject"].count(".zip") == 2


def test_grafana_marks_the_thresholds_of_the_settings(tmp_path: Path) -> None:
    app = cdk.App(outdir=str(tmp_path))
    source = BUNDLE / "monitoring/grafana/dashboards"
    asset = dashboards_asset(cdk.Stack(app, "stack"), source, Settings.from_mapping({"preset": "adaptive"}))
    folder = Path(app.outdir, asset.asset_path)
    assert {file.name for file in folder.iterdir()} == {file.name for file in source.iterdir()}
    panels = json.loads((folder / "cluster-overview.json").read_text(encoding="utf-8"))["panels"]
    marks = {
        one["title"]: [s["value"] for s in one["fieldConfig"]["defaults"]["thresholds"]["steps"]] for one in panels
    }
    assert marks["CPU"] == marks["CPU by worker"] == [None, 85, 95]
    assert marks["Memory"] == marks["Memory by worker"] == [None, 85]


def test_the_release_of_k3s_reaches_the_workers_by_user_data_and_the_server_by_a_parameter(app: App) -> None:
    release, checksum = shipped_version(), checksums()[shipped_version()]
    (value,) = [p["Value"] for p in app.resources(STACK, "AWS::SSM::Parameter").values() if p["Name"].endswith("/k3s")]
    assert value == f"{release} {checksum}"
    assert f'K3S_VERSION="{release}"\n' in text_of(workers(app)["UserData"])
    assert f'K3S_SHA256_AMD64="{checksum}"\n' in text_of(workers(app)["UserData"])
    assert release not in json.dumps(server(app)), "a new release must not restart the server"
    script = (BUNDLE / "server/install_k3s.sh").read_text(encoding="utf-8")
    assert "/node-fleet/$CLUSTER_ID/k3s" in script
    policies = app.resources(STACK, "AWS::IAM::Policy").values()
    (policy,) = [p for p in policies if p["PolicyName"].startswith("ServerRole")]
    assert f"parameter/node-fleet/{NEW}/k3s" in json.dumps(policy)


@pytest.mark.parametrize(
    ("settings", "credits"),
    [
        ({}, "unlimited"),
        ({"cpu_credits": "standard", "instance_types": ["t3.small", "t3a.small"]}, "standard"),
        ({"instance_types": ["t3.small", "m5.large"]}, None),
        ({"instance_types": ["m5.large"], "cpu_credits": "standard"}, None),
    ],
    ids=["default", "standard", "mixed types", "no burstable type"],
)
def test_the_template_states_cpu_credits_only_if_every_type_has_them(
    settings: dict[str, Any], credits: str | None
) -> None:
    (config,) = read_clusters([{"cluster_id": "shop", "settings": settings}])
    found = credit_specification(config.settings)
    assert (found.cpu_credits if found else None) == credits


def test_the_workers_of_the_project_have_the_default_mode_of_cpu_credits(app: App) -> None:
    assert workers(app)["CreditSpecification"] == {"CpuCredits": "unlimited"}


def test_a_worker_never_carries_a_spot_request_of_its_template(app: App) -> None:
    assert "InstanceMarketOptions" not in workers(app)


@pytest.mark.parametrize("machine", ["server", "worker"])
def test_user_data_is_complete_and_small_enough(app: App, machine: str) -> None:
    text = text_of(server(app)["UserData"] if machine == "server" else workers(app)["UserData"])
    header = (BUNDLE / machine / "user_data.sh").read_text(encoding="utf-8").split("set -E")[0]
    names = re.findall(r"^#   ([A-Z_]+)  ", header, re.MULTILINE)
    assert names
    for name in names:
        assert f"${{{name}}}" not in text
        assert re.search(rf'^{name}="[^"$]*"', text, re.MULTILINE), name
    assert len(text.encode()) < USER_DATA_LIMIT_BYTES - 512


@pytest.mark.parametrize("machine", ["server", "worker"])
def test_user_data_names_secrets_and_holds_none(app: App, machine: str) -> None:
    text = text_of(server(app)["UserData"] if machine == "server" else workers(app)["UserData"])
    assert "node-fleet/k3s-token" in text
    assert "{{resolve:secretsmanager" not in text
    assert not re.search(r"K10[0-9a-f]{64}::", text)


def test_no_secret_has_a_value_in_any_template(app: App) -> None:
    secrets = app.resources(STACK, "AWS::SecretsManager::Secret").values()
    assert {s["Name"] for s in secrets} == {
        "node-fleet/k3s-token",
        "node-fleet/prometheus-auth",
        "node-fleet/grafana-auth",
        "node-fleet/slack-webhook",
    }
    assert not [s for s in secrets if "SecretString" in s]
    for name, template in app.templates.items():
        assert "{{resolve:secretsmanager" not in json.dumps(template), name


def test_an_attached_cluster_gets_the_autoscaler_and_nothing_that_runs_pods(app: App) -> None:
    assert {name for name in app.templates if name.startswith(ATTACHED)} == {
        f"{ATTACHED}-autoscaler",
        f"{ATTACHED}-observability",
    }
    kinds = {r["Type"] for r in app.templates[f"{ATTACHED}-autoscaler"]["Resources"].values()}
    assert not kinds & {"AWS::EC2::VPC", "AWS::EC2::Subnet", "AWS::EC2::Instance", "AWS::EC2::LaunchTemplate"}


def test_the_password_of_grafana_is_read_by_the_server_and_by_no_function(app: App) -> None:
    named = "secret:node-fleet/grafana-auth"
    assert {name for name, template in app.templates.items() if named in json.dumps(template)} == {STACK}
    assert len([p for p in app.resources(STACK, "AWS::IAM::Policy").values() if "grafana-auth" in json.dumps(p)]) == 1


def actions_of(app: App, role: str) -> set[str]:
    policies = app.resources(STACK, "AWS::IAM::Policy").values()
    (policy,) = [p for p in policies if p["PolicyName"].startswith(role)]
    statements = policy["PolicyDocument"]["Statement"]
    return {a for s in statements for a in (s["Action"] if isinstance(s["Action"], list) else [s["Action"]])}


def test_workers_may_read_the_token_and_mark_themselves_and_no_more(app: App) -> None:
    assert actions_of(app, "WorkerRole") - set(AGENT_ACTIONS) == {"secretsmanager:GetSecretValue", "ec2:CreateTags"}


def test_the_server_changes_nothing_of_aws_but_the_token_and_its_own_mark(app: App) -> None:
    reading = ("Get", "List", "Describe", "Start", "Stop")
    changing = {
        a for a in actions_of(app, "ServerRole") - set(AGENT_ACTIONS) if not a.split(":")[1].startswith(reading)
    }
    publishing = {"sns:Publish", "kms:GenerateDataKey", "kms:Decrypt"}
    assert changing == {"secretsmanager:PutSecretValue", "ec2:CreateTags", *publishing}


def test_the_server_may_read_of_the_state_item_only_what_its_metrics_show(app: App) -> None:
    policies = app.resources(STACK, "AWS::IAM::Policy").values()
    (policy,) = [p for p in policies if p["PolicyName"].startswith("ServerRole")]
    (statement,) = [s for s in policy["PolicyDocument"]["Statement"] if "dynamodb:" in str(s["Action"])]
    assert statement["Action"] == "dynamodb:GetItem"
    assert "table/k3s-autoscaler-state" in json.dumps(statement["Resource"])
    assert statement["Condition"]["StringEqualsIfExists"] == {"dynamodb:Select": "SPECIFIC_ATTRIBUTES"}
    assert statement["Condition"]["Null"] == {"dynamodb:Attributes": "false"}
    assert set(statement["Condition"]) == {"StringEqualsIfExists", "Null", "ForAllValues:StringEquals"}
    limits = statement["Condition"]["ForAllValues:StringEquals"]
    assert limits["dynamodb:LeadingKeys"] == [NEW]
    assert limits["dynamodb:Attributes"] == ["cluster_id", *load_server("state_metrics").ATTRIBUTES.split(", ")]
