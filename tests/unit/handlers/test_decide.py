"""State Decide: what it takes, what it adds, and what it must not load."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from handlers.decide import handler
from node_fleet.domain.model.errors import InvalidInputError
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.snapshot import HourlyLoad, PodShape
from node_fleet.domain.scaling.decision import Decision, decide
from node_fleet.payload import from_payload, to_payload, unpacked
from node_fleet.settings import Settings
from tests.support.decisions import START, pods, snapshot, worker, workers


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in Settings(max_workers=6).to_env().items():
        monkeypatch.setenv(name, value)


def event(**changes: Any) -> dict[str, Any]:
    seen = snapshot(**{"pending": pods(3), "workers": workers(5), **changes})
    payload = {"run": {"execution_id": "e"}, "snapshot": to_payload(seen), "memory": to_payload(Memory())}
    return json.loads(json.dumps(payload))  # type: ignore[no-any-return]


def test_the_decision_comes_without_its_memory_and_the_memory_is_beside_it() -> None:
    answer = handler(event(), None)
    assert "memory" not in answer["decision"]
    assert from_payload(Memory, answer["memory"]).since["pending"].readings == 1
    decision: Decision = from_payload(Decision, answer["decision"])
    assert (decision.action, decision.count, decision.workers_after) == ("scale_up", 1, 6)


def test_the_payload_is_kept_and_the_memory_before_is_kept_for_the_record() -> None:
    given = event()
    answer = handler(given, None)
    assert answer["run"] == given["run"] and answer["snapshot"] == given["snapshot"]
    assert unpacked(answer["memory_before"]) == given["memory"]


def test_it_obeys_the_settings_of_its_environment() -> None:
    full = handler(event(workers=workers(6)), None)["decision"]
    assert (full["action"], full["blocked_by"]) == ("none", ["maximum"])


@pytest.mark.parametrize(
    ("changes", "notify"),
    [({}, True), ({"pending": ()}, False), ({"workers": workers(6)}, True), ({"source": "none"}, True)],
)
def test_it_says_whether_a_message_is_sent(changes: dict[str, Any], notify: bool) -> None:
    assert handler(event(**changes), None)["notify"] is notify


def test_it_decides_for_the_time_of_the_snapshot_so_that_a_retry_answers_the_same() -> None:
    assert handler(event(), None) == handler(event(), None)


def test_what_it_answers_is_what_the_rules_decide() -> None:
    settings = Settings(max_workers=6)
    decision = decide(snapshot(pending=pods(3), workers=workers(5)), Memory(), settings.policy(), START)
    expected = to_payload(replace(decision, settings={"PRESET": "node-fleet", "MAX_NODES": "6"}))
    expected.pop("memory")
    assert handler(event(), None)["decision"] == expected


def test_a_malformed_snapshot_is_one_clear_error() -> None:
    with pytest.raises(InvalidInputError, match=r"snapshot\.source is 'dead', expected one of live, cached, none"):
        handler({**event(), "snapshot": {**event()["snapshot"], "source": "dead"}}, None)


def test_with_100_workers_and_2000_pods_the_payload_stays_under_32_kb() -> None:
    shapes = tuple(
        PodShape(cpu_milli=10 * n, memory_mib=20 * n, count=100, example=f"shop/web-{n}") for n in range(1, 21)
    )
    many = tuple(worker(n, node_name=f"i-0123456789abc{n:04d}", cpu_percent=51.1234, cores=2.0) for n in range(100))
    hours = tuple(
        HourlyLoad(hour_epoch=START - h * 3600, cpu_percent=51.12, readings=30, workers=94.12) for h in range(14 * 24)
    )
    answer = handler(event(workers=many, pending=shapes, hourly=hours), None)
    assert len(json.dumps(answer, separators=(",", ":"))) < 32_000


def test_notes_of_an_earlier_round_or_of_the_lock_are_sent_after_a_tick_without_action_too() -> None:
    assert handler({**event(), "notes": ["scaled up from 4 to 6 workers"]}, None)["notify"] is True
    assert handler({**event(), "notes": []}, None)["notify"] is handler(event(), None)["notify"]
