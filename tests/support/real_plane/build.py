"""Builds the control plane of the conformance tests from the Go module in tests/conformance/kube.

The binary lies in .cache, under a name made of the module's files, so that a change of them builds it again. CI starts
`python -m tests.support.real_plane.build` beside the other tests; the test that needs the binary first waits for it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
MODULE = ROOT / "tests/conformance/kube"
SOURCES = ("go.mod", "go.sum", "main.go")
CACHE = ROOT / ".cache" / "real-plane"


class BuildError(Exception):
    """The control plane could not be built; the message has the reason."""


def version() -> str:
    """The Kubernetes version that go.mod names, such as v1.35.4."""
    found = re.search(r"^\tk8s\.io/kubernetes (v\S+)$", (MODULE / "go.mod").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def binary_path() -> Path:
    """Where the binary of the present sources lies, whether it is built or not."""
    digest = hashlib.sha256(b"\0".join((MODULE / name).read_bytes() for name in SOURCES)).hexdigest()
    return CACHE / f"kube-{version()}-{digest[:16]}"


def built() -> Path:
    """The binary; builds it unless it is there. A second caller waits for the build of the first."""
    path = binary_path()
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with (CACHE / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                _build(path)
    return path


def _build(path: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise BuildError("go is not on this machine")
    prefix, number = "k8s.io/component-base/version", version()
    major, minor = number.removeprefix("v").split(".")[:2]
    names = {"gitVersion": number, "gitMajor": major, "gitMinor": minor}
    flags = " ".join(["-s -w", *(f"-X {prefix}.{name}={value}" for name, value in names.items())])
    fresh = path.with_suffix(".new")
    # It runs beside other tests: a build takes minutes of all cores, and nothing waits for it until the end.
    command = [
        "nice",
        "-n",
        "15",
        go,
        "build",
        "-trimpath",
        "-buildvcs=false",
        "-ldflags",
        flags,
        "-o",
        str(fresh),
        ".",
    ]
    environment = {**os.environ, "CGO_ENABLED": "0"}
    done = subprocess.run(command, cwd=MODULE, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"go build ended with status {done.returncode}: {done.stderr.strip()[-500:]}")
    fresh.rename(path)


def main() -> int:
    begun = time.monotonic()
    try:
        path = built()
    except BuildError as error:
        print(f"control plane: {error}", file=sys.stderr)
        return 1
    print(
        f"control plane: Kubernetes {version()} after {time.monotonic() - begun:.0f} s, {path.stat().st_size >> 20} MiB"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
