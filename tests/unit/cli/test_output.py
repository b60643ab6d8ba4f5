"""Tables keep numbers and ids whole at every width, and progress is shown on a terminal only."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from cli import output
from cli.output import CommandError, table, working, write_page

WORKERS = [
    ("i-0aaaaaaaaaaaaaaa1", "ap-southeast-1a", "t3.small", "on-demand", "running", "12 min", ""),
    ("i-0bbbbbbbbbbbbbbb2", "ap-southeast-1b", "t3.small", "spot", "running", "1 min", "termination"),
]
COLUMNS = ("instance", "zone", "type", "market", "state", "age", "notice")
SENTENCE = "pending 3 for 2 of 2 readings -> +2; CPU 50 % over 30 %; no earlier action; workers 2 of 10"


def printed(width: int, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    screen = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "console", lambda **_: Console(file=screen, width=width, highlight=False))
        table("", columns, rows)
    return screen.getvalue().splitlines()


@given(width=st.integers(34, 160))
def test_no_id_and_no_number_is_folded_at_any_width(width: int) -> None:
    lines = printed(width, COLUMNS, WORKERS)
    assert all(len(line) <= width for line in lines)
    for row in WORKERS:
        for cell in filter(None, row):
            assert any(cell in line for line in lines), cell


@given(width=st.integers(34, 160))
def test_a_sentence_wraps_between_words_and_loses_none(width: int) -> None:
    rows = [("2026-11-29 11:00", "2 → 4", SENTENCE, "run-000012")]
    lines = printed(width, ("time (UTC)", "workers", "why or how", "execution"), rows)
    assert all(len(line) <= width for line in lines)
    words = " ".join(lines).split()
    assert not set(SENTENCE.split()) - set(words)
    assert any("run-000012" in line for line in lines)


def test_a_narrow_terminal_shows_one_record_a_line_and_a_wide_one_a_table() -> None:
    assert [line.rstrip() for line in printed(50, COLUMNS, WORKERS[:1])] == [
        "i-0aaaaaaaaaaaaaaa1",
        "  zone    ap-southeast-1a",
        "  type    t3.small",
        "  market  on-demand",
        "  state   running",
        "  age     12 min",
    ]
    assert printed(90, COLUMNS, WORKERS[:1])[0].split() == list(COLUMNS[:-1]), "the empty column is left out"


def test_a_table_without_rows_shows_its_columns() -> None:
    assert printed(60, ("a", "b"), [])[0].split() == ["a", "b"]


def test_progress_is_silent_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with working("reading") as report:
        report(0.5)
    assert capsys.readouterr() == ("", "")


def test_progress_on_a_terminal_shows_the_text_the_share_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(output, "console", lambda **_: Console(file=screen, width=80, force_terminal=True))
    with working("simulating [20m]") as report:
        report(0.5)
    shown = screen.getvalue()
    assert "simulating [20m]" in shown
    assert "━" in shown
    assert shown.endswith("\x1b[2K"), "the last line is erased"


def test_a_page_that_cannot_be_written_leaves_the_one_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "new" / "page.html"
    write_page(page, "first", "--html")

    def disk_full(path: Path, *_: Any, **__: Any) -> int:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", disk_full)
    with pytest.raises(CommandError, match=f"cannot write {page}: No space left on device") as refused:
        write_page(page, "second", "--html")
    assert refused.value.hint == "name another file with --html"
    assert [(one, one.read_text()) for one in page.parent.iterdir()] == [(page, "first")]


def test_a_page_can_be_written_to_a_device() -> None:
    write_page(Path(os.devnull), "text", "--html")
    assert not Path(os.devnull).is_file()
