"""kubectl's JSONPath templates and custom columns, as far as shell scripts use them.

Fields, quoted fields, indexes, wildcards, `..` descent, filters, literals and range/end. Missing fields print nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final


class JsonPathError(ValueError):
    """A template that cannot be read: what is wrong where."""


_STEP: Final = re.compile(
    r"\.\.(?P<descend>[\w-]+)"
    r"|\.(?P<field>(?:[\w/-]|\\.)+)"
    r"|\.?\[(?P<quote>['\"])(?P<quoted>.*?)(?P=quote)\]"
    r"|\.?\[(?P<index>-?\d+)\]"
    r"|\.?\[(?P<slice>-?\d*:-?\d*)\]"
    r"|\.?\[\?\((?P<filter>.*?)\)\]"
    r"|(?P<all>\.?\[?\*\]?)"
    r"|(?P<self>[@$.])"
)
_FILTER: Final = re.compile(r"^(?P<left>@\S*?)\s*(?:(?P<op>==|!=|>=|<=|>|<)\s*(?P<right>.+))?$")
_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": lambda left, right: bool(left == right),
    "!=": lambda left, right: bool(left != right),
    ">=": lambda left, right: bool(left >= right),
    "<=": lambda left, right: bool(left <= right),
    ">": lambda left, right: bool(left > right),
    "<": lambda left, right: bool(left < right),
}


def find(path: str, root: Any) -> list[Any]:
    """Every value that the path reaches from root, in order."""
    values, place = [root], 0
    while place < len(path):
        step = _STEP.match(path, place)
        if step is None:
            raise JsonPathError(f"unrecognized character in path {path!r} at {path[place:]!r}")
        place = step.end()
        values = [found for value in values for found in _take(step, value)]
    return values


def _take(step: re.Match[str], value: Any) -> Iterator[Any]:
    if step["self"]:
        yield value
    elif step["descend"]:
        yield from _descend(step["descend"], value)
    elif step["all"]:
        yield from value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    elif step["filter"] is not None:
        yield from (item for item in value if _passes(step["filter"], item)) if isinstance(value, list) else ()
    elif step["index"] is not None:
        index = int(step["index"])
        if isinstance(value, list) and -len(value) <= index < len(value):
            yield value[index]
    elif step["slice"] is not None:
        first, _, last = step["slice"].partition(":")
        yield from value[int(first) if first else None : int(last) if last else None]
    else:
        name = step["quoted"] if step["quoted"] is not None else re.sub(r"\\(.)", r"\1", step["field"])
        if isinstance(value, dict) and name in value:
            yield value[name]


def _descend(name: str, value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        if name in value:
            yield value[name]
        for inner in value.values():
            yield from _descend(name, inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _descend(name, inner)


def _passes(condition: str, item: Any) -> bool:
    found = _FILTER.match(condition.strip())
    if not found:
        raise JsonPathError(f"unrecognized filter {condition!r}")
    left = find(found["left"], item)
    if found["op"] is None:
        return bool(left)
    right = found["right"].strip()
    wanted = right[1:-1] if right[:1] in "'\"" else json.loads(right)
    return bool(left) and _COMPARE[found["op"]](left[0], wanted)


def text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"))


def render(template: str, root: Any) -> str:
    """A whole template: text, {literals}, {paths} and {range PATH}...{end}."""
    parts = [(kind, body) for kind, body in _parts(template)]
    text, rest = _render(parts, root, root)
    if rest:
        raise JsonPathError("not in range, nothing to end")
    return text


def _parts(template: str) -> Iterator[tuple[str, str]]:
    for match in re.finditer(r"\{(?P<body>(?:\"[^\"]*\"|'[^']*'|[^{}\"'])*)\}|(?P<text>[^{]+)", template):
        if match["text"] is not None:
            yield "text", match["text"]
        else:
            yield "step", match["body"].strip()


def _render(parts: list[tuple[str, str]], value: Any, root: Any) -> tuple[str, list[tuple[str, str]]]:
    text = ""
    while parts:
        (kind, body), parts = parts[0], parts[1:]
        if kind == "text":
            text += body
        elif body == "end":
            return text, [("step", "end"), *parts] if value is root else parts
        elif body.startswith("range"):
            text, parts = _render_range(text, body.removeprefix("range").strip(), parts, value)
        elif body[:1] in "'\"" and body:
            text += body[1:-1].encode().decode("unicode_escape")
        else:
            text += " ".join(text_of(found) for found in find(_rooted(body), value))
    return text, parts


def _render_range(text: str, path: str, parts: list[tuple[str, str]], value: Any) -> tuple[str, list[tuple[str, str]]]:
    rest = _after_end(parts)
    for item in find(_rooted(path), value):
        piece, rest = _render(parts, item, None)
        text += piece
    return text, rest


def _after_end(parts: list[tuple[str, str]]) -> list[tuple[str, str]]:
    depth = 1
    for place, (kind, body) in enumerate(parts):
        depth += (kind == "step" and body.startswith("range")) - (kind == "step" and body == "end")
        if depth == 0:
            return parts[place + 1 :]
    raise JsonPathError("unterminated range: {end} is missing")


def _rooted(path: str) -> str:
    return path if path[:1] in (".", "[", "@", "$") or not path else f".{path}"


def custom_columns(spec: str, objects: list[Any]) -> list[list[str]]:
    """Header and rows of -o custom-columns=NAME:PATH,..."""
    columns = [part.partition(":") for part in re.split(r",(?![^\[]*\])", spec)]
    rows = [[name for name, _, _ in columns]]
    for obj in objects:
        rows.append([_cell(path.strip("{}"), obj) for _, _, path in columns])
    return rows


def _cell(path: str, obj: Any) -> str:
    found = find(_rooted(path), obj)
    return ",".join(text_of(value) for value in found) if found else "<none>"
