"""import proposes settings that node-fleet accepts, says each difference, and names all that it cannot read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from cli import main as program
from cli.autoscaler_flags import (
    DEFAULTS,
    NO_EQUIVALENT,
    RULES,
    FlagError,
    flags_in,
    propose,
    seconds,
    words_of_manifest,
)
from cli.import_settings import proposal_of_group
from cli.output import CommandError
from cli.proposal import Line, Proposal
from cli.scaling_group import propose as propose_group
from node_fleet.domain.model.policy import Policy

FLAGS = ("--cloud-provider=aws", "--nodes=1:10:workers", "--scale-down-unneeded-time=15m", "--v=4")
MANIFEST = """
apiVersion: v1
kind: ServiceAccount
---
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
        - name: proxy
          image: example.com/proxy:1
          args: [--nodes=9:9:wrong]
        - name: main
          image: registry.k8s.io/autoscaling/cluster-autoscaler:v1.35.0
          command: [./cluster-autoscaler, --nodes=1:10:workers, --scale-down-unneeded-time=15m]
          args: [--expander=least-waste]
"""


def settings_of(*words: str) -> dict[str, Any]:
    found = propose(words)
    assert found.problems == () and found.refused() == ()
    return found.settings


@pytest.mark.parametrize(
    ("text", "expected"),
    [("10m0s", 600), ("1h30m", 5400), ("90s", 90), ("1500ms", 2), ("0s", 0), ("0", 0), ("2.5m", 150)],
)
def test_durations_are_those_of_go(text: str, expected: int) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "10", "m", "10 m", "10x", "-5m", "5m x"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(FlagError, match="10m or 1h30m"):
        seconds(text)


def test_flags_have_a_value_after_an_equals_sign_or_a_blank_and_are_true_without_one() -> None:
    words = [
        "./cluster-autoscaler",
        "--v=4",
        "--expander",
        "price",
        "--leader-elect",
        "-logtostderr",
        "--nodes=1:2:a=b",
    ]
    expected = [
        ("v", "4"),
        ("expander", "price"),
        ("leader-elect", "true"),
        ("logtostderr", "true"),
        ("nodes", "1:2:a=b"),
    ]
    assert flags_in(words) == expected
    assert flags_in(["--regional"]) == [("regional", "true")]
    cutoff = "expendable-pods-priority-cutoff"
    assert flags_in([f"--{cutoff}", "-10", "-v"]) == [(cutoff, "-10"), ("v", "true")]


def test_the_lower_of_the_limits_of_groups_and_total_holds() -> None:
    groups = ("--nodes=1:4:a", "--nodes=1:6:b")
    assert settings_of(*groups, "--max-nodes-total=100")["max_workers"] == 10
    assert settings_of("--max-nodes-total=100", *groups)["max_workers"] == 10
    assert settings_of(*groups, "--max-nodes-total=11")["max_workers"] == 10
    assert settings_of(*groups, "--max-nodes-total=10")["max_workers"] == 9
    (line,) = [o for o in propose([*groups, "--max-nodes-total=100"]).lines if o.source == "--max-nodes-total=100"]
    assert line.difference == "the groups together allow 10, which is fewer"


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--scan-interval=2h", "node-fleet allows 60 to 3600 s; "),
        ("--max-scale-down-parallelism=20", "node-fleet allows 1 to 10; "),
        ("--max-nodes-total=5000", "node-fleet allows 1 to 1000; "),
        ("--scale-down-unready-time=1m", "node-fleet allows 300 to 86400 s; "),
        ("--scale-down-utilization-threshold=0.7", "they stay below the thresholds that add workers; "),
    ],
)
def test_a_value_that_is_moved_into_the_range_is_named(flag: str, words: str) -> None:
    assert propose([flag]).lines[0].difference.startswith(words)


@pytest.mark.parametrize(("value", "is_on"), [("1", True), ("T", True), ("0", False), ("FALSE", False)])
def test_switches_are_those_of_go(value: str, is_on: bool) -> None:
    assert ("disruption_budgets" in settings_of(f"--scale-down-enabled={value}")) is not is_on


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("--nodes=1:10:a", {"min_workers": 1, "max_workers": 10}),
        ("--scale-down-unneeded-time=15m", {"idle_seconds": 900}),
        ("--scale-down-unready-time=1m", {"not_ready_replace_seconds": 300}),
        ("--scale-down-delay-after-add=20m", {"cooldown_down_seconds": 1200}),
        ("--scale-down-delay-after-failure=3m", {"drain_back_off_seconds": 180}),
        ("--scale-down-delay-after-failure=10s", {"drain_back_off_seconds": 60}),
        ("--scan-interval=10s", {}),
        ("--scan-interval=121s", {"interval_seconds": 180}),
        ("--max-nodes-total=8", {"max_workers": 7}),
        ("--max-nodes-total=0", {}),
        ("--scale-down-enabled=false", {"disruption_budgets": [{"nodes": "0", "reasons": ["idle"]}]}),
        ("--scale-down-enabled=true", {}),
        ("--max-empty-bulk-delete=20", {"max_targets": 10}),
        ("--max-total-unready-percentage=45", {"not_ready_one_in": 2, "repair_max_percent": 45}),
        ("--balance-similar-node-groups=true", {"placement": "fewest"}),
        ("--initial-node-group-backoff-duration=5m", {"scale_up_back_off_seconds": 300}),
    ],
)
def test_a_flag_becomes_its_settings(flag: str, expected: dict[str, Any]) -> None:
    found = settings_of(flag)
    assert {name: found.get(name) for name in expected} == expected
    assert set(found) - set(expected) <= set(settings_of())


def test_defaults_of_cluster_autoscaler_that_differ_are_taken_over() -> None:
    assert settings_of() == {
        "preset": "node-fleet",
        "cpu_down_percent": 50,
        "memory_down_percent": 50,
        "join_limit_seconds": 900,
        "drain_timeout_seconds": 600,
        "operation_limit_seconds": 1200,
    }
    given = ("--max-node-provision-time=5m", "--max-graceful-termination-sec=300")
    assert "operation_limit_seconds" not in settings_of(*given)


def test_several_groups_are_added_up_and_a_line_says_so() -> None:
    found = propose(["--nodes=1:10:a", "--nodes=0:5:b"])
    assert found.settings["min_workers"] == 1 and found.settings["max_workers"] == 15
    assert "2 groups are added up" in found.lines[0].difference


@pytest.mark.parametrize("value", ["0.5", "0.99", "1"])
def test_a_high_utilization_stays_below_the_thresholds_that_add_workers(value: str) -> None:
    found, default = settings_of(f"--scale-down-utilization-threshold={value}"), Policy()
    assert found["cpu_down_percent"] < found.get("cpu_up_percent", default.cpu_up_percent)
    assert found["memory_down_percent"] < found.get("memory_up_percent", default.memory_up_percent)


@pytest.mark.parametrize(
    ("flag", "problem"),
    [
        ("--nodes=10:1:a", "--nodes=10:1:a: expected MIN:MAX:NAME, such as 1:10:workers"),
        ("--nodes=1:10", "--nodes=1:10: expected MIN:MAX:NAME, such as 1:10:workers"),
        ("--scan-interval=soon", "--scan-interval=soon: expected a duration such as 10m or 1h30m"),
        ("--scale-down-enabled=maybe", "--scale-down-enabled=maybe: expected true or false"),
        (
            "--scale-down-utilization-threshold=50",
            "--scale-down-utilization-threshold=50: expected a number from 0 to 1",
        ),
        ("--cloud-provider=gce", "--cloud-provider=gce: expected aws: node-fleet runs workers on EC2 only"),
        (
            "--scale-down-uneeded-time=5m",
            "--scale-down-uneeded-time=5m is no flag of Cluster Autoscaler that node-fleet knows; did you mean "
            "--scale-down-unneeded-time?",
        ),
        ("--zzz=1", "--zzz=1 is no flag of Cluster Autoscaler that node-fleet knows"),
    ],
)
def test_what_cannot_be_read_is_named_with_what_would_be_right(flag: str, problem: str) -> None:
    assert propose([flag, "--v=1"]).problems == (problem,)


SAMPLES = ("true", "10m", "5", "0.5", "aws")


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_known_flag_has_a_line_with_settings_or_a_difference(name: str) -> None:
    read = [propose([f"--{name}={value}"]) for value in SAMPLES]
    found = [one.lines[0] for one in read if not one.problems]
    assert found
    assert all(line.settings or line.difference for line in found)


def test_no_flag_is_both_mapped_and_without_an_equivalent() -> None:
    assert set(RULES).isdisjoint(NO_EQUIVALENT)
    assert set(DEFAULTS) <= set(RULES)
    assert propose(["--leader-elect=true"]).lines[0].settings == {}


def test_the_flags_of_a_manifest_are_those_of_its_own_container() -> None:
    words = words_of_manifest(MANIFEST)
    assert flags_in(words) == [
        ("nodes", "1:10:workers"),
        ("scale-down-unneeded-time", "15m"),
        ("expander", "least-waste"),
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", "it is not YAML"),
        ("a: 2026-99-99", "it is not YAML"),
        ("[" * 5000, "it is not YAML"),
        ("", "no container of cluster-autoscaler"),
        ("containers: 5", "no container"),
        ("a: &a [*a]", "no container"),
        ("containers: [{name: cluster-autoscaler, command: ./cluster-autoscaler --v=4}]", "must be lists"),
    ],
)
def test_a_manifest_without_cluster_autoscaler_is_refused(text: str, problem: str) -> None:
    with pytest.raises(FlagError, match=problem):
        words_of_manifest(text)


def test_aliases_that_multiply_are_read_once() -> None:
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 40)]
    bomb = "\n".join(["a0: &a0 [x]", *levels])
    with pytest.raises(FlagError, match="no container"):
        words_of_manifest(bomb)


def test_a_manifest_with_windows_line_ends_and_in_a_list_is_read() -> None:
    listed = "kind: List\nitems:\n" + "".join(f"  {line}\n" for line in MANIFEST.split("---")[1].splitlines() if line)
    listed = listed.replace("  apiVersion", "- apiVersion", 1)
    assert flags_in(words_of_manifest(listed.replace("\n", "\r\n"))) == flags_in(words_of_manifest(MANIFEST))


def test_settings_that_contradict_each_other_are_named() -> None:
    made = Proposal(lines=(Line(source="x", settings={"min_workers": 9, "max_workers": 3}),))
    assert any("min_workers" in problem for problem in made.refused())


def run(*words: str) -> int:
    return program.main(["import", *words])


def test_the_command_prints_a_line_for_each_flag_and_the_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("cluster-autoscaler", "--", *FLAGS) == 0
    printed = capsys.readouterr().out
    assert "idle_seconds=900" in printed and '"max_workers": 10' in printed


def test_the_command_reads_a_manifest_and_gives_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "ca.yaml").write_text(MANIFEST)
    assert run("cluster-autoscaler", str(tmp_path / "ca.yaml"), "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["settings"]["idle_seconds"] == 900
    assert answer["problems"] == []
    assert all(line["settings"] or line["difference"] for line in answer["lines"])


def test_a_flag_that_cannot_be_read_fails_after_the_proposal(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("cluster-autoscaler", "--", "--nodes=1:9:a", "--scan-interval=soon") == 1
    printed = capsys.readouterr()
    assert '"max_workers": 9' in printed.out
    assert "--scan-interval=soon: expected a duration" in printed.err


@pytest.mark.parametrize("text", [None, "kind: Deployment\n", "\xff"])
def test_a_file_that_is_no_manifest_is_wrong_use(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str | None
) -> None:
    file = tmp_path / "ca.yaml"
    if text is not None:
        file.write_bytes(text.encode("latin-1"))
    assert run("cluster-autoscaler", str(file)) == 2
    assert "give a manifest, or the flags after --" in capsys.readouterr().err


GROUP: dict[str, Any] = {
    "AutoScalingGroupName": "workers",
    "MinSize": 1,
    "MaxSize": 8,
    "DesiredCapacity": 3,
    "DefaultCooldown": 300,
    "HealthCheckGracePeriod": 400,
    "VPCZoneIdentifier": "subnet-a,subnet-b",
    "TerminationPolicies": ["OldestInstance"],
    "MixedInstancesPolicy": {
        "LaunchTemplate": {
            "LaunchTemplateSpecification": {"LaunchTemplateId": "lt-0123456789abcdef0", "Version": "4"},
            "Overrides": [{"InstanceType": "t3.small"}, {"InstanceType": "t3a.small"}],
        },
        "InstancesDistribution": {"OnDemandBaseCapacity": 1, "OnDemandPercentageAboveBaseCapacity": 30},
    },
}
ZONES = {"subnet-a": "eu-west-1a", "subnet-b": "eu-west-1b", "subnet-c": "eu-west-1a"}
TARGET = {
    "PolicyName": "cpu",
    "PolicyType": "TargetTrackingScaling",
    "TargetTrackingConfiguration": {
        "TargetValue": 60.0,
        "PredefinedMetricSpecification": {"PredefinedMetricType": "ASGAverageCPUUtilization"},
    },
}


def group(*policies: Any, template: Any = None, **changed: Any) -> Proposal:
    return propose_group({**GROUP, **changed}, policies, template=template or {}, zones=ZONES)


def test_a_group_with_mixed_instances_becomes_settings_and_an_attachment() -> None:
    found = group(TARGET)
    assert found.problems == () and found.refused() == ()
    assert found.settings == {
        "min_workers": 1,
        "max_workers": 8,
        "instance_types": ["t3.small", "t3a.small"],
        "spot_percent": 70,
        "on_demand_minimum": 1,
        "cooldown_up_seconds": 300,
        "join_limit_seconds": 400,
        "scale_down_order": "oldest",
        "preset": "node-fleet",
        "cpu_up_percent": 60.0,
        "cpu_down_percent": 30.0,
    }
    assert found.attach == {
        "worker_subnets": {"eu-west-1a": "subnet-a", "eu-west-1b": "subnet-b"},
        "launch_template_id": "lt-0123456789abcdef0",
        "launch_template_version": 4,
    }


@pytest.mark.parametrize(("market", "percent"), [({"MarketType": "spot"}, 100), ({}, 0)])
def test_a_group_with_a_plain_template_takes_type_and_market_from_it(market: dict[str, str], percent: int) -> None:
    template = {"InstanceType": "m5.large", "InstanceMarketOptions": market}
    plain = {"MixedInstancesPolicy": None, "LaunchTemplate": {"LaunchTemplateId": "lt-1", "Version": "2"}}
    found = group(template=template, **plain)
    assert (found.settings["instance_types"], found.settings["spot_percent"]) == (["m5.large"], percent)
    assert found.attach["launch_template_version"] == 2


def test_requirements_of_a_group_become_those_of_node_fleet() -> None:
    needs = {"VCpuCount": {"Min": 2, "Max": 4}, "MemoryMiB": {"Min": 4096, "Max": 8192}}
    mixed = {
        "LaunchTemplate": {
            **GROUP["MixedInstancesPolicy"]["LaunchTemplate"],
            "Overrides": [{"InstanceRequirements": {**needs, "BurstablePerformance": "excluded"}}],
        }
    }
    found = group(MixedInstancesPolicy=mixed)
    wanted = {"vcpus": [2, 4], "memory_gib": [4.0, 8.0], "burstable": "excluded"}
    assert found.settings["instance_requirements"] == wanted
    assert found.refused() == ()


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"VPCZoneIdentifier": "subnet-a,subnet-c"}, "subnet-c is left out: eu-west-1a has subnet-a"),
        ({"VPCZoneIdentifier": "subnet-x"}, "the zone of subnet subnet-x is unknown"),
        ({"MixedInstancesPolicy": None, "LaunchConfigurationName": "old"}, "the group has no launch template"),
        (
            {"MixedInstancesPolicy": None, "LaunchTemplate": {"LaunchTemplateId": "lt-1"}},
            "the version of the launch template is $Default",
        ),
        ({"MixedInstancesPolicy": None}, "the group names no instance type"),
    ],
)
def test_what_a_group_lacks_is_named(changed: dict[str, Any], problem: str) -> None:
    assert any(problem in one for one in group(**changed).problems)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"MaxInstanceLifetime": 86400}, "launch first, one worker after the other"),
        ({"SuspendedProcesses": [{"ProcessName": "AZRebalance"}]}, "node-fleet pause"),
        ({"NewInstancesProtectedFromScaleIn": True}, "node-fleet protect"),
    ],
)
def test_other_parts_of_a_group_have_a_line(changed: dict[str, Any], words: str) -> None:
    assert any(words in line.difference for line in group(**changed).lines)


@pytest.mark.parametrize(
    ("policy", "settings"),
    [
        ({"PolicyName": "p", "PolicyType": "PredictiveScaling"}, {"predictive": True}),
        ({"PolicyName": "p", "PolicyType": "StepScaling"}, {}),
        ({**TARGET, "TargetTrackingConfiguration": {"TargetValue": 5.0}}, {}),
    ],
)
def test_policies_other_than_cpu_have_a_line(policy: dict[str, Any], settings: dict[str, Any]) -> None:
    line = group(policy).lines[-1]
    assert line.settings == settings and line.difference


def test_a_policy_that_is_disabled_becomes_no_setting() -> None:
    line = group({**TARGET, "Enabled": False}).lines[-1]
    assert line.settings == {} and "disabled" in line.difference


def test_a_long_grace_period_gets_an_operation_that_is_longer() -> None:
    found = group(HealthCheckGracePeriod=7200)
    assert (found.settings["join_limit_seconds"], found.settings["operation_limit_seconds"]) == (3600, 3900)
    assert found.refused() == ()
    assert any("node-fleet allows 60 to 3600 s" in line.difference for line in found.lines)


@pytest.mark.parametrize("target", [1.0, 50.0, 90.0, 100.0])
def test_a_target_of_cpu_gives_thresholds_that_node_fleet_accepts(target: float) -> None:
    changed = {**TARGET["TargetTrackingConfiguration"], "TargetValue": target}  # type: ignore[dict-item]
    assert group({**TARGET, "TargetTrackingConfiguration": changed}).refused() == ()


def test_a_group_in_aws_is_read_with_its_subnets_template_and_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    with mock_aws():
        ec2 = boto3.client("ec2", region_name="eu-west-1")
        scaling = boto3.client("autoscaling", region_name="eu-west-1")
        subnet = ec2.describe_subnets()["Subnets"][0]
        data = {"ImageId": "ami-12c6146b", "InstanceType": "t3.small"}
        made = ec2.create_launch_template(LaunchTemplateName="w", LaunchTemplateData=data)["LaunchTemplate"]
        scaling.create_auto_scaling_group(
            AutoScalingGroupName="workers",
            MinSize=1,
            MaxSize=4,
            VPCZoneIdentifier=subnet["SubnetId"],
            LaunchTemplate={"LaunchTemplateId": made["LaunchTemplateId"], "Version": "1"},
        )

        def client(service: str) -> Any:
            return boto3.client(service, region_name="eu-west-1")  # type: ignore[call-overload]

        found = proposal_of_group("workers", client)
        assert found.problems == () and found.refused() == ()
        assert found.settings["instance_types"] == ["t3.small"] and found.settings["max_workers"] == 4
        assert found.attach["worker_subnets"] == {subnet["AvailabilityZone"]: subnet["SubnetId"]}
        with pytest.raises(CommandError, match="no Auto Scaling group other"):
            proposal_of_group("other", client)


def test_a_refusal_of_aws_names_the_group_and_the_permission() -> None:
    with mock_aws():
        bare = boto3.client("autoscaling", region_name="eu-west-1")
        bare.meta.events.register("before-call.autoscaling.*", refuse)
        with pytest.raises(CommandError, match="AWS did not describe the Auto Scaling group workers") as raised:
            proposal_of_group("workers", lambda service: bare)
        assert "autoscaling:Describe" in raised.value.hint


def refuse(**_: Any) -> None:
    from botocore.exceptions import NoCredentialsError

    raise NoCredentialsError
