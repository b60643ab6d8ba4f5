"""The mutants of ./node-fleet mutate: which faults are made, which tests meet them, which of them are harmless."""

from __future__ import annotations

import gc
import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.mutation import __main__ as mutate
from tests.mutation.coverage_map import CoverageMap, caches_of_product, load_targets
from tests.mutation.mutants import ROOT, TARGETS, equivalents, mutants_of
from tests.mutation.warm_session import (
    KILLED,
    SURVIVED,
    TIMED_OUT,
    Job,
    Verdict,
    can_be_replaced,
    functions_of_targets,
)

FUNCTION = "def f(a, b):\n    {}\n"


def changes(folder: Path, line: str) -> set[str]:
    """What the faults make of the only line of a function."""
    (folder / "code.py").write_text(FUNCTION.format(line), encoding="utf-8")
    return {mutant.diff()[1] for mutant in mutants_of("code.py", folder)}


@pytest.mark.parametrize(
    ("line", "faults"),
    [
        ("return a < b", {"return a <= b"}),
        ("return a == b", {"return a != b"}),
        ("return a is b", {"return a is not b"}),
        ("return a not in b", {"return a in b"}),
        ("return a and b", {"return a or b"}),
        ("return not a", {"return a"}),
        ("return a - b", {"return a + b"}),
        ("return a + 59", {"return a - 59", "return a + 60"}),
        ("return f(a, b=True)", {"return f(a, b=False)"}),
        ("return a if b else a", {"return a if (b) and False else a", "return a if (b) or True else a"}),
        ("a.save(b)", {"pass"}),
        ("raise a", {"pass"}),
        ("a += b", {"a -= b", "pass"}),
        ("if a: b()", {"if (a) and False: b()", "if (a) or True: b()"}),
    ],
)  # fmt: skip
def test_each_kind_of_fault_is_made(line: str, faults: set[str], tmp_path: Path) -> None:
    assert changes(tmp_path, line) == faults


@pytest.mark.parametrize(
    "line",
    [
        "logger.info('waits', seconds=1)",
        "'''Is not True.'''",
        "a: list[1] = b",
        "import a",
        "if TYPE_CHECKING: import a",
        "return zip(a, b, strict=True)",
        "return a[:300]",
    ],
)
def test_log_lines_texts_types_imports_and_limits_of_texts_are_left_alone(line: str, tmp_path: Path) -> None:
    assert changes(tmp_path, line) == set()


@pytest.mark.parametrize(
    ("old", "new", "is_replaceable"),
    [
        ("def f():\n    return 1", "def f():\n    return 2", True),
        ("class C:\n    def f(self):\n        return 1", "class C:\n    def f(self):\n        return 2", True),
        ("def f():\n    return [x for x in y]", "def f():\n    return [x for x in y if x]", True),
        ("A = 1", "A = 2", False),
        ("A = a < b", "A = a <= b", False),
        ("class C:\n    a = 1", "class C:\n    a = 2", False),
        ("def f(a=1):\n    return a", "def f(a=2):\n    return a", False),
        ("A = [x + 1 for x in y]", "A = [x - 1 for x in y]", False),
    ],
)
def test_only_code_of_functions_is_replaced_in_a_process_that_has_loaded_it(
    old: str, new: str, is_replaceable: bool
) -> None:
    assert can_be_replaced(compile(old, "f", "exec"), compile(new, "f", "exec")) is is_replaceable


def test_the_tests_of_a_line_start_with_the_fastest_file_and_a_line_without_tests_has_those_of_its_file() -> None:
    seconds = {"slow.py::a": 2.0, "quick.py::b": 0.1, "quick.py::c": 0.3, "other.py::d": 0.0}
    known = CoverageMap(
        {"code.py": {3: ("slow.py::a", "quick.py::c", "quick.py::b"), 4: ("other.py::d",)}}, seconds, []
    )
    assert known.tests_of("code.py", 3) == ["quick.py::b", "quick.py::c", "slow.py::a"]
    assert known.tests_of("code.py", 4) == ["other.py::d"]
    assert known.tests_of("code.py", 1) == ["other.py::d", "quick.py::b", "quick.py::c", "slow.py::a"]
    assert known.tests_of("unknown.py", 1) == []
    assert [known.is_run_by_tests("code.py", line) for line in (1, 3)] == [False, True]


