"""The server's commands as SSM documents: the shipped script, values only inside quotes, only if they fit a pattern."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_app.documents import COMMANDS, DECLARATIONS, documents
from cdk_app.scripts import read_script
from node_fleet.settings import Settings
from tests.cdk.conftest import ATTACHED, NEW, App

ALL = documents(Settings())


def patterns() -> list[tuple[str, str, str]]:
    return [
        (doc, name, p["allowedPattern"]) for doc, content in ALL.items() for name, p in content["parameters"].items()
    ]


def test_there_is_one_document_for_every_script() -> None:
    scripts = {"".join(part.capitalize() for part in s.stem.split("_")) for s in COMMANDS.glob("*.sh")}
    assert {name.removeprefix("node-fleet-") for name in ALL} == scripts
    assert scripts == set(json.loads(DECLARATIONS.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_document_is_small_enough_for_ssm(name: str) -> None:
    """SSM takes 64 KB, and counts the values of the parameters too: a larger document fails the deployment."""
    assert len(json.dumps(ALL[name])) < 54 * 1024


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_script_holds_no_braces_that_ssm_would_take_for_a_parameter(name: str) -> None:
    lines = ALL[name]["mainSteps"][0]["inputs"]["runCommand"]
    used = {match for line in lines for match in re.findall(r"\{\{\s*(\S+?)\s*\}\}", line)}
    assert used == set(ALL[name]["parameters"])


PROGRAM = re.compile(r"(?<=<<'PYTHON')(.*\n)([\s\S]*?)(?=\nPYTHON\b)")


def shell_of(text: str) -> list[str]:
    """The lines of shell that are no comment."""
    lines = PROGRAM.sub(r"\1", text).splitlines()[1:]
    return [line for line in lines if line.strip() and line.lstrip()[0] != "#"]


class Untyped(ast.NodeTransformer):
    """Removes types and docstrings."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) else node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(node.arg)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        return ast.Assign([node.target], node.value) if node.value else node


def definitions_of(program: str) -> list[tuple[str, str]]:
    """Name and content of every statement, function and method, in order; those without a name are ""."""
    tree = Untyped().visit(ast.parse(program))
    found = []
    for node in tree.body:
        found.append((getattr(node, "name", ""), node))
        if isinstance(node, ast.ClassDef):
            methods = [m for m in node.body if isinstance(m, ast.FunctionDef) and not m.name.startswith("__")]
            node.body = [m for m in node.body if m not in methods]
            found += [(m.name, m) for m in methods]
    return [(name, ast.dump(node)) for name, node in found]


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_document_has_the_lines_of_the_script_that_it_runs(name: str) -> None:
    script = COMMANDS / (re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.removeprefix("node-fleet-")).lower() + ".sh")
    lines = ALL[name]["mainSteps"][0]["inputs"]["runCommand"]
    parameters = ALL[name]["parameters"]
    shipped = [line for line in lines if not re.fullmatch(r"export [A-Z_]+='\{\{ \w+ \}\}'", line)]
    text, source = "\n".join(shipped), read_script(script)
    assert shell_of(text) == shell_of(source)
    assert len(lines) - len(shipped) == len(parameters)
    assert lines[0].startswith("#!")
    for (_, kept), (_, whole) in zip(PROGRAM.findall(text), PROGRAM.findall(source), strict=True):
        known = definitions_of(whole)
        rest = iter(known)
        assert all(each in rest for each in definitions_of(kept)), "another order or another content"
        left_out = {each for each, _ in known} - {each for each, _ in definitions_of(kept)}
        assert left_out & set(re.findall(r"\w+", kept)) == set()


@pytest.mark.parametrize(("document", "parameter", "pattern"), patterns())
def test_every_pattern_is_anchored(document: str, parameter: str, pattern: str) -> None:
    assert pattern.startswith("^")
    assert pattern.endswith("$")


@pytest.mark.parametrize(("document", "parameter", "pattern"), patterns())
def test_the_agent_can_read_every_pattern(document: str, parameter: str, pattern: str) -> None:
    """The SSM agent checks each value with Go's regexp, which refuses a repetition of more than 1,000."""
    assert all(int(number) <= 1000 for number in re.findall(r"[{,](\d+)(?=[,}])", pattern))


@given(data=st.data())
def test_what_fits_a_pattern_reaches_the_shell_unchanged(data: st.DataObject) -> None:
    _, _, pattern = data.draw(st.sampled_from(patterns()))
    value = data.draw(st.from_regex(re.compile(pattern.removesuffix("$") + r"\Z", re.ASCII)))
    assert shlex.split(f"export X='{value}'") == ["export", f"X={value}"]


@pytest.mark.parametrize("name", sorted(ALL))
def test_the_exported_text_is_shell(name: str) -> None:
    text = "\n".join(ALL[name]["mainSteps"][0]["inputs"]["runCommand"])
    shell = text.partition("\n")[0].removeprefix("#!")
    checked = subprocess.run([shell, "-n"], input=text, text=True, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("cluster", [NEW, ATTACHED])
def test_the_template_holds_the_documents(app: App, cluster: str) -> None:
    found: dict[str, Any] = app.resources(f"{cluster}-autoscaler", "AWS::SSM::Document")
    prefix = "node-fleet-" if cluster == NEW else "shop-"
    # The K3s server of mode attach belongs to its owner.
    left_out = set() if cluster == NEW else {"shop-UpgradeServer"}
    assert {d["Name"] for d in found.values()} == set(documents(Settings(document_prefix=prefix))) - left_out
    assert {(d["DocumentType"], d["UpdateMethod"]) for d in found.values()} == {("Command", "NewVersion")}
