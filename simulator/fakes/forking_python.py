"""A Python process with loaded modules that forks for each `python3` of a script: a start of its own takes 25 ms.

`forking_python()` starts it. The shim `python3` of a script connects to it, sends its process id, and waits for the
exit status. The fork takes over the shim's streams, environment, directory and arguments, runs the program and ends; it
ends too when the shim is killed. A program is compiled once: its first fork leaves the code and the regular expressions
to the process. It needs /proc. As a program this file imports the standard library only.
"""

from __future__ import annotations

import atexit
import base64
import collections
import ctypes.util
import datetime
import decimal
import functools
import gc
import hashlib
import io
import ipaddress
import json
import marshal
import os
import re
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
import types
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

LOADED = (base64, collections, ctypes.util, datetime, decimal, functools, ipaddress, json, re, subprocess, zlib)
"""What the scripts import."""
SHIM = """#!{bash}
exec 3<>"/dev/tcp/127.0.0.1/$NODE_FLEET_PYTHON_PORT" 4<&0 5>&1 6>&2
echo "start $$" >&3
read -r -u 3 code || exit 137
exit "$code"
"""
STREAMS = {4: os.O_RDONLY, 5: os.O_WRONLY | os.O_APPEND, 6: os.O_WRONLY | os.O_APPEND}
"""Copies of the shim's streams, which it redirects itself while it sends."""


