"""The commands that the documentation, the messages and the fixes give to an operator."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = [path for part in ("cli", "functions", "cdk_app") for path in sorted((ROOT / part).rglob("*.py"))]
SCRIPTS = sorted((ROOT / "cluster").rglob("*.sh"))
FULL_PATH = "/usr/local/bin/k3s kubectl"
# docs/scale-down.md quotes the drain that node-fleet itself runs.
OPERATOR_KUBECTL = re.compile(
    r"(?<!/usr/local/bin/k3s )kubectl (-n \S+ )?(get|apply|delete|cordon|uncordon|drain(?=`)) ?"
)


def literals(path: Path) -> Iterator[str]:
    """The texts of a program without its docstrings. A placeholder of an f-string reads as {}."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    aside = docstrings | parts
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in aside:
            yield node.value


@functools.cache
def texts() -> tuple[tuple[str, str], ...]:
    """Everything that an operator may copy a command from, with the name of its file."""
    documents = [(document.name, document.read_text(encoding="utf-8")) for document in DOCUMENTS]
    return (*documents, *((program.name, literal) for program in PROGRAMS for literal in literals(program)))


def test_kubectl_has_its_complete_path_because_sudo_does_not_search_usr_local_bin() -> None:
    short = [(name, found[0]) for name, text in texts() for found in OPERATOR_KUBECTL.finditer(text)]
    assert not short
    assert not [name for name, text in texts() if re.search(r"sudo (k3s|kubectl)\b", text)]
    assert sum(text.count(FULL_PATH) for _, text in texts()) >= 9


def test_a_secret_reaches_secrets_manager_from_a_file_and_never_on_a_command_line() -> None:
    everything = [*texts(), *((script.name, script.read_text(encoding="utf-8")) for script in SCRIPTS)]
    values = [(name, found[1]) for name, text in everything for found in re.finditer(r"--secret-string\s+(\S*)", text)]
    assert len(values) >= 5
    assert not [(name, value) for name, value in values if not re.match(r"[\"\'{]*(file://|\}?$)", value)]


def test_workers_receive_the_token_of_agents_and_never_the_token_of_the_server() -> None:
    publish = (ROOT / "cluster/server/publish_token.sh").read_text(encoding="utf-8")
    assert 'TOKEN_FILE="$NODE_FLEET_ROOT/var/lib/rancher/k3s/server/agent-token"' in publish
    install = (ROOT / "cluster/server/install_k3s.sh").read_text(encoding="utf-8")
    assert 'agent-token-file: "/etc/rancher/k3s/agent-token"' in install
    everything = [*texts(), *((script.name, script.read_text(encoding="utf-8")) for script in SCRIPTS)]
    assert not [name for name, text in everything if re.search(r"server/(node-token|token)\b", text)]
    assert not [name for name, text in everything if re.search(r"\$\((sudo )?cat [^)]*token\)", text)]
    assert not [name for name, text in everything if re.search(r"--(agent-)?token[ =]", text)]
