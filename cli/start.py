"""Starts node-fleet on a machine that has nothing but Python: makes .venv, installs the pins, passes the arguments on.

It imports only the standard library, because nothing else is installed at the first command.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
UV = "uv==0.13.9"
PIP_OPTIONS = ("--disable-pip-version-check", "--no-input")
"""Without --no-input pip asks for the password of an index where it is not seen, and waits for the answer."""
WIDTH, MOVE_SECONDS = 74, 0.2
"""Of the line that moves during the set-up: its characters, and the time between two movements."""
SILENT_SECONDS = 2
"""How long `test` waits for the checks beside the tests before it reports that it waits."""
STAMP = VENV / "node-fleet-pins"
"""The digest of what was installed; empty until .venv is complete."""
INSTALLED = not (ROOT / "pyproject.toml").exists()
"""True in a copy that pip installed: its packages are those of the interpreter that runs."""
PYTHON = Path(sys.executable) if INSTALLED else VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
MODULE = [str(PYTHON), "-P", "-m"]
"""Runs a module of node-fleet, and none of the current folder, which may have a `cli` or `tools` of its own."""
MODULES = {"synth": "cdk_app.synth", "bench": "tests.performance.bench_workflow", "mutate": "tests.mutation"}
"""Commands outside the command line."""
PYTEST = {
    "--failed": ["--last-failed", "--last-failed-no-failures=none"],
    "--conformance": ["tests/conformance", "--all"],
}
"""Options of `test` that stand for others of pytest."""
ADVICE = {
    4: "pytest cannot use these arguments, as printed above; see: ./node-fleet test --help",
    5: "no test was selected; a test that is marked `whole` needs --all",
}
"""By the status of pytest: wrong arguments, and no test."""
HELP_OF_TEST = """usage: ./node-fleet test [OPTION ...] [FILE ...]

Check style, types and layers, then run the tests: all short ones and a sample of the long ones that changes by the day.

  FILE ...           only the tests of these files or folders
  --all              every test; CI runs exactly this
  --changed          only the tests that the changes since main reach
  --since COMMIT     with --changed: the changes since this commit
  --failed           only the tests that failed in the last run
  --conformance      only the tests with a real Kubernetes control plane
  -k EXPRESSION      only the tests whose names match
  --sample-seed N    draws the sample of an earlier run again
  --schedules N      random schedules of faults and events: 50, 500 with --all

