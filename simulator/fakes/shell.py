"""Runs the shipped shell scripts as the server would, with virtual time behind their commands.

The text really runs under a shell; `kubectl` on its path is a shim that asks the double, `date` says the virtual
time, `sleep` and `flock` wait in it. A Python program of a script asks for kubectl without the shim. All of it happens
in the caller's thread, so a run stays deterministic.
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
from pathlib import Path
from typing import Any, Final

from node_fleet.domain.model.value_class import value_class
from simulator.cluster.kubectl.fake import CommandResult, FakeKubectl
from simulator.cluster.model import OUR_ACTOR, SimulatedCluster
from simulator.fakes.forking_python import SHIM, forking_python
from simulator.fakes.server_machine import ServerMachine

Sleep = Callable[[float], None]

_ASK: Final = """#!{bash}
# Asks the simulator for a command: the words lie in a file, the answer's two streams in two more.
ask() {
  call="$NODE_FLEET_SHELL_CALLS/$BASHPID"
  printf '%s\\0' "$@" >"$call.words"
  exec 3<>"/dev/tcp/127.0.0.1/$NODE_FLEET_SHELL_PORT"
  echo "$BASHPID" >&3
  read -r code <&3 || exit 1
  exec 3>&-
}
# Prints a file as cat does, whose start takes longer.
show() { IFS= read -r -d '' text <"$1"; printf %s "$text"; }
"""
_KUBECTL: Final = """
ask kubectl "$@"
show "$call.out"
show "$call.err" >&2
exit "$code"
"""
_SLEEP: Final = """
ask sleep "$@"
"""
_MACHINE: Final = """
ask {name} "$@"
show "$call.err" >&2
exit "$code"
"""
_FREE_LOCK: Final = """#!/bin/sh
if [ $# = 3 ] && [ "$1" = -w ] && {flock} -n "$3"; then exit 0; fi
exec {waiting} "$@"
"""
"""A lock that is free needs no Python, whose start takes long."""
_FLOCK: Final = """#!{python} -ISE
import fcntl, sys
words, left = sys.argv[1:], float("inf")
if words[:1] == ["-w"]:
    left, words = float(words[1]), words[2:]
if len(words) != 1 or not words[0].isdigit():
    sys.exit("flock: the simulator knows only -w and a file descriptor")
while True:
    try:
        fcntl.flock(int(words[0]), fcntl.LOCK_EX | fcntl.LOCK_NB)
        break
    except BlockingIOError:
        if left <= 0:
            sys.exit(1)
        import subprocess  # slow to load, and seldom needed
        subprocess.run(["sleep", str(min(1.0, left))], check=True)
        left -= 1.0
"""
_DATE: Final = """#!/bin/sh
case " $* " in
  " +%s ") read -r now <"$NODE_FLEET_SHELL_CLOCK"; echo "$now" ;;
  *" -d "* | *" --date"*) exec {date} "$@" ;;
  *) read -r now <"$NODE_FLEET_SHELL_CLOCK"; exec {date} -d "@$now" "$@" ;;
esac
"""


@value_class
class ShellResult:
    """How a script ended. timed_out: it was stopped at its limit of virtual seconds."""

    exit_code: int
    stdout: str
    stderr: str
    timed_out: bool = False


class _LimitReachedError(Exception):
    """The script's virtual time is over."""


class ServerShell:
    """A shell on the server machine. Make one for each cluster; `run` may wait in virtual time.

    seconds_ahead: how far the server's clock is off.
    """

    def __init__(
        self, cluster: SimulatedCluster, sleep: Sleep, *, actor: str = OUR_ACTOR, double: FakeKubectl | None = None
    ) -> None:
        self.cluster = cluster
        self.seconds_ahead = 0.0
        self.double = double or FakeKubectl(cluster, sleep, actor=actor)
        self.python = forking_python()
        self._sleep = sleep
        self._home = tempfile.TemporaryDirectory(prefix="node-fleet-shell-")
        self.directory = Path(self._home.name)
        self._write_shims(self.directory / "bin")
        (self.directory / "lock").mkdir()
        self.machine = ServerMachine(cluster, self.double, self.directory / "root")

    def close(self) -> None:
        self._home.cleanup()

    def _write_shims(self, directory: Path) -> None:
        directory.mkdir()
        bash = shutil.which("bash") or "/bin/bash"
        ask = _ASK.replace("{bash}", bash)
        texts = {
            "kubectl": ask + _KUBECTL,
            "sleep": ask + _SLEEP,
            **{name: ask + _MACHINE.replace("{name}", name) for name in ("curl", "systemctl")},
            "flock": _FLOCK.replace("{python}", sys.executable),
            "date": _DATE.replace("{date}", shutil.which("date") or "/bin/date"),
        }
        if flock := shutil.which("flock"):
            texts["flock-waiting"] = texts["flock"]
            texts["flock"] = _FREE_LOCK.replace("{flock}", flock).replace("{waiting}", str(directory / "flock-waiting"))
        if self.python:
            texts["python3"] = SHIM.replace("{bash}", bash)
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
        """Run the text to its end. An error that `sleep` raises kills the script and is raised again."""
        with tempfile.TemporaryDirectory(prefix="run-", dir=self.directory) as name:
            run = _Run(self, Path(name), self._sleep, limit_seconds)
            return run.to_the_end(script, environment or {}, shell)


