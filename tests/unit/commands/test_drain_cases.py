"""79 pods from tests of other drain implementations: verdicts follow the specification, differences are explained."""

from __future__ import annotations

import re

import pytest

from tests.support.drain_cases import CASES, ROOT, keeps_worker
from tests.support.shipped_scripts import rules


def documented_differences() -> dict[str, bool]:
    """Case id -> verdict of node-fleet, from the table of differences that people read."""
    text = (ROOT / "docs/scale-down.md").read_text()
    rows = re.findall(r"^\| `([a-z]{2}-\d\d-[a-z0-9-]+)` \| \w[\w -]* \| (kept|eligible) \|", text, re.MULTILINE)
    return {case: verdict == "kept" for case, verdict in rows}


def test_there_are_79_cases() -> None:
    assert len(CASES) == 79


@pytest.mark.parametrize("name", sorted(CASES))
def test_our_verdict_is_the_source_systems_or_the_documented_difference(name: str) -> None:
    expected = documented_differences().get(name, CASES[name]["blocks_drain"])
    assert keeps_worker(CASES[name]) is expected


def test_every_documented_difference_is_one() -> None:
    assert [n for n, stays in documented_differences().items() if stays is CASES[n]["blocks_drain"]] == []


@pytest.mark.parametrize(
    ("operator", "values", "labels"),
    [
        ("In", ["web", "api"], [True, False, False]),
        ("NotIn", ["web", "api"], [False, True, True]),
        ("Exists", None, [True, True, False]),
        ("DoesNotExist", None, [False, False, True]),
    ],
)
def test_a_budget_selects_pods_by_each_operator_of_a_label_selector(
    operator: str, values: list[str] | None, labels: list[bool]
) -> None:
    """The labels are app=web, app=db and none."""
    expression = {"key": "app", "operator": operator, **({"values": values} if values else {})}
    budget = {"metadata": {"namespace": "shop", "name": "b"}, "spec": {"selector": {"matchExpressions": [expression]}}}
    cluster = rules.Cluster({"poddisruptionbudgets": [budget]}, now=0)
    pods = [{"metadata": {"namespace": "shop", "labels": found}} for found in ({"app": "web"}, {"app": "db"}, {})]
    assert [bool(cluster.budgets_of(pod)) for pod in pods] == labels
