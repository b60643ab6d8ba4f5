"""The commands that documents and messages give to an operator, as argument lists with example values."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator

from cli.main import app

EXAMPLES = {
    "SERVER_INSTANCE_ID": "i-0123456789abcdef0",
    "INSTANCE_ID": "i-0123456789abcdef0",
    "WORKER_ID": "i-0123456789abcdef1",
    "VOLUME_ID": "vol-0123456789abcdef0",
    "SNAPSHOT_ID": "snap-0123456789abcdef0",
    "ACCOUNT": "123456789012",
    "REGION": "ap-southeast-1",
    "PROMETHEUS": "10.20.0.10",
    "CLUSTER": "node-fleet-prod",
    "GIB": "50",
    "VCPUS": "24",
    "NAME": "run-000012",
    "NODE": "i-0123456789abcdef1",
}
NAMES = sorted(one.name or one.callback.__name__ for one in app.registered_commands if one.callback)
"""Without ./ only these names are commands; in other places the text speaks about node-fleet."""
PLACEHOLDER = re.compile("|".join(rf"\b{name}\b" for name in sorted(EXAMPLES, key=len, reverse=True)))
FILE = re.compile(r"fileb?://\S+")
ELLIPSIS = re.compile(r"(?<=\s)\.\.\.(?=\s|$)")
STARTS = {
    "aws": re.compile(r"(?<![\w/.-])aws (?=[a-z0-9-]+ [a-z-]+)"),
    "./node-fleet": re.compile(r"(?<![\w/.-])\./node-fleet (?=[a-z]+\b)"),
    "node-fleet": re.compile(rf"(?<![\w/.-])node-fleet (?=(?:{'|'.join(NAMES)})\b)"),
    "kubectl": re.compile(r"/usr/local/bin/k3s kubectl "),
}
# What ends a command inside a sentence or a shell line.
END = re.compile(
    r"[`;|#>\n]|(?<=\w)[,:.)](?=\s|$)|\$\(|, then |, or | when | on the server| shows | says | lists | ends | to see "
)


def commands_of(text: str, program: str) -> Iterator[tuple[str, ...]]:
    """The arguments of every call of the program in a text."""
    joined = re.sub(r"\\\n\s*", " ", text)
    for found in STARTS[program].finditer(joined):
        rest = joined[found.end() :]
        end = _end(rest)
        yield tuple(_words(rest[:end]))


def _end(rest: str) -> int:
    """Where the command ends; what stands between quotes belongs to it."""
    quoted = [match.span() for match in re.finditer(r"'[^'\n]*'|\"[^\"\n]*\"", rest)]
    for match in END.finditer(rest):
        if not any(start < match.start() < stop for start, stop in quoted):
            return match.start()
    return len(rest)


def _words(command: str) -> Iterable[str]:
    filled = PLACEHOLDER.sub(lambda match: EXAMPLES[match[0]], FILE.sub("example", command))
    return shlex.split(ELLIPSIS.sub("", filled.replace("{}", "7")))
