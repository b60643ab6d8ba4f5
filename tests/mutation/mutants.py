"""Makes mutants: copies of a source file with one small fault each, with the operators of mutmut and two of our own.

mutmut's own runner does not fit: it leaves out properties and tables, drops no call, and puts all mutants of a function
into one file, which changes the scripts that insert this source. So only its operators are used.
"""

from __future__ import annotations

import difflib
import functools
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import libcst as cst
from libcst import matchers
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation import mutators

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TARGETS = tomllib.loads((HERE / "targets.toml").read_text(encoding="utf-8"))
LEFT_OUT = (cst.Annotation, cst.Decorator, cst.Import, cst.ImportFrom)
HARMLESS = matchers.If(test=matchers.Name("TYPE_CHECKING")) | matchers.Arg(keyword=matchers.Name("strict"))
"""Imports for the type checker alone, and the assertion of zip that lengths are equal, which holds in correct code."""
TEXT_LIMIT = matchers.Slice(lower=None, upper=matchers.Integer(matchers.MatchIfTrue(lambda value: len(value) > 2)))
"""The length at which a foreign text is cut: one character more or less decides nothing."""
LOGGED = matchers.Expr(matchers.Call(func=matchers.Attribute(value=matchers.Name("logger"))))
"""A line of the log informs and decides nothing."""
TEXT = matchers.Expr(matchers.SimpleString() | matchers.ConcatenatedString())
ACT = matchers.Expr(matchers.Call() | matchers.Await()) | matchers.Raise() | matchers.AugAssign() | matchers.Continue()
Make = Callable[[Any], Iterable[cst.CSTNode]]


def drop_statement(node: cst.SimpleStatementLine) -> Iterator[cst.CSTNode]:
    """A call, an error, a skipped turn or an addition does not happen."""
    if len(node.body) == 1 and matchers.matches(node.body[0], ACT):
        yield node.with_changes(body=[cst.Pass()])


def force_condition(node: cst.If) -> Iterator[cst.CSTNode]:
    """One branch is always taken."""
    test = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    for operator, literal in ((cst.And(), "False"), (cst.Or(), "True")):
        yield node.with_changes(test=cst.BooleanOperation(left=test, operator=operator, right=cst.Name(literal)))


KEYWORDS = cst.Is | cst.IsNot | cst.In | cst.NotIn | cst.Break | cst.Continue
COMBINED = cst.BinaryOperation | cst.UnaryOperation | cst.BooleanOperation | cst.ComparisonTarget | cst.AugAssign
OPERATORS: tuple[tuple[Any, Make], ...] = (
    (cst.BaseNumber, mutators.operator_number),
    (cst.Name, mutators.operator_name),
    (cst.UnaryOperation, mutators.operator_remove_unary_ops),
    (KEYWORDS, mutators.operator_keywords),
    (COMBINED, mutators.operator_swap_op),
    (cst.IfExp, mutators.operator_if_exp),
    (cst.SimpleStatementLine, drop_statement),
    (cst.If, force_condition),
)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: `node` of the file becomes `replacement`."""

    file: str
    line: int
    function: str
    module: cst.Module = field(repr=False)
    node: cst.CSTNode = field(repr=False)
    replacement: cst.CSTNode = field(repr=False)

    def text(self) -> str:
        """The file with the fault."""
        return self.module.deep_replace(self.node, self.replacement).code  # type: ignore[attr-defined,no-any-return]

    def diff(self) -> tuple[str, str]:
        """The lines that the fault removes and those that it adds, without their indents."""
        lines = list(difflib.ndiff(self.module.code.splitlines(), self.text().splitlines()))
        return tuple(  # type: ignore[return-value]
            "\n".join(line[2:].strip() for line in lines if line.startswith(sign)) for sign in ("- ", "+ ")
        )


class _Finder(cst.CSTVisitor):
    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, file: str, module: cst.Module) -> None:
        super().__init__()
        self.file, self.module, self.names, self.found = file, module, [""], list[Mutant]()

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, LEFT_OUT) or matchers.matches(node, HARMLESS | TEXT_LIMIT):
            return False
        if isinstance(node, cst.SimpleStatementLine) and matchers.matches(node.body[0], LOGGED | TEXT):
            return False
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            self.names.append(f"{self.names[-1]}.{node.name.value}".lstrip("."))
        for kind, make in OPERATORS:
            if isinstance(node, kind):
                self.found += [self._mutant(node, replacement) for replacement in make(node)]
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if isinstance(original_node, cst.FunctionDef | cst.ClassDef):
            self.names.pop()

    def _mutant(self, node: cst.CSTNode, replacement: cst.CSTNode) -> Mutant:
        line = self.get_metadata(PositionProvider, node).start.line  # type: ignore[attr-defined]
        return Mutant(self.file, line, self.names[-1], self.module, node, replacement)


def mutants_of(file: str, root: Path = ROOT) -> list[Mutant]:
    """Every mutant of a file, in the order of the text."""
    wrapper = MetadataWrapper(cst.parse_module((root / file).read_text(encoding="utf-8")), unsafe_skip_copy=True)
    finder = _Finder(file, wrapper.module)
    wrapper.visit(finder)
    return finder.found


@functools.cache
def targets() -> tuple[str, ...]:
    """The files of the list."""
    found = {path for pattern in TARGETS["files"] for path in ROOT.glob(pattern)}
    return tuple(sorted(path.relative_to(ROOT).as_posix() for path in found))


@functools.cache
def equivalents() -> dict[tuple[str, str, str, str], str]:
    """Mutants that no test can kill, since they change nothing that matters: their reasons."""
    rows = tomllib.loads((HERE / "equivalent.toml").read_text(encoding="utf-8")).get("mutant", [])
    return {(row["file"], row["function"], row["before"], row["after"]): row["reason"] for row in rows}


def is_equivalent(mutant: Mutant) -> bool:
    """Whether the list of equivalent mutants has it."""
    if not any(row[:2] == (mutant.file, mutant.function) for row in equivalents()):
        return False  # the text of a mutant takes time
    return (mutant.file, mutant.function, *mutant.diff()) in equivalents()
