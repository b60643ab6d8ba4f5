"""What the repository brings along: no secret in a file, and no package with a known vulnerability."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from detect_secrets import SecretsCollection
from detect_secrets.settings import transient_settings

ROOT = Path(__file__).parents[2]
DETECTORS = (
    "AWSKeyDetector",
    "ArtifactoryDetector",
    "AzureStorageKeyDetector",
    "BasicAuthDetector",
    "DiscordBotTokenDetector",
    "GitHubTokenDetector",
    "GitLabTokenDetector",
    "JwtTokenDetector",
    "NpmDetector",
    "OpenAIDetector",
    "PrivateKeyDetector",
    "PypiTokenDetector",
    "SendGridDetector",
    "SlackDetector",
    "StripeDetector",
    "TwilioKeyDetector",
)
MADE_UP = {
    "simulator/local_deployment.py": "the address that the simulated Slack answers",
    "tests/support/endpoint_requests.py": "the example key of the documentation of AWS",
    "tests/unit/domain/test_slack.py": "messages whose secrets are removed",
    "tests/unit/test_settings_decision.py": "an address with a password, which is refused",
}
"""Files whose test data has the form of a secret, and why."""
ADVISORIES = ("pypi.org", 443)


def secrets_of(*paths: str) -> set[str]:
    """The files with a finding."""
    with transient_settings({"plugins_used": [{"name": name} for name in DETECTORS]}):
        found = SecretsCollection(root=str(ROOT))
        found.scan_files(*paths, num_processors=1)
        return set(found.files)


@pytest.mark.whole
def test_no_file_of_the_repository_holds_a_secret() -> None:
    listed = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True, check=True).stdout
    assert secrets_of(*[path for path in listed.splitlines() if (ROOT / path).is_file()]) == MADE_UP.keys()


@pytest.mark.parametrize(
    "line",
    [
        "key = " + "AKIA" + "ABCDEFGHIJKLMNOP",
        "https://hooks.slack.com/services/" + "T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX",
        "-----BEGIN " + "RSA PRIVATE KEY-----",
        "curl https://user:" + "hunter2@host/x",
    ],
)
def test_the_scan_finds_a_secret(line: str, tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_text(line)
    assert secrets_of(str(tmp_path / "file.txt"))


def is_reachable() -> bool:
    try:
        socket.create_connection(ADVISORIES, timeout=3).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("requirements", ["requirements.txt", "requirements-dev.txt"])
def test_no_pinned_package_has_a_known_vulnerability(requirements: str) -> None:
    if not os.environ.get("CI") or not is_reachable():
        pytest.skip("the advisories are on the network: CI reads them where pypi.org is reachable")
    audit = [sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip"]
    command = [*audit, "--requirement", str(ROOT / requirements)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
