"""Reads YAML with line numbers and gathers every problem, instead of stopping at the first.

`Section` is one mapping: each value is asked for by key, type and range; `finish` reports the keys nobody asked for.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import yaml

T = TypeVar("T")
_DURATION: Final = re.compile(r"^(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?$")
_PARTS: Final = (86_400.0, 3_600.0, 60.0, 1.0)


class _Required:
    """Stands for "no default"."""


REQUIRED: Final[Any] = _Required()


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One mistake: the line it is on, the key it is under, and what would be right."""

    line: int
    key: str
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.key}: {self.message}"


def nearest(word: str, names: Iterable[str]) -> str:
    found = difflib.get_close_matches(word, list(names), n=1, cutoff=0.5)
    return f"; did you mean {found[0]}?" if found else ""


def duration_seconds(value: Any) -> float | None:
    """'90s', '45m', '1h30m', '24h' or a number of seconds; None when it is none of these."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if math.isfinite(value) and value >= 0 else None
    found = _DURATION.match(value) if isinstance(value, str) and value else None
    if not found:
        return None
    return sum(float(number) * unit for number, unit in zip(found.groups(), _PARTS, strict=True) if number)


class Section:
    """One mapping of the file."""

    def __init__(self, node: yaml.Node, path: str, problems: list[Problem]) -> None:
        self._path = path
        self._problems = problems
        self.line = node.start_mark.line + 1
        self._values: dict[str, yaml.Node] = {}
        self._lines: dict[str, int] = {}
        self._asked: list[str] = []
        if isinstance(node, yaml.MappingNode):
            self._read_keys(node)
        else:
            self._problems.append(
                Problem(
                    line=self.line, key=path or "(file)", message=f"expected keys with values, found {_shown(node)}"
                )
            )

    def _read_keys(self, node: yaml.MappingNode) -> None:
        for key_node, value in node.value:
            key = str(key_node.value)
            if key in self._values:
                self.problem(key, "is given twice", line=key_node.start_mark.line + 1)
            self._values[key] = value
            self._lines[key] = key_node.start_mark.line + 1

    def path_of(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def line_of(self, key: str) -> int:
        return self._lines.get(key, self.line)

    def problem(self, key: str, message: str, *, line: int | None = None) -> None:
        self._problems.append(Problem(line=line or self.line_of(key), key=self.path_of(key), message=message))

    def has(self, key: str) -> bool:
        return key in self._values

    @property
    def names(self) -> list[str]:
        return list(self._values)

    def _node(self, key: str, default: Any) -> yaml.Node | None:
        self._asked.append(key)
        if key not in self._values and default is REQUIRED:
            self.problem(key, "is missing")
        return self._values.get(key)

    def value(self, key: str, default: Any = None) -> Any:
        """The plain value, whatever it is."""
        node = self._node(key, default)
        return default if node is None else plain(node)

    def number(self, key: str, default: Any = REQUIRED, *, low: float = 0.0, high: float = math.inf) -> Any:
        node = self._node(key, default)
        if node is None:
            return 0.0 if default is REQUIRED else default
        value = plain(node)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            self.problem(key, f"expected a number, found {value!r}")
        elif not low <= value <= high:
            self.problem(key, f"expected {_span(low, high)}, found {value:g}")
        else:
            return float(value)
        return low

    def whole(self, key: str, default: Any = REQUIRED, *, low: int = 0, high: int = 10**9) -> Any:
        node = self._node(key, default)
        if node is None:
            return low if default is REQUIRED else default
        value = plain(node)
        if isinstance(value, bool) or not isinstance(value, int):
            self.problem(key, f"expected a whole number, found {value!r}")
        elif not low <= value <= high:
            self.problem(key, f"expected {_span(low, high)}, found {value}")
        else:
            return value
        return low

    def duration(self, key: str, default: Any = REQUIRED, *, low: float = 0.0) -> Any:
        node = self._node(key, default)
        if node is None:
            return low if default is REQUIRED else default
        value = plain(node)
        seconds = duration_seconds(value)
        if seconds is None:
            self.problem(key, f"expected a time such as 90s, 45m or 24h, found {value!r}")
        elif seconds < low:
            self.problem(key, f"expected {low:g} s or more, found {value!r}")
        else:
            return seconds
        return low

    def text(self, key: str, default: Any = REQUIRED, *, choices: Sequence[str] = (), pattern: str = "") -> Any:
        node = self._node(key, default)
        if node is None:
            return (choices[0] if choices else "") if default is REQUIRED else default
        value = plain(node)
        if not isinstance(value, str):
            self.problem(key, f"expected text, found {value!r}")
        elif choices and value not in choices:
            known = nearest(value, choices).removeprefix("; ") or f"known: {', '.join(choices)}"
            self.problem(key, f"{value!r} is not known; {known}")
        elif pattern and not re.fullmatch(pattern, value):
            self.problem(key, f"{value!r} does not match {pattern}")
        else:
            return value
        return choices[0] if choices else ""

    def switch(self, key: str, default: bool) -> bool:
        value = self.value(key, default)
        if not isinstance(value, bool):
            self.problem(key, f"expected true or false, found {value!r}")
            return default
        return value

    def texts(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        value = self.value(key, list(default))
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.problem(key, f"expected a list of texts, found {value!r}")
            return default
        return tuple(value)

    def text_map(self, key: str) -> dict[str, str]:
        value = self.value(key, {})
        if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
            self.problem(key, f"expected texts by name (quote true and numbers), found {value!r}")
            return {}
        return {str(name): item for name, item in value.items()}

    def section(self, key: str) -> Section | None:
        node = self._node(key, None)
        return None if node is None else Section(node, self.path_of(key), self._problems)

    def sections(self, key: str, default: Any = None) -> list[Section]:
        node = self._node(key, default)
        if node is None:
            return []
        if not isinstance(node, yaml.SequenceNode):
            self.problem(key, f"expected a list, found {_shown(node)}")
            return []
        return [Section(item, f"{self.path_of(key)}[{place}]", self._problems) for place, item in enumerate(node.value)]

    def finish(self) -> None:
        """Report the keys that nobody asked for."""
        for key in self._values:
            if key not in self._asked:
                known = f"; known: {', '.join(self._asked)}"
                self.problem(key, f"unknown key{nearest(key, self._asked) or known}")


def plain(node: yaml.Node) -> Any:
    """The node's value as YAML's safe loader would give it."""
    constructor = yaml.SafeLoader("")
    try:
        return constructor.construct_object(node, deep=True)
    finally:
        constructor.dispose()


def _shown(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return repr(node.value)
    return "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"


def _span(low: float, high: float) -> str:
    return f"{low:g} or more" if high in (math.inf, 10**9) else f"{low:g} to {high:g}"
