"""A terminal as a person has it: tmux runs the program, keys go in, the screen is read."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 600.0
POLL_SECONDS = 0.1


@dataclass(slots=True)
class Terminal:
    """One tmux session on a socket of its own."""

    socket: str
    width: int

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-t", "work", "-l", text)
        self.press("Enter")

    def command(self, text: str) -> None:
        """Type on an empty screen, so that nothing is read that an earlier command wrote."""
        self._tmux("send-keys", "-R", "-t", "work")
        self._tmux("clear-history", "-t", "work")
        self.type(text)

    def press(self, key: str) -> None:
        self._tmux("send-keys", "-t", "work", key)

    def screen(self) -> str:
        """What stands on the screen and above it."""
        return self._tmux("capture-pane", "-p", "-J", "-S", "-500", "-t", "work")

    def wait_for(self, pattern: str, *, limit_seconds: float = LIMIT_SECONDS) -> str:
        """The screen as soon as it shows this; fails with the screen when it never does."""
        until = time.monotonic() + limit_seconds
        while True:
            shown = self.screen()
            if re.search(pattern, shown, re.MULTILINE):
                return shown
            if time.monotonic() > until:
                pytest.fail(f"{pattern!r} never came; the screen shows:\n{shown}")
            time.sleep(POLL_SECONDS)

    def _tmux(self, *words: str) -> str:
        command = ["tmux", "-L", self.socket, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@contextmanager
def terminal(name: str, folder: Path, *, width: int = 110, height: int = 40) -> Iterator[Terminal]:
    """A shell in that folder, in which `node-fleet` is the command line of this checkout."""
    if shutil.which("tmux") is None:
        text = "tmux was not found (Debian: tmux): the command line is not driven as a person would"
        if os.environ.get("CI"):
            pytest.fail(text)
        pytest.skip(text)
    start = folder / "start.sh"
    program = f"{shlex.quote(sys.executable)} -m cli.main"
    start.write_text(
        f"export PYTHONPATH={ROOT}:{ROOT / 'functions'} PS1='> ' TERM=screen-256color\n"
        f'node-fleet() {{ {program} "$@"; echo "code=$?"; }}\n'
    )
    socket = f"node-fleet-{os.getpid()}-{name}"
    shell = ["bash", "--noprofile", "--rcfile", str(start), "-i"]
    size = ["-x", str(width), "-y", str(height)]
    subprocess.run(
        ["tmux", "-L", socket, "-f", os.devnull, "new-session", "-d", "-s", "work", *size, "-c", str(folder), *shell],
        check=True,
    )
    try:
        yield Terminal(socket, width)
    finally:
        subprocess.run(["tmux", "-L", socket, "kill-server"], check=False, capture_output=True)
