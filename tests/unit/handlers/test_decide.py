"""Decide: which parts of the payload it takes, and what it adds."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from handlers.decide import handler
from node_fleet.domain.model.errors import InvalidInputError
from node_fleet.domain.model.memory import Memory, ReadingPoint
from node_fleet.domain.model.run import Alert
from node_fleet.domain.notify.incident_state import EndedIncident
from node_fleet.domain.scaling.decision import decide
from node_fleet.payload import from_payload, take, to_payload, unpacked
from node_fleet.settings import Settings
from tests.support.decisions import START, pods, snapshot, workers


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in Settings(max_workers=6).to_env().items():
        monkeypatch.setenv(name, value)


def event(**changes: Any) -> dict[str, Any]:
    seen = snapshot(**{"pending": pods(3), "workers": workers(5), **changes})
    payload = {"run": {"execution_id": "e"}, "snapshot": to_payload(seen), "memory": to_payload(Memory())}
    return json.loads(json.dumps(payload))  # type: ignore[no-any-return]


def test_the_decision_comes_without_its_memory_beside_the_payload_and_a_retry_answers_the_same() -> None:
    given = event()
    answer = handler(given, None)
    decision = decide(snapshot(pending=pods(3), workers=workers(5)), Memory(), Settings(max_workers=6).policy(), START)
    expected = to_payload(replace(decision, settings={"PRESET": "node-fleet", "MAX_NODES": "6"}))
    expected.pop("memory")
    assert answer["decision"] == expected
    assert (decision.action, decision.count, decision.workers_after) == ("scale_up", 1, 6)
    assert from_payload(Memory, answer["memory"]).since["pending"].readings == 1
    assert answer["run"] == given["run"] and answer["snapshot"] == given["snapshot"]
    assert unpacked(answer["memory_before"]) == given["memory"]
    assert handler(given, None) == answer


@pytest.mark.parametrize(
    ("dead", "cordoned", "found"),
    [
        ((), {}, False),
        (("i-1",), {}, True),
        ((), {"phase": "cordoned"}, True),
        ((), {"phase": "cordoned", "under_notice": True}, False),
    ],
)
def test_it_says_whether_a_dead_node_or_a_cordon_may_have_to_be_removed(
    dead: tuple[str, ...], cordoned: dict[str, Any], found: bool
) -> None:
    crew = (*workers(4), replace(workers(1)[0], instance_id="i-9", **cordoned))
    assert handler(event(dead_nodes=dead, workers=crew), None)["has_leftovers"] is found


def test_it_obeys_the_settings_of_its_environment() -> None:
    full = handler(event(workers=workers(6)), None)["decision"]
    assert (full["action"], full["blocked_by"]) == ("none", ["maximum"])


@pytest.mark.parametrize(
    ("changes", "notes", "notify"),
    [
        ({}, [], True),
        ({"pending": ()}, [], False),
        ({"pending": ()}, ["scaled up from 4 to 6 workers"], True),
        ({"workers": workers(6)}, [], True),
        ({"source": "none"}, [], True),
    ],
)
def test_it_says_whether_a_message_is_sent(changes: dict[str, Any], notes: list[str], notify: bool) -> None:
    assert handler({**event(**changes), "notes": notes}, None)["notify"] is notify


def keys(answer: dict[str, Any]) -> list[str]:
    return [one.key for one in take(answer, "ended", tuple[EndedIncident, ...])]


def test_the_end_of_an_incident_is_sent_once_and_is_kept_from_an_earlier_round() -> None:
    given = event(pending=())
    given["memory"]["alerted"] = {"at_maximum": START - 700, "drain_failed:i-1": START - 700}
    answer = handler(given, None)
    assert "ended" not in answer, "one complete reading after a gap shows no end"
    complete = (
        ReadingPoint(at=START - ago, cpu_percent=1.0, memory_percent=1.0, pending=0, usable=5)
        for ago in (610, 400, 200)
    )
    given["memory"]["readings"] = to_payload(tuple(complete))
    answer = handler(given, None)
    assert answer["notify"] and keys(answer) == ["at_maximum"]
    assert answer["memory"]["alerted"] == {"drain_failed:i-1": START - 700}
    again = handler({**answer, "memory": {**given["memory"], "alerted": {"not_ready:i-1": START - 700}}}, None)
    assert keys(again) == ["at_maximum", "not_ready:i-1"]
    assert "ended" not in handler(event(pending=()), None)


def test_an_alert_of_an_earlier_round_is_kept_for_the_message_of_the_run() -> None:
    first = handler(event(pending=pods(1, cpu_milli=64_000)), None)
    (alert,) = take(first["decision"], "alerts", tuple[Alert, ...])
    second = handler(first, None)
    assert second["decision"]["alerts"] == []
    assert take(second, "alerts", tuple[Alert, ...]) == (alert,)


def test_a_malformed_snapshot_is_one_clear_error() -> None:
    with pytest.raises(InvalidInputError, match=r"snapshot\.source is 'dead', expected one of live, cached, none"):
        handler({**event(), "snapshot": {**event()["snapshot"], "source": "dead"}}, None)
