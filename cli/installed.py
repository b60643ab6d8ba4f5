"""The console script of an installed node-fleet: `pipx install .` puts the sources beside this file as one package."""

from __future__ import annotations

import os
import sys
import tomllib
from importlib import metadata
from pathlib import Path


def version() -> str:
    """The version of the sources, else that of the installed package."""
    project = Path(__file__).resolve().parents[1] / "pyproject.toml"
    if not project.exists():
        return metadata.version("node-fleet")
    return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"])


def main() -> None:
    """Hand the words over to the start script of the installed copy."""
    script = Path(__file__).resolve().with_name("node-fleet")
    os.execv(sys.executable, [sys.executable, str(script), *sys.argv[1:]])
