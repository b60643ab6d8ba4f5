"""The server's user data and the bundle's install scripts, run for real with stub commands around them."""

from __future__ import annotations

import base64
import configparser
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import bcrypt
import pytest
import yaml

from tests.support.server_bootstrap import (
    AGENT_TOKEN,
    DENIED,
    GRAFANA_PASSWORD,
    INSTANCE,
    PASSWORD,
    VALUES,
    Booted,
    Run,
    failure_tag,
    k3s_config,
    pin_flux,
)
from tests.support.stub_commands import Reply, Stubs

pytestmark = pytest.mark.sampled(6)  # with --all, every one


def test_the_server_comes_up_with_monitoring_and_stores_the_agents_token(
    booted: Booted, stubs: Stubs, root: Path
) -> None:
    assert booted.returncode == 0, booted.stderr
    assert (stubs.home / "stored-token").read_text() == AGENT_TOKEN
    manifests = {p.name for p in (root / "var/lib/rancher/k3s/server/manifests").iterdir()}
    assert manifests == {
        "node-fleet-00-namespace.yaml",
        "node-fleet-traefik.yaml",
        "node-fleet-prometheus.yaml",
        "node-fleet-alertmanager.yaml",
        "node-fleet-grafana.yaml",
        "node-fleet-kube-state-metrics.yaml",
        "node-fleet-node-exporter.yaml",
    }
    assert stubs.calls("systemctl", "enable node-fleet-bootstrap")
    assert not failure_tag(stubs)


def test_the_agent_of_the_server_runs_twenty_commands_at_once_and_restarts_for_that_only_once(
    booted: Booted, run: Run, stubs: Stubs, root: Path
) -> None:
    assert (booted.returncode, run().returncode) == (0, 0)
    settings = json.loads((root / "etc/amazon/ssm/amazon-ssm-agent.json").read_text())
    assert settings == {"Mds": {"CommandWorkersLimit": 20}}
    assert len(stubs.calls("systemctl", "restart .*amazon-ssm-agent")) == 1


def test_the_token_is_published_after_everything_else(booted: Booted, stubs: Stubs) -> None:
    calls = stubs.calls()
    published = next(n for n, call in enumerate(calls) if "put-secret-value" in call)
    bound = [n for n, call in enumerate(calls) if call[0] == "kubectl" and "patch" in call]
    assert bound and max(bound) < published
    assert not [call for call in calls[published:] if call[0] == "kubectl"]


def test_the_server_keeps_workloads_off_and_its_add_ons_on_itself(booted: Booted, stubs: Stubs, root: Path) -> None:
    config = k3s_config(root)
    assert config["node-name"] == INSTANCE
    assert config["node-taint"] == ["node-role.kubernetes.io/control-plane=true:NoSchedule"]
    assert config["kubelet-arg"] == [f"provider-id=aws:///ap-southeast-1b/{INSTANCE}"]
    assert config["kube-proxy-arg"] == ["nodeport-addresses=10.0.1.10/32,127.0.0.0/8"]
    bound = [(call[2], call[5], json.loads(call[-1])) for call in stubs.calls("kubectl", " patch deployment")]
    selector = {"nodeSelector": {"node-role.kubernetes.io/control-plane": "true"}}
    patch = {"spec": {"template": {"spec": selector}}}
    add_ons = ("coredns", "local-path-provisioner", "metrics-server")
    assert bound == [("kube-system", name, patch) for name in add_ons]
    labels = config["node-label"]
    assert isinstance(labels, list) and "svccontroller.k3s.cattle.io/enablelb=true" in labels


def test_no_secret_stands_in_a_log_a_command_line_or_a_manifest(booted: Booted, stubs: Stubs, root: Path) -> None:
    manifests = (root / "var/lib/rancher/k3s/server/manifests").iterdir()
    shown = booted.stdout + booted.stderr + "".join(p.read_text() for p in manifests)
    for secret in ("agentSecretPart", PASSWORD):
        assert secret not in shown
        assert not stubs.calls(match=secret)


def test_manifests_carry_no_unfilled_placeholder(booted: Booted, root: Path) -> None:
    for manifest in (root / "var/lib/rancher/k3s/server/manifests").iterdir():
        assert "${" not in manifest.read_text(), manifest.name


