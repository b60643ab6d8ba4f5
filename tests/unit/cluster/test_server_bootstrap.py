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
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bcrypt
import pytest
import yaml

from cdk_app.stacks.cluster import DASHBOARDS, NOT_IN_BUNDLE
from tests.support.stub_commands import Reply, Stubs

AGENT_TOKEN = f"K10{'a' * 64}::node:agentSecretPart"
PASSWORD = "pa55wordOfPrometheus"
INSTANCE = "i-0aaaabbbbccccdddd"
SESSION = "X-aws-ec2-metadata-token: session .*"
VALUES = {
    "CLUSTER_ID": "node-fleet-prod",
    "AWS_REGION": "ap-southeast-1",
    "BUNDLE_BUCKET": "assets",
    "BUNDLE_KEY": "cluster.zip",
    "TOKEN_SECRET_ID": "node-fleet/k3s-token",
    "PROMETHEUS_SECRET_ID": "node-fleet/prometheus-auth",
    "ALERT_TOPIC_ARN": "arn:aws:sns:ap-southeast-1:123456789012:node-fleet-alerts",
    "FLUX_GIT_URL": "",
}
NO_ANSWER = Reply(exit=28, stderr="curl: (28) Connection timed out\n")
DENIED = Reply(exit=254, stderr="AccessDeniedException\n")

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory, cluster: Path) -> Path:
    """The bundle as the deployment uploads it: a zip of what the server installs from cluster/."""
    target = tmp_path_factory.mktemp("bundle") / "cluster.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for file in sorted(cluster.rglob("*")):
            name = str(file.relative_to(cluster))
            left_out = "__pycache__" in file.parts or name.startswith(tuple(f"{part}/" for part in NOT_IN_BUNDLE))
            if file.is_file() and not left_out:
                archive.write(file, name)
    return target


@pytest.fixture(scope="session")
def dashboards(tmp_path_factory: pytest.TempPathFactory, cluster: Path) -> Path:
    target = tmp_path_factory.mktemp("dashboards") / "dashboards.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for file in sorted((cluster / DASHBOARDS).iterdir()):
            archive.write(file, file.name)
    return target


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine on which K3s, once started, has written the agents' token."""
    token = tmp_path / "root/var/lib/rancher/k3s/server/agent-token"
    token.parent.mkdir(parents=True)
    token.write_text(AGENT_TOKEN + "\n")
    return tmp_path / "root"


@pytest.fixture
def stubs(tmp_path: Path, bundle: Path, dashboards: Path) -> Stubs:
    commands = ("curl", "aws", "systemctl", "sleep", "uname", "kubectl")
    stubs = Stubs(tmp_path / "stubs", commands)
    # The real download makes kubectl a name of K3s; here both names lead to the stub.
    binary = f'#!/bin/sh\nexec {stubs.home}/bin/kubectl "$@"\n'
    stubs.on("uname", "-m", "x86_64\n")
    stubs.on("systemctl", "")
    stubs.on("curl", "meta-data", Reply(exit=22, stderr="401\n"))
    for path, answer in {
        "instance-id": INSTANCE,
        "placement/availability-zone": "ap-southeast-1b",
        "local-ipv4": "10.0.1.10",
    }.items():
        stubs.on("curl", f"{SESSION}meta-data/{path}$", answer)
    stubs.on("curl", "-X PUT .*api/token", "session")
    stubs.on("curl", "k3s-io.*/k3s$", binary)
    stubs.on("curl", "sha256sum-amd64.txt$", f"{hashlib.sha256(binary.encode()).hexdigest()}  k3s\n")
    stubs.on("kubectl", ".*", "kind: Fake\n")
    stubs.on("kubectl", "--version", "k3s version v1.35.5+k3s1 (abc)\n")
    stubs.on("aws", "s3 cp .*s3://assets/cluster.zip", Reply(copy=str(bundle)))
    stubs.on("aws", "ssm get-parameter .*/node-fleet/node-fleet-prod/dashboards ", "s3://assets/dashboards.zip\n")
    stubs.on("aws", "s3 cp .*s3://assets/dashboards.zip", Reply(copy=str(dashboards)))
    stubs.on("aws", "ec2 create-tags")
    stubs.on("aws", "get-secret-value .*k3s-token", "set-by-the-server-at-first-boot")
    stubs.on("aws", "put-secret-value", "version-1", keeps="stored-token")
    secret = json.dumps({"username": "prometheus", "password": PASSWORD})
    stubs.on("aws", "get-secret-value .*prometheus-auth", secret)
    return stubs


