"""The tiers of the tests, the tests that a changed file reaches, and the start script that runs them."""

from __future__ import annotations

import errno
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CalledProcessError
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import settings
from xdist.remote import WorkerInteractor

from tests.support.changed_files import reached_tests
from tests.support.file_order import LONG_FIRST, WAITING, WaitingTogether, begin_elsewhere, turn
from tests.support.quick_run import QuickRun, last_quick_run, record_quick_run
from tests.support.terse_workers import report_less
from tests.support.tiers import QUICK_EXAMPLES, QUICK_PROFILE, examples, not_drawn

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def start_script() -> Any:
    """The module behind `node-fleet`, which tests change and no other test shares."""
    spec = importlib.util.spec_from_file_location("start_script", ROOT / "cli" / "start.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stems(*changed: str) -> set[str]:
    reached = reached_tests(changed)
    assert reached is not None
    return {Path(file).stem for file in reached} - {"test_words"}


def test_a_changed_rule_reaches_its_own_test_and_through_the_handlers_those_of_the_workflow() -> None:
    reached = stems("functions/node_fleet/domain/scaling/decision.py")
    assert {"test_decision", "test_decide", "test_schedules", "test_scenarios_up"} <= reached
    assert "test_manifests" not in reached


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("cluster/commands/drain_node.sh", "test_drain_node"),
        ("docs/settings.md", "test_generated"),
        ("simulator/scenario/flash-sale.yaml", "test_cli_demo"),
        ("statemachine/autoscaler.asl.yaml", "test_definition"),
        ("tests/workflow/conftest.py", "test_interruption"),
    ],
)
def test_a_file_that_no_module_imports_reaches_the_tests_that_use_it(changed: str, expected: str) -> None:
    assert expected in stems(changed)


def test_only_the_test_of_the_vocabulary_reads_a_file_that_no_module_names() -> None:
    assert stems("CHANGELOG.md") <= {"test_tiers"}  # which names it here
    assert reached_tests(()) == frozenset()


def test_changed_pins_reach_every_test() -> None:
    assert reached_tests(("requirements.txt",)) is None