@pytest.mark.parametrize(
    ("before", "line", "found", "ends", "expected"),
    [
        (SURVIVED, 3, KILLED, math.inf, KILLED),
        (SURVIVED, 3, SURVIVED, math.inf, SURVIVED),
        (SURVIVED, 3, TIMED_OUT, math.inf, SURVIVED),
        (SURVIVED, 3, KILLED, 0, SURVIVED),
        (KILLED, 3, "not asked", math.inf, KILLED),
        (TIMED_OUT, 3, "not asked", math.inf, TIMED_OUT),
    ],
)
def test_slow_tests_are_tried_against_what_no_fast_test_notices_and_must_fail_to_notice_it(
    monkeypatch: pytest.MonkeyPatch, *, before: str, line: int, found: str, ends: float, expected: str
) -> None:
    given: list[Job] = []

    def again(job: Job, copy: Path, *words: str) -> Verdict:
        given.append(job)
        return Verdict(job.number, found)

    monkeypatch.setattr(mutate, "again", again)
    known = CoverageMap({"code.py": {3: ("slow.py::a", "slow.py::b")}}, {"slow.py::a": 200.0, "slow.py::b": 200.0}, [])
    job = Job(0, "code.py", line, "text", ["fast.py::c"], 20)
    assert [v.status for v in mutate.run_slow_tests([job], [Verdict(0, before)], known, Path(), ends)] == [expected]
    asked = before == SURVIVED and ends > 0
    assert [one.tests for one in given] == ([["slow.py::a"]] if asked else []), "as many as the limit allows"


def test_the_map_of_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    written: dict[str, Any] = {
        "lines": {"code.py": {"3": [1], "4": [0, 1, 2]}}, "seconds": {"a": 1.0, "b": 2.0, "c": 0.5}, "failed": ["c"],
    }  # fmt: skip
    (tmp_path / "gw0.json").write_text(json.dumps(written), encoding="utf-8")
    known = CoverageMap.read(tmp_path)
    assert known.lines["code.py"] == {3: ("b",), 4: ("a", "b", "c")}
    assert (known.seconds, known.failed, known.tests_of("code.py", 4)) == ({"a": 1.0, "b": 2.0}, ["c"], ["a", "b"])


def test_a_line_of_a_script_is_met_by_the_tests_of_the_scripts_which_run_it_in_another_process() -> None:
    known = CoverageMap({}, {"tests/unit/commands/test_a.py::a": 1.0, "tests/unit/domain/test_b.py::b": 1.0}, [])
    assert known.tests_of("cluster/commands/rules.py", 1) == ["tests/unit/commands/test_a.py::a"]
    assert known.tests_of("functions/handlers/decide.py", 1) == []
    assert known.is_run_by_tests("cluster/commands/rules.py", 1)


def test_a_default_is_met_by_the_test_of_defaults_and_a_line_of_a_function_by_its_own_tests() -> None:
    file, defaults = "functions/node_fleet/domain/model/memory.py", "tests/unit/domain/test_defaults.py::a"
    known = CoverageMap({file: {9: ("b.py::b",)}}, {defaults: 1.0, "b.py::b": 2.0}, [])
    assert known.tests_of(file, 1) == [defaults, "b.py::b"]
    assert known.tests_of(file, 9) == ["b.py::b"]


@pytest.mark.parametrize(
    "pattern", [*TARGETS["files"], *TARGETS["tests"], *(f for other in TARGETS["unrecorded"] for f in other["files"])]
)
def test_everything_in_the_list_of_targets_exists(pattern: str) -> None:
    assert list(ROOT.glob(pattern))


@pytest.mark.whole
def test_every_equivalent_mutant_can_be_made_and_has_a_reason() -> None:
    listed = {key[:2] for key in equivalents()}
    lines = {before for _, _, before, _ in equivalents()}
    texts = {file: (ROOT / file).read_text(encoding="utf-8").splitlines() for file, _ in sorted(listed)}
    found = [one for file in texts for one in mutants_of(file)]
    same = [one for one in found if texts[one.file][one.line - 1].strip() in lines]
    made = {(one.file, one.function, *one.diff()) for one in same}
    assert equivalents().keys() <= made
    assert all(reason.endswith(".") for reason in equivalents().values())


def test_the_functions_and_caches_of_the_listed_files_are_found_although_they_are_frozen() -> None:
    load_targets()
    gc.freeze()
    path = str(ROOT / "functions/handlers/check_join.py")
    assert [name for file, _, name in functions_of_targets() if file == path] == ["handler", "_checked"]
    assert "amount_of" in {cache.__wrapped__.__name__ for cache in caches_of_product()}
    gc.freeze()