Other options are those of pytest: .venv/bin/python -m pytest --help"""
TYPED = ("functions/node_fleet", "functions/handlers", "simulator", "backtest", "cdk_app", "cli", "tools")
WITHOUT_CDK = """
[[tool.mypy.overrides]]
module = ["aws_cdk.*"]
follow_imports = "skip"
"""
"""To read the types of the CDK takes mypy over a minute: the quick tier leaves them out."""


class SetUpError(Exception):
    """The packages cannot be installed; the text says why and what would help."""


def main(words: Sequence[str]) -> int:
    """Run one command and return its status; every error of the set-up is one sentence."""
    try:
        return start(list(words))
    except SetUpError as error:
        return fail(str(error))
    except OSError as error:
        return fail(problem_of(error))
    except KeyboardInterrupt:
        say(stopped_text(words[0] if words else ""))
        return 130


def start(words: list[str]) -> int:
    """Install what the command needs, then run it."""
    command, rest = (words[0], words[1:]) if words else ("", [])
    if INSTALLED and command in ("test", "bench", "mutate"):
        return fail(f"{command} needs the sources: run ./node-fleet {command} in a clone of the repository")
    if command == "test" and rest[:1] in (["-h"], ["--help"]):
        print(HELP_OF_TEST)
        return 0
    try:
        install("requirements-dev.txt" if command in ("test", "mutate") else "requirements.txt")
    except subprocess.CalledProcessError as error:
        raise SetUpError(f"setting up {VENV} failed: {error.cmd[2]} ended with status {error.returncode}") from error
    if command == "test":
        return test(rest)
    if command == "cdk":
        folder = Path.cwd() if INSTALLED else ROOT
        refused = run([*MODULE, "cli.deploy_check", *rest], folder) if "deploy" in rest else 0
        return refused or run([str(PYTHON.parent / "cdk"), *rest], folder)
    return hand_over(MODULES[command], rest) if command in MODULES else hand_over("cli", words)


def problem_of(error: OSError) -> str:
    """A file or folder that cannot be used, why, and what would help."""
    name = Path(error.filename or VENV)
    fix = f"use a clone in a folder that you own; when {VENV} is damaged, remove it: the next command makes it again"
    return f"cannot use {name}: {error.strerror}; {fix}"


def stopped_text(command: str) -> str:
    """What Ctrl-C stopped while this script itself was running, and what it left."""
    if not is_complete():
        return f"stopped: the packages in {VENV} are not complete; the next command installs them again"
    if command == "cdk":
        return "stopped: a deployment that has begun continues in CloudFormation; its stack shows the events"
    return f"stopped: {command or 'node-fleet'}; nothing has to be cleaned up"


def install(requirements: str) -> None:
    """Install what the pin file names, unless .venv has it already. The larger set includes the smaller one."""
    if not is_installed(requirements):
        with set_up_alone():
            if not is_installed(requirements):  # by the command that set up meanwhile
                set_up(requirements)


def is_installed(requirements: str) -> bool:
    """True when .venv holds these packages."""
    if INSTALLED:
        return True
    # A folder that may not be read raises here: to set up inside it would fail with a longer text.
    return is_complete() and STAMP.read_text(encoding="utf-8") in {pins(requirements), pins("requirements-dev.txt")}


def is_complete() -> bool:
    """True when some set-up has ended."""
    return INSTALLED or (PYTHON.exists() and STAMP.exists() and STAMP.stat().st_size > 0)


@contextlib.contextmanager
def set_up_alone() -> Iterator[None]:
    """Let the commands that start meanwhile wait. The lock is on the folder and ends with the process."""
    folder = os.open(str(ROOT), os.O_RDONLY) if fcntl else None
    try:
        if folder is not None:
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        if folder is not None:
            os.close(folder)


def set_up(requirements: str) -> None:
    """Make .venv and install the packages: with uv, which takes seconds, or with pip where uv does not work."""
    files = pin_files(requirements)
    say(f"setting up .venv from {' and '.join(file.name for file in files)} (once, and again when the pins change)")
    if not is_complete():
        make_environment()
    STAMP.write_text("", encoding="utf-8")  # until all packages are complete
    # The pin files name every dependency, so nothing has to be resolved.
    wanted = ["install", "--no-deps", *(word for file in files for word in ("-r", str(file)))]
    uv = shutil.which("uv") or fetched_uv()
    if not uv or not install_with_uv(uv, wanted):
        install_with_pip(wanted, count_pins(files))
    if requirements == "requirements.txt":  # the tests compile what they import themselves, on all processors
        warm_up()
    STAMP.write_text(pins(requirements), encoding="utf-8")


def make_environment() -> None:
    """Make an empty .venv: uv and pip take a package that was half installed when they were stopped for a whole one.

    It is made in this process: `python -m venv` would answer Ctrl-C with a traceback of its own.
    """
    if VENV.exists() and not STAMP.exists() and any(VENV.iterdir()):
        raise SetUpError(f"{VENV} was not made by node-fleet: move or remove it; nothing in it was changed")
    try:
        import venv  # only the set-up needs it

        shutil.rmtree(VENV, ignore_errors=True)
        VENV.mkdir(parents=True)
        STAMP.write_text("", encoding="utf-8")  # from here on the folder is known as one of node-fleet
        venv.create(VENV, symlinks=os.name != "nt")
    except (ImportError, ValueError) as error:  # a Python without venv, or a colon in the name of the folder
        raise SetUpError(f"setting up {VENV} failed: {error}") from error


def fetched_uv() -> str | None:
    """The uv that this Python's pip installs into .venv; None without a pip, a network, or a uv for this machine.

    None too where pip is set to an index: uv reads no settings of pip, and would take the packages from another one.
    """
    pip = [sys.executable, "-m", "pip", *PIP_OPTIONS]
    with Moving("fetching uv"):
        settings = subprocess.run(
            [*pip, "config", "list"], check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        if settings.returncode or "index" in settings.stdout:
            return None
        command = [*pip, "--python", str(PYTHON), "install", "--no-deps", UV]
        fetched = subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return None if fetched.returncode else str(PYTHON.parent / "uv")


def install_with_uv(uv: str, wanted: list[str]) -> bool:
    """Whether uv could install this. It shows its progress on a terminal, and prints why it fails."""
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    try:
        subprocess.run([uv, "pip", *wanted, *quiet, "--python", str(PYTHON)], check=True)
    except subprocess.CalledProcessError:
        why = "as printed above"
    except OSError as error:  # it is damaged, or made for another processor
        why = f"{uv}: {error.strerror}"
    else:
        return True
    say(f"uv failed, {why}; installing with pip, which has its own settings")
    return False


def install_with_pip(wanted: list[str], total: int) -> None:
    """Install this with pip. total: the number of packages, for the bar."""
    with Moving("preparing pip"):
        command = [str(PYTHON), "-m", "ensurepip"]
        made = subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if made.returncode:
        why = f"uv was not fetched or failed, and {sys.executable} has no ensurepip, which installs pip"
        fix = "check the access to PyPI, then install uv, or ensurepip (Debian: python3-venv)"
        raise SetUpError(f"setting up {VENV} failed: {why}; {fix}")
    # --no-compile: Python compiles what it imports; all of it beforehand would take longer than the download.
    pip = [str(PYTHON), "-m", "pip", *PIP_OPTIONS]
    show_progress([*pip, *wanted, "--no-compile", "--progress-bar", "off"], total)


def warm_up() -> None:
    """Let Python compile what every command imports, which would otherwise be a silence of the first command."""
    with Moving("compiling the command line"):
        command = [*MODULE, "cli", "--version"]
        subprocess.run(command, env=environment(), stdout=subprocess.DEVNULL, check=False)


class Moving:
    """A line on the terminal that moves until the block ends, also while a step has nothing to report.

    text: what the line shows; it may change. Elsewhere than on a terminal nothing is printed.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._ended = threading.Event()
        self._drawing = threading.Thread(target=self._draw, daemon=True)

    def __enter__(self) -> Moving:
        if sys.stderr.isatty():
            self._drawing.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._drawing.is_alive():
            self._drawing.join()
            print(file=sys.stderr)

    def _draw(self) -> None:
        for mark in itertools.cycle("|/-\\"):
            print(f"\r{mark} {self.text:<{WIDTH}.{WIDTH}}", end="", file=sys.stderr, flush=True)
            if self._ended.wait(MOVE_SECONDS):
                return


