"""Copies rules.py into the scripts that need it on the server, between their two marker lines. Run after a change."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
BLOCK = re.compile(r"(# --- rules: begin\n).*?(# --- rules: end\n)", re.DOTALL)
SCRIPTS = ("inspect_nodes.sh", "drain_node.sh")


def embedded(script: str, rules: str) -> str:
    """The script's text with the rules of today between its markers."""
    return BLOCK.sub(lambda match: match[1] + rules + match[2], script, count=1)


def main() -> None:
    rules = (HERE / "rules.py").read_text()
    for name in SCRIPTS:
        path = HERE / name
        path.write_text(embedded(path.read_text(), rules))


if __name__ == "__main__":
    main()
