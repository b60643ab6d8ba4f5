"""The server's bootstrap when a step fails: what is reported, what is repeated, and what is left alone."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.support.server_bootstrap import AGENT_TOKEN, DENIED, NO_ANSWER, Booted, Run, boot_unit, failure_tag
from tests.support.stub_commands import Reply, Stubs

pytestmark = pytest.mark.sampled(6)  # with --all, every one


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


def test_a_first_bootstrap_that_succeeds_is_not_repeated(booted: Booted, stubs: Stubs) -> None:
    assert booted.returncode == 0
    assert not stubs.calls("systemctl", "start .*node-fleet-bootstrap")


def test_systemd_accepts_the_boot_unit(booted: Booted, root: Path) -> None:
    verifier = shutil.which("systemd-analyze")
    if verifier is None:
        pytest.skip("systemd-analyze is not on this machine")
    unit = root / "etc/systemd/system/node-fleet-bootstrap.service"
    result = subprocess.run([verifier, "verify", str(unit)], capture_output=True, text=True, check=False)
    assert "node-fleet-bootstrap.service" not in result.stderr, result.stderr


def test_a_run_without_a_change_leaves_k3s_running(booted: Booted, repeat: Run, stubs: Stubs) -> None:
    assert len(stubs.calls("systemctl", "restart --no-block k3s$")) == 1
    assert repeat().returncode == 0
    assert len(stubs.calls("systemctl", "restart --no-block k3s$")) == 1
    assert len(stubs.calls("systemctl", " start --no-block k3s$")) == 1


def test_a_failed_download_keeps_the_earlier_bundle(
    booted: Booted, repeat: Run, stubs: Stubs, cluster: Path, root: Path
) -> None:
    assert booted.returncode == 0
    stubs.on("aws", "s3 cp", Reply(copy=str(cluster / "versions.env")))
    assert repeat().returncode != 0
    assert (root / "opt/node-fleet/cluster/server/install.sh").exists()


def test_a_wrong_checksum_stops_before_k3s_runs(run: Run, stubs: Stubs) -> None:
    stubs.on("curl", "k3s-io.*/k3s$", "something else")
    result = run()
    assert result.returncode != 0
    assert "published checksum" in result.stderr
    assert not stubs.calls("systemctl", "k3s$")
    assert not stubs.calls("aws", "put-secret-value")


INSTALL_FAILED = "install.sh ended with status 1"
NO_ADD_ON = "no deployment kube-system/metrics-server in 5 minutes"
NO_ARCHIVE = Reply(copy=str(Path(__file__)))
NO_PASSWORD = Reply(stdout='{"username": "prometheus"}')


@pytest.mark.parametrize(
    ("fault", "reason", "tag"),
    [
        (("aws", "s3 cp", DENIED), "the bundle s3://assets/cluster.zip could not be fetched", "could not be fetched"),
        (("aws", "s3 cp", NO_ARCHIVE), "is not a zip archive", "is not a zip archive"),
        (("kubectl", "readyz", Reply(exit=1)), "did not become ready in 5 minutes", INSTALL_FAILED),
        (("kubectl", "get deployment metrics-server", Reply(exit=1)), NO_ADD_ON, INSTALL_FAILED),
        (("aws", "get-secret-value .*prometheus-auth", NO_PASSWORD), "password must not be empty", INSTALL_FAILED),
        (("aws", "get-secret-value .*grafana-auth", NO_PASSWORD), "so grafana was not installed", INSTALL_FAILED),
        (("aws", "put-secret-value", DENIED), "could not be stored in node-fleet/k3s-token", INSTALL_FAILED),
    ],
)
def test_a_failed_step_is_named_in_the_log_and_the_tag_and_no_token_is_stored(
    run: Run, stubs: Stubs, fault: tuple[str, str, Reply], reason: str, tag: str
) -> None:
    command, match, reply = fault
    stubs.on(*fault)
    result = run()
    assert result.returncode != 0
    assert reason in result.stderr
    assert tag in failure_tag(stubs)
    assert not (stubs.home / "stored-token").exists()
    assert reply != DENIED or len(stubs.calls(command, match)) == 6


def test_k3s_that_writes_no_token_is_reported(run: Run, root: Path) -> None:
    (root / "var/lib/rancher/k3s/server/agent-token").unlink()
    result = run()
    assert result.returncode != 0
    assert "wrote no join token" in result.stderr


def test_a_flux_manifest_without_the_pinned_checksum_is_never_applied(run: Run, stubs: Stubs) -> None:
    stubs.on("curl", "fluxcd.*install.yaml$", "kind: ClusterRoleBinding\n")
    result = run(FLUX_GIT_URL="https://example.com/fleet.git")
    assert result.returncode != 0
    assert "does not have the checksum FLUX_SHA256" in result.stderr
    assert not stubs.calls("kubectl", "field-manager=flux-install")
    assert not stubs.calls("aws", "put-secret-value")


@pytest.mark.parametrize(
    ("match", "reply"),
    [("ssm get-parameter .*dashboards ", DENIED), ("s3 cp .*dashboards.zip", DENIED)],
    ids=["parameter", "archive"],
)
def test_dashboards_that_cannot_be_fetched_are_reported(run: Run, stubs: Stubs, match: str, reply: Reply) -> None:
    stubs.on("aws", match, reply)
    result = run()
    assert result.returncode != 0
    assert "location in the parameter /node-fleet/node-fleet-prod/dashboards, so Grafana was not" in result.stderr
    assert len(stubs.calls("aws", match)) == 6


def test_a_changed_dashboard_restarts_grafana_and_leaves_k3s_running(
    booted: Booted, repeat: Run, stubs: Stubs, root: Path, tmp_path: Path
) -> None:
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
