"""Times the first hour of a new user: `python -m tools.first_hour` runs the first commands in a clean clone, on a terminal.

For each command it prints how long it took, and the longest time without output. A silent command looks like one that
hangs: no silence may be longer than two seconds.
"""

from __future__ import annotations

import argparse
import os
import pty
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHUNK = 65536
SILENCE_SECONDS = 2.0
"""The longest time without output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command. limit_seconds: how long it may take; 0 for no limit, because the network decides."""

    name: str
    words: tuple[str, ...]
    limit_seconds: float = 0


STEPS = (
    Step(name="set-up", words=("--version",)),
    Step(name="demo", words=("demo",), limit_seconds=90),
    Step(name="status", words=("status", "--local", "--at", "20m")),
    Step(name="back-test of a CSV", words=("backtest", "tests/fixtures/day_and_night.csv"), limit_seconds=20),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What a command showed: (seconds since its start, text) of each output, how long it took, and its status."""

    outputs: tuple[tuple[float, str], ...]
    seconds: float
    status: int

    @property
    def silence(self) -> tuple[float, str]:
        """The longest time without output, and the last line before it; it may be at the beginning or at the end."""
        times = [0.0, *(at for at, _ in self.outputs), self.seconds]
        lines = ["the start", *(last_line(text) for _, text in self.outputs)]
        gaps = [after - before for before, after in zip(times, times[1:], strict=False)]
        longest = max(range(len(gaps)), key=gaps.__getitem__)
        return gaps[longest], lines[longest]


def last_line(text: str) -> str:
    """The last line that has a letter, without control sequences."""
    lines = ["".join(c for c in line if c.isprintable()).strip() for line in text.replace("\r", "\n").splitlines()]
    named = [line for line in lines if any(c.isalpha() for c in line)]
    return named[-1][:60] if named else "a frame"


def watch(command: Sequence[str], folder: Path) -> Watched:
    """Run the command on a terminal of its own, as a person does, and note when it shows something."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    start, outputs = time.monotonic(), []
    with subprocess.Popen(command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as running:
        os.close(theirs)
        while True:
            readable, _, _ = select.select([ours], [], [], 0.05)
            if readable and (text := _read(ours)):
                outputs.append((time.monotonic() - start, text))
            elif readable or running.poll() is not None:  # closed at the other end, or ended without a last output
                break
        status = running.wait()
    os.close(ours)
    return Watched(outputs=tuple(outputs), seconds=time.monotonic() - start, status=status)


def _read(terminal: int) -> str:
    try:
        return os.read(terminal, CHUNK).decode(errors="replace")
    except OSError:  # Linux reports the other end's close as an error
        return ""


def problems_of(step: Step, watched: Watched) -> list[str]:
    """What is wrong with a step."""
    gap, line = watched.silence
    found = [f"ended with status {watched.status}"] if watched.status else []
    if gap > SILENCE_SECONDS:
        found.append(f"silent for {gap:.1f} s after {line!r}")
    if step.limit_seconds and watched.seconds > step.limit_seconds:
        found.append(f"took more than {step.limit_seconds:g} s")
    return found


def main() -> int:
    """Time every step; the status is 1 when one is too slow, silent for too long, or fails."""
    parser = argparse.ArgumentParser(prog="python -m tools.first_hour", description=__doc__)
    parser.add_argument("--repository", default=str(ROOT), help="what to clone; the default is this repository")
    parser.add_argument("--keep-packages", action="store_true", help="use the .venv of this folder: no set-up")
    options = parser.parse_args()
    wrong = False
    folder = Path(tempfile.mkdtemp(prefix="node-fleet-first-hour-"))
    try:
        clone = folder / "node-fleet"
        subprocess.run(["git", "clone", "--quiet", options.repository, str(clone)], check=True)
        if options.keep_packages:
            (clone / ".venv").symlink_to((ROOT / ".venv").resolve())
        load = os.getloadavg()[0]
        print(f"{os.cpu_count()} cores, load {load:.1f}, Python {sys.version.split()[0]}")
        print(f"{'command':<22}{'seconds':>9}{'limit':>8}{'outputs':>9}{'silence':>9}  after")
        for step in STEPS:
            watched = watch([sys.executable, str(clone / "node-fleet"), *step.words], clone)
            gap, line = watched.silence
            limit = f"{step.limit_seconds:g}" if step.limit_seconds else "-"
            figures = f"{watched.seconds:>9.1f}{limit:>8}{len(watched.outputs):>9}{gap:>8.1f}s"
            print(f"{step.name:<22}{figures}  {line}", flush=True)
            for problem in problems_of(step, watched):
                wrong = True
                print(f"  {step.name}: {problem}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
