"""Stub commands on the PATH of a shell script under test: they record every call and answer from a table.

Nothing here knows a particular script. The real coreutils stay in use beside the stubs. The stubs are shell themselves:
a script that waits for something calls them hundreds of times.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from node_fleet.domain.model.value_class import value_class

UNIT, RECORD = "\x1f", "\x1e"
PROGRAM = """#!/bin/bash
. "$STUB_HOME/stubs.bash"
"${0##*/}" "$@"
"""
"""What the PATH leads to. A bash script has the functions themselves (BASH_ENV): to start bash takes longer than to
answer."""
FUNCTIONS = r"""
stub() (
  set +u
  IFS=$' \t\n' name="$1"
  shift
  line="$*" rule="" count=0 output="" previous=""
  printf -v call '%s\x1f' "$name" "$@"
  printf '%s\x1e' "$call" >>"$STUB_HOME/calls"
  . "$STUB_HOME/rules.bash"
  if [ -z "$rule" ]; then echo "stub: nothing prepared for: $name $line" >&2; exit 1; fi
  if [ -e "$STUB_HOME/seen-$rule" ]; then read -r count <"$STUB_HOME/seen-$rule"; fi
  echo $((count + 1)) >"$STUB_HOME/seen-$rule"
  . "$STUB_HOME/replies-$rule"
  for argument in "$@"; do
    file="${argument#file://}"
    if [ -n "$keeps" ] && [ "$file" != "$argument" ]; then cat "$file" >"$STUB_HOME/$keeps"; fi
    if [ -n "$keeps" ] && [ "$previous" = "-f" ]; then
      for file in "$argument" "$argument"/*; do
        if [ -f "$file" ]; then cat "$file" >>"$STUB_HOME/$keeps"; printf '\n---\n' >>"$STUB_HOME/$keeps"; fi
      done
    fi
    if [ "$name" = curl ] && [ "$previous" = "-o" ]; then output="$argument"; fi
    previous="$argument"
  done
  if [ -n "$run" ]; then exec "$run" "$@"; fi
  if [ "$code" = 0 ] && [ -n "$output" ]; then printf '%s' "$out" >"$output"
  elif [ "$code" = 0 ] && [ -n "$copy" ]; then cp "$copy" "$argument"
  else printf '%s' "$out"; fi
  printf '%s' "$err" >&2
  exit "$code"
)
"""
SLEEP = """sleep() { printf 'sleep\\x1f%s\\x1f\\x1e' "$*" >>"$STUB_HOME/calls"; }
"""
"""It only records."""


@value_class
class Reply:
    """What a stub answers once. copy names a file whose bytes go to the path in the last argument; run names a program
    that answers instead."""

    stdout: str = ""
    stderr: str = ""
    exit: int = 0
    copy: str = ""
    run: str = ""


UNAUTHORIZED = Reply(exit=22, stderr="curl: (22) The requested URL returned error: 401\n")
SESSION = "X-aws-ec2-metadata-token: session .*"


@value_class
class Rule:
    """Answers to the calls of one command whose arguments match. keeps: where the file named in the call is kept."""

    command: str
    match: str
    replies: tuple[Reply, ...]
    keeps: str


@dataclass(slots=True)
class Stubs:
    """A folder of stub commands. The newest matching rule answers; its last reply repeats."""

    home: Path
    commands: tuple[str, ...]
    rules: list[Rule] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.home / "bin").mkdir(parents=True)
        for name in self.commands:
            program = self.home / "bin" / name
            program.write_text(PROGRAM)
            program.chmod(0o755)

    def on(self, command: str, match: str, *replies: Reply | str, keeps: str = "") -> None:
        """Adds a rule. keeps names the file that collects what file:// arguments and -f point to."""
        answers = tuple(Reply(stdout=reply) if isinstance(reply, str) else reply for reply in replies or ("",))
        self.rules.append(Rule(command=command, match=match, replies=answers, keeps=keeps))

    def on_metadata(self, answers: dict[str, str]) -> None:
        """The metadata service of an instance: 401 without the token of a session (IMDSv2), and for other paths."""
        self.on("curl", "meta-data", UNAUTHORIZED)
        for path, answer in answers.items():
            self.on("curl", f"{SESSION}meta-data/{path}$", answer)
        self.on("curl", "-X PUT .*api/token", "session")

    def run(self, script: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Runs a bash script with the stubs first on its PATH and nothing of our own environment."""
        self._write_rules()
        self._write_functions()
        path = f"{self.home / 'bin'}:/usr/local/bin:/usr/bin:/bin"
        temporary = os.environ.get("TMPDIR", "/tmp")
        return subprocess.run(
            ["bash", str(script)],
            env={
                "PATH": path,
                "STUB_HOME": str(self.home),
                "BASH_ENV": str(self.home / "stubs.bash"),
                "TMPDIR": temporary,
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def calls(self, command: str = "", match: str = "") -> list[list[str]]:
        """The recorded calls in order, as argument lists beginning with the command."""
        log = self.home / "calls"
        records = log.read_text().split(RECORD)[:-1] if log.exists() else []
        calls = [record.split(UNIT)[:-1] for record in records]
        return [call for call in calls if command in ("", call[0]) and re.search(match, " ".join(call))]

    def _write_rules(self) -> None:
        lines = []
        for number, rule in reversed(list(enumerate(self.rules))):
            lines.append(f"pattern={shlex.quote(rule.match)}")
            found = f"rule={number} keeps={shlex.quote(rule.keeps)}"
            lines.append(f'[[ -z $rule && $name == {rule.command} && "$line" =~ $pattern ]] && {found}')
            cases = [*range(len(rule.replies) - 1), "*"]
            replies = [f"{case}) {_values(reply)} ;;" for case, reply in zip(cases, rule.replies, strict=True)]
            (self.home / f"replies-{number}").write_text("\n".join(("case $count in", *replies, "esac\n")))
        (self.home / "rules.bash").write_text("\n".join(lines) + "\n")

    def _write_functions(self) -> None:
        names = sorted(program.name for program in (self.home / "bin").iterdir())
        calls = (SLEEP if name == "sleep" else f'{name}() {{ stub {name} "$@" || return; }}\n' for name in names)
        (self.home / "stubs.bash").write_text(FUNCTIONS + "".join(calls))


def _values(reply: Reply) -> str:
    """The reply as variables of the stub."""
    values = {"code": reply.exit, "out": reply.stdout, "err": reply.stderr, "copy": reply.copy, "run": reply.run}
    return " ".join(f"{name}={shlex.quote(str(value))}" for name, value in values.items())
