"""preflight says for each thing that a first deployment needs whether the account has it, and the fix."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import boto3
import pytest
from moto import mock_aws

from cdk_app.synth import attach_context, project_context
from cli import main as program
from cli import preflight
from cli.output import ExitCode

pytestmark = pytest.mark.sampled(10)  # with --all, every one

REGION = "ap-southeast-1"
(NEW,) = project_context()["clusters"]
(ATTACH,) = attach_context()["clusters"]


@dataclass(slots=True, kw_only=True)
class Account:
    """moto's account, with the two answers that moto lacks: quotas of EC2 and the limits of Lambda."""

    current: ClassVar[Account]
    folder: Path
    capture: pytest.CaptureFixture[str]
    quotas: dict[str, float] = field(default_factory=lambda: {"L-1216C47A": 64.0, "L-34B43A08": 64.0})
    concurrency: int = 1000

    def client(self, service: str) -> Any:
        return client_of(service, REGION)

    def made(self, region: str) -> Any:
        return lambda service: client_of(service, region)

    def quota(self, params: dict[str, Any]) -> Any:
        code = json.loads(params["body"])["QuotaCode"]
        if code in self.quotas:
            return SimpleNamespace(status_code=200), {"Quota": {"QuotaCode": code, "Value": self.quotas[code]}}
        return None

    def limits(self) -> Any:
        limit = {"ConcurrentExecutions": self.concurrency, "UnreservedConcurrentExecutions": self.concurrency}
        return SimpleNamespace(status_code=200), {"AccountLimit": limit}

    def prepare(self) -> None:
        """What a person does before the first deployment."""
        self.client("iam").create_service_linked_role(AWSServiceName="spot.amazonaws.com")
        self.client("ssm").put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value="21", Type="String")

    def check(self, *clusters: dict[str, Any], words: tuple[str, ...] = ()) -> tuple[int, dict[str, Any], str]:
        content = {"context": {"clusters": clusters or (NEW,)}}
        (self.folder / "cdk.json").write_text(json.dumps(content), encoding="utf-8")
        code = program.main(["preflight", "--json", *words])
        captured = self.capture.readouterr()
        return code, {one["name"]: one for one in json.loads(captured.out or "[]")}, captured.err


def answer(event_name: str, params: dict[str, Any], **_: Any) -> Any:
    current = Account.current
    return current.quota(params) if event_name.endswith("GetServiceQuota") else current.limits()


@functools.cache
def client_of(service: str, region: str) -> Any:
    """The same client for all tests: to make one takes longer than its calls. The current account answers it."""
    found: Any = boto3.client(service, region_name=region)  # type: ignore[call-overload]
    for call in ("service-quotas.GetServiceQuota", "lambda.GetAccountSettings"):
        found.meta.events.register(f"before-call.{call}", answer)
    return found


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Account]:
    for tool in ("aws", "session-manager-plugin"):
        (tmp_path / tool).write_text("#!/bin/sh\n")
        (tmp_path / tool).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with mock_aws():
        found = Account.current = Account(folder=tmp_path, capture=capsys)
        monkeypatch.setattr(preflight, "client_of", found.made)
        yield found


def states(found: dict[str, Any]) -> dict[str, str]:
    return {name: one["verdict"] for name, one in found.items() if one["verdict"] != "ok"}


def test_a_prepared_account_passes_every_check(account: Account) -> None:
    account.prepare()
    code, found, err = account.check()
    assert code == ExitCode.OK, err
    assert states(found) == {}
    assert set(found) >= {"account", "region", "zones", "instance types", "VPC quota", "names", "CDK bootstrap"}


def test_an_empty_account_fails_with_the_command_that_prepares_each_thing(account: Account) -> None:
    code, found, err = account.check()
    assert code == ExitCode.FAILED and "2 of 14 checks failed" in err
    assert states(found) == {"CDK bootstrap": "fail", "Spot role": "fail"}
    assert found["CDK bootstrap"]["fix"] == "./node-fleet cdk bootstrap aws://123456789012/ap-southeast-1"
    assert found["Spot role"]["fix"] == "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"


