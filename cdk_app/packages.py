"""The code of the functions: one asset of this project's code, one layer of pinned packages. Neither needs Docker.

The hashes follow the content, so a second synth gives the same bytes and builds nothing.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
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
_CHANGED_AT = (1980, 1, 1, 0, 0, 0)


class PackagingError(Exception):
    """The layer could not be built."""


def layer_hash() -> str:
    """The layer's asset hash: the pins, the runtime, the platform, and what is left out."""
    parts = (LAYER_PINS.read_text(encoding="utf-8"), RUNTIME, PLATFORM, *NOT_IN_LAYER)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def layer_file() -> Path:
    """The layer's zip file, built by pip unless it exists for these pins.

    Raises:
        PackagingError: pip could not get the pinned packages.
    """
    file = CACHE / "layers" / f"{layer_hash()}.zip"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as building:
            layer, packed = Path(building) / "layer", Path(building) / file.name
            _install(layer / "python")
            pack(layer, packed)
            packed.replace(file)
    return file


def pack(folder: Path, target: Path) -> None:
    """The folder as a zip file whose bytes depend on its files only."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(one for one in folder.rglob("*") if one.is_file()):
            entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _CHANGED_AT)
            entry.external_attr = (0o755 if path.stat().st_mode & 0o111 else 0o644) << 16
            packed.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)


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
