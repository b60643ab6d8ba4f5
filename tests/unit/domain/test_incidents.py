"""Every alert and error has a row with severity, consequence, next step and what to do, and a message shows it."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdk_app.alarms import ALARMS
from node_fleet.domain.model import errors
from node_fleet.domain.model.run import Alert
from node_fleet.domain.notify.incidents import ALERTS, ERRORS, Incident, incident_of, incidents_of
from node_fleet.domain.notify.message import Message, compose
from node_fleet.domain.scale_up.refusals import ALERT_OF_ERROR, REFUSALS, UNKNOWN_REFUSAL

FUNCTIONS = Path(__file__).parents[3] / "functions"
DESCRIPTION_LIMIT = 1024
"""Characters of AlarmDescription: PutMetricAlarm in the model of CloudWatch."""
FROM_TABLES = {*(row.alert for row in (*REFUSALS, UNKNOWN_REFUSAL) if row.alert), *ALERT_OF_ERROR.values()}
"""Kinds that code takes from a table."""
OF_CHECKS = {"pod_too_large", "pod_unfit", "pods_not_helped", "circuit_breaker"}
"""Checks that cause an alert under their own name: listed_checks and the circuit breaker."""


@functools.cache
def modules() -> tuple[tuple[str, ast.Module], ...]:
    """The text of every module and its tree."""
    found = (path.read_text(encoding="utf-8") for path in FUNCTIONS.rglob("*.py"))
    return tuple((text, ast.parse(text)) for text in found)


def nodes_where(*words: str) -> Iterator[ast.AST]:
    """Every part of the modules in which one of the words stands."""
    for text, tree in modules():
        if any(word in text for word in words):
            yield from ast.walk(tree)


def calls(name: str) -> Iterator[ast.Call]:
    for node in nodes_where(name):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name:
            yield node


@functools.cache
def constants() -> dict[str, str]:
    """Names in capitals that a module gives a text."""
    found = {}
    for _, tree in modules():
        for node in tree.body:
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                found |= {one.id: node.value.value for one in node.targets if isinstance(one, ast.Name)}
    return found


def texts(value: ast.expr) -> Iterator[str]:
    """The kind that an expression begins with, where the source states it."""
    if isinstance(value, ast.JoinedStr):
        value = value.values[0]
    if isinstance(value, ast.Name) and value.id in constants():
        yield constants()[value.id]
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    if isinstance(value, ast.IfExp):
        yield from (*texts(value.body), *texts(value.orelse))
    if isinstance(value, ast.BoolOp):
        yield from (text for one in value.values for text in texts(one))


def makers() -> Iterator[ast.FunctionDef]:
    """The functions that make an alert whose kind is a variable."""
    for node in nodes_where("Alert(", "drain_failed_alert("):
        made = ast.unparse(node) if isinstance(node, ast.FunctionDef) else ""
        if "Alert(kind=kind" in made or "drain_failed_alert(target, kind" in made:
            yield node  # type: ignore[misc]


def unpacked(target: ast.expr, value: ast.expr) -> tuple[list[ast.expr], list[ast.expr]]:
    """The parts of `a, b = c, d`."""
    return list(getattr(target, "elts", ())), list(getattr(value, "elts", ()))


def named_kind(target: ast.expr) -> bool:
    return getattr(target, "id", "") == "kind"


def stated_kinds() -> set[str]:
    given = [(call, word) for call in calls("Alert") for word in call.keywords if word.arg == "kind"]
    given += [(call, word) for call in calls("DrainVerdict") for word in call.keywords if word.arg == "alert"]
    kinds = {text.partition(":")[0] for _, word in given for text in texts(word.value)}
    for function in makers():  # names to which a kind is assigned before the alert is made
        for node in ast.walk(function):
            if not isinstance(node, ast.Assign):
                continue
            target = node.targets[0]
            names, values = ([target], [node.value]) if isinstance(target, ast.Name) else unpacked(target, node.value)
            pairs = zip(names, values, strict=False)
            kinds |= {text.partition(":")[0] for one, value in pairs if named_kind(one) for text in texts(value)}
    return kinds - {""}


def test_every_kind_of_alert_in_the_code_has_a_row_and_every_row_a_kind() -> None:
    kinds = stated_kinds() | FROM_TABLES | OF_CHECKS
    rows = {row.name for row in ALERTS}
    assert kinds - rows == set(), "add a row to incidents.py"
    assert rows - kinds == {"scale_up_failed", "not_ready"} - kinds, "a row that no code sends"


def test_every_error_has_a_row_and_every_row_an_error() -> None:
    names = {n for n, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, errors.NodeFleetError)}
    assert {row.name for row in ERRORS} == names - {"NodeFleetError"}


@pytest.mark.parametrize("row", [*ALERTS, *ERRORS], ids=lambda row: row.name)
def test_a_row_says_the_consequence_in_sentences_and_the_next_step_and_the_action_in_phrases(row: Incident) -> None:
    assert row.meaning.endswith(".") and row.meaning[0].isupper()
    for phrase in (row.next_step, row.action):
        assert phrase and not phrase.endswith(".")
    assert len(row.sentence) < 700


@pytest.mark.parametrize("rule", ALARMS, ids=lambda rule: rule.name)
def test_an_alarm_has_severity_next_step_and_link_within_the_limit_of_cloudwatch(rule: object) -> None:
    text = rule.text  # type: ignore[attr-defined]
    assert len(text) <= DESCRIPTION_LIMIT
    assert "Severity: " in text and " Next: " in text and text.endswith(f"row {rule.name})")  # type: ignore[attr-defined]


def test_a_message_has_one_row_for_each_kind_the_most_severe_first() -> None:
    alerts = tuple(Alert(kind=kind, text="x") for kind in ("join_failed:i-1", "join_failed:i-2", "at_maximum"))
    base = Message(cluster_id="c", level="info", what="w", why="y", execution_id="e", trigger="t", alerts=alerts)
    message = compose(
        base, snapshot=None, operation=None, outcome=None, failure={"Error": "LeaseLostError", "Cause": "lost"}
    )
    assert [detail.split(" ")[0] for detail in message.details] == ["at_maximum", "join_failed", "LeaseLostError"]
    assert message.details[0].startswith("at_maximum (critical): The load asks for a worker")
    assert "Next: every run checks again. What you can do: raise `max_workers`" in message.details[0]
    assert message.details[0].endswith("(docs/operations.md, row at_maximum)")
    assert "You need to do nothing" not in message.details[2]


def test_a_kind_of_a_later_version_is_sent_without_a_row() -> None:
    assert incident_of("something_new:i-1") is None
    assert incidents_of(["something_new"]) == ()
