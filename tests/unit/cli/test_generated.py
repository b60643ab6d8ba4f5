"""The generated parts of the documents are those of the code, and every setting is documented."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from node_fleet.settings import Settings, spec_of
from tools.generate_docs import DOCS, documents, meanings_of, settings_tables

README = DOCS.parent / "README.md"
AGAIN = "run: .venv/bin/python -m tools.generate_docs (with the repository and functions/ in PYTHONPATH)"


@pytest.mark.parametrize(("path", "wanted"), documents().items(), ids=lambda value: getattr(value, "name", ""))
def test_the_generated_documents_are_those_of_the_code(path: Path, wanted: str) -> None:
    assert path.read_text(encoding="utf-8") == wanted, AGAIN


def test_every_setting_has_a_row_with_name_environment_and_meaning() -> None:
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in settings_tables().splitlines() if "| " in line}
    meanings = {name: text for group in Settings.__mro__ for name, text in meanings_of(group).items()}
    for one in dataclasses.fields(Settings):
        row = rows[one.name]
        assert row.startswith(f"| {one.name} | {spec_of(one).env} | ")
        assert meanings[one.name].replace("|", "\\|") in row
        assert len(re.findall(r"(?<!\\)\|", row)) == 6


def test_the_readmes_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", README.read_text(encoding="utf-8")):
        assert (README.parent / target).exists(), target
