"""The start script: any Python is answered in one sentence, and so is a folder that cannot be used."""

from __future__ import annotations

import ast
import errno
import functools
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli import start

ROOT = Path(__file__).resolve().parents[3]
NAMES = ("python2", "python2.7", "python3.6", "python3.8", "python3.10")


def old_pythons() -> list[str]:
    """Pythons before 3.11 on this machine, on the path and of pyenv."""
    on_path = [found for name in NAMES if (found := shutil.which(name))]
    of_pyenv = [str(path) for name in NAMES for path in Path.home().glob(f".pyenv/versions/*/bin/{name}")]
    pythons = [*of_pyenv, *on_path]
    return [one for one in pythons if not subprocess.run([one, "-c", ""], capture_output=True, check=False).returncode]


def test_an_old_python_is_refused_in_one_sentence() -> None:
    pythons = old_pythons()
    if not pythons:
        pytest.skip("this machine has no Python before 3.11")
    for python in pythons:
        ended = subprocess.run([python, str(ROOT / "node-fleet"), "demo"], capture_output=True, text=True, check=False)
        assert ended.returncode == 1
        assert ended.stderr.startswith("node-fleet: needs Python 3.11 or newer, ")
        assert ended.stderr.count("\n") == 1, ended.stderr


def test_the_start_script_uses_no_syntax_that_an_old_python_lacks() -> None:
    tree = ast.parse((ROOT / "node-fleet").read_text(encoding="utf-8"), feature_version=(3, 4))
    modern = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.Nonlocal, ast.Starred)
    assert not [node for node in ast.walk(tree) if isinstance(node, modern)]
    assert not [
        one for node in ast.walk(tree) if isinstance(node, ast.Call) for one in node.args if "print" in str(one)
    ]


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_a_folder_that_cannot_be_used_is_named_with_the_reason(
    code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(_: str) -> None:
        raise OSError(code, os.strerror(code), "/srv/node-fleet/.venv/node-fleet-pins")

    monkeypatch.setattr(start, "install", refused)
    assert start.main(["demo"]) == 1
    err = capsys.readouterr().err
    assert f"cannot use /srv/node-fleet/.venv/node-fleet-pins: {os.strerror(code)}; use a clone in a folder" in err
    assert err.count("\n") == 1


def test_test_shows_its_own_help_and_runs_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(start, "run", lambda *_: pytest.fail("a command was run"))
    assert start.main(["test", "--help"]) == 0
    shown = capsys.readouterr().out
    for option in ("--all", "--changed", "--since", "--failed", "--conformance", "-k", "--sample-seed", "--schedules"):
        assert f"  {option}" in shown


@pytest.mark.parametrize(
    ("complete", "command", "said"),
    [
        (False, "demo", "are not complete; the next command installs them again"),
        (True, "cdk", "a deployment that has begun continues in CloudFormation"),
        (True, "test", "stopped: test; nothing has to be cleaned up"),
    ],
)
def test_ctrl_c_says_what_is_left(
    complete: bool, command: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(start, "start", interrupted)
    monkeypatch.setattr(start, "is_complete", lambda: complete)
    assert start.main([command]) == 130
    assert said in capsys.readouterr().err


def test_without_words_the_help_is_shown_and_version_names_the_version() -> None:
    for words, expected in (([], "Exit codes: 0 done"), (["--version"], "node-fleet 0.")):
        ended = subprocess.run(
            [sys.executable, "-m", "cli.main", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
        assert expected in " ".join(ended.stdout.split())
        assert ended.stderr == ""


TOOLS = ("ruff", "mypy", "lint-imports", "python")


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the tools of `test`; each notes that it ran, and fails when the folder has fail-TOOL."""
    for tool in TOOLS:
        lines = f"touch {tmp_path}/ran-{tool}; [ ! -e {tmp_path}/fail-{tool} ] || {{ echo found by {tool}; exit 1; }}"
        (tmp_path / tool).write_text(f"#!/bin/sh\n{lines}\n", encoding="utf-8")
        (tmp_path / tool).chmod(0o755)
    monkeypatch.setattr(start, "PYTHON", tmp_path / "python")
    return tmp_path


@pytest.mark.parametrize(
    ("failing", "ran", "words"),
    [
        ((), TOOLS, ()),
        (("python",), TOOLS, ()),
        (("ruff",), ("ruff",), ("ruff failed, its findings are above; no test was run",)),
        (("mypy",), TOOLS, ("mypy failed:\nfound by mypy", "mypy failed, as printed above")),
        (("mypy", "lint-imports"), TOOLS, ("found by lint-imports", "mypy and lint-imports failed, as printed above")),
    ],
)
def test_types_and_layers_are_checked_beside_the_tests_and_fail_the_command(
    failing: tuple[str, ...],
    ran: tuple[str, ...],
    words: tuple[str, ...],
    tools: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for tool in failing:
        (tools / f"fail-{tool}").touch()
    assert start.test([]) == bool(failing)
    err = capsys.readouterr().err
    assert all(text in err for text in words) and bool(words) == bool(err)
    assert {path.name for path in tools.glob("ran-*")} == {f"ran-{tool}" for tool in ran}


def test_ctrl_c_before_the_command_line_is_loaded_shows_no_stack_trace(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT), str(ROOT / "functions")])
    words = [sys.executable, "-P", "-m", "cli", "demo"]
    ended = subprocess.run(
        words,
        env={**os.environ, "PYTHONPATH": path},
        preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # ignored by what a script starts
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")
