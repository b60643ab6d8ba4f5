"""What all tests share: no test finds an account, CI is told from a laptop, functions stay within their roles."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import branches
from tests.support.file_order import distribute
from tests.support.recorded_calls import LEDGER, granted, judge

# No test may find somebody's account: fakes and moto want credentials, and these are nobody's.
NOBODY = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_SESSION_TOKEN": "testing",
    "AWS_DEFAULT_REGION": "ap-southeast-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}
LEDGERS = "NODE_FLEET_TEST_LEDGERS"


def pytest_configure(config: pytest.Config) -> None:
    """Set the environment before any test module is imported."""
    os.environ.pop("AWS_PROFILE", None)
    os.environ.update(NOBODY)
    branches.install()
    if LEDGERS not in os.environ:
        os.environ[LEDGERS] = tempfile.mkdtemp(prefix="node-fleet-ledgers-")


def pytest_report_header() -> str:
    """Say where this runs: in CI a missing tool is an error, on a laptop the test says what it lacks."""
    return f"node-fleet: {'CI' if os.environ.get('CI') else 'laptop'}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first."""
    distribute(items)


def pytest_collection_finish() -> None:
    """Listen before the first fixture calls anything: what many tests share is set up before any test's own."""
    LEDGER.watch()


@pytest.fixture(autouse=True)
def _functions_stay_within_their_roles() -> Iterator[None]:
    LEDGER.watch()  # for a module that a fixture was the first to load
    yield
    assert LEDGER.new_wrongs() == []


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Each process leaves its ledger; the first one, which ends last, judges them all if everything ran and passed.

    In CI a finding fails the run.
    """
    folder = Path(os.environ[LEDGERS])
    LEDGER.write(folder / f"{os.environ.get('PYTEST_XDIST_WORKER', 'main')}.json", branches.SEEN)
    if "PYTEST_XDIST_WORKER" in os.environ or exitstatus != pytest.ExitCode.OK or not _everything(session.config):
        return
    session.config.stash[FINDINGS] = findings = judge(folder, granted(), branches.arms())
    if findings and os.environ.get("CI"):  # a laptop may lack a program that some tests need
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


FINDINGS = pytest.StashKey[list[str]]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what the whole suite never needed."""
    for finding in config.stash.get(FINDINGS, []):
        terminalreporter.write_line(f"ledger: {finding}", red=True)


def _everything(config: pytest.Config) -> bool:
    option = config.option
    chosen = (option.keyword, option.markexpr, option.deselect, option.ignore, option.ignore_glob)
    return not (any(chosen) or option.collectonly or getattr(option, "lf", False)) and config.args == config.getini(
        "testpaths"
    )
