"""The console script of an installed node-fleet: `pipx install .` puts the sources beside this file as one package."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Hand the words over to the start script of the installed copy."""
    script = Path(__file__).resolve().with_name("node-fleet")
    os.execv(sys.executable, [sys.executable, str(script), *sys.argv[1:]])