@pytest.mark.parametrize(
    ("quota", "name", "value", "state"),
    [
        # 2 vCPUs of the server; 2 workers of 2 vCPUs at the minimum, one of them Spot; 10 workers at the maximum.
        ("L-1216C47A", "On-Demand quota", 22.0, "ok"),
        ("L-1216C47A", "On-Demand quota", 21.0, "warn"),
        ("L-1216C47A", "On-Demand quota", 4.0, "warn"),
        ("L-1216C47A", "On-Demand quota", 3.0, "fail"),
        ("L-34B43A08", "Spot quota", 20.0, "ok"),
        ("L-34B43A08", "Spot quota", 19.0, "warn"),
        ("L-34B43A08", "Spot quota", 2.0, "warn"),
        ("L-34B43A08", "Spot quota", 1.0, "fail"),
    ],
)
def test_a_vcpu_quota_fails_below_the_smallest_fleet_and_warns_below_the_largest(
    account: Account, quota: str, name: str, value: float, state: str
) -> None:
    account.prepare()
    account.quotas[quota] = value
    code, found, _ = account.check()
    assert found[name]["verdict"] == state
    assert code == (ExitCode.FAILED if state == "fail" else ExitCode.OK)
    assert (f"--quota-code {quota}" in found[name]["fix"]) is (state != "ok")


@pytest.mark.parametrize(("free", "state"), [(24, "ok"), (23, "warn"), (10, "warn"), (4, "warn"), (3, "fail")])
def test_the_lambda_quota_of_a_new_account_is_a_warning(account: Account, free: int, state: str) -> None:
    account.prepare()
    account.concurrency = free
    _, found, _ = account.check()
    assert found["Lambda concurrency"]["verdict"] == state


def test_a_zone_and_an_instance_type_that_the_region_lacks_fail(account: Account) -> None:
    account.prepare()
    settings = {**NEW["settings"], "instance_types": ["m8gn.medium"]}
    _, found, _ = account.check({**NEW, "network": {"zones": ["a", "f"]}, "settings": settings})
    assert states(found) == {"zones": "fail", "instance types": "fail"}
    assert "no zone ap-southeast-1f" in found["zones"]["saw"] and "network.zones" in found["zones"]["fix"]
    assert "m8gn.medium in ap-southeast-1a" in found["instance types"]["saw"]
    _, found, _ = account.check({**NEW, "server": {"instance_type": "x99.large"}})
    assert "x99.large of the server is not offered in ap-southeast-1a" in found["instance types"]["saw"]


def test_a_type_that_only_some_types_replace_is_a_warning(account: Account) -> None:
    account.prepare()
    _, found, _ = account.check({**NEW, "settings": {**NEW["settings"], "instance_types": ["t3.small", "x99.large"]}})
    assert found["instance types"]["verdict"] == "warn"


def test_full_vpcs_and_an_old_bootstrap_fail(account: Account) -> None:
    account.prepare()
    account.client("ssm").put_parameter(
        Name="/cdk-bootstrap/hnb659fds/version", Value="5", Type="String", Overwrite=True
    )
    for number in range(4):  # and the default VPC
        account.client("ec2").create_vpc(CidrBlock=f"10.{number}.0.0/16")
    _, found, _ = account.check()
    assert states(found) == {"CDK bootstrap": "fail", "VPC quota": "fail"}
    assert "all 5 VPCs are in use" in found["VPC quota"]["saw"]