@pytest.fixture
def run(stubs: Stubs, root: Path, cluster: Path, filled: Callable[[Path, dict[str, str]], Path]) -> Run:
    def start(**changed: str) -> subprocess.CompletedProcess[str]:
        script = filled(cluster / "server/user_data.sh", {**VALUES, **changed})
        stubs.on("curl", f"{SESSION}latest/user-data$", script.read_text())
        return stubs.run(script, {"NODE_FLEET_ROOT": str(root)})

    return start


@pytest.fixture
def repeat(stubs: Stubs, root: Path) -> Run:
    """Runs the boot unit as systemd does: its command in its environment."""

    def start() -> subprocess.CompletedProcess[str]:
        unit = boot_unit(root)
        command = unit.get("Service", "ExecStart").split()
        assert command[0] == "/bin/bash"
        name, _, value = unit.get("Service", "Environment").partition("=")
        return stubs.run(Path(f"{root}{command[1]}"), {"NODE_FLEET_ROOT": str(root), name: value})

    return start


def boot_unit(root: Path) -> configparser.RawConfigParser:
    unit = configparser.RawConfigParser()
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(root / "etc/systemd/system/node-fleet-bootstrap.service")
    return unit


def failure_tag(stubs: Stubs) -> str:
    tags = [part for call in stubs.calls("aws", "create-tags") for part in call if "BootstrapError" in part]
    return tags[-1].removeprefix("Key=BootstrapError,Value=") if tags else ""


def k3s_config(root: Path) -> dict[str, object]:
    loaded = yaml.safe_load((root / "etc/rancher/k3s/config.yaml").read_text())
    assert isinstance(loaded, dict)
    return loaded


def test_the_server_comes_up_with_monitoring_and_stores_the_agents_token(run: Run, stubs: Stubs, root: Path) -> None:
    result = run()
    assert result.returncode == 0, result.stderr
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


def test_the_token_is_published_after_everything_else(run: Run, stubs: Stubs) -> None:
    run()
    calls = stubs.calls()
    published = next(n for n, call in enumerate(calls) if "put-secret-value" in call)
    bound = [n for n, call in enumerate(calls) if call[0] == "kubectl" and "patch" in call]
    assert bound and max(bound) < published
    assert not [call for call in calls[published:] if call[0] == "kubectl"]


def test_the_server_keeps_workloads_off_and_its_add_ons_on_itself(run: Run, stubs: Stubs, root: Path) -> None:
    run()
    config = k3s_config(root)
    assert config["node-name"] == INSTANCE
    assert config["node-taint"] == ["node-role.kubernetes.io/control-plane=true:NoSchedule"]
    assert config["kubelet-arg"] == [f"provider-id=aws:///ap-southeast-1b/{INSTANCE}"]
    bound = [(call[2], call[5], json.loads(call[-1])) for call in stubs.calls("kubectl", " patch deployment")]
    selector = {"nodeSelector": {"node-role.kubernetes.io/control-plane": "true"}}
    patch = {"spec": {"template": {"spec": selector}}}
    add_ons = ("coredns", "local-path-provisioner", "metrics-server")
    assert bound == [("kube-system", name, patch) for name in add_ons]
    labels = config["node-label"]
    assert isinstance(labels, list) and "svccontroller.k3s.cattle.io/enablelb=true" in labels


def test_no_secret_stands_in_a_log_a_command_line_or_a_manifest(run: Run, stubs: Stubs, root: Path) -> None:
    result = run()
    manifests = (root / "var/lib/rancher/k3s/server/manifests").iterdir()
    shown = result.stdout + result.stderr + "".join(p.read_text() for p in manifests)
    for secret in ("agentSecretPart", PASSWORD):
        assert secret not in shown
        assert not stubs.calls(match=secret)


