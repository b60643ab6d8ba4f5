"""Builds the control plane of the conformance tests, and kube-state-metrics, from the Go modules in tests/conformance.

Each binary lies in .cache, under a name made of the module's files, so that a change of them builds it again. CI starts
`python3 -m tests.support.real_plane.build` beside the other tests; the test that needs a binary first waits for it. It
starts before anything is installed, so it imports only the standard library.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
MODULES = ROOT / "tests/conformance"
CACHE = ROOT / ".cache" / "real-plane"


class BuildError(Exception):
    """A program could not be built; the message has the reason."""


@dataclass(frozen=True, kw_only=True)
class GoProgram:
    """A program that a Go module builds. `variables`: the package whose version variables the build sets."""

    name: str
    folder: str
    module: str
    package: str
    variables: str = ""

    @property
    def module_folder(self) -> Path:
        return MODULES / self.folder

    def version(self) -> str:
        """The version that go.mod names, such as v1.35.4."""
        text = (self.module_folder / "go.mod").read_text()
        found = re.search(rf"^\t{re.escape(self.module)} (v\S+)", text, re.MULTILINE)
        assert found is not None
        return found[1]

    def binary_path(self) -> Path:
        """Where the binary of the present sources lies, whether it is built or not."""
        sources = (self.module_folder / name for name in ("go.mod", "go.sum", "main.go"))
        digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources if path.exists())).hexdigest()
        return CACHE / f"{self.folder}-{self.version()}-{digest[:16]}"

    def built(self) -> Path:
        """The binary; builds it unless it is there. A second caller waits for the build of the first."""
        path = self.binary_path()
        if not path.exists():
            CACHE.mkdir(parents=True, exist_ok=True)
            with (CACHE / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not path.exists():
                    self._build(path)
        return path

    def _build(self, path: Path) -> None:
        go = shutil.which("go")
        if go is None:
            raise BuildError("go is not on this machine")
        flags = "-s -w"
        if self.variables:
            major, minor = self.version().removeprefix("v").split(".")[:2]
            values = {"gitVersion": self.version(), "gitMajor": major, "gitMinor": minor}
            flags = " ".join([flags, *(f"-X {self.variables}.{name}={value}" for name, value in values.items())])
        fresh = path.with_suffix(".new")
        words = [go, "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", str(fresh)]
        done = subprocess.run(
            [*words, self.package],
            cwd=self.module_folder,
            env={**os.environ, "CGO_ENABLED": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise BuildError(f"go build ended with status {done.returncode}: {done.stderr.strip()[-500:]}")
        fresh.rename(path)


CONTROL_PLANE = GoProgram(
    name="Kubernetes",
    folder="kube",
    module="k8s.io/kubernetes",
    package=".",
    variables="k8s.io/component-base/version",
)
KUBE_STATE_METRICS = GoProgram(
    name="kube-state-metrics",
    folder="exporter",
    module="k8s.io/kube-state-metrics/v2",
    package="k8s.io/kube-state-metrics/v2",
)


def main() -> int:
    begun = time.monotonic()
    try:
        for program in (CONTROL_PLANE, KUBE_STATE_METRICS):
            size = program.built().stat().st_size >> 20
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            print(
                f"{program.name} {program.version()}: built after {time.monotonic() - begun:.0f} s with"
                f" {used.ru_utime + used.ru_stime:.0f} s of processor time, {size} MiB",
                flush=True,
            )
    except BuildError as error:
        print(f"conformance tests: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
