"""What commands print: tables, JSON, one line for an error, and the exit codes.

Prints only; it fetches nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, NoReturn

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table

from node_fleet.domain.model.text import escape_hidden, printable


class ExitCode(IntEnum):
    """What a command's end means to a script."""

    OK = 0
    FAILED = 1
    WRONG_USE = 2
    NOTHING_DONE = 3
    STOPPED = 130


class CommandError(Exception):
    """An error that is printed in one line. `hint` is what to type or do instead."""

    def __init__(self, text: str, *, hint: str = "", code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(text)
        self.text = text
        self.hint = hint
        self.code = code


class WrongUseError(CommandError):
    """The command line is wrong; the hint says what is right."""

    def __init__(self, text: str, *, hint: str) -> None:
        super().__init__(text, hint=hint, code=ExitCode.WRONG_USE)


class StoppedError(Exception):
    """Ctrl-C ended the command; the text says what is left."""


@contextmanager
def leaving(text: str) -> Iterator[None]:
    """Ctrl-C inside the block ends the command with this text: what is left, and how to see or end it."""
    try:
        yield
    except KeyboardInterrupt:
        raise StoppedError(text) from None


class SafeConsole(Console):
    """A console whose texts, wherever they come from, cannot move the cursor, recolour or reorder what is printed."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of the renderable without hidden characters; those of rich itself stay."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def console(*, stderr: bool = False) -> Console:
    """A console for the streams of the moment; without colour where the output is not a terminal."""
    return SafeConsole(stderr=stderr, highlight=False, soft_wrap=False)


def say(text: str = "") -> None:
    """Print one line without markup."""
    console().print(escape(text))


def note(text: str) -> None:
    """Print a line on standard error, so that --json stays clean."""
    console(stderr=True).print(escape(text), style="dim")


def print_json(value: Any) -> None:
    """Print the answer as one JSON document."""
    sys.stdout.write(escape_hidden(json.dumps(value, indent=2, default=str, ensure_ascii=False)) + "\n")


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; texts are printed as they are, never as markup."""
    shown = Table(title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for number, name in enumerate(columns):
        shown.add_column(name, overflow="fold", no_wrap=number == 0)
    for row in rows:
        shown.add_row(*(escape("" if cell is None else str(cell)) for cell in row))
    console().print(shown)


def facts(rows: Iterable[tuple[str, object]], *, title: str = "") -> None:
    """Print names and values in two columns."""
    shown = Table(
        title=title or None, title_justify="left", title_style="bold", box=None, show_header=False, pad_edge=False
    )
    shown.add_column(style="cyan", no_wrap=True)
    shown.add_column(overflow="fold")
    for name, value in rows:
        shown.add_row(escape(name), escape(str(value)))
    console().print(shown)


def refuse(error: CommandError) -> NoReturn:
    """Print an error in one line and exit with its code."""
    text = printable(" ".join(error.text.split()))
    between = " " if text.endswith("?") else "; "
    sys.stderr.write(f"node-fleet: {text}{between + error.hint if error.hint else ''}\n")
    raise SystemExit(int(error.code))
