"""Writes the parts of the documents that come from the code: the README's settings table and the workflow's picture.

`python -m tools.generate_settings` brings them up to date; a test fails while they are not.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from cdk_app.workflow import definitions
from node_fleet.settings import Settings
from node_fleet.settings.parsing import Spec, spec_of, written
from simulator.report.graph import picture

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PICTURES = ROOT / "docs"
MARKED = re.compile(r"(<!-- settings: written from the code -->\n).*?(<!-- end of settings -->)", re.DOTALL)
SHOWN = 60


def settings_table() -> str:
    """Every setting: its name in cdk.json, its environment name, default, range and meaning."""
    rows = ["| in cdk.json | environment | default | range | meaning |", "| --- | --- | --- | --- | --- |"]
    defaults = Settings()
    for one in dataclasses.fields(Settings):
        spec = spec_of(one)
        default = written(getattr(defaults, one.name))
        default = default if len(default) <= SHOWN else "see docs/decision-rules.md"
        cells = (one.name, spec.env, f"`{default}`" if default else "empty", _range(spec), spec.meaning)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _range(spec: Spec) -> str:
    if spec.choices:
        return ", ".join(spec.choices)
    if spec.low is None or spec.high is None:
        return ""
    return f"{spec.low:g} to {spec.high:g}{' ' + spec.unit if spec.unit else ''}"


def readme(text: str) -> str:
    """The README with its settings table as the code has it."""
    return MARKED.sub(lambda match: match[1] + settings_table() + match[2], text)


def pictures() -> dict[Path, str]:
    """Every workflow's picture by its file."""
    return {PICTURES / f"{name}.svg": picture(one) for name, one in definitions().items()}


def main() -> None:
    """Write them all."""
    README.write_text(readme(README.read_text(encoding="utf-8")), encoding="utf-8")
    for path, text in pictures().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
