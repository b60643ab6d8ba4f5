"""A day of decisions, stored in the events table, read back and made again."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from typing import Any

import pytest

from handlers.decide import handler
from node_fleet.adapters.records import Records
from node_fleet.domain.model.errors import InvalidInputError
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.snapshot import CustomReading, HourlyLoad, Snapshot
from node_fleet.domain.scaling.memory_update import record_failure, record_success
from node_fleet.payload import from_payload, to_payload
from node_fleet.replay import decide_again, differences
from node_fleet.settings import Settings
from tests.support.decisions import TICK, pods, snapshot, worker

MIDNIGHT = 1_789_948_800
TICKS = 720
SETTINGS = Settings.from_mapping(
    {"preset": "readme", "max_workers": 8, "schedules": "Mon-Sun 18:00-22:00: 4", "predictive": True}
)


class MemoryTable:
    """Items in attribute form by sort key, as DynamoDB gives them back: numbers as text, 70.0 as 70."""

    def __init__(self) -> None:
        self.items: dict[str, str] = {}

    def put_item(self, *, TableName: str, Item: dict[str, Any]) -> None:
        self.items[Item["sk"]["S"]] = json.dumps(Item).replace('.0"}', '"}')

    def query(self, *, ExpressionAttributeValues: dict[str, Any], **_: Any) -> dict[str, Any]:
        low, high = (ExpressionAttributeValues[name]["S"] for name in (":low", ":high"))
        return {"Items": [json.loads(self.items[key]) for key in sorted(self.items) if low <= key <= high]}


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> Records:
    for name, value in SETTINGS.to_env().items():
        monkeypatch.setenv(name, value)
    return Records(MemoryTable(), SETTINGS)


def seen_at(tick: int, count: int, dice: random.Random) -> Snapshot:
    """A day's load with spikes, pods that come and go, missing values, and Prometheus away for a while."""
    now = MIDNIGHT + tick * TICK
    cpu = 45 - 40 * math.cos(tick / TICKS * 2 * math.pi) + dice.gauss(0, 8)
    hourly = tuple(
        HourlyLoad(hour_epoch=MIDNIGHT - h * 3600, cpu_percent=50 + 30 * math.sin(h / 4), readings=30, workers=3.5)
        for h in range(1, 24 * 9)
    )
    return snapshot(
        now,
        source="none" if 300 <= tick < 304 else "cached" if tick == 299 else "live",
        read_at=now - (TICK if tick == 299 else 0),
        cpu_percent=None if tick % 97 == 0 else max(0.0, min(100.0, cpu)),
        memory_percent=max(0.0, 30 + dice.gauss(0, 10)),
        pending=None if tick % 101 == 0 else pods(dice.choice([0] * 20 + [1, 7])),
        custom=(CustomReading(name="queue_depth", value=dice.choice([0.0, 50.5, 1500.25])),),
        workers=tuple(worker(n, cpu_percent=dice.uniform(0, 100), cpu_requested_milli=300) for n in range(count)),
        hourly=hourly if now % 3600 >= 3000 else (),
    )


def store_a_day(records: Records) -> None:
    dice, memory, count = random.Random(11), Memory(), 3
    for tick in range(TICKS):
        event = {"snapshot": to_payload(seen_at(tick, count, dice)), "memory": to_payload(memory)}
        answer = handler(json.loads(json.dumps(event)), None)
        kept = {name: answer[name] for name in ("snapshot", "decision", "memory_before")}
        now = MIDNIGHT + tick * TICK
        records.put_event("decision", now, kept, key=f"tick-{tick}")
        memory = from_payload(Memory, answer["memory"])
        action = answer["decision"]["action"]
        if action != "none" and dice.random() < 0.2:
            memory = record_failure(
                memory, "scale_up" if action == "scale_up" else "node:i-0001", now, SETTINGS.policy()
            )
        elif action != "none":
            memory, count = record_success(memory, action, "r", now + 70), answer["decision"]["workers_after"]


def test_every_decision_of_a_stored_day_comes_out_the_same(records: Records) -> None:
    store_a_day(records)
    events = records.events(MIDNIGHT, MIDNIGHT + 86_400, kind="decision")
    assert len(events) == TICKS
    assert {event.key: found for event in events if (found := differences(event.data))} == {}
    actions = [event.data["decision"]["action"] for event in events]
    assert {"scale_up", "scale_down", "none"} == set(actions)


def test_a_changed_record_is_noticed(records: Records) -> None:
    event = {"snapshot": to_payload(snapshot(pending=pods(2))), "memory": to_payload(Memory())}
    answer = handler(event, None)
    kept = {name: answer[name] for name in ("snapshot", "decision", "memory_before")}
    assert differences(kept) == []
    other = {**kept, "snapshot": to_payload(replace(snapshot(pending=pods(9)), at=1))}
    assert "action" in differences(other) or "evidence" in differences(other)
    assert decide_again(kept).sentence == answer["decision"]["sentence"]


def test_the_settings_of_that_day_are_used_whatever_they_are_now(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    event: dict[str, Any] = {"snapshot": to_payload(snapshot(pending=pods(2))), "memory": to_payload(Memory())}
    answer = handler(event, None)
    monkeypatch.setenv("MAX_NODES", "4")
    monkeypatch.setenv("PRESET", "sequence")
    assert differences({name: answer[name] for name in ("snapshot", "decision", "memory_before")}) == []


@pytest.mark.parametrize("lacks", ["snapshot", "memory_before"])
def test_an_event_that_lacks_its_inputs_is_one_clear_error(lacks: str) -> None:
    record = {"snapshot": to_payload(snapshot()), "memory_before": to_payload(Memory()), "decision": {}}
    record.pop(lacks)
    with pytest.raises(InvalidInputError, match=lacks):
        decide_again(record)
