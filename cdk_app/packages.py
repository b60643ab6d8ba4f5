"""The code of the functions: one asset of this project's code, one layer of pinned packages. Neither needs Docker.

The hashes follow the content, so a second synth gives the same bytes and builds nothing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from cdk_app.workflow import ROOT

FUNCTIONS = ROOT / "functions"
LAYER_PINS = ROOT / "cdk_app" / "layer-requirements.txt"
CACHE = ROOT / ".cache"
RUNTIME = "3.13"
PLATFORM = "manylinux2014_aarch64"
NOT_SHIPPED = ("**/__pycache__", "**/*.pyc", "**/.mypy_cache", "**/.ruff_cache")
# Files that Lambda never reads.
NOT_IN_LAYER = ("*.dist-info/RECORD", "bin", "**/__pycache__", "**/tests")


class PackagingError(Exception):
    """The layer could not be built."""


def layer_hash() -> str:
    """The layer's asset hash: the pins, the runtime, the platform, and what is left out."""
    parts = (LAYER_PINS.read_text(encoding="utf-8"), RUNTIME, PLATFORM, *NOT_IN_LAYER)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def layer_folder() -> Path:
    """The layer's unpacked folder, built by pip unless it exists for these pins.

    Raises:
        PackagingError: pip could not get the pinned packages.
    """
    folder = CACHE / "layers" / layer_hash()
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as building:
            _install(Path(building) / "python")
            _publish(Path(building), folder)
    return folder


def _install(target: Path) -> None:
    options = ["--platform", PLATFORM, "--python-version", RUNTIME, "--implementation", "cp"]
    options += ["--only-binary=:all:", "--require-hashes"]
    quiet = ["--quiet", "--disable-pip-version-check", "--no-compile", "--no-deps", "--root-user-action=ignore"]
    command = [sys.executable, "-m", "pip", "install", *quiet, *options, "--target", str(target), "-r", str(LAYER_PINS)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise PackagingError(f"pip could not build the layer from {LAYER_PINS.name}:\n{ended.stderr.strip()}")
    for pattern in NOT_IN_LAYER:
        for path in target.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _publish(building: Path, folder: Path) -> None:
    """Several synths can build at once; the folder of the first one stays."""
    finished = building / "layer"
    finished.mkdir()
    (building / "python").rename(finished / "python")
    try:
        os.rename(finished, folder)  # noqa: PTH104  (os.rename names the system call whose error is handled)
    except OSError:
        if not folder.exists():
            raise