class ForkingPython:
    """The process, as its user sees it. It ends with the process that started it."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        reader, self._lifeline = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-ISE", __file__, str(reader)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            pass_fds=[reader],
        )
        os.close(reader)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self._process.stdout.close()
        atexit.register(self._close)

    def end(self, calls: Path) -> None:
        """Kill the programs of the script whose calls lie in this folder, and wait until they have ended."""
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(f"end {calls}\n".encode())
            connection.recv(1)

    def _close(self) -> None:
        if os.getpid() == self._owner:  # a fork of the owner uses the process, and leaves it alone when it ends
            os.close(self._lifeline)
            self._process.wait()


@functools.cache
def forking_python() -> ForkingPython | None:
    """The process that all simulations of this process share; None where the system lacks what it needs."""
    return ForkingPython() if hasattr(os, "pidfd_open") and Path("/proc/self/fd").exists() else None


@dataclass(frozen=True)
class _Program:
    """A running program: its process, the connection of its shim, and the folder of its script."""

    pid: int
    connection: socket.socket
    calls: str


class _Server:
    """Forks, and reports how each fork ended."""

    def __init__(self, lifeline: int, folder: Path) -> None:
        self._lifeline = lifeline
        self._folder = folder
        self._codes: dict[bytes, types.CodeType] = {}
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._selector = selectors.DefaultSelector()
        self._running: dict[int, _Program] = {}

    def serve(self) -> None:
        """Until the owner has ended."""
        gc.freeze()  # a collection in a fork would copy every page
        os.environ.clear()  # each fork has that of its shim
        print(self._listener.getsockname()[1], flush=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        self._selector.register(self._lifeline, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == self._lifeline:
                    self._end(list(self._running))
                    return
                if key.fileobj is self._listener:
                    self._answer()
                elif isinstance(key.fileobj, int):
                    self._report(key.fileobj)
                else:
                    self._lost(key.fileobj)

    def _answer(self) -> None:
        connection, _ = self._listener.accept()
        with connection.makefile("r") as stream:
            verb, _, rest = stream.readline().strip().partition(" ")
        if verb == "start":
            self._start(connection, int(rest))
            return
        self._end([handle for handle, program in self._running.items() if program.calls == rest])
        connection.close()

    def _start(self, connection: socket.socket, shim: int) -> None:
        try:
            variables = _variables(shim)
        except OSError:  # the shim was killed meanwhile
            connection.close()
            return
        pid = os.fork()
        if not pid:
            _become(shim, variables, self._codes, self._folder)
        handle = os.pidfd_open(pid)
        self._running[handle] = _Program(pid, connection, os.fsdecode(variables.get(b"NODE_FLEET_SHELL_CALLS", b"")))
        self._selector.register(handle, selectors.EVENT_READ)
        self._selector.register(connection, selectors.EVENT_READ)

    def _report(self, handle: int) -> None:
        program = self._running.pop(handle, None)
        if program is None:
            return
        _, status = os.waitpid(program.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        with suppress(OSError):
            program.connection.sendall(f"{code if code >= 0 else 128 - code}\n".encode())
        self._selector.unregister(handle)
        os.close(handle)
        self._selector.unregister(program.connection)
        program.connection.close()
        self._keep_compiled()

    def _keep_compiled(self) -> None:
        """What ended forks have compiled, for later ones."""
        for file in self._folder.iterdir():
            if file.suffix != ".compiled":
                continue
            digest, code, patterns = marshal.loads(file.read_bytes())
            file.unlink()
            self._codes[digest] = code
            for pattern, flags in patterns:
                re.compile(pattern, flags)
            gc.freeze()

    def _lost(self, connection: Any) -> None:
        """The shim was killed."""
        self._end([handle for handle, program in self._running.items() if program.connection is connection])

    def _end(self, handles: list[int]) -> None:
        for handle in handles:
            for kill in (os.killpg, os.kill):  # it may not lead its group yet
                with suppress(ProcessLookupError):
                    kill(self._running[handle].pid, signal.SIGKILL)
            self._report(handle)


def _variables(shim: int) -> dict[bytes, bytes]:
    lines = Path(f"/proc/{shim}/environ").read_bytes().split(b"\0")
    return dict(line.split(b"=", 1) for line in lines if b"=" in line)


def _become(shim: int, variables: dict[bytes, bytes], codes: dict[bytes, types.CodeType], folder: Path) -> NoReturn:
    """Run the program of the shim in its place; never returns."""
    code = 1
    try:
        os.setsid()
        os.closerange(3, 1024)
        for number, (copied, flags) in enumerate(STREAMS.items()):
            stream = os.open(f"/proc/{shim}/fd/{copied}", flags)
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(f"/proc/{shim}/cwd")
        words = [os.fsdecode(word) for word in Path(f"/proc/{shim}/cmdline").read_bytes().split(b"\0")[2:-1]]
        os.environb.update(variables)
        code = _run(words, codes, folder)
    except BaseException:
        traceback.print_exc()
    finally:
        for file in (sys.stdout, sys.stderr):
            with suppress(Exception):
                file.flush()
        os._exit(code)


def _run(words: list[str], codes: dict[bytes, types.CodeType], folder: Path) -> int:
    """The exit status."""
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0)), "utf-8", "surrogateescape")
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w")), "utf-8", "surrogateescape")
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(2, "w")), "utf-8", "backslashreplace", line_buffering=True
    )
    subprocess.run = functools.partial(_run_command, subprocess.run)
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if words[:1] == ["-c"]:
        text, name, sys.argv = words[1].encode(), "<string>", ["-c", *words[2:]]
    elif words[:1] in ([], ["-"]):
        text, name, sys.argv = sys.stdin.buffer.read(), "<stdin>", words or [""]
    else:
        text, name, sys.argv = Path(words[0]).read_bytes(), words[0], words
    try:
        if known := codes.get(_digest(text, name)):
            exec(known, main.__dict__)
        else:
            _run_first(text, name, main, folder)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:
        trace = error.__traceback__
        while trace and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        traceback.print_exception(error.with_traceback(trace))
        return 1
    return 0


def _run_command(run: Any, words: Any, **options: Any) -> Any:
    """subprocess.run, but kubectl is asked for in the simulator: a process for the shim takes longer than the rest."""
    shim = os.environ.get("NODE_FLEET_SHELL_KUBECTL")
    if options.pop("capture_output", False):
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    streams = {options.get("stdout"), options.get("stderr")} <= {None, subprocess.PIPE, subprocess.DEVNULL}
    usual = options.keys() <= {"stdout", "stderr", "check"} and streams
    if words[0] != "kubectl" or not usual or shutil.which("kubectl") != shim:
        return run(words, **options)
    with socket.socket() as connection:
        connection.connect(("127.0.0.1", int(os.environ["NODE_FLEET_SHELL_PORT"])))
        connection.sendall(f"{json.dumps(words)}\n".encode())
        with connection.makefile() as stream:
            code, *texts = json.loads(stream.readline())
    found: list[bytes | None] = []
    for number, (name, text) in enumerate(zip(("stdout", "stderr"), texts, strict=True), start=1):
        kept = options.get(name) == subprocess.PIPE
        found.append(text.encode() if kept else None)
        if not kept and options.get(name) is None:
            os.write(number, text.encode())
    done = subprocess.CompletedProcess(words, code, *found)
    if options.get("check"):
        done.check_returncode()
    return done


def _digest(text: bytes, name: str) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + text).digest()


def _run_first(text: bytes, name: str, main: types.ModuleType, folder: Path) -> None:
    """Compile the program, run it, and leave the code and the regular expressions in the folder."""
    code, patterns, compile_pattern = compile(text, name, "exec"), [], re.compile

    def noted(pattern: Any, flags: Any = 0) -> Any:
        if isinstance(pattern, (str, bytes)):
            patterns.append((pattern, int(flags)))
        return compile_pattern(pattern, flags)

    re.compile = noted
    try:
        exec(code, main.__dict__)
    finally:
        building = folder / str(os.getpid())
        building.write_bytes(marshal.dumps((_digest(text, name), code, patterns)))
        building.rename(building.with_suffix(".compiled"))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the simulator, which then ends this process
    with tempfile.TemporaryDirectory(prefix="node-fleet-python-") as folder:
        _Server(int(sys.argv[1]), Path(folder)).serve()
