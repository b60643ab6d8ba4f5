"""The tests that changed files reach: through imports, and through files that a module names in a string.

Handlers are loaded by name, scripts and definitions are read, and commands run in processes of their own. So the graph
also has an edge from a module to each module whose dotted name is in one of its strings.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("node_fleet", "handlers", "simulator", "backtest", "cdk_app", "cli", "tools", "tests")
REACH_ALL = frozenset({"pyproject.toml", "requirements.txt", "requirements-dev.txt", "tests/conftest.py"})
READ_ALL = "tests/unit/test_words.py"
"""The test of the vocabulary reads every file."""
LOADS_HANDLERS = "simulator.aws.lambdas"
"""The template has their names."""
PARTS = re.compile(r"[^/\s:]+")


def changed_files(since: str | None) -> tuple[str, ...]:
    """Files that differ from the commit, new ones included. The default is where this branch left main."""
    commit = since or _git("merge-base", "HEAD", "main")[0]
    return tuple(sorted({*_git("diff", "--name-only", commit), *_git("ls-files", "--others", "--exclude-standard")}))


@functools.cache
def reached_tests(changed: tuple[str, ...]) -> frozenset[str] | None:
    """The test files that the changed files reach; None when they reach all of them."""
    if REACH_ALL & set(changed):
        return None
    graph, parts = _graph()
    reached: set[str] = set()
    for file in changed:
        sources = {module_of(file)} if file.endswith(".py") else _readers(file, parts)
        for module in sources & graph.modules:
            reached |= {module} | graph.find_downstream_modules(module)
    # The fixtures of a folder serve all of it; those of tests/conftest.py judge the whole run.
    fixtures = [module for module in reached if module.endswith(".conftest") and module != "tests.conftest"]
    folders = tuple(module.removesuffix("conftest") for module in fixtures)
    reached |= {module for module in graph.modules if module.startswith(folders)}
    files = {f"{module.replace('.', '/')}.py" for module in reached if re.match(r"tests\..*\.test_\w+$", module)}
    return frozenset({*files, READ_ALL} if changed else files)


@functools.cache
def _graph() -> tuple[grimp.ImportGraph, dict[str, frozenset[str]]]:
    """The edges between the modules, and the parts of each module's strings."""
    parts = {module_of(file): _parts(file) for file in _git("ls-files", "*.py") if (ROOT / file).exists()}
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    for module in graph.modules & parts.keys():
        for named in parts[module] & graph.modules - set(PACKAGES):
            graph.add_import(importer=module, imported=named)
        if module.startswith("handlers."):
            graph.add_import(importer=LOADS_HANDLERS, imported=module)
    return graph, parts


def module_of(file: str) -> str:
    """The dotted name of a Python file of the repository."""
    return file.removeprefix("functions/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _readers(file: str, parts: dict[str, frozenset[str]]) -> set[str]:
    """The modules beside a file that is not Python, and those with its name or all of its folders in strings."""
    *folders, name = file.split("/")
    beside = {module for module in parts if folders and module.split(".")[:-1] == folders}
    return beside | {module for module, found in parts.items() if name in found or (folders and found >= {*folders})}


def _parts(file: str) -> frozenset[str]:
    """The parts of all strings of a Python file, as of paths."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    strings = (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return frozenset(part for text in strings for part in PARTS.findall(text))


def _git(*words: str) -> list[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