def test_manifests_carry_no_unfilled_placeholder(run: Run, root: Path) -> None:
    run()
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
    assert mounted | {("Secret", "prometheus-auth")} == {k for k in applied if k[0] in ("ConfigMap", "Secret")}
    assert set(applied["ConfigMap", "prometheus-config"]["data"]) == {"prometheus.yml", "rules.yml"}
    assert set(applied["ConfigMap", "grafana-dashboards"]["data"]) == {
        f"{name}.json" for name in ("cluster-overview", "autoscaler-perf", "app-metrics", "cost-tracking")
    }
    assert set(applied["ConfigMap", "grafana-provisioning"]["data"]) == {"datasources.yml", "providers.yml"}
    assert VALUES["ALERT_TOPIC_ARN"] in applied["ConfigMap", "alertmanager-config"]["data"]["alertmanager.yml"]
    login = {k: base64.b64decode(v).decode() for k, v in applied["Secret", "prometheus-auth"]["data"].items()}
    assert login == {"username": "prometheus", "password": PASSWORD}


def test_a_second_run_stores_nothing_when_the_token_is_current(run: Run, stubs: Stubs) -> None:
    stubs.on("aws", "get-secret-value .*k3s-token", AGENT_TOKEN + "\n")
    assert run().returncode == 0
    assert not stubs.calls("aws", "put-secret-value")


def test_a_second_run_keeps_the_agents_token_and_the_configuration_hash(run: Run, root: Path) -> None:
    run()
    token = (root / "etc/rancher/k3s/agent-token").read_text()
    manifest = root / "var/lib/rancher/k3s/server/manifests/node-fleet-prometheus.yaml"
    first = manifest.read_text()
    assert run().returncode == 0
    assert (root / "etc/rancher/k3s/agent-token").read_text() == token
    assert manifest.read_text() == first


def test_an_installed_k3s_of_the_pinned_version_is_not_fetched_again(run: Run, stubs: Stubs) -> None:
    run()
    run()
    assert len(stubs.calls("curl", "k3s-io.*/k3s$")) == 1


def test_an_installed_k3s_of_another_version_is_replaced(run: Run, stubs: Stubs) -> None:
    run()
    stubs.on("kubectl", "--version", "k3s version v1.34.1+k3s1 (abc)\n")
    assert run().returncode == 0
    assert len(stubs.calls("curl", "k3s-io.*/k3s$")) == 2


@pytest.mark.parametrize(
    "stored",
    [f"K10{'0' * 64}::node:agentSecretPart", f"K10{'a' * 64}::server:other", ""],
    ids=["old authority", "old password", "empty"],
)
def test_a_rebuilt_server_replaces_the_old_token(run: Run, stubs: Stubs, stored: str) -> None:
    stubs.on("aws", "get-secret-value .*k3s-token", stored)
    assert run().returncode == 0
    assert (stubs.home / "stored-token").read_text() == AGENT_TOKEN


@pytest.mark.parametrize(
    ("match", "reply"),
    [
        ("-X PUT .*api/token", Reply(exit=22, stderr="401\n")),
        ("-X PUT .*api/token", Reply()),
        ("meta-data/instance-id$", Reply()),
        ("meta-data/local-ipv4$", Reply(stdout="<html>")),
    ],
    ids=["token answers 401", "token is empty", "id is empty", "address is a page"],
)
def test_without_a_proper_identity_k3s_is_never_started(run: Run, stubs: Stubs, match: str, reply: Reply) -> None:
    stubs.on("curl", match, reply)
    result = run()
    assert result.returncode != 0
    assert "K3s was not started" in result.stderr
    assert not stubs.calls("systemctl", "k3s$") and not stubs.calls("aws", "s3 cp")


