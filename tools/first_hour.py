"""Times the first hour of a new user: `python -m tools.first_hour` runs the first commands on a terminal in a clone.

For each command it prints how long it took, and the longest time without output. A silent command looks like one that
hangs: no silence may be longer than two seconds. Beside other work every figure grows. The processor time in brackets
is what the command used meanwhile, which is about what an idle machine would show.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import pty
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from node_fleet.domain.model.value_class import value_class

ROOT = Path(__file__).resolve().parents[1]
CHUNK = 65536
SILENCE_SECONDS = 2.0
"""The longest time without output."""


@value_class
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


@value_class
class Moment:
    """An output, the start or the end of a command. seconds, processor_seconds: since its start."""

    seconds: float
    processor_seconds: float
    text: str


@value_class
class Silence:
    """A time without output, and the last line before it."""

    seconds: float
    processor_seconds: float
    after: str


@value_class
class Watched:
    """What a command showed, from its start to its end, and its status."""

    moments: tuple[Moment, ...]
    status: int

    @property
    def silence(self) -> Silence:
        """The longest time without output; it may be at the beginning or at the end."""
        gaps = [
            Silence(
                seconds=end.seconds - begin.seconds,
                processor_seconds=end.processor_seconds - begin.processor_seconds,
                after=last_line(begin.text),
            )
            for begin, end in itertools.pairwise(self.moments)
        ]
        return max(gaps, key=lambda gap: gap.seconds)


def last_line(text: str) -> str:
    """The last line that has a letter, without control sequences."""
    lines = ["".join(c for c in line if c.isprintable()).strip() for line in text.replace("\r", "\n").splitlines()]
    named = [line for line in lines if any(c.isalpha() for c in line)]
    return named[-1][:60] if named else "a frame"


def watch(command: Sequence[str], folder: Path) -> Watched:
    """Run the command on a terminal of its own, as a person does, and note when it shows something."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    start, moments = time.monotonic(), [Moment(seconds=0, processor_seconds=0, text="the start")]
    with subprocess.Popen(
        command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    ) as running:
        os.close(theirs)
        used = 0.0
        while True:
            readable, _, _ = select.select([ours], [], [], 0.05)
            used = max(used, processor_seconds(running.pid))
            if readable and (text := _read(ours)):
                moments.append(Moment(seconds=time.monotonic() - start, processor_seconds=used, text=text))
            elif readable or running.poll() is not None:  # closed at the other end, or ended without a last output
                break
        status = running.wait()
    os.close(ours)
    moments.append(Moment(seconds=time.monotonic() - start, processor_seconds=used, text="the end"))
    return Watched(moments=tuple(moments), status=status)


def processor_seconds(session: int) -> float:
    """What the processes of this session have used, with the children that have ended; 0 where /proc is missing."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # a process that ends meanwhile
            fields = stat.read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15])) if int(fields[3]) == session else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def _read(terminal: int) -> str:
    try:
        return os.read(terminal, CHUNK).decode(errors="replace")
    except OSError:  # Linux reports the other end's close as an error
        return ""


def problems_of(step: Step, watched: Watched) -> list[str]:
    """What is wrong with a step."""
    gap = watched.silence
    found = [f"ended with status {watched.status}"] if watched.status else []
    if gap.seconds > SILENCE_SECONDS:
        found.append(f"silent for {gap.seconds:.1f} s after {gap.after!r}")
    if step.limit_seconds and watched.moments[-1].seconds > step.limit_seconds:
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
        print(f"{'command':<20}{'seconds':>16}{'limit':>7}{'outputs':>9}{'silence':>14}  after")
        for step in STEPS:
            watched = watch([sys.executable, str(clone / "node-fleet"), *step.words], clone)
            gap, end = watched.silence, watched.moments[-1]
            whole, silent = (f"{one.seconds:.1f} ({one.processor_seconds:.1f})" for one in (end, gap))
            limit = f"{step.limit_seconds:g}" if step.limit_seconds else "-"
            figures = f"{whole:>16}{limit:>7}{len(watched.moments) - 2:>9}{silent:>14}"
            print(f"{step.name:<20}{figures}  {gap.after}", flush=True)
            for problem in problems_of(step, watched):
                wrong = True
                print(f"  {step.name}: {problem}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
