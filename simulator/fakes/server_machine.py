"""The machine of the K3s server: its binary, its service and its downloads, as the upgrade command meets them.

The files are real; `curl` and `systemctl` on the shell's path ask this class. It knows K3s only by its version.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from simulator.cluster.kubectl.fake import CommandResult, FakeKubectl
from simulator.cluster.model import SimulatedCluster

START_SECONDS: Final = 20.0
"""From the start of K3s to an API that is ready."""
BOOT_SECONDS: Final = 40.0
"""From a running instance to the start of K3s."""
_RELEASE: Final = re.compile(r"/releases/download/(?P<version>[^/]+)/(?P<file>k3s|sha256sum-amd64\.txt)$")


def binary(version: str) -> str:
    """The download of a release: a program that states its version."""
    return f"#!/bin/sh\necho 'k3s version {version} (simulated)'\n"


def checksum(version: str) -> str:
    """The SHA-256 of that download."""
    return hashlib.sha256(binary(version).encode()).hexdigest()


class ServerMachine:
    """The server as its scripts see it, under the folder `root`. broken: releases that never become ready."""

    def __init__(self, cluster: SimulatedCluster, double: FakeKubectl, root: Path) -> None:
        self.root = root
        self.broken: set[str] = set()
        self._cluster = cluster
        self._double = double
        self._starts = 0
        self._runs = True
        self.serves = True
        """Whether the machine is on and K3s has started on it since."""

    def prepare(self) -> None:
        """Write the binary and the datastore of the running K3s, once, when a script may need them."""
        if not self._binary.exists():
            self._binary.parent.mkdir(parents=True)
            self._binary.write_text(binary(self._cluster.server_version))
            self._binary.chmod(0o755)
            datastore = self.root / "var/lib/rancher/k3s/server/db/state.db"
            datastore.parent.mkdir(parents=True)
            datastore.write_text("simulated")

    def power(self, *, on: bool, after: Callable[[float, Callable[[], None]], object]) -> None:
        """The machine is switched off, or on: K3s starts by itself once it has booted."""
        self.prepare()
        self._runs, self.serves, self._double.reachable = False, False, False
        self._starts += 1
        start = self._starts
        if on:
            after(BOOT_SECONDS, lambda: self._booted(start, after))

    def _booted(self, start: int, after: Callable[[float, Callable[[], None]], object]) -> None:
        if start == self._starts:
            self._runs = True
            after(START_SECONDS, lambda: self._become_ready(start))

    def run(self, words: list[str], after: Callable[[float, Callable[[], None]], object]) -> CommandResult:
        """Answer one call of curl or systemctl. after: does something in so many seconds."""
        if words[0] == "curl":
            return self._download(words)
        if words[-1] == "k3s":
            if "stop" in words:
                self._runs, self._double.reachable = False, False
                self._starts += 1
            elif not self._runs:
                self._runs = True
                start = self._starts
                after(START_SECONDS, lambda: self._become_ready(start))
        return CommandResult(exit_code=0, stdout="", stderr="")

    @property
    def _binary(self) -> Path:
        return self.root / "usr/local/bin/k3s"

    def _become_ready(self, start: int) -> None:
        version = self._binary.read_text().split()[-2]
        if start == self._starts and version not in self.broken:
            self._cluster.restart_server(version)
            self._double.reachable = self.serves = True

    @staticmethod
    def _download(words: list[str]) -> CommandResult:
        found = _RELEASE.search(words[-1])
        if found is None or "-o" not in words:
            return CommandResult(exit_code=22, stdout="", stderr=f"curl: (22) nothing at {words[-1]}\n")
        version = found["version"].replace("%2B", "+")
        is_sums = found["file"] != "k3s"
        text = f"{checksum(version)}  k3s\n" if is_sums else binary(version)
        Path(words[words.index("-o") + 1]).write_text(text)
        return CommandResult(exit_code=0, stdout="", stderr="")