@pytest.mark.parametrize(
    "fault",
    [
        ("curl", "k3s-io.*/sha256sum-amd64.txt$", NO_ANSWER),
        ("kubectl", "readyz", Reply(exit=1)),
        ("aws", "s3 cp", DENIED),
        ("curl", "meta-data/instance-id$", NO_ANSWER),
    ],
    ids=["K3s download", "Kubernetes API", "bundle", "identity"],
)
def test_systemd_repeats_a_failed_first_bootstrap_until_one_succeeds(
    run: Run, repeat: Run, stubs: Stubs, root: Path, fault: tuple[str, str, Reply]
) -> None:
    stubs.on(*fault)
    failure = stubs.rules[-1]
    assert run().returncode != 0
    unit = boot_unit(root)
    assert unit.get("Service", "Restart") == "on-failure"
    assert unit.get("Unit", "StartLimitIntervalSec") == "0"
    assert "cloud-final.service" in unit.get("Unit", "After")
    started = stubs.calls("systemctl", "node-fleet-bootstrap")
    assert started == [
        ["systemctl", "enable", "node-fleet-bootstrap"],
        ["systemctl", "start", "--no-block", "node-fleet-bootstrap"],
    ]
    assert repeat().returncode != 0
    assert len(stubs.calls("systemctl", "start --no-block node-fleet-bootstrap")) == 1, "systemd itself repeats it"
    stubs.rules.remove(failure)
    result = repeat()
    assert result.returncode == 0, result.stderr
    assert (stubs.home / "stored-token").read_text() == AGENT_TOKEN


def test_a_first_bootstrap_that_succeeds_is_not_repeated(run: Run, stubs: Stubs) -> None:
    assert run().returncode == 0
    assert not stubs.calls("systemctl", "start .*node-fleet-bootstrap")


def test_systemd_accepts_the_boot_unit(run: Run, root: Path) -> None:
    run()
    verifier = shutil.which("systemd-analyze")
    if verifier is None:
        pytest.skip("systemd-analyze is not on this machine")
    unit = root / "etc/systemd/system/node-fleet-bootstrap.service"
    result = subprocess.run([verifier, "verify", str(unit)], capture_output=True, text=True, check=False)
    assert "node-fleet-bootstrap.service" not in result.stderr, result.stderr


def test_a_run_without_a_change_leaves_k3s_running(run: Run, repeat: Run, stubs: Stubs) -> None:
    run()
    assert len(stubs.calls("systemctl", "restart --no-block k3s$")) == 1
    assert repeat().returncode == 0
    assert len(stubs.calls("systemctl", "restart --no-block k3s$")) == 1
    assert len(stubs.calls("systemctl", " start --no-block k3s$")) == 1


def test_a_failed_download_keeps_the_earlier_bundle(
    run: Run, repeat: Run, stubs: Stubs, cluster: Path, root: Path
) -> None:
    assert run().returncode == 0
    stubs.on("aws", "s3 cp", Reply(copy=str(cluster / "versions.env")))
    assert repeat().returncode != 0
    assert (root / "opt/node-fleet/cluster/server/install.sh").exists()


def test_a_bundle_that_cannot_be_fetched_is_named(run: Run, stubs: Stubs) -> None:
    stubs.on("aws", "s3 cp", DENIED)
    assert run().returncode != 0
    assert len(stubs.calls("aws", "s3 cp")) == 6
    assert "the bundle s3://assets/cluster.zip could not be fetched" in failure_tag(stubs)


def test_a_bundle_that_is_no_archive_is_named(run: Run, stubs: Stubs, cluster: Path) -> None:
    stubs.on("aws", "s3 cp", Reply(copy=str(cluster / "versions.env")))
    assert run().returncode != 0
    assert "is not a zip archive" in failure_tag(stubs)


def test_a_wrong_checksum_stops_before_k3s_runs(run: Run, stubs: Stubs) -> None:
    stubs.on("curl", "k3s-io.*/k3s$", "something else")
    result = run()
    assert result.returncode != 0
    assert "published checksum" in result.stderr
    assert not stubs.calls("systemctl", "k3s$")
    assert not stubs.calls("aws", "put-secret-value")


def test_an_api_that_never_becomes_ready_is_reported_and_no_token_stored(run: Run, stubs: Stubs) -> None:
    stubs.on("kubectl", "readyz", Reply(exit=1))
    result = run()
    assert result.returncode != 0
    assert "did not become ready in 5 minutes" in result.stderr
    assert "install.sh ended with status 1" in failure_tag(stubs)
    assert not stubs.calls("aws", "put-secret-value")


