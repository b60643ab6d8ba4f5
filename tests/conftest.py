"""For all tests: no AWS account is reachable, functions use only their grants, handlers run all their branches."""

# ruff: noqa: E402
from __future__ import annotations

import gc

gc.disable()  # until all modules are loaded, see pytest_collection_finish

import os
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest
import xdist.plugin
from coverage import Coverage
from xdist.remote import Producer

from cdk_app.workflow import definitions
from tests.support.file_order import WaitingTogether, begin_elsewhere, distribute
from tests.support.handler_coverage import branches_not_run, measurement
from tests.support.quick_run import record_quick_run
from tests.support.recorded_calls import LEDGER, granted, judge
from tests.support.terse_workers import report_less
from tests.support.tiers import (
    QUICK_EXAMPLES,
    QUICK_PROFILE,
    Tier,
    add_options,
    choose_seed,
    is_left_out,
    refuse_wrong_words,
    select,
    tier_of,
)

# Fakes and moto need credentials, and these belong to no account.
NO_ACCOUNT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_SESSION_TOKEN": "testing",
    "AWS_DEFAULT_REGION": "ap-southeast-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}
FOLDER = "NODE_FLEET_TEST_FOLDER"
PROCESS = os.environ.get("PYTEST_XDIST_WORKER", "main")
OBJECTS_BETWEEN_COLLECTIONS = (100_000, 20, 100)
COVERAGE = pytest.StashKey[Coverage]()
FINDINGS = pytest.StashKey[list[str]]()
QUICK_RUN = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The tiers, and the tests that changed files reach."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Set the environment before any test module is imported."""
    refuse_wrong_words(config)
    gc.set_threshold(*OBJECTS_BETWEEN_COLLECTIONS)
    choose_seed(config)
    hypothesis.settings.register_profile("whole", deadline=None)  # a busy machine fails no example
    hypothesis.settings.register_profile(QUICK_PROFILE, deadline=None, max_examples=QUICK_EXAMPLES)
    hypothesis.settings.load_profile(QUICK_PROFILE if is_quick_tier(config) else "whole")
    os.environ.pop("AWS_PROFILE", None)
    os.environ.update(NO_ACCOUNT)
    if FOLDER not in os.environ:
        os.environ[FOLDER] = tempfile.mkdtemp(prefix="node-fleet-tests-")
    config.stash[COVERAGE] = measurement(Path(os.environ[FOLDER]), PROCESS)


def pytest_sessionstart(session: pytest.Session) -> None:
    """This runs before a worker of pytest-xdist reports that it is ready."""
    report_less(session.config)


def pytest_report_header(config: pytest.Config) -> str:
    """Name the place of the run: in CI a missing program is an error, elsewhere the test that needs it is skipped."""
    return f"node-fleet: {'CI' if os.environ.get('CI') else 'not CI'}; {tier_of(config)}"


@pytest.fixture(scope="session")
def tier(pytestconfig: pytest.Config) -> Tier:
    """How much of the long tests runs."""
    return tier_of(pytestconfig)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With --changed, do not even import the other test files."""
    return is_left_out(config, collection_path) or None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """In a clean clone each worker compiles a part of the test files, and finds the others compiled."""
    report = yield
    if isinstance(collector, pytest.Directory) and PROCESS != "main":
        number, workers = int(PROCESS.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        report.result = begin_elsewhere(report.result, number, workers)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the tier, and put the long files first."""
    distribute(items)
    select(config, items)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """A worker for each processor; for all files one more, because many tests wait for a server or a browser."""
    return xdist.plugin.pytest_xdist_auto_num_workers(config) + _everything(config)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> WaitingTogether | None:
    """Where all files run, those that wait share a worker."""
    return WaitingTogether(config, log) if _everything(config) and config.option.dist == "loadfile" else None


def pytest_collection_finish() -> None:
    """Watch before the first fixture calls anything: fixtures of many tests come before those of one test.

    The modules that are loaded by then are no garbage, and few tests make cycles: to look less often saves an eighth
    of the processor time.
    """
    LEDGER.watch()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _functions_stay_within_their_roles() -> Iterator[None]:
    LEDGER.watch()  # a fixture may be the first to load the recorder
    yield
    assert LEDGER.new_wrongs() == []


@pytest.fixture
def handler_coverage(pytestconfig: pytest.Config) -> Iterator[None]:
    """Measure the branches of the handlers during the test."""
    with pytestconfig.stash[COVERAGE].collect():
        yield


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Save the measurements of each process; the first one, which ends last, judges them with --all.

    In CI a finding fails the run. A test that failed may be the cause of a finding.
    """
    folder = Path(os.environ[FOLDER])
    LEDGER.write(folder / f"{PROCESS}.json")
    session.config.stash[COVERAGE].save()
    if PROCESS == "main" and exitstatus == pytest.ExitCode.OK and is_quick_tier(session.config):
        session.config.stash[QUICK_RUN] = session.testscollected
    ended = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    if PROCESS != "main" or exitstatus not in ended or not is_whole_suite(session.config):
        return
    from simulator.report.graph import all_edges  # the simulator is loaded only for the whole suite

    findings = judge(folder, granted(), all_edges(definitions()["autoscaler"]))
    findings += [f"no test of the handlers runs {b}" for b in branches_not_run(folder)]
    session.config.stash[FINDINGS] = findings
    if findings and os.environ.get("CI"):  # elsewhere a program that some tests need may be missing
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure(config: pytest.Config) -> None:
    """Keep what the quick tier has cost, once the processes of its tests have ended.

    pytest collects garbage five times after this, to report what was not closed: once is enough.
    """
    gc.collect()
    gc.freeze()
    if QUICK_RUN in config.stash:
        record_quick_run(config.stash[QUICK_RUN], sum(os.times()[:4]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the findings about all tests together, and what the tests with a real control plane cost."""
    reports = [one for many in terminalreporter.stats.values() for one in many if isinstance(one, pytest.TestReport)]
    seconds = sum(one.duration for one in reports if one.nodeid.startswith("tests/conformance/"))
    if seconds:
        terminalreporter.write_line(
            f"conformance tests: {seconds:.0f} s in all processes, the wait for the build included"
        )
    for finding in config.stash.get(FINDINGS, []):
        terminalreporter.write_line(f"whole suite: {finding}", red=True)


def is_quick_tier(config: pytest.Config) -> bool:
    """Whether the run is the whole quick tier, with nothing selected."""
    return _everything(config) and not config.option.whole


def is_whole_suite(config: pytest.Config) -> bool:
    """Whether every test runs."""
    return _everything(config) and config.option.whole


def _everything(config: pytest.Config) -> bool:
    option = config.option
    chosen = (option.keyword, option.markexpr, option.deselect, option.ignore, option.ignore_glob, option.changed)
    return not (any(chosen) or option.collectonly or getattr(option, "lf", False)) and config.args == config.getini(
        "testpaths"
    )
