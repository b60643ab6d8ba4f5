"""docs/decision-rules.md: its worked numbers are run, and every setting it names exists."""

from __future__ import annotations

import re

import pytest

from node_fleet.settings import Settings
from tests.support.doc_examples import PAGE, Example, answer_of, examples, written_anew

TEXT = PAGE.read_text()
EXAMPLES = examples(TEXT)


@pytest.mark.parametrize("example", EXAMPLES, ids=[str(e.data["says"])[:60] for e in EXAMPLES])
def test_the_example_is_what_the_rules_say(example: Example) -> None:
    decision = example.decided()
    assert answer_of(decision) == example.data["answer"]
    assert decision.sentence == example.data["says"]
    assert [a.kind.partition(":")[0] for a in decision.alerts if a.kind != "metrics_unavailable"] == (
        [example.data["alert"]] if "alert" in example.data else []
    )


def test_writing_the_page_anew_changes_nothing() -> None:
    assert written_anew(TEXT) == TEXT


NOT_SETTINGS = {"error_rate", "queue_depth", "request_rate", "minimum_traffic", "traffic_query", "when_absent"}
"""Names of metrics, and fields of a custom metric."""


def test_every_setting_it_names_exists() -> None:
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", TEXT)) - NOT_SETTINGS
    assert len(named) > 30 and named <= Settings.__dataclass_fields__.keys()
    assert not re.findall(r"`[A-Z][A-Z_]{3,}`", TEXT), "names as in cdk.json"
