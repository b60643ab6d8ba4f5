"""Replaces ${NAME} placeholders in a folder of files by environment variables, and refuses an unset or empty one.

It runs on the server with the standard library. It must not fill in secrets, which reach the cluster as Secrets.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

PLACEHOLDER = re.compile(r"\$\{([A-Z][A-Z0-9_]*)\}")
TEMPLATES = (".yaml", ".yml")


class RenderError(Exception):
    """A placeholder has no value."""


def placeholders(text: str) -> list[str]:
    """The names of the placeholders in a text, sorted, each once."""
    return sorted(set(PLACEHOLDER.findall(text)))


def render(text: str, values: Mapping[str, str]) -> str:
    """The text with every placeholder replaced; the error lists all missing names."""
    missing = [name for name in placeholders(text) if not values.get(name)]
    if missing:
        raise RenderError(f"no value for {', '.join(missing)}")
    return PLACEHOLDER.sub(lambda match: values[match.group(1)], text)


def render_folder(source: Path, target: Path, values: Mapping[str, str]) -> None:
    """Renders the YAML files directly in a folder; other files and folders are not copied."""
    target.mkdir(parents=True, exist_ok=True)
    for file in sorted(source.iterdir()):
        if file.suffix in TEMPLATES:
            try:
                (target / file.name).write_text(render(file.read_text(), values))
            except RenderError as error:
                raise RenderError(f"{file}: {error}") from None


def main(arguments: list[str]) -> int:
    """render.py TARGET_FOLDER SOURCE_FOLDER...: each source becomes a folder of its name in the target."""
    target, *sources = map(Path, arguments)
    try:
        for source in sources:
            render_folder(source, target / source.name, os.environ)
    except RenderError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