def show_progress(command: Sequence[str], total: int) -> None:
    """Run pip and show which package it works on: a bar on a terminal, else one line for each quarter of them."""
    kept, counted = [], itertools.count(1)
    with (
        Moving("starting pip") as line_shown,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip,
    ):
        for line in pip.stdout or ():
            words = line.split()
            if words[:1] == ["Collecting"]:
                show_bar(line_shown, next(counted), total, words[1].partition("==")[0])
            elif line.startswith("Installing collected packages"):
                line_shown.text = "unpacking"
            elif not line.startswith("  Using cached"):
                kept.append(line)
    if pip.returncode:
        sys.stderr.writelines(kept[-20:])
        raise subprocess.CalledProcessError(pip.returncode, command)


def show_bar(line: Moving, done: int, total: int, text: str) -> None:
    """One step of the set-up."""
    if sys.stderr.isatty():
        filled = 30 * done // total
        line.text = f"[{'#' * filled}{'.' * (30 - filled)}] {text}"
    elif done % (total // 4) == 0 or done == total:
        say(f"{done} of {total} packages: {text}")


def pin_files(requirements: str) -> list[Path]:
    """The pin files of that set. The larger one adds to the smaller one."""
    return [ROOT / name for name in dict.fromkeys(["requirements.txt", requirements])]


def count_pins(files: Sequence[Path]) -> int:
    """How many packages these pin files name."""
    return sum("==" in line for file in files for line in file.read_text(encoding="utf-8").splitlines())


def pins(requirements: str) -> str:
    """The digest of the pin files."""
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in pin_files(requirements))).hexdigest()