def test_an_add_on_that_k3s_does_not_make_is_reported_and_no_token_stored(run: Run, stubs: Stubs) -> None:
    stubs.on("kubectl", "get deployment metrics-server", Reply(exit=1))
    result = run()
    assert result.returncode != 0
    assert "no deployment kube-system/metrics-server in 5 minutes" in result.stderr
    assert not stubs.calls("aws", "put-secret-value")


def test_a_token_that_cannot_be_stored_is_reported(run: Run, stubs: Stubs) -> None:
    stubs.on("aws", "put-secret-value", DENIED)
    result = run()
    assert result.returncode != 0
    assert "could not be stored in node-fleet/k3s-token" in result.stderr
    assert len(stubs.calls("aws", "put-secret-value")) == 6


def test_a_missing_prometheus_password_is_reported_and_no_token_stored(run: Run, stubs: Stubs) -> None:
    stubs.on("aws", "get-secret-value .*prometheus-auth", '{"username": "prometheus"}')
    result = run()
    assert result.returncode != 0
    assert "password must not be empty" in result.stderr
    assert not stubs.calls("aws", "put-secret-value")


def test_k3s_that_writes_no_token_is_reported(run: Run, root: Path) -> None:
    (root / "var/lib/rancher/k3s/server/agent-token").unlink()
    result = run()
    assert result.returncode != 0
    assert "wrote no join token" in result.stderr


def pin_flux(stubs: Stubs, bundle: Path, folder: Path, checksum: str) -> None:
    """Serves a bundle that pins this checksum of Flux's manifest."""
    changed = folder / "pinned.zip"
    with zipfile.ZipFile(bundle) as source, zipfile.ZipFile(changed, "w") as target:
        for name in source.namelist():
            text = source.read(name)
            if name == "versions.env":
                text = re.sub(rb"(?m)^FLUX_SHA256=.*$", f"FLUX_SHA256={checksum}".encode(), text)
            target.writestr(name, text)
    stubs.on("aws", "s3 cp .*cluster.zip", Reply(copy=str(changed)))


def test_a_flux_manifest_without_the_pinned_checksum_is_never_applied(run: Run, stubs: Stubs) -> None:
    stubs.on("curl", "fluxcd.*install.yaml$", "kind: ClusterRoleBinding\n")
    result = run(FLUX_GIT_URL="https://example.com/fleet.git")
    assert result.returncode != 0
    assert "does not have the checksum FLUX_SHA256" in result.stderr
    assert not stubs.calls("kubectl", "field-manager=flux-install")
    assert not stubs.calls("aws", "put-secret-value")


@pytest.mark.parametrize(
    ("match", "reply"),
    [("ssm get-parameter", DENIED), ("s3 cp .*dashboards.zip", DENIED)],
    ids=["parameter", "archive"],
)
def test_dashboards_that_cannot_be_fetched_are_reported(run: Run, stubs: Stubs, match: str, reply: Reply) -> None:
    stubs.on("aws", match, reply)
    result = run()
    assert result.returncode != 0
    assert "location in the parameter /node-fleet/node-fleet-prod/dashboards, so Grafana was not" in result.stderr
    assert len(stubs.calls("aws", match)) == 6


def test_a_changed_dashboard_restarts_grafana_and_leaves_k3s_running(
    run: Run, repeat: Run, stubs: Stubs, root: Path, tmp_path: Path
) -> None:
    run()
    manifests = root / "var/lib/rancher/k3s/server/manifests"
    before = {manifest.name: manifest.read_text() for manifest in manifests.iterdir()}
    changed = tmp_path / "changed.zip"
    with zipfile.ZipFile(changed, "w") as archive:
        archive.writestr("cluster-overview.json", "{}")
    stubs.on("aws", "s3 cp .*dashboards.zip", Reply(copy=str(changed)))
    assert repeat().returncode == 0
    changed_manifests = [m.name for m in manifests.iterdir() if m.read_text() != before[m.name]]
    assert changed_manifests == ["node-fleet-grafana.yaml"]
    assert len(stubs.calls("systemctl", "restart --no-block k3s$")) == 1


def test_flux_is_installed_only_when_a_repository_is_given(
    run: Run, stubs: Stubs, bundle: Path, tmp_path: Path
) -> None:
    assert run().returncode == 0
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
    command = ["python3", str(cluster / "server/credentials.py"), str(secret), str(tmp_path / "out")]
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
