"""Reads the shell scripts of cluster/ as they are deployed: the content of FILE replaces a line "# insert: FILE".

FILE is relative to the script's folder. Python that is inserted loses its imports of node_fleet, because the script
contains those modules too, and the text that introduces the module, because SSM limits the size of a document. Code
that runs or checks a script reads it here. A document has the script without its comments (`without_comments`).
"""

from __future__ import annotations

import re
from pathlib import Path

_INSERT_LINE = re.compile(r"^# insert: (\S+)\n", re.MULTILINE)
_PACKAGE_IMPORT = re.compile(r"^from node_fleet\S* import (\([^)]*\)|.*)\n", re.MULTILINE)
_COMMENT = re.compile(r'\s*(#.*)?|\s+"""[^"]*"""')
_INTRODUCTION = re.compile(r'\A(?:"""[^"]*"""\n|(?:#.*\n)+)\n*')


def read_script(path: Path) -> str:
    """The complete text of a script."""
    text = path.read_text(encoding="utf-8")
    return _INSERT_LINE.sub(lambda line: read_insert(path.parent / line[1]), text)


def without_comments(lines: list[str]) -> list[str]:
    """The lines of a script, without those that only hold a comment, a docstring or nothing; the first one stays."""
    return [*lines[:1], *(line for line in lines[1:] if not _COMMENT.fullmatch(line))]


def read_insert(path: Path) -> str:
    """The text of a file as a script contains it."""
    text = path.read_text(encoding="utf-8")
    return _PACKAGE_IMPORT.sub("", _INTRODUCTION.sub("", text) if path.suffix == ".py" else text)
