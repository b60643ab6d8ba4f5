"""Runs the shipped shell scripts as the server would, with virtual time behind their commands.

The text really runs under a shell; `kubectl` on its path is a shim that asks the double, `date` says the virtual
time, `sleep` and `flock` wait in it. All of it happens in the caller's thread, so a run stays deterministic.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from simulator.kubectl_double import CommandResult, KubectlDouble
from simulator.world import OUR_ACTOR, World

Sleep = Callable[[float], None]

_ASK: Final = """#!{python} -ISE
import fcntl, json, os, socket, sys
def ask(words, stdin=None):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ["NODE_FLEET_SHELL_SOCKET"])
        connection.sendall(json.dumps([words, stdin]).encode() + b"\\n")
        answer = json.loads(connection.makefile("rb").read())
    return answer
"""
_KUBECTL: Final = """
words = sys.argv[1:]
code, out, err = ask(["kubectl", *words], sys.stdin.read() if "-" in words else None)
sys.stdout.write(out)
sys.stdout.flush()
sys.stderr.write(err)
sys.exit(code)
"""
_SLEEP: Final = """
ask(["sleep", str(sum(float(word.rstrip("s")) for word in sys.argv[1:]))])
"""
_FLOCK: Final = """
words, left = sys.argv[1:], float("inf")
mode = fcntl.LOCK_EX
while words and words[0].startswith("-"):
    word = words.pop(0)
    if word in ("-w", "--wait", "--timeout"):
        left = float(words.pop(0))
    elif word in ("-n", "--nonblock"):
        left = 0.0
    elif word in ("-s", "--shared"):
        mode = fcntl.LOCK_SH
    elif word in ("-u", "--unlock"):
        mode = fcntl.LOCK_UN
    elif word not in ("-x", "-e", "--exclusive"):
        sys.exit("flock: the laptop cloud does not know " + word)
if len(words) != 1 or not words[0].isdigit():
    sys.exit("flock: the laptop cloud knows only file descriptors")
while True:
    try:
        fcntl.flock(int(words[0]), mode | fcntl.LOCK_NB)
        break
    except BlockingIOError:
        if left <= 0:
            sys.exit(1)
        ask(["sleep", str(min(1.0, left))])
        left -= 1.0
"""
_DATE: Final = """#!/bin/sh
case " $* " in
  *" -d "* | *" --date"*) exec {date} "$@" ;;
  *) exec {date} -d "@$(cat "$NODE_FLEET_SHELL_CLOCK")" "$@" ;;
esac
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellResult:
    """How a script ended. timed_out: it was stopped at its limit of virtual seconds."""

    exit_code: int
    stdout: str
    stderr: str
    timed_out: bool = False


class _LimitReachedError(Exception):
    """The script's virtual time is over."""


class ServerShell:
    """A shell on the server machine. Make one for each world; `run` may wait in virtual time."""

    def __init__(
        self, world: World, sleep: Sleep, *, actor: str = OUR_ACTOR, double: KubectlDouble | None = None
    ) -> None:
        self.world = world
        self.double = double or KubectlDouble(world, sleep, actor=actor)
        self._sleep = sleep
        self._home = tempfile.TemporaryDirectory(prefix="node-fleet-shell-")
        self.directory = Path(self._home.name)
        self._write_shims(self.directory / "bin")
        (self.directory / "lock").mkdir()

    def close(self) -> None:
        self._home.cleanup()

    def _write_shims(self, directory: Path) -> None:
        directory.mkdir()
        ask = _ASK.replace("{python}", sys.executable)
        date = _DATE.replace("{date}", shutil.which("date") or "/bin/date")
        texts = {"kubectl": ask + _KUBECTL, "sleep": ask + _SLEEP, "flock": ask + _FLOCK, "date": date}
        for name, text in texts.items():
            (directory / name).write_text(text)
            (directory / name).chmod(0o755)

    def run(
        self,
        script: str,
        environment: Mapping[str, str] | None = None,
        *,
        limit_seconds: float | None = None,
        shell: str = "sh",
    ) -> ShellResult:
        """Run the text to its end. An error that `sleep` raises kills the script and its children, and goes on."""
        with tempfile.TemporaryDirectory(prefix="run-", dir=self.directory) as name:
            run = _Run(self, Path(name), self._sleep, limit_seconds)
            return run.to_the_end(script, environment or {}, shell)