def test_a_table_and_a_secret_of_an_earlier_deployment_are_in_the_way(account: Account) -> None:
    account.prepare()
    account.client("dynamodb").create_table(
        TableName="k3s-autoscaler-state",
        KeySchema=[{"AttributeName": "cluster_id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "cluster_id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    secrets = account.client("secretsmanager")
    secrets.create_secret(Name="node-fleet/slack-webhook", SecretString="x")
    secrets.delete_secret(SecretId="node-fleet/slack-webhook", RecoveryWindowInDays=7)
    _, found, _ = account.check()
    assert found["names"]["verdict"] == "fail"
    for left in ("table k3s-autoscaler-state", "secret node-fleet/slack-webhook"):
        assert left in found["names"]["saw"]
    template = json.dumps({"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}})
    account.client("cloudformation").create_stack(StackName="node-fleet-prod-autoscaler", TemplateBody=template)
    _, found, _ = account.check()
    assert "names" not in found and "VPC quota" not in found, "they belong to the deployed cluster"


def test_missing_programs_are_warnings(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    account.prepare()
    monkeypatch.setenv("PATH", "")
    code, found, _ = account.check()
    assert code == ExitCode.OK
    assert states(found) == {"aws": "warn", "session-manager-plugin": "warn"}


def test_a_region_without_dual_stack_names_of_ec2_is_refused_for_mode_new(account: Account) -> None:
    code, _, err = account.check({**NEW, "region": "ap-southeast-3"})
    assert code == ExitCode.FAILED
    assert "AWS publishes no name of ec2 that answers over IPv6 there" in err


def test_every_cluster_is_checked_unless_one_is_named(account: Account) -> None:
    account.prepare()
    names = {"state_table": "b1", "history_table": "b2", "events_table": "b3", "document_prefix": "b-"}
    secrets = {"prometheus_secret": "b/p", "slack_secret": "b/s"}
    other = {
        **NEW,
        "cluster_id": "shop",
        "server": {"token_secret": "b/t", "grafana_secret": "b/g"},
        "settings": {**NEW["settings"], **names, **secrets},
    }
    _, found, _ = account.check(NEW, other)
    assert {"shop: names", "node-fleet-prod: names"} <= set(found)
    _, found, _ = account.check(NEW, other, words=("--cluster", "shop"))
    assert "names" in found and "shop: names" not in found
    code, _, err = account.check(NEW, words=("--cluster", "nope"))
    assert code == ExitCode.FAILED and "cdk.json has no cluster nope; it has node-fleet-prod" in err


def attached(account: Account, **template: Any) -> dict[str, Any]:
    """The example of mode attach with resources that exist in the account."""
    ec2 = account.client("ec2")
    subnets = {one["AvailabilityZone"]: one["SubnetId"] for one in ec2.describe_subnets()["Subnets"]}
    image = next(one["ImageId"] for one in ec2.describe_images()["Images"] if one["Architecture"] == "x86_64")
    made = ec2.create_launch_template(LaunchTemplateName="shop", LaunchTemplateData={"ImageId": image, **template})
    tags = [{"Key": "Role", "Value": "k3s-master"}, {"Key": "Cluster", "Value": "shop-k3s"}]
    ec2.run_instances(
        ImageId="ami-12345678",
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )
    account.client("secretsmanager").create_secret(Name="node-fleet/prometheus-auth", SecretString="{}")
    attach = {
        **ATTACH["attach"],
        "worker_subnets": {zone: subnets[zone] for zone in ATTACH["attach"]["worker_subnets"]},
        "launch_template_id": made["LaunchTemplate"]["LaunchTemplateId"],
        "launch_template_version": 1,
    }
    return {**ATTACH, "attach": attach}


def test_mode_attach_with_everything_in_place_passes(account: Account) -> None:
    account.prepare()
    code, found, err = account.check(attached(account))
    assert code == ExitCode.OK, err
    assert states(found) == {}
    assert {"launch template", "K3s server", "subnets"} <= set(found)


def test_mode_attach_names_a_wrong_template_subnet_server_and_secret(account: Account) -> None:
    account.prepare()
    cluster = attached(account, NetworkInterfaces=[{"DeviceIndex": 0}])
    a, b = cluster["attach"]["worker_subnets"]
    subnets = cluster["attach"]["worker_subnets"]
    wrong = {**cluster["attach"], "worker_subnets": {a: subnets[b], b: subnets[b]}}
    settings = {**cluster["settings"], "server_role_tag": "boss", "prometheus_secret": "shop/other"}
    _, found, _ = account.check({**cluster, "attach": wrong, "settings": settings})
    assert states(found) == dict.fromkeys(("launch template", "K3s server", "subnets", "names"), "fail")
    assert "NetworkInterfaces" in found["launch template"]["saw"]
    assert f"is in {b}, not in {a}" in found["subnets"]["saw"]
    assert "Role=boss, Cluster=shop-k3s" in found["K3s server"]["fix"]
    assert "create-secret --name shop/other" in found["names"]["fix"]


def test_invalid_credentials_end_with_one_line(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setattr(preflight, "client_of", lambda region: boto3.Session(region_name=region).client)
    code, _, err = account.check()
    assert code == ExitCode.FAILED
    assert "AWS does not accept your credentials" in err and "AWS_PROFILE" in err and err.count("\n") == 1


def test_without_a_network_no_command_blames_the_credentials(
    account: Account, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(preflight, "client_of", lambda region: boto3.Session(region_name=region).client)
    _, _, preflight_err = account.check()
    assert program.main(["status"]) == ExitCode.FAILED
    for err in (preflight_err, capsys.readouterr().err):
        assert err.startswith("node-fleet: AWS does not answer: Could not connect to the endpoint")
        assert "check the network" in err and "credentials" not in err and err.count("\n") == 1
