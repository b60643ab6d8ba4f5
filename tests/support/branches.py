"""Notes which branches of the handlers ran in any test, from marks that are set as their modules load.

A mark stands in every arm: functions, both sides of an if or a conditional expression, loops, except, match. It
changes nothing else: line numbers and files stay, and the handlers on the disk have no marks.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

FOLDER = Path(__file__).parents[2] / "functions" / "handlers"
MARK = "_mark_this_arm"
SEEN: set[str] = set()


def mark(arm: str) -> None:
    """Note that an arm ran."""
    SEEN.add(arm)


def arms(folder: Path = FOLDER) -> set[str]:
    """Every arm of the handlers, written as `launch_nodes.py:31 if`."""
    return {arm for file in sorted(folder.glob("*.py")) for arm in marked(file.read_bytes(), file.name)[1]}


def marked(source: bytes, name: str) -> tuple[ast.Module, list[str]]:
    """The module with a mark in each arm, and the arms."""
    marks = _Marks(name)
    tree: ast.Module = marks.visit(ast.parse(source))
    return ast.fix_missing_locations(tree), marks.arms


def install() -> None:
    """From now on handlers load with marks."""
    sys.meta_path.insert(0, _Finder())


class _Marks(ast.NodeTransformer):
    def __init__(self, name: str) -> None:
        self.name = name
        self.arms: list[str] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        opening = 1 if ast.get_docstring(node, clean=False) is not None else 0
        node.body.insert(opening, self._statement(node, f"def {node.name}"))
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        node.body.insert(0, self._statement(node, "if"))
        node.orelse.insert(0, self._statement(node, "else"))
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        node.body.insert(0, self._statement(node, "for"))
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        self.generic_visit(node)
        node.body.insert(0, self._statement(node, "while"))
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        self.generic_visit(node)
        node.body.insert(0, self._statement(node, "except"))
        return node

    def visit_match_case(self, node: ast.match_case) -> ast.AST:
        self.generic_visit(node)
        node.body.insert(0, self._statement(node.pattern, "case"))
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        node.body = self._expression(node.body, "if-expression, when true")
        node.orelse = self._expression(node.orelse, "if-expression, when false")
        return node

    def _expression(self, value: ast.expr, word: str) -> ast.expr:
        return ast.copy_location(ast.BoolOp(op=ast.Or(), values=[self._call(value, word), value]), value)

    def _statement(self, at: Any, word: str) -> ast.stmt:
        return ast.copy_location(ast.Expr(value=self._call(at, word)), at)

    def _call(self, at: Any, word: str) -> ast.expr:
        arm = f"{self.name}:{at.lineno} {word}"
        self.arms.append(arm)
        call = ast.Call(func=ast.Name(id=MARK, ctx=ast.Load()), args=[ast.Constant(value=arm)], keywords=[])
        return ast.copy_location(call, at)


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        tree, _ = marked(self.get_data(path), Path(path).name)
        return compile(tree, path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__[MARK] = mark
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        package, _, name = fullname.partition(".")
        file = FOLDER / f"{name}.py"
        if package != "handlers" or not name or not file.exists():
            return None
        return importlib.util.spec_from_file_location(fullname, file, loader=_Loader(fullname, str(file)))