class _Run:
    """One script: its process, its socket, its clock file."""

    def __init__(self, shell: ServerShell, directory: Path, sleep: Sleep, limit: float | None) -> None:
        self._shell = shell
        self._directory = directory
        self._sleep = sleep
        self._end = None if limit is None else shell.cluster.now() + limit
        self._clock = directory / "now"
        self._known: int | None = None
        self._calls = directory / "calls"
        self._double = FakeKubectl(shell.cluster, self._wait, actor=shell.double.actor)

    def to_the_end(self, script: str, environment: Mapping[str, str], shell: str) -> ShellResult:
        self._tell_time()
        self._calls.mkdir()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            process = self._start(script, environment, shell, port=listener.getsockname()[1])
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

    def _start(self, script: str, environment: Mapping[str, str], shell: str, *, port: int) -> subprocess.Popen[bytes]:
        path = self._directory / "script"
        path.write_text(script)
        if script.startswith("#!/bin/bash"):
            shell = "bash"
            self._shell.machine.prepare()
        shims = self._shell.directory / "bin"
        variables = {
            "PATH": f"{shims}:{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
            "HOME": str(self._directory),
            "TMPDIR": str(self._directory),
            "NODE_FLEET_LOCK_DIRECTORY": str(self._shell.directory / "lock"),
            "NODE_FLEET_ROOT": str(self._shell.machine.root),
            **environment,
            "NODE_FLEET_SHELL_PORT": str(port),
            "NODE_FLEET_SHELL_CALLS": str(self._calls),
            "NODE_FLEET_SHELL_CLOCK": str(self._clock),
        }
        if self._shell.python:
            variables["NODE_FLEET_PYTHON_PORT"] = str(self._shell.python.port)
            variables["NODE_FLEET_SHELL_KUBECTL"] = str(shims / "kubectl")
        with (self._directory / "out").open("ab") as out, (self._directory / "err").open("ab") as err:
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
                    self._answer(listener, process)
            for key in list(selector.get_map().values()):
                if isinstance(key.fileobj, int):
                    os.close(key.fileobj)

    def _answer(self, listener: socket.socket, process: subprocess.Popen[bytes]) -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rw") as stream:
            asked = stream.readline()
            call = None if asked.startswith("[") else self._calls / asked.strip()
            words = call.with_suffix(".words").read_text().split("\0")[:-1] if call else json.loads(asked)
            try:
                result = self._command(words)
            except BaseException:
                self._kill(process)  # before the connection closes: the script must not go on without an answer
                raise
            self._tell_time()
            if call:
                call.with_suffix(".out").write_text(result.stdout)
                call.with_suffix(".err").write_text(result.stderr)
                answer = str(result.exit_code)
            else:
                answer = json.dumps([result.exit_code, result.stdout, result.stderr])
            with suppress(OSError):
                stream.write(f"{answer}\n")
                stream.flush()

    def _command(self, words: list[str]) -> CommandResult:
        if words[0] == "sleep":
            self._wait(sum(float(word.rstrip("s")) for word in words[1:]))
            return CommandResult(exit_code=0, stdout="", stderr="")
        if words[0] in ("curl", "systemctl"):
            return self._shell.machine.run(words, self._shell.cluster.state.after)
        self._double.reachable = self._shell.double.reachable
        self._shell.double.commands.append(words[1:])
        return self._double.run(words[1:])

    def _wait(self, seconds: float) -> None:
        now = self._shell.cluster.now()
        if self._end is not None and now + seconds >= self._end:
            self._sleep(max(0.0, self._end - now))
            raise _LimitReachedError
        self._sleep(seconds)
        self._double.reachable = self._shell.double.reachable

    def _tell_time(self) -> None:
        now = int(self._shell.cluster.now() + self._shell.seconds_ahead)
        if now != self._known:
            self._known = now
            self._clock.write_text(str(now))

    def _kill(self, process: subprocess.Popen[Any]) -> None:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if self._shell.python:
                self._shell.python.end(self._calls)
        process.wait()
