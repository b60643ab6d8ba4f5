"""What runs before anything is installed imports only the standard library."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CI = (ROOT / ".ci" / "run").read_text()
MODULES = [*re.findall(r"^python3 -m (\S+)", CI, re.MULTILINE), "cli.start"]


def test_ci_starts_the_build_of_the_control_plane_before_the_set_up() -> None:
    assert MODULES == ["tests.support.real_plane.build", "cli.start"]


@pytest.mark.parametrize("module", MODULES)
def test_it_imports_where_nothing_is_installed(module: str) -> None:
    # -S leaves out what pip has installed, -E every folder that PYTHONPATH names.
    result = subprocess.run(
        [sys.executable, "-S", "-E", "-c", f"import {module}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
