"""The worker's user data, run for real with stub commands: what it starts, what it refuses, and where that is seen."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.server_bootstrap import K3S_BINARY, K3S_CHECKSUM
from tests.support.stub_commands import UNAUTHORIZED, Reply, Stubs

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
AUTHORITY = hashlib.sha256(CERTIFICATE.encode()).hexdigest()
SECRET_PART = "s3cretPartOfTheToken"
TOKEN = f"K10{AUTHORITY}::node:{SECRET_PART}"
OLD_TOKEN = f"K10{'0' * 64}::node:{SECRET_PART}"
INSTANCE = "i-0123456789abcdef0"
VALUES = {
    "SERVER_ADDRESS": "10.0.1.10",
    "AWS_REGION": "ap-southeast-1",
    "TOKEN_SECRET_ID": "node-fleet/k3s-token",
    "K3S_VERSION": "v1.35.5+k3s1",
    "K3S_SHA256_AMD64": K3S_CHECKSUM,
    "REGISTRY_MIRROR": "false",
    "IMAGE_WAIT_SECONDS": "0",
}
NO_ANSWER = Reply(exit=28, stderr="curl: (28) Connection timed out\n")
MISSING = Reply(exit=254, stderr="ResourceNotFoundException\n")

Run = Callable[[], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def stubs(tmp_path: Path) -> Stubs:
    """A machine on which everything works; a test makes one thing fail."""
    stubs = Stubs(tmp_path / "stubs", ("curl", "aws", "systemctl", "sleep", "uname", "kubectl"))
    stubs.on("kubectl", "")
    stubs.on("uname", "-m", "x86_64\n")
    stubs.on("systemctl", "")
    stubs.on_metadata(
        {
            "instance-id": INSTANCE,
            "placement/availability-zone": "ap-southeast-1a",
            "instance-type": "t3.small",
            "instance-life-cycle": "spot",
        }
    )
    stubs.on("curl", "/k3s$", K3S_BINARY)
    stubs.on("curl", "sha256sum-amd64.txt$", f"{K3S_CHECKSUM}  k3s\n")
    stubs.on("curl", "10.0.1.10:6443/cacerts", CERTIFICATE)
    stubs.on("aws", "secretsmanager get-secret-value", TOKEN)
    stubs.on("aws", "ec2 create-tags")
    return stubs


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def run(stubs: Stubs, root: Path, cluster: Path, filled: Callable[[Path, dict[str, str]], Path]) -> Run:
    def start() -> subprocess.CompletedProcess[str]:
        script = filled(cluster / "worker/user_data.sh", VALUES)
        return stubs.run(script, {"NODE_FLEET_ROOT": str(root)})

    return start


def agent_was_started(stubs: Stubs) -> bool:
    return bool(stubs.calls("systemctl", "start .*k3s-agent"))


def failure_tag(stubs: Stubs) -> str:
    tags = [part for call in stubs.calls("aws", "create-tags") for part in call if "BootstrapError" in part]
    return tags[-1].removeprefix("Key=BootstrapError,Value=") if tags else ""


def test_a_worker_joins_under_its_instance_id_with_provider_id_and_labels(run: Run, stubs: Stubs, root: Path) -> None:
    result = run()
    assert result.returncode == 0, result.stderr
    config = (root / "etc/rancher/k3s/config.yaml").read_text()
    assert f'node-name: "{INSTANCE}"' in config
    assert f"provider-id=aws:///ap-southeast-1a/{INSTANCE}" in config
    for label in (
        "topology.kubernetes.io/zone=ap-southeast-1a",
        "node.kubernetes.io/instance-type=t3.small",
        "node-fleet.io/market=spot",
        "node-fleet.io/role=worker",
    ):
        assert f'"{label}"' in config
    assert 'server: "https://10.0.1.10:6443"' in config
    assert agent_was_started(stubs)
    assert not stubs.calls("aws", "create-tags")


def test_the_token_lies_in_a_private_file_and_nowhere_else(run: Run, stubs: Stubs, root: Path) -> None:
    result = run()
    token_file = root / "etc/rancher/k3s/join-token"
    assert token_file.read_text().strip() == TOKEN
    assert token_file.stat().st_mode & 0o077 == 0
    assert SECRET_PART not in result.stdout + result.stderr
    assert not stubs.calls(match=SECRET_PART)
    others = [p for p in root.rglob("*") if p.is_file() and p != token_file]
    assert not [p for p in others if SECRET_PART in p.read_text()]


def test_an_ordinary_machine_is_labelled_on_demand(run: Run, stubs: Stubs, root: Path) -> None:
    stubs.on("curl", "meta-data/instance-life-cycle$", "on-demand")
    assert run().returncode == 0
    assert "node-fleet.io/market=on-demand" in (root / "etc/rancher/k3s/config.yaml").read_text()


@pytest.mark.parametrize(
    ("variant", "match", "replies"),
    [
        ("the token request answers 401", "-X PUT .*api/token", (UNAUTHORIZED,)),
        ("the token request answers nothing", "-X PUT .*api/token", (NO_ANSWER,)),
        ("the token is empty", "-X PUT .*api/token", ("",)),
        ("the id answers 401 in spite of a token", "meta-data/instance-id$", (UNAUTHORIZED,)),
        ("the id is empty", "meta-data/instance-id$", ("",)),
        ("the id is a page of HTML", "meta-data/instance-id$", ("<html>no</html>",)),
        ("the id carries a shell line", "meta-data/instance-id$", ("i-0123456789abcdef0; reboot",)),
        ("the zone is empty", "meta-data/placement/availability-zone$", ("",)),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else None,
)
def test_without_a_proper_identity_k3s_is_never_started(
    run: Run, stubs: Stubs, variant: str, match: str, replies: tuple[Reply | str, ...]
) -> None:
    stubs.on("curl", match, *replies)
    result = run()
    assert result.returncode != 0
    assert "FAILED" in result.stderr and "K3s was not started" in result.stderr
    assert not agent_was_started(stubs)
    assert not stubs.calls("systemctl", "enable")


def test_the_session_token_is_requested_first_and_sent_with_every_request(run: Run, stubs: Stubs) -> None:
    assert run().returncode == 0
    questions = stubs.calls("curl", "169.254.169.254")
    assert "PUT" in questions[0]
    assert all("X-aws-ec2-metadata-token: session" in call for call in questions[1:])


def test_the_bootstrap_waits_for_a_late_metadata_service(run: Run, stubs: Stubs) -> None:
    stubs.on("curl", "-X PUT .*api/token", NO_ANSWER, UNAUTHORIZED, "session")
    assert run().returncode == 0
    assert len(stubs.calls("curl", "api/token")) == 3
    assert agent_was_started(stubs)


def test_a_worker_never_joins_with_the_token_of_a_replaced_server_and_its_wait_is_bounded(
    run: Run, stubs: Stubs
) -> None:
    stubs.on("aws", "get-secret-value", OLD_TOKEN)
    result = run()
    assert result.returncode != 0
    assert not agent_was_started(stubs)
    assert "belongs to another server" in failure_tag(stubs)
    assert AUTHORITY in result.stderr and "0" * 64 in result.stderr
    assert SECRET_PART not in result.stderr + failure_tag(stubs)
    assert (len(stubs.calls("aws", "get-secret-value")), len(stubs.calls("sleep"))) == (18, 17)


@pytest.mark.parametrize(
    ("step", "replies"),
    [
        ("aws get-secret-value", [OLD_TOKEN, OLD_TOKEN, TOKEN]),
        ("aws get-secret-value", [MISSING, "pending", TOKEN]),
        ("curl cacerts", [CERTIFICATE * 2]),
    ],
    ids=["the rebuilt server stores its token late", "the token arrives late", "K3s itself checks several authorities"],
)
def test_a_worker_joins_although(run: Run, stubs: Stubs, step: str, replies: list[Reply | str]) -> None:
    command, _, match = step.partition(" ")
    stubs.on(command, match, *replies)
    assert run().returncode == 0
    assert agent_was_started(stubs)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (MISSING, "could not be read"),
        (Reply(), "holds no K3s join token yet"),
        (Reply(stdout="set-by-the-server-at-first-boot"), "holds no K3s join token yet"),
        (Reply(stdout='{"token": "x"}'), "holds no K3s join token yet"),
    ],
    ids=["no such secret", "empty", "what the deployment put there", "another shape"],
)
def test_a_missing_token_is_retried_and_then_fails_where_an_operator_sees_it(
    run: Run, stubs: Stubs, reply: Reply, reason: str
) -> None:
    stubs.on("aws", "get-secret-value", reply)
    result = run()
    assert result.returncode != 0
    assert len(stubs.calls("aws", "get-secret-value")) == 18
    assert not agent_was_started(stubs)
    assert reason in failure_tag(stubs)
    assert "node-fleet/k3s-token" in failure_tag(stubs)
    assert f"FAILED: the secret node-fleet/k3s-token {reason}" in result.stderr


@pytest.mark.parametrize(
    ("fault", "reason", "tries"),
    [
        (("curl", "cacerts", NO_ANSWER), "K3s server 10.0.1.10 does not answer on port 6443", 0),
        (("curl", "/k3s$", NO_ANSWER), "could not be downloaded", 5),
        (("systemctl", "is-active", Reply(exit=3)), "journalctl -u k3s-agent", 0),
    ],
)
def test_a_failed_step_is_named_in_the_tag(
    run: Run, stubs: Stubs, fault: tuple[str, str, Reply], reason: str, tries: int
) -> None:
    command, match, _ = fault
    stubs.on(*fault)
    assert run().returncode != 0
    assert reason in failure_tag(stubs)
    assert not tries or len(stubs.calls(command, match)) == tries
    assert agent_was_started(stubs) is (command == "systemctl")


def test_a_download_with_a_wrong_checksum_is_never_run(run: Run, stubs: Stubs, root: Path) -> None:
    stubs.on("curl", "/k3s$", "something else")
    assert run().returncode != 0
    assert "published checksum" in failure_tag(stubs)
    assert not (root / "usr/local/bin/k3s").exists()


def test_a_download_with_a_false_published_checksum_is_never_run(run: Run, stubs: Stubs, root: Path) -> None:
    stubs.on("curl", "/k3s$", "something else")
    stubs.on("curl", "sha256sum-amd64.txt$", f"{hashlib.sha256(b'something else').hexdigest()}  k3s\n")
    assert run().returncode != 0
    assert "or not the one that is pinned" in failure_tag(stubs)
    assert not (root / "usr/local/bin/k3s").exists()


def test_a_tag_that_cannot_be_written_does_not_hide_the_reason(run: Run, stubs: Stubs) -> None:
    stubs.on("aws", "get-secret-value", MISSING)
    stubs.on("aws", "create-tags", Reply(exit=254))
    result = run()
    assert result.returncode == 1
    assert "FAILED: the secret" in result.stderr


@pytest.mark.parametrize("missing", ["curl", "aws", "systemctl"])
def test_an_image_without_a_needed_command_says_so(
    stubs: Stubs, cluster: Path, filled: Callable[[Path, dict[str, str]], Path], tmp_path: Path, missing: str
) -> None:
    (tmp_path / "tools").mkdir()
    for name in ("bash", "sha256sum"):
        (tmp_path / "tools" / name).symlink_to(str(shutil.which(name)))
    (stubs.home / "bin" / missing).unlink()
    path = f"{stubs.home / 'bin'}:{tmp_path / 'tools'}"
    result = stubs.run(filled(cluster / "worker/user_data.sh", VALUES), {"PATH": path})
    assert result.returncode != 0
    assert f"{missing} is not on this image" in result.stderr
    assert not stubs.calls()


def test_an_unfilled_placeholder_ends_the_script_by_name(stubs: Stubs, cluster: Path, root: Path) -> None:
    result = stubs.run(cluster / "worker/user_data.sh", {"NODE_FLEET_ROOT": str(root)})
    assert result.returncode != 0
    assert "SERVER_ADDRESS: unbound variable" in result.stderr
    assert not stubs.calls()


def test_the_header_lists_exactly_the_placeholders(cluster: Path) -> None:
    text = (cluster / "worker/user_data.sh").read_text()
    used = set(re.findall(r'^[A-Z0-9_]+="\$\{([A-Z0-9_]+)\}"$', text, re.M))
    assert used == set(re.findall(r"^#   ([A-Z0-9_]+) ", text, re.M)) == set(VALUES)