class _Run:
    """One script: its process, its socket, its clock file."""

    def __init__(self, shell: ServerShell, directory: Path, sleep: Sleep, limit: float | None) -> None:
        self._shell = shell
        self._directory = directory
        self._sleep = sleep
        self._end = None if limit is None else shell.world.now() + limit
        self._clock = directory / "now"
        self._double = KubectlDouble(shell.world, self._wait, actor=shell.double.actor)

    def to_the_end(self, script: str, environment: Mapping[str, str], shell: str) -> ShellResult:
        self._tell_time()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self._directory / "ask"))
            listener.listen(16)
            process = self._start(script, environment, shell)
            timed_out = False
            try:
                self._serve(listener, process)
            except _LimitReachedError:
                timed_out = True
            finally:
                self._kill(process)
        return ShellResult(
            exit_code=process.returncode,
            stdout=(self._directory / "out").read_text(errors="replace"),
            stderr=(self._directory / "err").read_text(errors="replace"),
            timed_out=timed_out,
        )

    def _start(self, script: str, environment: Mapping[str, str], shell: str) -> subprocess.Popen[bytes]:
        path = self._directory / "script"
        path.write_text(script)
        shims = self._shell.directory / "bin"
        variables = {
            "PATH": f"{shims}:{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
            "HOME": str(self._directory),
            "TMPDIR": str(self._directory),
            "NODE_FLEET_LOCK_DIRECTORY": str(self._shell.directory / "lock"),
            **environment,
            "NODE_FLEET_SHELL_SOCKET": str(self._directory / "ask"),
            "NODE_FLEET_SHELL_CLOCK": str(self._clock),
        }
        with (self._directory / "out").open("wb") as out, (self._directory / "err").open("wb") as err:
            return subprocess.Popen(
                [shell, str(path)],
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def _serve(self, listener: socket.socket, process: subprocess.Popen[bytes]) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            with suppress(AttributeError, OSError):
                selector.register(os.pidfd_open(process.pid), selectors.EVENT_READ)
            while process.poll() is None:
                if any(key.fileobj is listener for key, _ in selector.select(timeout=0.05)):
                    self._answer(listener)
            for key in list(selector.get_map().values()):
                if isinstance(key.fileobj, int):
                    os.close(key.fileobj)

    def _answer(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rwb") as stream:
            words, stdin = json.loads(stream.readline())
            result = self._command(words, stdin)
            self._tell_time()
            with suppress(OSError):
                stream.write(json.dumps([result.exit_code, result.stdout, result.stderr]).encode())
                stream.flush()

    def _command(self, words: list[str], stdin: str | None) -> CommandResult:
        if words[0] == "sleep":
            self._wait(float(words[1]))
            return CommandResult(exit_code=0, stdout="", stderr="")
        self._double.reachable = self._shell.double.reachable
        self._shell.double.commands.append(words[1:])
        return self._double.run(words[1:], stdin)

    def _wait(self, seconds: float) -> None:
        now = self._shell.world.now()
        if self._end is not None and now + seconds >= self._end:
            self._sleep(max(0.0, self._end - now))
            raise _LimitReachedError
        self._sleep(seconds)
        self._double.reachable = self._shell.double.reachable

    def _tell_time(self) -> None:
        self._clock.write_text(str(int(self._shell.world.now())))

    @staticmethod
    def _kill(process: subprocess.Popen[Any]) -> None:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()