def words_of_pytest(start_script: Any, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> list[str]:
    commands: list[list[str]] = []
    monkeypatch.setattr(start_script, "run", lambda command: commands.append(command) or 0)
    monkeypatch.setattr(start_script, "check", lambda commands, failed: None)  # types and layers take a minute
    assert start_script.test(words) == 0
    return commands[-1][commands[-1].index("pytest") + 1 :]


def test_the_arguments_of_test_reach_pytest(start_script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert words_of_pytest(start_script, monkeypatch, ["--all", "-k", "x"])[-3:] == ["--all", "-k", "x"]
    assert "--last-failed" in words_of_pytest(start_script, monkeypatch, ["--failed"])
    assert words_of_pytest(start_script, monkeypatch, ["--conformance", "-x"])[-3:] == [
        "tests/conformance",
        "--all",
        "-x",
    ]


@pytest.mark.parametrize("wrong", ["tests/unit/test_nothing.py", "tests/unit/test_words.py::test_nothing"])
def test_a_test_that_does_not_exist_is_an_error_with_its_name(
    start_script: Any, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    words = words_of_pytest(start_script, monkeypatch, [wrong])
    command = [sys.executable, "-m", "pytest", *words]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, wrong in ended.stderr) == (pytest.ExitCode.USAGE_ERROR, True), ended.stderr


def test_a_check_beside_the_tests_that_finds_something_fails_the_command_and_is_quoted(
    start_script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finds, finds_nothing = ["python", "-c", "print('wrong type'); raise SystemExit(1)"], ["python", "-c", ""]
    failed: list[str] = []
    start_script.check([finds_nothing, finds], failed)
    assert failed == ["python"]
    assert "python failed:\nwrong type" in capsys.readouterr().err
    monkeypatch.setattr(start_script, "run", lambda command: 0)
    monkeypatch.setattr(start_script, "check", lambda commands, failed: failed.append("mypy"))
    assert start_script.test([]) == 1
    assert "mypy failed, as printed above" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (
            pytest.ExitCode.USAGE_ERROR,
            ["pytest cannot use these arguments, as printed above; see: ./node-fleet test --help"],
        ),
        (pytest.ExitCode.NO_TESTS_COLLECTED, ["no test was selected; a test that is marked `whole` needs --all"]),
        (pytest.ExitCode.TESTS_FAILED, []),
    ],
)
def test_a_run_without_tests_says_what_helps_and_a_check_that_still_runs_is_named(
    start_script: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    status: pytest.ExitCode,
    advice: list[str],
) -> None:
    tests_ended = threading.Event()
    monkeypatch.setattr(start_script, "SILENT_SECONDS", 0)
    monkeypatch.setattr(start_script, "check", lambda commands, failed: tests_ended.wait(60))
    monkeypatch.setattr(start_script, "run", lambda command: status if "pytest" in command else 0)
    monkeypatch.setattr(start_script, "say", lambda text: (print(text), "waiting" in text and tests_ended.set()))
    assert start_script.test([]) == status
    *advised, last = capsys.readouterr().out.splitlines()
    assert advised == advice
    assert last == "waiting for mypy and lint-imports"


def test_set_up_shows_which_package_pip_works_on(start_script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["boto3", "moto", "rich", "typer"]
    lines = "\\n".join(f"Collecting {name}==1.0" for name in names)
    start_script.show_progress([sys.executable, "-c", f"print('{lines}')"], total=4)
    shown = capsys.readouterr().err.splitlines()
    assert shown == [f"node-fleet: {number} of 4 packages: {name}" for number, name in enumerate(names, 1)]


class Terminal(io.StringIO):
    """A terminal that keeps what it shows, and says when it has shown a number of pictures."""

    def __init__(self, pictures: int) -> None:
        super().__init__()
        self.left, self.shown = pictures, threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.left -= text.startswith("\r")
        if self.left <= 0:
            self.shown.set()
        return super().write(text)


def test_a_step_of_the_set_up_that_reports_nothing_still_moves_on_a_terminal(
    start_script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal(pictures=5)
    monkeypatch.setattr(start_script.sys, "stderr", terminal)
    monkeypatch.setattr(start_script, "MOVE_SECONDS", 0.001)
    with start_script.Moving("unpacking"):
        assert terminal.shown.wait(30), "five pictures, although nothing is reported"
    pictures = [picture.rstrip() for picture in terminal.getvalue().split("\r")[1:]]
    assert {picture[2:] for picture in pictures} == {"unpacking"} and len({picture[0] for picture in pictures}) == 4


def test_a_failing_pip_is_quoted(start_script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fails = "print('ERROR: No matching distribution found'); raise SystemExit(1)"
    with pytest.raises(CalledProcessError, match="ERROR"):
        start_script.show_progress([sys.executable, "-c", fails], total=40)
    assert capsys.readouterr().err == "ERROR: No matching distribution found\n"


def test_two_first_commands_at_the_same_time_set_up_once(
    start_script: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun: list[str] = []

    def set_up(requirements: str) -> None:
        begun.append(requirements)
        time.sleep(0.2)
        start_script.STAMP.write_text(start_script.pins(requirements), encoding="utf-8")

    monkeypatch.setattr(start_script, "STAMP", tmp_path / "pins")
    monkeypatch.setattr(start_script, "PYTHON", Path(sys.executable))
    monkeypatch.setattr(start_script, "set_up", set_up)
    commands = [threading.Thread(target=start_script.install, args=["requirements.txt"]) for _ in range(3)]
    for command in commands:
        command.start()
    for command in commands:
        command.join()
    assert begun == ["requirements.txt"]


STEPS = ("make .venv", "install --no-deps uv", "uv pip install", "ensurepip", "--no-input install --no-deps -r")
VENV, FETCH, WITH_UV, PIP, WITH_PIP = STEPS
REAL_RUN = subprocess.run


@dataclass
class SetUp:
    """Records the commands of a set-up in place of running them; one that contains a text of `failing` fails.

    settings: what pip is set to. unrunnable: the program that the machine cannot run.
    """

    failing: tuple[str, ...] = ()
    settings: str = ""
    unrunnable: str = ""
    commands: list[list[str]] = field(default_factory=list)

    def run(self, command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        if command[-2:] == ["config", "list"]:
            return subprocess.CompletedProcess(command, 0, self.settings)
        self.commands.append(command)
        if Path(command[0]).name == self.unrunnable:
            raise OSError(errno.ENOEXEC, "Exec format error", command[0])
        failed = any(word in " ".join(command) for word in self.failing)
        if failed and options.get("check"):
            raise CalledProcessError(1, command)
        return subprocess.CompletedProcess(command, int(failed))

    def make_environment(self) -> None:
        self.commands.append([VENV])

    def show_progress(self, command: list[str], total: int) -> None:
        assert total > 80
        self.run(command, check=True)

    @property
    def steps(self) -> list[str]:
        """The name of each command in STEPS."""
        return [next(step for step in STEPS if step in " ".join(command)) for command in self.commands]


@pytest.fixture
def set_up(start_script: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SetUp:
    made = SetUp()
    monkeypatch.setattr(start_script, "STAMP", tmp_path / "pins")
    monkeypatch.setattr(start_script, "PYTHON", Path(sys.executable))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(start_script.subprocess, "run", made.run)
    monkeypatch.setattr(start_script, "make_environment", made.make_environment)
    monkeypatch.setattr(start_script, "show_progress", made.show_progress)
    monkeypatch.setattr(start_script, "warm_up", lambda: None)
    return made


@pytest.mark.parametrize(
    ("failing", "steps"),
    [
        ((), [VENV, FETCH, WITH_UV]),
        ((FETCH,), [VENV, FETCH, PIP, WITH_PIP]),
        ((WITH_UV,), [VENV, FETCH, WITH_UV, PIP, WITH_PIP]),
    ],
    ids=["uv is fetched", "no uv for this machine", "uv does not reach the index"],
)
def test_set_up_fetches_uv_and_falls_back_to_pip(
    start_script: Any, set_up: SetUp, failing: tuple[str, ...], steps: list[str]
) -> None:
    set_up.failing = failing
    start_script.install("requirements-dev.txt")
    start_script.install("requirements-dev.txt")  # the stamp says that nothing is left to do
    start_script.install("requirements.txt")  # the larger set includes it
    assert set_up.steps == steps
    assert {str(ROOT / "requirements.txt"), str(ROOT / "requirements-dev.txt")} <= {*set_up.commands[-1]}


def test_set_up_uses_the_uv_of_the_machine(start_script: Any, set_up: SetUp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    start_script.install("requirements.txt")
    assert set_up.steps == [VENV, WITH_UV]
    assert set_up.commands[-1][0] == "/usr/bin/uv"
    assert str(ROOT / "requirements-dev.txt") not in set_up.commands[-1]


def test_set_up_uses_pip_where_uv_cannot_be_run(
    start_script: Any, set_up: SetUp, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up.unrunnable = "uv"
    start_script.install("requirements.txt")
    assert set_up.steps == [VENV, FETCH, WITH_UV, PIP, WITH_PIP]
    assert "/uv: Exec format error; installing with pip, which has its own settings\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    "settings",
    [":env:.index-url='https://a.test/simple'", "global.extra-index-url='https://b.test'", "global.no-index=1"],
)
def test_set_up_takes_the_packages_from_the_index_that_pip_is_set_to(
    start_script: Any, set_up: SetUp, settings: str
) -> None:
    set_up.settings = f":env:.default-timeout='180'\n{settings}\n"
    start_script.install("requirements.txt")
    assert set_up.steps == [VENV, PIP, WITH_PIP]


def test_no_pip_of_the_set_up_waits_for_a_password(start_script: Any, set_up: SetUp) -> None:
    set_up.failing = (WITH_UV,)
    start_script.install("requirements.txt")
    pips = [command for command in set_up.commands if "pip" in command and "install" in command and "-m" in command]
    assert len(pips) == 2 and all("--no-input" in pip for pip in pips)


@pytest.mark.parametrize(
    ("failing", "why"),
    [
        ((WITH_UV, WITH_PIP), "pip ended with status 1\n"),
        ((FETCH, PIP), "check the access to PyPI, then install uv, or ensurepip (Debian: python3-venv)\n"),
    ],
)
def test_a_set_up_that_fails_names_the_step_and_is_not_complete(
    start_script: Any, set_up: SetUp, capsys: pytest.CaptureFixture[str], failing: tuple[str, ...], why: str
) -> None:
    set_up.failing = failing
    assert start_script.main(["demo"]) == 1
    said = capsys.readouterr().err
    assert ".venv failed: " in said and said.endswith(why)
    assert not start_script.is_complete()


def test_an_update_that_was_not_completed_begins_with_an_empty_environment(start_script: Any, set_up: SetUp) -> None:
    start_script.STAMP.write_text("other pins", encoding="utf-8")
    set_up.failing = (WITH_UV, WITH_PIP)
    assert start_script.main(["demo"]) == 1
    assert VENV not in set_up.steps
    set_up.failing = ()
    start_script.install("requirements.txt")
    assert set_up.steps[-3:] == [VENV, FETCH, WITH_UV]


def test_an_environment_that_was_begun_is_emptied_and_one_of_another_tool_is_left_as_it_is(
    start_script: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed = tmp_path / ".venv" / "lib" / "half.dist-info" / "METADATA"
    installed.parent.mkdir(parents=True)
    installed.touch()
    monkeypatch.setattr(start_script, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(start_script, "STAMP", tmp_path / ".venv" / "node-fleet-pins")
    with pytest.raises(start_script.SetUpError, match="was not made by node-fleet: move or remove it; nothing"):
        start_script.make_environment()
    assert installed.exists()
    start_script.STAMP.touch()
    start_script.make_environment()
    assert not installed.exists()
    assert (tmp_path / ".venv" / "pyvenv.cfg").exists() and start_script.STAMP.read_text() == ""


def test_a_folder_that_cannot_have_an_environment_is_an_error_with_its_reason(
    start_script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(start_script, "VENV", tmp_path / f"a{os.pathsep}b" / ".venv")
    monkeypatch.setattr(start_script, "STAMP", tmp_path / "pins")
    assert start_script.main(["demo"]) == 1
    assert "because it contains the PATH separator" in capsys.readouterr().err.splitlines()[-1]


def test_ctrl_c_while_the_environment_is_made_ends_with_one_sentence(
    start_script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(start_script, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(start_script, "STAMP", tmp_path / "pins")
    monkeypatch.setattr(venv, "create", interrupted)
    assert start_script.main(["demo"]) == 130
    said = capsys.readouterr().err.splitlines()
    assert (len(said), said[-1].endswith("are not complete; the next command installs them again")) == (2, True)


def test_uv_and_pip_accept_the_options_that_the_set_up_gives_them(start_script: Any, set_up: SetUp) -> None:
    set_up.failing = (WITH_UV,)
    start_script.install("requirements.txt")
    fetch, pip = set_up.commands[1], set_up.commands[-1]
    for command in (fetch, pip):
        shown = REAL_RUN([*command, "--help"], capture_output=True, text=True, check=False)
        assert (shown.returncode, "pip install" in shown.stdout) == (0, True), shown.stderr


def test_no_package_is_in_both_pin_files() -> None:
    files = [(ROOT / name).read_text(encoding="utf-8") for name in ("requirements.txt", "requirements-dev.txt")]
    small, large = ({name.lower() for name in re.findall(r"^([\w.-]+)==", text, re.M)} for text in files)
    assert small and large and not small & large
    assert not any("-r " in text for text in files)


def test_compiled_modules_have_a_place_where_python_may_not_write_them_beside_the_sources(
    start_script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    given = start_script.environment()
    assert "PYTHONDONTWRITEBYTECODE" not in given
    assert given["PYTHONPYCACHEPREFIX"] == str(ROOT / ".cache" / "pycache")


@dataclass(frozen=True)
class Case:
    """As much of a test's case as the drawing reads."""

    nodeid: str
    drawn: int | None
    drawn_of_file: int | None = None

    def iter_markers_with_node(self, name: str) -> Iterator[tuple[Any, pytest.Mark]]:
        file = Case(self.nodeid.partition("::")[0], None)
        for node, number in ((self, self.drawn), (file, self.drawn_of_file)):
            if name == "sampled" and number:
                yield node, pytest.Mark(name, (number,), {}, _ispytest=True)


def test_the_quick_tier_draws_as_many_cases_as_the_mark_says_others_on_other_days_and_each_over_time() -> None:
    many = [Case(f"tests/a.py::test_many[{n}]", 3) for n in range(9)]
    few = [Case(f"tests/a.py::test_few[{n}]", 3) for n in range(2)]
    every = [Case("tests/a.py::test_every", None)]
    cases: Any = many + few + every
    days = [frozenset(cases) - not_drawn(day, cases) for day in range(40)]
    assert all({*few, *every} <= day and len({*many} & day) == 3 for day in days)
    assert frozenset(cases).issubset(frozenset().union(*days))
    assert days[5] == frozenset(cases) - not_drawn(5, cases)


def test_of_a_marked_file_the_quick_tier_draws_tests_and_of_a_named_one_it_runs_all() -> None:
    cases: Any = [Case(f"tests/a.py::test_{n}", None, 4) for n in range(6)]
    cases += [Case(f"tests/a.py::test_many[{n}]", 2, 4) for n in range(9)]
    cases += [Case(f"tests/b.py::test_{n}", None, 4) for n in range(3)]
    days = [frozenset(cases) - not_drawn(day, cases) for day in range(60)]
    assert {len([case for case in day if case.nodeid.startswith("tests/a.py")]) for day in days} == {4}
    assert max(len([case for case in day if "many" in case.nodeid]) for day in days) == 2
    assert all({*cases[-3:]} <= day for day in days)
    assert frozenset(cases).issubset(frozenset().union(*days))
    assert not_drawn(5, cases, ["tests/a.py"]) == set()


def test_tests_with_a_real_control_plane_share_a_worker_and_files_that_wait_another_one() -> None:
    scheduler = WaitingTogether.__new__(WaitingTogether)  # without workers
    tests = ["tests/conformance/test_a.py::one", "tests/conformance/test_b.py::two", "tests/unit/c.py::three[a::b]"]
    tests += [f"{file}::four" for file in WAITING]
    first, second, third, *waiting = [scheduler._split_scope(test) for test in tests]
    assert (first, second, third) == ("tests/conformance/", "tests/conformance/", "tests/unit/c.py")
    assert len({*waiting}) == 1 and not {*waiting} & {first, third}


def test_the_tests_that_wait_start_first_and_short_files_last() -> None:
    long = ["tests/conformance/test_a.py", WAITING[0], "tests/chaos/test_matrix.py", "tests/chaos/test_schedules.py"]
    order = [*long, "tests/a.py", "tests/workflow/b.py", "tests/unit/c.py", "tests/unit/d.py"]
    assert sorted(order, key=turn) == order
    assert sorted(reversed(order), key=turn) == order


def test_every_file_with_a_turn_of_its_own_exists() -> None:
    assert [file for file in (*WAITING, *LONG_FIRST) if not (ROOT / file).is_file()] == []


def test_each_worker_collects_all_files_of_a_folder_and_begins_with_another_one() -> None:
    found = [begin_elsewhere([*"abcdefg"], worker, 3) for worker in range(3)]
    assert ["".join(files) for files in found] == ["abcdefg", "cdefgab", "efgabcd"]


def test_the_cost_of_the_last_quick_run_is_kept_for_the_benchmark(tmp_path: Path) -> None:
    kept = tmp_path / "cache" / "quick_tier.json"
    assert last_quick_run(kept) is None
    for seconds in (700.0, 512.34):
        record_quick_run(6000, seconds, kept)
    assert last_quick_run(kept) == QuickRun(tests=6000, processor_seconds=512.3)


@pytest.mark.parametrize(
    ("profile", "drawn"), [(QUICK_PROFILE, [10, QUICK_EXAMPLES, QUICK_EXAMPLES]), ("whole", [10, 25, 120])]
)
def test_no_property_has_more_examples_in_the_quick_tier_than_its_limit(profile: str, drawn: list[int]) -> None:
    before = settings.get_current_profile_name()
    settings.load_profile(profile)
    try:
        assert [examples(number).max_examples for number in (10, 25, 120)] == drawn
    finally:
        settings.load_profile(before)


def report(when: str, outcome: str = "passed", duration: float = 0.0) -> dict[str, Any]:
    return {"when": when, "outcome": outcome, "duration": duration}


@pytest.mark.parametrize(
    ("verbose", "xmlpath", "is_terse"), [(0, None, True), (-1, None, True), (1, None, False), (0, "junit.xml", False)]
)
def test_a_worker_reports_each_call_and_all_that_failed_was_skipped_or_took_long(
    verbose: int, xmlpath: str | None, is_terse: bool
) -> None:
    worker: Any = WorkerInteractor.__new__(WorkerInteractor)  # without a channel
    sent: list[tuple[str, dict[str, Any]]] = []
    worker.sendevent = lambda name, **event: sent.append((name, event.get("data", {})))
    plugins = SimpleNamespace(get_plugins=lambda: [worker, object()])
    options = SimpleNamespace(verbose=verbose, xmlpath=xmlpath)
    report_less(cast(pytest.Config, SimpleNamespace(option=options, pluginmanager=plugins)))
    needed = [
        ("collectionfinish", {}),
        *[("testreport", report("call", outcome)) for outcome in ("passed", "failed", "skipped")],
        *[("testreport", report(when, outcome)) for when in ("setup", "teardown") for outcome in ("failed", "skipped")],
        ("testreport", report("setup", duration=0.1)),
        ("runtest_protocol_complete", {}),
    ]
    dispensable = [
        ("logstart", {}),
        ("testreport", report("setup", duration=0.09)),
        ("testreport", report("teardown")),
        ("logfinish", {}),
    ]
    for name, data in [*needed, *dispensable]:
        worker.sendevent(name, **({"data": data} if data else {}))
    assert sent == (needed if is_terse else [*needed, *dispensable])
