"""What stands in the documents is what the code says: the settings table and the workflows' pictures."""

from __future__ import annotations

import dataclasses
import re

import pytest

from node_fleet.settings import Settings
from node_fleet.settings.parsing import spec_of
from tools.generate_settings import README, pictures, readme, settings_table

AGAIN = "run: .venv/bin/python -m tools.generate_settings (with the repository and functions/ in PYTHONPATH)"


def test_the_readmes_settings_table_is_the_settings_classs() -> None:
    text = README.read_text(encoding="utf-8")
    assert readme(text) == text, AGAIN
    assert settings_table() in text


@pytest.mark.parametrize(("path", "wanted"), pictures().items(), ids=lambda value: getattr(value, "name", ""))
def test_the_pictures_are_drawn_from_the_deployed_definitions(path: object, wanted: str) -> None:
    assert path.read_text(encoding="utf-8") == wanted, AGAIN  # type: ignore[attr-defined]


def test_every_setting_has_a_row_with_name_environment_and_meaning() -> None:
    rows = settings_table().splitlines()[2:]
    assert len(rows) == len(dataclasses.fields(Settings))
    for one, row in zip(dataclasses.fields(Settings), rows, strict=True):
        spec = spec_of(one)
        assert row.startswith(f"| {one.name} | {spec.env} | ")
        assert spec.meaning.replace("|", "\\|") in row
        assert len(re.findall(r"(?<!\\)\|", row)) == 6


def test_the_readmes_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", README.read_text(encoding="utf-8")):
        assert (README.parent / target).exists(), target
