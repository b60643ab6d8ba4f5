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
    """SSM counts the values of the parameters too. An update of a document that is larger fails the deployment."""
    assert len(json.dumps(ALL[name])) < 62 * 1024


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_script_holds_no_braces_that_ssm_would_take_for_a_parameter(name: str) -> None:
    lines = ALL[name]["mainSteps"][0]["inputs"]["runCommand"]
    used = {match for line in lines for match in re.findall(r"\{\{\s*(\S+?)\s*\}\}", line)}
    assert used == set(ALL[name]["parameters"])


def parts_of(lines: list[str]) -> tuple[list[str], list[str]]:
    """The lines of shell that are no comment, and the programs in Python without their docstrings."""
    text = "\n".join(lines)
    programs = [ast.parse(program) for program in re.findall(r"<<'PYTHON'.*\n([\s\S]*?)\nPYTHON\b", text)]
    for node in [each for program in programs for each in ast.walk(program)]:
        if isinstance(body := getattr(node, "body", None), list) and body:
            strings = [s for s in body if isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)]
            node.body = [s for s in body if s not in strings]  # type: ignore[attr-defined]
    shell = re.sub(r"(<<'PYTHON'.*\n)[\s\S]*?\nPYTHON\b", r"\1", text).splitlines()
    return [line for line in shell[1:] if line.strip() and line.lstrip()[0] != "#"], [ast.dump(p) for p in programs]


@pytest.mark.parametrize("name", sorted(ALL))
def test_the_script_is_shipped_as_it_stands_without_its_comments(name: str) -> None:
    script = COMMANDS / (re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.removeprefix("node-fleet-")).lower() + ".sh")
    lines = ALL[name]["mainSteps"][0]["inputs"]["runCommand"]
    parameters = ALL[name]["parameters"]
    shipped = [line for line in lines if not re.fullmatch(r"export [A-Z_]+='\{\{ \w+ \}\}'", line)]
    assert parts_of(shipped) == parts_of(read_script(script).splitlines())
    assert len(lines) - len(shipped) == len(parameters)
    assert lines[0].startswith("#!")


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
