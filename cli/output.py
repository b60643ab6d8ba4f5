"""What commands print: tables, JSON, one line for an error, and the exit codes.

Prints only; it fetches nothing.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Any, NoReturn

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table

from node_fleet.domain.model.text import escape_hidden, printable

LONGEST_ID = 32
"""The longest number, id or name: an instance id has 19 characters, a zone 15. What is longer may wrap."""
NARROWEST_TEXT = 24
GAP = 2
"""Characters between two columns."""


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


@contextmanager
def working(text: str) -> Iterator[Callable[[float], None]]:
    """Show on a terminal that something is being done; elsewhere nothing is printed.

    The block may report the share that is done (0 to 1): then a bar and the time left are shown.
    """
    stage = console(stderr=True)
    if not stage.is_terminal:
        yield lambda share: None
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=stage, transient=True) as shown:
        task = shown.add_task(escape(text), total=None)
        yield lambda share: shown.update(task, total=1.0, completed=share)


def write_page(path: Path, text: str, option: str) -> None:
    """Write the file that this option names, and create its folder. A write that fails leaves the file as it was."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # such as /dev/stdout
            path.write_text(text, encoding="utf-8")
            return
        target = path.resolve()
        written = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            written.write_text(text, encoding="utf-8")
            written.replace(target)
        finally:
            written.unlink(missing_ok=True)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}", hint=f"name another file with {option}") from error


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
    """Print a table; texts are printed as they are, never as markup. Only sentences wrap, never a number or an id.

    A column without any text is left out. Where the terminal is too narrow for that, each row is printed as names and
    values, one below the other.
    """
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    filled = [number for number in range(len(columns)) if not cells or any(row[number] for row in cells)]
    columns, cells = [columns[number] for number in filled], [[row[number] for number in filled] for row in cells]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    is_text = [
        any(len(one) > LONGEST_ID or one.count(" ") > 2 for one in column) for column in zip(*cells, strict=True)
    ]
    needed = sum(min(width, NARROWEST_TEXT) if text else width for width, text in zip(widths, is_text, strict=False))
    out = console()
    if cells and needed + GAP * (len(columns) - 1) > out.width:
        _records(title, columns, cells)
        return
    if title:
        out.print(escape(title), style="bold")
    shown = Table(box=box.SIMPLE_HEAD, padding=(0, GAP - 1, 0, 0), pad_edge=False, show_edge=False)
    for name, text in zip(columns, is_text or [False] * len(columns), strict=True):
        shown.add_column(name, overflow="fold", no_wrap=not text)
    for row in cells:
        shown.add_row(*map(escape, row))
    out.print(shown)
    out.print()


def _records(title: str, columns: Sequence[str], cells: Iterable[Sequence[str]]) -> None:
    """Each row as a block: its first cell as the heading, then a line for each other cell that is not empty."""
    out = console()
    if title:
        out.print(escape(title), style="bold")
    for first, *others in cells:
        out.print(escape(first), style="cyan")
        facts((f"  {name}", value) for name, value in zip(columns[1:], others, strict=True) if value)


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
