"""Every shell script of the bundle under the real shellcheck, and the rules that it does not know."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

CLUSTER = Path(__file__).resolve().parents[3] / "cluster"
SCRIPTS = sorted(CLUSTER.rglob("*.sh"))
BOOTSTRAPS = [script for script in SCRIPTS if script.parent.name in ("server", "worker")]
names = pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: str(script.relative_to(CLUSTER)))


@names
def test_shellcheck_finds_nothing(script: Path) -> None:
    shellcheck = shutil.which("shellcheck")
    if shellcheck is None:
        message = "shellcheck is not on this machine"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    result = subprocess.run([shellcheck, "-x", str(script)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("script", BOOTSTRAPS, ids=lambda script: str(script.relative_to(CLUSTER)))
def test_a_bootstrap_stops_at_the_first_error_and_says_what_it_is_for(script: Path) -> None:
    text = script.read_text()
    assert re.search(r"^set -E?euo pipefail$", text, re.M)
    assert text.splitlines()[1].startswith("# ")


@pytest.mark.parametrize("script", BOOTSTRAPS, ids=lambda script: str(script.relative_to(CLUSTER)))
def test_every_download_has_a_time_limit_and_fails_on_an_error_page(script: Path) -> None:
    for line in script.read_text().replace("\\\n", " ").splitlines():
        if re.search(r"\bcurl -", line) and not line.lstrip().startswith("#"):
            assert "--max-time" in line, line
            assert re.search(r"curl -k?f", line), line


def test_nothing_is_piped_from_the_network_into_a_shell() -> None:
    for script in SCRIPTS:
        assert not re.search(r"curl[^\n]*\|\s*(ba)?sh\b", script.read_text()), script.name


def test_metadata_is_never_asked_without_a_session_token() -> None:
    for script in BOOTSTRAPS:
        for line in script.read_text().replace("\\\n", " ").splitlines():
            if "$METADATA/" in line and not line.lstrip().startswith("#"):
                assert "X-aws-ec2-metadata-token" in line, f"{script.name}: {line}"
