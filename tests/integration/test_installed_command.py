"""The command `node-fleet` as pip installs it: the same answers as in a clone, from any folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
START = "from node_fleet_app.installed import main; main()"


def run(folder: Path, words: list[str], site: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(site), "COLUMNS": "200"}
    command = [sys.executable, "-c", START, *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed package; its dependencies are those of the interpreter that runs the tests."""
    site = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "--no-compile", "--target", str(site)]
    subprocess.run([*pip, *options, str(ROOT)], check=True, capture_output=True)
    return site


def test_it_answers_in_a_folder_that_is_no_clone_and_runs_nothing_of_it(site: Path, tmp_path: Path) -> None:
    for name in ("cli.py", "yaml.py", "node_fleet.py"):
        (tmp_path / name).write_text("raise SystemExit('a module of another project')\n")
    ended = run(tmp_path, ["simulate", "--list"], site)
    shipped = {path.stem for path in (ROOT / "simulator/scenario").glob("*.yaml")}
    assert ended.returncode == 0, ended.stderr
    assert shipped <= set(ended.stdout.split())


def test_the_files_of_the_page_ui_are_installed(site: Path) -> None:
    folder = "cli/ui_page"
    assert {one.name for one in (site / "node_fleet_app" / folder).iterdir()} == {
        one.name for one in (ROOT / folder).iterdir()
    }


def test_the_tests_need_a_clone_and_the_command_says_so(site: Path, tmp_path: Path) -> None:
    ended = run(tmp_path, ["test"], site)
    assert ended.returncode == 1
    assert "run ./node-fleet test in a clone of the repository" in ended.stderr


def test_the_wheel_names_the_pinned_packages_as_its_dependencies(site: Path) -> None:
    (metadata,) = site.glob("node_fleet-*.dist-info/METADATA")
    pinned = [line.split(";")[0].strip() for line in (ROOT / "requirements.txt").read_text().splitlines()]
    required = metadata.read_text()
    assert [pin for pin in pinned if pin and not pin.startswith("#") and pin.split("==")[1] not in required] == []
