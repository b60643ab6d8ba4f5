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


def test_the_costs_in_the_readme_are_those_of_the_bills_rounded() -> None:
    readme, bills = README.read_text(encoding="utf-8"), (DOCS / "cost.md").read_text(encoding="utf-8")
    control = re.findall(r"It is ([\d.]+) USD a month with AWS's always-free tier and ([\d.]+) USD without", bills)[0]
    free, full = (round(float(sum_)) for sum_ in control)
    assert f"About {free} USD a month for itself with AWS's always-free tier ({full} without)" in readme
    lines = ("instance, spot", "instance, on-demand", "volume, 20 GiB gp3", "public IPv4 address")
    prices = [re.findall(rf"\| t3.small: {line} \| 1 \| \$([\d.]+)", bills)[0] for line in lines]
    spot, on_demand, *rest = map(float, prices)
    worker = (
        f"costs {spot + sum(rest):.0f} USD a month as Spot and {on_demand + sum(rest):.0f} On-Demand with its volume"
    )
    assert worker in readme
