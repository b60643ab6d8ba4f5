"""Records which tests run which lines of the listed files, and how long each test takes: a plugin of pytest.

The map is made once for a state of the tree and kept in .cache/mutation.
"""

from __future__ import annotations

import functools
import gc
import importlib
import itertools
import json
import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage

from tests.mutation.mutants import ROOT, TARGETS, targets
from tests.support.changed_files import module_of

FOLDER = "NODE_FLEET_MUTATION_MAP"
"""The environment variable with the folder for the parts of the map: every process of pytest writes one."""
LONGEST_SECONDS = 60
"""The limit for the fast tests of one line."""


@dataclass(frozen=True, slots=True)
class CoverageMap:
    """Which tests run a line, and the seconds of processor time of each test."""

    lines: dict[str, dict[int, tuple[str, ...]]]
    seconds: dict[str, float]
    failed: list[str]
    """Tests that fail without a mutant: they say nothing about one."""

    def tests_of(self, file: str, line: int, most_seconds: float = LONGEST_SECONDS) -> list[str]:
        """The tests that run a line; those of the whole file for a line that runs when the module is loaded.

        Files of tests with the fastest tests come first, up to a limit. A file's tests stay together: they share
        fixtures.
        """
        lines = self.lines.get(file, {})
        found = set(lines.get(line) or (test for tests in lines.values() for test in tests))
        for other in unrecorded(file):
            if line not in lines or "in_own_process" in other:
                found |= {test for test in self.seconds if test.startswith(other["tests"])}
        by_file = defaultdict[str, list[str]](list)
        for test in self.seconds:
            if test in found:
                by_file[test.partition("::")[0]].append(test)
        files = sorted(by_file.values(), key=lambda tests: sum(self.seconds[test] for test in tests) / len(tests))
        ordered = [test for tests in files for test in tests]
        taken = itertools.accumulate(self.seconds[test] for test in ordered)
        return [test for test, until in zip(ordered, taken, strict=True) if until <= most_seconds]

    def is_run_by_tests(self, file: str, line: int) -> bool:
        """Whether a test runs the line itself; else it runs when the module is loaded, or in a process of a test."""
        return line in self.lines.get(file, {}) or any("in_own_process" in other for other in unrecorded(file))

    @classmethod
    def read(cls, folder: Path) -> CoverageMap:
        """Join the parts."""
        lines: dict[str, dict[int, tuple[str, ...]]] = defaultdict(lambda: defaultdict(tuple))
        seconds: dict[str, float] = {}
        failed: list[str] = []
        for part in sorted(folder.glob("*.json")):
            saved = json.loads(part.read_text(encoding="utf-8"))
            seconds |= saved["seconds"]
            failed += saved["failed"]
            names = list(saved["seconds"])
            for file, tests in saved["lines"].items():
                for line, places in tests.items():
                    lines[file][int(line)] += tuple(names[place] for place in places)
        return cls(lines, {test: took for test, took in seconds.items() if test not in failed}, failed)


def unrecorded(file: str) -> list[dict[str, Any]]:
    """The rows of targets.toml that name tests of the file which its lines do not show."""
    return [other for other in TARGETS["unrecorded"] if any(fnmatch(file, pattern) for pattern in other["files"])]


def pytest_configure(config: pytest.Config) -> None:
    """Start the measurement before the modules are loaded."""
    if not config.option.collectonly and (os.environ.get("PYTEST_XDIST_WORKER") or not config.option.numprocesses):
        config.pluginmanager.register(_Recorder(), "mutation-map")


class _Recorder:
    def __init__(self) -> None:
        files = [str(ROOT / file) for file in targets()]
        self.coverage = Coverage(data_file=None, include=files, config_file=False)
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []
        self.users: dict[str, list[str]] = defaultdict(list)
        """The tests that use a shared fixture, by the context of its lines."""
        self.test = ""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        do_without_other_measurements(session.items)
        load_targets()
        self.caches = caches_of_product()
        self.coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        for cache in self.caches:
            cache.cache_clear()
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        for name in item.fixturenames:  # type: ignore[attr-defined]
            self.users[_context(item, name, parameters.get(name))].append(item.nodeid)
        self.test = item.nodeid
        self.coverage.switch_context(self.test)
        begun = sum(os.times()[:4])
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = round(sum(os.times()[:4]) - begun, 3)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> Iterator[None]:
        """What a shared fixture runs belongs to every test that uses it."""
        if fixturedef.scope == "function":
            return (yield)
        self.coverage.switch_context(_context(request.node, fixturedef.argname, getattr(request, "param", None)))
        try:
            return (yield)
        finally:
            self.coverage.switch_context(self.test)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self.coverage.stop()
        data, lines = self.coverage.get_data(), dict[str, Any]()
        self.places = {test: place for place, test in enumerate(self.seconds)}
        for file in data.measured_files():
            found = {line: self._tests(names) for line, names in data.contexts_by_lineno(file).items()}
            lines[Path(file).relative_to(ROOT).as_posix()] = {line: names for line, names in found.items() if names}
        name = f"{os.environ.get('PYTEST_XDIST_WORKER', 'main')}.json"
        text = json.dumps({"lines": lines, "seconds": self.seconds, "failed": self.failed})
        (Path(os.environ[FOLDER]) / name).write_text(text, encoding="utf-8")

    def _tests(self, contexts: list[str]) -> list[int]:
        """The places of the tests in the list of seconds: the names are long, and there are millions."""
        return sorted({self.places[test] for name in contexts if name for test in self.users.get(name, [name])})


def _context(node: pytest.Item | pytest.Collector, fixture: str, parameter: object) -> str:
    return f"{node.nodeid.partition('::')[0]} {fixture} {parameter!r}"


def load_targets() -> None:
    """Load the functions' listed modules, so that their functions and caches exist."""
    for file in targets():
        if file.startswith("functions/"):
            importlib.import_module(module_of(file))


def caches_of_product() -> list[functools._lru_cache_wrapper[Any]]:
    """The caches of functions: what one test has computed hides the lines that another test needs."""
    gc.unfreeze()
    places = tuple(f"{ROOT / folder}{os.sep}" for folder in ("functions", "cluster", "tests/unit"))
    found = [thing for thing in gc.get_objects() if isinstance(thing, functools._lru_cache_wrapper)]
    return [cache for cache in found if _file_of(cache).startswith(places)]


def _file_of(cache: functools._lru_cache_wrapper[Any]) -> str:
    code = getattr(cache.__wrapped__, "__code__", None)
    return code.co_filename if code else ""


def do_without_other_measurements(items: list[pytest.Item]) -> None:
    """Tests of the handlers measure their branches, which stops an outer measurement and takes time."""
    for item in items:
        names = item.fixturenames  # type: ignore[attr-defined]
        names[:] = [name for name in names if name not in ("handler_coverage", "_measured")]
