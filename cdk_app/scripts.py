"""Reads the shell scripts of cluster/ with the content of FILE in place of a line "# insert: FILE".

FILE is relative to the script's folder. Python that is inserted loses its imports of node_fleet, because the script
contains those modules too, and the text that introduces the module, because the size of user data is limited.
"""

from __future__ import annotations

import re
from pathlib import Path

_INSERT_LINE = re.compile(r"^# insert: (\S+)\n", re.MULTILINE)
_PACKAGE_IMPORT = re.compile(r"^from node_fleet\S* import (\([^)]*\)|.*)\n", re.MULTILINE)
_INTRODUCTION = re.compile(r'\A(?:"""[^"]*"""\n|(?:#.*\n)+)\n*')


def read_script(path: Path) -> str:
    """The complete text of a script."""
    text = path.read_text(encoding="utf-8")
    return _INSERT_LINE.sub(lambda line: read_insert(path.parent / line[1]), text)


def read_insert(path: Path) -> str:
    """The text of a file as a script contains it."""
    text = path.read_text(encoding="utf-8")
    return _PACKAGE_IMPORT.sub("", _INTRODUCTION.sub("", text) if path.suffix == ".py" else text)
