"""docs/security.md states what each part can do at most in an hour; every limit in its table is held by a test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from node_fleet.settings import Settings

ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "docs/security.md").read_text(encoding="utf-8").split("## Damage per hour")[1].split("\n## ")[0]
ROWS = [line.strip("| ").split(" | ") for line in SECTION.splitlines() if line.startswith("| ")][2:]
OUTSIDE = "outside of node-fleet's limits"


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_each_limit_of_the_table_names_a_test_that_exists(row: list[str]) -> None:
    held_by = row[-1].strip("`")
    if held_by == OUTSIDE:
        return
    path, _, name = held_by.partition("::")
    defined = ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
    assert name in {node.name for node in defined if isinstance(node, ast.FunctionDef)}


def test_the_table_names_the_defaults_of_the_settings() -> None:
    stated = {name: int(value) for name, value in re.findall(r"([a-z]+_[a-z]+)`? \((\d+)\)", SECTION)}
    names = ("max_workers", "max_targets", "max_rounds", "interval_seconds")
    assert stated == {name: getattr(Settings(), name) for name in names}
