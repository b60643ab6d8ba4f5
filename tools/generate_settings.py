"""Writes the documents that come from the code: docs/settings.md and the pictures of the workflows.

`python -m tools.generate_settings` brings them up to date; a test fails while they are not.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
from pathlib import Path
from typing import Any

from cdk_app.workflow import definitions
from node_fleet.settings import Settings, spec_of
from node_fleet.settings.parsing import written
from simulator.report.graph import picture

DOCS = Path(__file__).resolve().parents[1] / "docs"
SHOWN = 60
OPENING = """# Settings

Generated from the code by `python -m tools.generate_settings`.

Write a setting in `cdk.json` under `settings` of its cluster, by the name in the first column. The Lambda functions
read it as the environment variable in the second column. `cdk synth` refuses wrong settings and lists them all with
its value and its range. An earlier name still works and causes a deprecation warning; giving both names is an error.
"""


def settings_page() -> str:
    """Every setting by group: its name in cdk.json, environment name, default, range and meaning."""
    defaults = {f.name: (f, getattr(Settings(), f.name)) for f in dataclasses.fields(Settings)}
    parts = [OPENING]
    for group in Settings.__mro__:
        if meanings := meanings_of(group):
            parts.append(f"## {inspect.cleandoc(group.__doc__ or '')}\n")
            parts.append("| In cdk.json | Environment | Default | Range | Meaning |\n| --- | --- | --- | --- | --- |")
            parts += [_row(*defaults[name], meaning) for name, meaning in meanings.items()]
            parts.append("")
    return "\n".join(parts)


def meanings_of(group: type) -> dict[str, str]:
    """The string below each field of the class, by the field's name."""
    if group.__module__.partition(".")[0] != "node_fleet":
        return {}
    (definition,) = ast.parse(inspect.getsource(group)).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for statement, below in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            assert isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant), statement.target.id
            found[statement.target.id] = str(below.value.value)
    return found


def _row(field: dataclasses.Field[Any], default: Any, meaning: str) -> str:
    spec, text = spec_of(field), written(default)
    text = f"`{text}`" if text else "empty"
    meaning += f" Earlier name: `{spec.old_env}`." if spec.old_env else ""
    cells = (field.name, spec.env, text if len(text) <= SHOWN else "[built-in metrics](decision-rules.md)", spec.range)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in (*cells, meaning)) + " |"


def pictures() -> dict[Path, str]:
    """Every workflow's picture by its file."""
    return {DOCS / f"{name}.svg": picture(one) for name, one in definitions().items()}


def documents() -> dict[Path, str]:
    """The text of every generated document by its file."""
    return {DOCS / "settings.md": settings_page(), **pictures()}


def main() -> None:
    """Write them all."""
    for path, text in documents().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
