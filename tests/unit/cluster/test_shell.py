"""Every shell script of the bundle under the real shellcheck, and the rules that it does not know."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cdk_app.scripts import read_script
from tests.support.stub_commands import Stubs

CLUSTER = Path(__file__).resolve().parents[3] / "cluster"
INSERTED = ("bootstrap", "parts")
SCRIPTS = sorted(path for path in CLUSTER.rglob("*.sh") if path.parent.name not in INSERTED)
BOOTSTRAPS = [script for script in SCRIPTS if script.parent.name in ("server", "worker")]
names = pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: str(script.relative_to(CLUSTER)))


@names
def test_shellcheck_finds_nothing(script: Path) -> None:
    shellcheck = shutil.which("shellcheck")
    if shellcheck is None:
        message = "shellcheck is not on this machine"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    result = subprocess.run(
        [shellcheck, "-x", "-"], input=read_script(script), capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("script", BOOTSTRAPS, ids=lambda script: str(script.relative_to(CLUSTER)))
def test_a_bootstrap_stops_at_the_first_error_and_says_what_it_is_for(script: Path) -> None:
    text = script.read_text()
    assert re.search(r"^set -E?euo pipefail$", text, re.M)
    assert text.splitlines()[1].startswith("# ")


@pytest.mark.parametrize("script", BOOTSTRAPS, ids=lambda script: str(script.relative_to(CLUSTER)))
def test_every_download_has_a_time_limit_and_fails_on_an_error_page(script: Path) -> None:
    for line in read_script(script).replace("\\\n", " ").splitlines():
        if re.search(r"\bcurl -", line) and not line.lstrip().startswith("#"):
            assert "--max-time" in line, line
            assert re.search(r"curl -k?f", line), line


def test_nothing_is_piped_from_the_network_into_a_shell() -> None:
    for script in SCRIPTS:
        assert not re.search(r"curl[^\n]*\|\s*(ba)?sh\b", read_script(script)), script.name


def test_metadata_is_never_asked_without_a_session_token() -> None:
    for script in BOOTSTRAPS:
        for line in read_script(script).replace("\\\n", " ").splitlines():
            if "$METADATA/" in line and not line.lstrip().startswith("#"):
                assert "X-aws-ec2-metadata-token" in line, f"{script.name}: {line}"


def server_side_python() -> list[tuple[str, str]]:
    """Every Python program that runs on the server: files, and texts inside the commands."""
    found = [(file.name, file.read_text()) for file in (CLUSTER / "render.py", CLUSTER / "server/credentials.py")]
    for script in SCRIPTS:
        for number, text in enumerate(re.findall(r"<<'PYTHON'\n(.*?)\nPYTHON\n", read_script(script), re.S)):
            found.append((f"{script.name} {number}", text))
    return found


@pytest.mark.parametrize(("name", "text"), server_side_python(), ids=[name for name, _ in server_side_python()])
def test_python_on_the_server_is_that_of_amazon_linux_2023(name: str, text: str) -> None:
    """Python 3.9: its syntax, and none of what later versions added to the standard library and is tempting."""
    ast.parse(text, feature_version=(3, 9))
    for newer in ("strict=", "slots=True", "kw_only=", "datetime.UTC", "pairwise(", "tomllib", "StrEnum"):
        assert newer not in text, f"{newer} came after Python 3.9"


def test_the_rerun_at_boot_uses_a_session_token_and_runs_the_current_user_data(tmp_path: Path) -> None:
    stubs = Stubs(tmp_path / "stubs", ("curl",))
    stubs.on("curl", "X-aws-ec2-metadata-token: session .*latest/user-data$", "echo ran the new text\n")
    stubs.on("curl", "-X PUT .*api/token$", "session")
    result = stubs.run(CLUSTER / "server/rerun_user_data.sh", {})
    assert (result.returncode, result.stdout) == (0, "ran the new text\n")
