"""The Python of a server command as its SSM document has it, because SSM limits the size of a document.

A program is joined from modules of which it needs a part. The document has the functions, methods, classes and values
that the program uses, in its own lines and order, without docstrings, comments and types, indented by two spaces.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Iterator

_PROGRAM = re.compile(r"(?<=<<'PYTHON')(.*\n)([\s\S]*?)(?=\nPYTHON\b)")
_INDENT = re.compile(r"^( +)\1", re.MULTILINE)


def with_shipped_programs(script: str) -> str:
    """The shell script, with every Python program in it as it is shipped."""
    return _PROGRAM.sub(lambda found: found[1] + shipped(found[2]), script)


@functools.lru_cache
def shipped(program: str) -> str:
    """The program without what it does not run."""
    return _INDENT.sub(r"\1", _only_used(_without_types(_without_comments(program))))


def _without_comments(program: str) -> str:
    """Without docstrings, and without lines that hold nothing or a comment."""
    dropped = set[int]()
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            dropped |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    lines = enumerate(program.split("\n"), 1)
    return "\n".join(line for number, line in lines if number not in dropped and not re.fullmatch(r"\s*(#.*)?", line))


def _without_types(program: str) -> str:
    """Without the types of parameters, results and values."""
    lines = [line.encode() for line in program.split("\n")]  # the columns of the syntax tree count bytes
    for number, start, end in sorted(_types(ast.parse(program)), reverse=True):
        lines[number - 1] = lines[number - 1][:start] + lines[number - 1][end:]
    return b"\n".join(lines).decode()


def _types(tree: ast.Module) -> Iterator[tuple[int, int, int]]:
    """Line, first and last column of each type, with the punctuation before it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and (given := node.annotation):
            yield node.lineno, node.col_offset + len(node.arg.encode()), given.end_col_offset or 0
        elif isinstance(node, ast.FunctionDef) and (given := node.returns):
            yield given.lineno, given.col_offset - len(" -> "), given.end_col_offset or 0
        elif isinstance(node, ast.AnnAssign) and node.value:
            yield node.lineno, node.target.end_col_offset or 0, node.annotation.end_col_offset or 0


def _only_used(program: str) -> str:
    """Without the definitions whose name no line mentions that is kept. One name used keeps all of that name."""
    lines = program.split("\n")
    paths: list[tuple[str, ...]] = [()] * len(lines)
    for parents, name, first, last in _definitions(ast.parse(program).body):
        paths[first - 1 : last] = [(*parents, name)] * (last - first + 1)
    words = defaultdict[str, set[str]](set)
    for path, line in zip(paths, lines, strict=True):
        words[path[-1] if path else ""] |= set(re.findall(r"\w+", line))
    used, unread = {""}, [""]
    while unread:
        found = words[unread.pop()] & words.keys() - used
        used |= found
        unread += found
    return "\n".join(line for path, line in zip(paths, lines, strict=True) if used.issuperset(path))


def _definitions(body: list[ast.stmt], *parents: str) -> Iterator[tuple[tuple[str, ...], str, int, int]]:
    """Class, name, first and last line of what may be left out; a class before its methods."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            if node.name.startswith("__"):
                continue
            name, first = node.name, min([node.lineno, *(each.lineno for each in node.decorator_list)])
        elif not parents and isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if len(targets) > 1 or not isinstance(targets[0], ast.Name):
                continue
            name, first = targets[0].id, node.lineno
        else:
            continue
        yield parents, name, first, node.end_lineno or first
        if isinstance(node, ast.ClassDef):
            yield from _definitions(node.body, name)
