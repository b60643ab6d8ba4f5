"""The documents draw every state and explain everything that an operator sees."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from cdk_app.alarms import ALARMS
from cdk_app.workflow import Workflow, workflows
from node_fleet.domain.model import errors
from simulator.report.graph import arrows, flattened, picture

ROOT = Path(__file__).parents[2]
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("flow", workflows(), ids=lambda flow: flow.name)
def test_the_picture_has_every_state_and_every_transition(flow: Workflow) -> None:
    drawn = picture(flow.definition)
    connected = {(arrow.start, arrow.end) for arrow in arrows(flattened(flow.definition))}
    for name, state in flow.states().items():
        assert f">{name}</text>" in drawn
        targets = [c["Next"] for c in state.get("Choices", []) + state.get("Catch", [])]
        targets += [state[key] for key in ("Next", "Default") if key in state]
        assert {(name, target) for target in targets} <= connected


@pytest.mark.parametrize("rule", ALARMS, ids=lambda rule: rule.name)
def test_every_alarm_is_explained(rule: object) -> None:
    assert f"| {getattr(rule, 'name')} |" in OPERATIONS  # noqa: B009


@pytest.mark.parametrize("flow", workflows(), ids=lambda flow: flow.name)
def test_every_end_of_a_workflow_is_explained(flow: Workflow) -> None:
    ends = [name for name, s in flow.states().items() if s["Type"] in ("Fail", "Succeed")]
    assert [end for end in ends if f"| {end} |" not in OPERATIONS] == []


def test_every_error_is_explained() -> None:
    names = {n for n, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, errors.NodeFleetError)}
    assert {n for n in names - {"NodeFleetError"} if f"| {n} |" not in OPERATIONS} == set()


def test_every_row_of_troubleshooting_has_a_symptom_a_check_and_what_to_do() -> None:
    section = OPERATIONS.split("## Troubleshooting")[1].split("\n## ")[0]
    _, _, *rows = [line for line in section.splitlines() if line.startswith("| ")]
    symptoms = [row.split(" | ")[0].removeprefix("| ") for row in rows]
    assert {
        "Functions cannot reach Prometheus",
        "Workers do not join",
        "The lock is not released",
        "A function times out",
        "The layer cannot be built (Windows, other processors)",
        "Prometheus shows no metrics",
        "Grafana's dashboards are blank",
    } <= {*symptoms}
    assert all(len([cell for cell in row.strip("|").split(" | ") if cell.strip()]) == 3 for row in rows)


@pytest.mark.parametrize("document", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(#[^)]*)?\)", document.read_text(encoding="utf-8")):
        path = document.parent / target if target else document
        assert path.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in headings}
            assert anchor[1:] in anchors, f"{target}{anchor}"
