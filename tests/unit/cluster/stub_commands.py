"""Stub commands on the PATH of a shell script under test: they record every call and answer from a table.

Nothing here knows a particular script. The real coreutils stay in use beside the stubs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

PROGRAM = """#!{python} -SE
import json, os, re, sys
home = os.environ["STUB_HOME"]
name, line = os.path.basename(sys.argv[0]), " ".join(sys.argv[1:])
rules = json.load(open(home + "/rules.json"))
number = next((n for n, r in enumerate(rules) if r["command"] == name and re.search(r["match"], line)), None)
with open(home + "/calls.jsonl", "a") as log:
    log.write(json.dumps([name, *sys.argv[1:]]) + "\\n")
if number is None:
    sys.exit("stub: nothing prepared for: " + name + " " + line)
seen = home + "/seen-" + str(number)
count = int(open(seen).read()) if os.path.exists(seen) else 0
open(seen, "w").write(str(count + 1))
replies = rules[number]["replies"]
reply = replies[min(count, len(replies) - 1)]
kept = rules[number]["keeps"]
if kept:
    source = next(a for a in sys.argv if a.startswith("file://"))[7:]
    open(home + "/" + kept, "w").write(open(source).read())
if reply["exit"] == 0 and "-o" in sys.argv and name == "curl":
    open(sys.argv[sys.argv.index("-o") + 1], "w").write(reply["stdout"])
elif reply["copy"] and reply["exit"] == 0:
    open(sys.argv[-1], "wb").write(open(reply["copy"], "rb").read())
else:
    sys.stdout.write(reply["stdout"])
sys.stderr.write(reply["stderr"])
sys.exit(reply["exit"])
"""

# sleep only records: it is called so often that a shell's start-up counts.
SLEEP = """#!/bin/sh
echo "[\\"sleep\\", \\"$1\\"]" >> "$STUB_HOME/calls.jsonl"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a stub answers once. copy names a file whose bytes go to the path in the last argument."""

    stdout: str = ""
    stderr: str = ""
    exit: int = 0
    copy: str = ""


@dataclass(slots=True)
class Stubs:
    """A folder of stub commands. Rules are tried in order; the last reply of a rule repeats."""

    home: Path
    commands: tuple[str, ...]
    rules: list[dict[str, object]] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.home / "bin").mkdir(parents=True)
        for name in self.commands:
            program = self.home / "bin" / name
            program.write_text(SLEEP if name == "sleep" else PROGRAM.format(python=sys.executable))
            program.chmod(0o755)

    def on(self, command: str, match: str, *replies: Reply | str, keeps: str = "") -> None:
        """Adds a rule before the earlier ones. keeps names the file that a file:// argument is copied to."""
        answers = [Reply(stdout=reply) if isinstance(reply, str) else reply for reply in replies or ("",)]
        self.rules.insert(
            0,
            {
                "command": command,
                "match": match,
                "keeps": keeps,
                "replies": [{name: getattr(a, name) for name in Reply.__slots__} for a in answers],
            },
        )

    def run(self, script: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Runs a bash script with the stubs first on its PATH and nothing of our own environment."""
        (self.home / "rules.json").write_text(json.dumps(self.rules))
        path = f"{self.home / 'bin'}:/usr/local/bin:/usr/bin:/bin"
        return subprocess.run(
            ["bash", str(script)],
            env={
                "PATH": path,
                "STUB_HOME": str(self.home),
                "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def calls(self, command: str = "", match: str = "") -> list[list[str]]:
        """The recorded calls in order, as argument lists beginning with the command."""
        log = self.home / "calls.jsonl"
        calls = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return [c for c in calls if command in ("", c[0]) and re.search(match, " ".join(c))]
