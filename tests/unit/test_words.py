"""The vocabulary: words that are never right in text, and words that name no module, class, function or parameter.

docs/glossary.md has the terms to use instead.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = re.compile(
    r"\b(blows|dry pool|foreseen|happenings|laptop|may go|mend(?:s|ed|ing)?|nobody|ran dry|runs dry|seams|sick"
    r"|somebody|survivors?|taken back|theatre|told)\b",
    re.IGNORECASE,
)
IN_NAMES = frozenset(
    {
        *("blow", "blows", "calm", "face", "foreseen", "happenings", "laptop", "mend", "nobody", "remembering"),
        *("room", "seams", "spare", "survivor", "survivors", "theatre", "told", "wiring", "world"),
    }
)
ALLOWED = frozenset({"tests/unit/test_words.py"})  # files that may name these words


def tracked(*endings: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    return [name for name in listed if name.endswith(endings) and (ROOT / name).exists() and name not in ALLOWED]


def test_no_text_has_a_word_that_is_never_right() -> None:
    found = [
        f"{name}:{number}: {match[0]}"
        for name in tracked(".py", ".sh", ".md", ".yaml", ".yml", ".toml", "node-fleet")
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1)
        for match in TEXT.finditer(line)
    ]
    assert found == []


@cache
def is_wrong(name: str) -> bool:
    """Whether such a word is part of a snake_case or CamelCase name."""
    return any(word.lower() in IN_NAMES for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name))


def names_in(path: Path) -> Iterator[tuple[int, str]]:
    """The module's own name, and every class, function and parameter that it defines if one of them may be wrong."""
    yield 1, path.stem
    text = path.read_text(encoding="utf-8")
    if not any(map(is_wrong, set(re.findall(r"\w+", text)))):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("test_"):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


def test_no_module_class_function_or_parameter_is_named_with_such_a_word() -> None:
    found = [
        f"{name}:{line}: {defined}"
        for name in tracked(".py")
        for line, defined in names_in(ROOT / name)
        if is_wrong(defined)
    ]
    assert found == []
