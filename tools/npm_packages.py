"""Packages of npm for tests and tools: installed once from their lock file, kept in .cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

CACHE = Path(__file__).parents[1] / ".cache"


class PackagesMissingError(Exception):
    """npm could not bring the packages."""


def installed(source: Path) -> Path:
    """The folder that holds node_modules for that package.json; npm fills it when it is not there yet.

    Raises:
        PackagesMissingError: npm cannot reach its registry.
    """
    lock = (source / "package-lock.json").read_bytes()
    folder = CACHE / source.name.replace("_", "-") / hashlib.sha256(lock).hexdigest()[:16]
    if not folder.exists():
        building = folder.with_suffix(f".{os.getpid()}")
        shutil.copytree(source, building)
        command = [program("npm"), "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        ended = subprocess.run(command, cwd=building.resolve(), capture_output=True, text=True, check=False)
        if ended.returncode:
            shutil.rmtree(building)
            raise PackagesMissingError(ended.stderr[:2000])
        if not folder.exists():
            building.rename(folder)
    return folder


def program(name: str) -> str:
    """The full path of a program of the Python environment, or of one on PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return shutil.which(name, path=path) or name