def environment() -> dict[str, str]:
    """Compiled modules have a place even with PYTHONDONTWRITEBYTECODE: to compile them again takes seconds."""
    given = dict(os.environ)
    if given.pop("PYTHONDONTWRITEBYTECODE", "") and not INSTALLED:
        given["PYTHONPYCACHEPREFIX"] = str(ROOT / ".cache" / "pycache")
    path = os.pathsep.join([str(PYTHON.parent), given.get("PATH", "")])
    return {**given, "PATH": path, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "functions")])}


def hand_over(module: str, words: list[str]) -> int:
    """Go on as that module, in the environment with all packages."""
    command = [*MODULE, module, *words]
    if os.name == "nt":
        return subprocess.run(command, env=environment(), check=False).returncode
    os.execve(command[0], command, environment())


def test(words: list[str]) -> int:
    """Check style, types and layers, and run the tests of the quick tier, all of them, or those that are selected.

    Types and layers are checked beside the tests; their findings fail the command too.
    """
    for rest in (("check", "."), ("format", "--check", ".")):
        if run([str(PYTHON.parent / "ruff"), *rest]):
            return fail("ruff failed, its findings are above; no test was run")
    failed: list[str] = []
    typed = [folder for folder in TYPED if (ROOT / folder).is_dir()]
    checks = threading.Thread(target=check, args=([["mypy", *types_to_check(words), *typed], ["lint-imports"]], failed))
    checks.start()
    # A file's tests share a worker; tests/support/file_order.py says in which order the files go to the workers.
    # A test that is named by its id needs none, and of a wrong id only a single process tells.
    by_id = any("::" in word for word in words)
    workers = () if by_id else ("-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder")
    selected = [word for given in words for word in PYTEST.get(given, [given])]
    status = run([str(PYTHON), "-m", "pytest", *workers, *selected])
    if status in ADVICE:
        say(ADVICE[status])
    checks.join(SILENT_SECONDS)
    if checks.is_alive():
        say("waiting for mypy and lint-imports")
    checks.join()
    return fail(f"{' and '.join(failed)} failed, as printed above") if failed else status


def check(commands: Sequence[Sequence[str]], failed: list[str]) -> None:
    """Run these tools one after the other; print what those say that find something, and add them to `failed`."""
    for tool, *rest in commands:
        done = subprocess.run(
            [str(PYTHON.parent / tool), *rest],
            cwd=str(ROOT),
            env=environment(),
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode:
            failed.append(tool)
            say(f"{tool} failed:\n{done.stdout}")


def types_to_check(words: list[str]) -> tuple[str, ...]:
    """Options of mypy: with --all none, otherwise those that take every type of the CDK as it comes."""
    if "--all" in words:
        return ()
    config = ROOT / ".cache" / "mypy_without_cdk.toml"
    config.parent.mkdir(exist_ok=True)
    config.write_text((ROOT / "pyproject.toml").read_text(encoding="utf-8") + WITHOUT_CDK, encoding="utf-8")
    any_type = ("--allow-subclassing-any", "--no-warn-return-any", "--no-warn-unused-ignores")
    return ("--config-file", str(config), "--cache-dir", str(ROOT / ".mypy_cache" / "without_cdk"), *any_type)


def run(command: list[str], folder: Path = ROOT) -> int:
    """Run a command with all packages and return its status."""
    return subprocess.run(command, cwd=str(folder), env=environment(), check=False).returncode


def say(text: str) -> None:
    """Print a line on standard error."""
    print(f"node-fleet: {text}", file=sys.stderr, flush=True)


def fail(text: str) -> int:
    """Print why nothing was done; the status of it."""
    say(text)
    return 1