def objects(*texts: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Kubernetes objects of these texts by kind and name."""
    documents = [one for text in texts for one in yaml.safe_load_all(text) if one and one.get("metadata")]
    return {(one["kind"], one["metadata"]["name"]): one for one in documents}


def test_the_real_kubectl_makes_every_config_map_and_secret_that_the_manifests_mount(
    run: Run, stubs: Stubs, root: Path
) -> None:
    kubectl = shutil.which("kubectl", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert kubectl, "kubectl comes with the development requirements"
    stubs.on("kubectl", "^create ", Reply(run=kubectl))
    stubs.on("kubectl", "^apply ", keeps="applied.yaml")
    result = run()
    assert result.returncode == 0, result.stderr
    applied = objects((stubs.home / "applied.yaml").read_text())
    manifests = objects(*(p.read_text() for p in (root / "var/lib/rancher/k3s/server/manifests").iterdir()))
    mounted = {
        (kind, source[key])
        for manifest in manifests.values()
        if manifest["kind"] in ("Deployment", "DaemonSet")
        for volume in manifest["spec"]["template"]["spec"].get("volumes", ())
        for kind, field, key in (("ConfigMap", "configMap", "name"), ("Secret", "secret", "secretName"))
        if (source := volume.get(field))
    }
    in_environment = {("Secret", "prometheus-auth"), ("Secret", "grafana-auth")}
    assert mounted | in_environment == {k for k in applied if k[0] in ("ConfigMap", "Secret")}
    assert set(applied["ConfigMap", "prometheus-config"]["data"]) == {"prometheus.yml", "rules.yml"}
    assert set(applied["ConfigMap", "grafana-dashboards"]["data"]) == {
        f"{name}.json" for name in ("cluster-overview", "autoscaler-perf", "app-metrics", "cost-tracking", "node-fleet")
    }
    assert set(applied["ConfigMap", "grafana-provisioning"]["data"]) == {"datasources.yml", "providers.yml"}
    assert VALUES["ALERT_TOPIC_ARN"] in applied["ConfigMap", "alertmanager-config"]["data"]["alertmanager.yml"]
    logins = {
        name: {k: base64.b64decode(v).decode() for k, v in applied["Secret", name]["data"].items()}
        for name in ("prometheus-auth", "grafana-auth")
    }
    assert logins == {
        "prometheus-auth": {"username": "prometheus", "password": PASSWORD},
        "grafana-auth": {"username": "admin", "password": GRAFANA_PASSWORD},
    }


def test_a_second_run_stores_nothing_when_the_token_is_current(run: Run, stubs: Stubs) -> None:
    stubs.on("aws", "get-secret-value .*k3s-token", AGENT_TOKEN + "\n")
    assert run().returncode == 0
    assert not stubs.calls("aws", "put-secret-value")


def test_a_second_run_keeps_the_agents_token_and_the_configuration_hash(booted: Booted, run: Run, root: Path) -> None:
    token = (root / "etc/rancher/k3s/agent-token").read_text()
    manifest = root / "var/lib/rancher/k3s/server/manifests/node-fleet-prometheus.yaml"
    first = manifest.read_text()
    assert run().returncode == 0
    assert (root / "etc/rancher/k3s/agent-token").read_text() == token
    assert manifest.read_text() == first


@pytest.mark.parametrize("version", ["v1.35.5+k3s1", "v1.34.1+k3s1", "v1.36.2+k3s1"])
def test_a_later_run_never_changes_the_version_of_an_installed_k3s(
    booted: Booted, run: Run, stubs: Stubs, version: str
) -> None:
    stubs.on("kubectl", "--version", f"k3s version {version} (abc)\n")
    assert run().returncode == 0
    assert len(stubs.calls("curl", "k3s-io.*/k3s$")) == 1


def test_a_binary_that_does_not_run_is_replaced(booted: Booted, run: Run, stubs: Stubs) -> None:
    stubs.on("kubectl", "--version", Reply(exit=126))
    assert run().returncode == 0
    assert len(stubs.calls("curl", "k3s-io.*/k3s$")) == 2


def test_an_installed_k3s_needs_no_parameter(booted: Booted, run: Run, stubs: Stubs) -> None:
    stubs.on("aws", "ssm get-parameter .*/k3s ", DENIED)
    assert run().returncode == 0


@pytest.mark.parametrize(
    "answer", [DENIED, "v1.35.5+k3s1\n", f"latest {'a' * 64}\n"], ids=["denied", "short", "no version"]
)
def test_without_version_and_checksum_no_k3s_is_installed(run: Run, stubs: Stubs, answer: Reply | str) -> None:
    stubs.on("aws", "ssm get-parameter .*/node-fleet/node-fleet-prod/k3s ", answer)
    result = run()
    assert result.returncode != 0
    assert "/node-fleet/node-fleet-prod/k3s does not give version and checksum of K3s" in result.stderr
    assert not stubs.calls("curl", "k3s-io") and not stubs.calls("systemctl", " k3s$")


@pytest.mark.parametrize(
    "stored",
    [f"K10{'0' * 64}::node:agentSecretPart", f"K10{'a' * 64}::server:other", ""],
    ids=["old authority", "old password", "empty"],
)
def test_a_rebuilt_server_replaces_the_old_token(run: Run, stubs: Stubs, stored: str) -> None:
    stubs.on("aws", "get-secret-value .*k3s-token", stored)
    assert run().returncode == 0
    assert (stubs.home / "stored-token").read_text() == AGENT_TOKEN


def test_flux_is_installed_only_when_a_repository_is_given(
    booted: Booted, run: Run, stubs: Stubs, bundle: Path, tmp_path: Path
) -> None:
    assert booted.returncode == 0
    assert not stubs.calls("curl", "fluxcd")
    manifest = "kind: Fake\n"
    stubs.on("curl", "fluxcd.*install.yaml$", manifest)
    stubs.on("kubectl", "flux-system get deployments", "source-controller kustomize-controller")
    pin_flux(stubs, bundle, tmp_path, hashlib.sha256(manifest.encode()).hexdigest())
    assert run(FLUX_GIT_URL="https://example.com/fleet.git").returncode == 0
    assert stubs.calls("curl", "fluxcd/flux2/releases/download/v[0-9.]+/install.yaml")
    bound = [json.loads(call[-1]) for call in stubs.calls("kubectl", "flux-system patch deployment")]
    assert len(bound) == 2
    for patch in bound:
        assert set(patch["spec"]["template"]["spec"]) == {"nodeSelector", "tolerations"}


def test_the_web_file_holds_the_password_as_bcrypt(cluster: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text(json.dumps({"username": "prometheus", "password": PASSWORD}))
    command = ["python3", str(cluster / "server/credentials.py"), str(secret), str(tmp_path / "out"), "web.yml"]
    subprocess.run(command, check=True)
    web = yaml.safe_load((tmp_path / "out/web.yml").read_text())
    assert bcrypt.checkpw(PASSWORD.encode(), web["basic_auth_users"]["prometheus"].encode())
    assert all(file.stat().st_mode & 0o077 == 0 for file in (tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    ("secret", "reason"),
    [
        ("nonsense", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"username": "a: b", "password": "x"}', "username must be"),
        ('{"username": "a", "password": ""}', "password must not be empty"),
        (json.dumps({"username": "a", "password": "x" * 73}), "must not exceed 72 bytes"),
    ],
)
def test_credentials_that_would_break_prometheus_are_refused(
    cluster: Path, tmp_path: Path, secret: str, reason: str
) -> None:
    file = tmp_path / "secret.json"
    file.write_text(secret)
    command = ["python3", str(cluster / "server/credentials.py"), str(file), str(tmp_path / "out")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert reason in result.stderr
    assert not (tmp_path / "out").exists()


def test_the_header_lists_exactly_the_placeholders(cluster: Path) -> None:
    text = (cluster / "server/user_data.sh").read_text()
    used = set(re.findall(r'^[A-Z0-9_]+="\$\{([A-Z0-9_]+)\}"$', text, re.M))
    assert used == set(re.findall(r"^#   ([A-Z0-9_]+) ", text, re.M)) == set(VALUES)


def test_the_metrics_of_node_fleet_are_a_service_without_rights_on_the_machine(
    booted: Booted, stubs: Stubs, root: Path, cluster: Path
) -> None:
    assert booted.returncode == 0
    unit = (root / "etc/systemd/system/node-fleet-metrics.service").read_text()
    assert f"AWS_REGION=ap-southeast-1 STATE_TABLE=k3s-autoscaler-state CLUSTER_ID={VALUES['CLUSTER_ID']}\n" in unit
    assert {"DynamicUser=yes", "ProtectSystem=strict", "NoNewPrivileges=yes"} <= set(unit.splitlines())
    sections = configparser.ConfigParser(interpolation=None)
    sections.read_string(unit)
    assert (sections["Unit"]["startlimitintervalsec"], sections["Install"]["wantedby"]) == ("0", "multi-user.target")
    assert {"restartsec", "memorymax", "execstart", "environment"} <= sections["Service"].keys()
    shipped = (cluster / "server/state_metrics.py").read_text()
    assert (root / "opt/node-fleet/state_metrics.py").read_text() == shipped
    assert stubs.calls("systemctl", "restart --no-block node-fleet-metrics")
