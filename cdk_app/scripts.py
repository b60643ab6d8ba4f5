"""Reads the shell scripts of cluster/ as they are deployed: the content of FILE replaces a line "# insert: FILE".

FILE is relative to the script's folder. Code that runs or checks a script reads it here.
"""

from __future__ import annotations

import re
from pathlib import Path

_INSERT_LINE = re.compile(r"^# insert: (\S+)\n", re.MULTILINE)


def read_script(path: Path) -> str:
    """The complete text of a script."""
    text = path.read_text(encoding="utf-8")
    return _INSERT_LINE.sub(lambda line: (path.parent / line[1]).read_text(encoding="utf-8"), text)
