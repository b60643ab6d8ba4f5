"""Runs the tests of many mutants in forks of one process, which has collected all tests: a plugin of pytest.

A mutant is written into its file, and the code of its functions is replaced in memory: that takes milliseconds where a
new process takes seconds. A mutant outside functions, or in one that only loading a module runs, needs a new process.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, FunctionType

import hypothesis
import pytest

from tests.mutation.coverage_map import caches_of_product, do_without_other_measurements, load_targets
from tests.mutation.mutants import ROOT, targets

JOBS, RESULTS = "NODE_FLEET_MUTATION_JOBS", "NODE_FLEET_MUTATION_RESULTS"
MEMORY = 4 << 30
WAITING = 20
"""The limit is one of processor time, which a busy machine does not use up; a test that waits has so many times it."""
BROKEN = 3
"""The status of a fork that could not run the tests."""
SURVIVED, KILLED, TIMED_OUT, NEEDS_PROCESS = "survived", "killed", "timed out", "needs a new process"
Functions = dict[tuple[str, int, str], list[FunctionType]]


@dataclass(frozen=True, slots=True)
class Job:
    """One mutant: its file's text, and the tests that run the changed line."""

    number: int
    file: str
    line: int
    text: str
    tests: list[str]
    limit_seconds: int
    needs_process: bool = False
    """The line runs when its module is loaded."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the tests say of one mutant."""

    number: int
    status: str
    test: str = ""
    seconds: float = 0.0


def pytest_configure(config: pytest.Config) -> None:
    """The same mutant gets the same examples, and a busy machine kills no mutant."""
    hypothesis.settings.register_profile("mutation", deadline=None, derandomize=True, database=None)
    hypothesis.settings.load_profile("mutation")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the jobs."""
    wanted = {test for job in read_jobs() for test in job.tests}
    items[:] = [item for item in items if item.nodeid in wanted]
    do_without_other_measurements(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run each mutant in a fork. One job that is alone runs in this process, which has loaded its text."""
    if RESULTS not in os.environ:
        return None
    load_targets()
    functions, by_name = functions_of_targets(), {item.nodeid: item for item in session.items}
    for cache in caches_of_product():  # the collection of the tests has filled some
        cache.cache_clear()
    gc.collect()
    gc.freeze()
    with Path(os.environ[RESULTS]).open("a", encoding="utf-8") as results:
        for job in read_jobs():
            items = [by_name[test] for test in job.tests if test in by_name]
            results.write(json.dumps(asdict(judge(job, items, functions))) + "\n")
            results.flush()
    return True


def read_jobs() -> Iterator[Job]:
    """The jobs of this process."""
    with Path(os.environ[JOBS]).open(encoding="utf-8") as lines:
        for line in lines:
            yield Job(**json.loads(line))


def functions_of_targets() -> Functions:
    """The functions of the listed files that exist now, by file, first line and name."""
    gc.unfreeze()  # what an earlier hook has frozen is not among the objects
    files = {str(ROOT / file) for file in targets()}
    found: Functions = {}
    for thing in gc.get_objects():
        if isinstance(thing, FunctionType) and thing.__code__.co_filename in files:
            found.setdefault(_key(thing.__code__), []).append(thing)
    return found


def judge(job: Job, items: list[pytest.Item], functions: Functions) -> Verdict:
    """Run the tests against the mutant in a fork."""
    path = ROOT / job.file
    original = path.read_text(encoding="utf-8")
    old, new = compile(original, str(path), "exec"), compile(job.text, str(path), "exec")
    if job.needs_process or not can_be_replaced(old, new):
        return Verdict(job.number, NEEDS_PROCESS)
    changed = [(_key(a), b) for a, b in zip(_functions_in(old), _functions_in(new), strict=True) if a != b]
    if any(key not in functions for key, _ in changed):
        return Verdict(job.number, NEEDS_PROCESS)  # only a test that loads the file itself can meet the mutant
    begun, (reading, writing) = time.monotonic(), os.pipe()
    path.write_text(job.text, encoding="utf-8")
    try:
        child = os.fork()
        if not child:
            os.close(reading)
            _run(items, [(f, code) for key, code in changed for f in functions[key]], job, writing)
        os.close(writing)
        with os.fdopen(reading, encoding="utf-8") as pipe:
            said = pipe.read()
        _, status = os.waitpid(child, 0)
    finally:
        path.write_text(original, encoding="utf-8")
    seconds = round(time.monotonic() - begun, 2)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGALRM):
        return Verdict(job.number, TIMED_OUT, said, seconds)
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        return Verdict(job.number, NEEDS_PROCESS, said, seconds)
    return Verdict(job.number, SURVIVED if status == 0 else KILLED, said, seconds)


def _run(items: list[pytest.Item], replaced: list[tuple[FunctionType, CodeType]], job: Job, writing: int) -> None:
    """In the fork: replace the code, run the tests until one fails, and end with status 1 if one does."""
    status = BROKEN
    try:
        signal.setitimer(signal.ITIMER_PROF, job.limit_seconds)
        signal.alarm(WAITING * job.limit_seconds)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        for function, code in replaced:
            function.__code__ = code
        failed: list[str] = []
        if items:
            items[0].config.pluginmanager.register(_Watch(failed))
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if failed:
                break
        os.write(writing, (failed[0] if failed else "").encode())
        status = 1 if failed else 0
    except BaseException:
        os.write(writing, traceback.format_exc(limit=-1).encode())
    finally:
        os._exit(status)


@dataclass(slots=True, eq=False)
class _Watch:
    failed: list[str]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


def _key(code: CodeType) -> tuple[str, int, str]:
    return code.co_filename, code.co_firstlineno, code.co_qualname


def _parts_of(code: CodeType) -> list[CodeType]:
    return [part for part in code.co_consts if isinstance(part, CodeType)]


def _is_function(code: CodeType) -> bool:
    return bool(code.co_flags & 0x2)  # CO_NEWLOCALS: a module's or class's code has none


def _functions_in(code: CodeType) -> Iterator[CodeType]:
    """The outermost functions of a module, also those in its classes."""
    for part in _parts_of(code):
        if _is_function(part):
            yield part
        else:
            yield from _functions_in(part)


def can_be_replaced(old: CodeType, new: CodeType) -> bool:
    """Whether two modules, or classes, differ in nothing but code of functions with the same names and closures.

    A comprehension of a module has run, and of two lambdas in one line each could be the changed one.
    """
    one, other = _parts_of(old), _parts_of(new)
    if any(a != b and a.co_name.startswith("<") for a, b in zip(one, other, strict=False)):
        return False
    constants = [[repr(c) for c in code.co_consts if not isinstance(c, CodeType)] for code in (old, new)]
    return (
        (old.co_code, old.co_names, constants[0], len(one)) == (new.co_code, new.co_names, constants[1], len(other))
        and all(_key(a) == _key(b) and a.co_freevars == b.co_freevars for a, b in zip(one, other, strict=True))
        and all(_is_function(a) or can_be_replaced(a, b) for a, b in zip(one, other, strict=True))
    )
