"""Rows for each preset: readings, and the decision that its document asks for. An id names document and place."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import CustomReading
from node_fleet.domain.scaling.decision import Decision
from node_fleet.settings import Settings
from tests.support.decisions import START, TICK, Fleet, pods, snapshot, workers

Seen = dict[str, Any]


def policy(preset: str, **changes: Any) -> Policy:
    return replace(Settings.from_mapping({"preset": preset}).policy(), **changes)


def light(count: int) -> Any:
    """Workers whose requests prevent no removal."""
    return workers(count, cpu_requested_milli=200, memory_requested_mib=100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row: readings two minutes apart, what must come of the last one; `ago` is the age of the last action."""

    id: str
    readings: tuple[Seen, ...]
    action: str
    count: int = 0
    rule: str = ""
    ago: int = 0
    last: str = "scale_up"
    changes: Seen = field(default_factory=dict)

    def decided(self, preset: str) -> Decision:
        begin = START + (len(self.readings) - 1) * TICK
        memory = Memory(last_action=self.last, last_action_at=begin - self.ago) if self.ago else Memory()
        fleet = Fleet(policy(preset, **self.changes), memory)
        seen = [
            snapshot(START + k * TICK, **{"workers": light(4), **changes}) for k, changes in enumerate(self.readings)
        ]
        for one in seen[:-1]:
            before = fleet.tick(one)
            assert before.action == "none", before.sentence
        return fleet.tick(seen[-1])


def cpu(*values: float, **more: Any) -> tuple[Seen, ...]:
    return tuple({"cpu_percent": value, **more} for value in values)


def low(readings: int, **more: Any) -> tuple[Seen, ...]:
    return ({"cpu_percent": 20.0, "memory_percent": 30.0, **more},) * readings


def metric(name: str, value: float) -> Seen:
    return {"custom": (CustomReading(name=name, value=value, traffic=50.0),)}


ALGORITHM = (
    Row(id="algorithm:parameters:evaluation-interval", readings=cpu(80, 80), action="scale_up"),
    Row(id="algorithm:parameters:sustained-window-2-readings", readings=cpu(80), action="none"),
    Row(id="algorithm:parameters:min-2", readings=(*low(1, workers=light(2)),), action="none"),
    Row(id="algorithm:parameters:max-10", readings=({"pending": pods(3), "workers": light(10)},), action="none"),
    Row(id="algorithm:parameters:cpu-up-70", readings=cpu(70, 70), action="none"),
    Row(id="algorithm:parameters:cpu-down-30", readings=low(1, cpu_percent=30.0), action="none"),
    Row(id="algorithm:parameters:memory-up-75", readings=({"memory_percent": 75.0},) * 2, action="none"),
    Row(id="algorithm:parameters:memory-down-50", readings=low(1, memory_percent=50.0), action="none"),
    Row(id="algorithm:parameters:up-cooldown-5-min", readings=({"pending": pods(1)},), ago=299, action="none"),
    Row(id="algorithm:parameters:down-cooldown-10-min", readings=low(1), ago=599, last="scale_down", action="none"),
    Row(id="algorithm:parameters:increment-up-1-to-2", readings=({"pending": pods(6)},), action="scale_up", count=2),
    Row(id="algorithm:parameters:increment-down-1", readings=low(1), action="scale_down", count=1),
    Row(id="algorithm:up:1-cpu-sustained", readings=cpu(71, 71), action="scale_up", rule="cpu"),
    Row(id="algorithm:up:1-cpu-transient", readings=cpu(60, 71), action="none"),
    Row(id="algorithm:up:2-pending-immediate", readings=({"pending": pods(1)},), action="scale_up", rule="pending"),
    Row(id="algorithm:up:2-pending-5", readings=({"pending": pods(5)},), action="scale_up", count=1),
    Row(id="algorithm:up:2-pending-6", readings=({"pending": pods(6)},), action="scale_up", count=2),
    Row(
        id="algorithm:up:3-memory-sustained", readings=({"memory_percent": 76.0},) * 2, action="scale_up", rule="memory"
    ),
    Row(id="algorithm:up:3-memory-transient", readings=({"memory_percent": 76.0},), action="none"),
    Row(
        id="algorithm:up:4-queue-100",
        readings=(metric("queue_depth", 101),) * 2,
        action="scale_up",
        rule="custom:queue_depth",
    ),
    Row(
        id="algorithm:up:4-latency-500",
        readings=(metric("latency_p95", 501),) * 2,
        action="scale_up",
        rule="custom:latency_p95",
    ),
    Row(
        id="algorithm:up:4-rate-1000",
        readings=(metric("request_rate", 1001),) * 2,
        action="scale_up",
        rule="custom:request_rate",
    ),
    Row(id="algorithm:count:high-cpu-1", readings=cpu(99, 99), action="scale_up", count=1),
    Row(
        id="algorithm:count:not-beyond-max",
        readings=({"pending": pods(9), "workers": light(9)},),
        action="scale_up",
        count=1,
    ),
    Row(id="algorithm:down:all-true", readings=low(1), action="scale_down"),
    Row(id="algorithm:down:cpu-not-low", readings=low(1, cpu_percent=31.0), action="none"),
    Row(id="algorithm:down:memory-not-low", readings=low(1, memory_percent=51.0), action="none"),
    Row(id="algorithm:down:pending", readings=low(1, pending=pods(1)), action="scale_up"),
    Row(id="algorithm:down:at-min", readings=low(1, workers=light(2)), action="none"),
    Row(
        id="algorithm:safety:1-below-min", readings=({"workers": light(1)},), ago=10, action="scale_up", rule="minimum"
    ),
    Row(id="algorithm:safety:2-at-max", readings=({"pending": pods(1), "workers": light(10)},), action="none"),
    Row(id="algorithm:safety:4-after-up-under-300", readings=({"pending": pods(8)},), ago=240, action="none"),
    Row(id="algorithm:safety:4-after-up-300", readings=({"pending": pods(8)},), ago=300, action="scale_up", count=2),
    Row(id="algorithm:safety:4-down-300-after-up", readings=low(1), ago=300, action="scale_down"),
    Row(
        id="algorithm:safety:4-up-under-600-after-down",
        readings=({"pending": pods(1)},),
        ago=599,
        last="scale_down",
        action="none",
    ),
    Row(id="algorithm:safety:4-after-down-600", readings=low(1), ago=600, last="scale_down", action="scale_down"),
    Row(id="algorithm:pseudocode:step-3-within", readings=({"cpu_percent": 50.0},), action="none"),
)

FLOWCHART = (
    Row(id="flowchart:chart:cooldown-up-under-5-min", readings=({"pending": pods(3)},) * 3, ago=299, action="none"),
    Row(id="flowchart:chart:cooldown-down-under-10-min", readings=low(6), ago=599, action="none"),
    Row(id="flowchart:chart:cpu-70-for-3", readings=cpu(71, 71, 71), action="scale_up", rule="cpu"),
    Row(id="flowchart:chart:cpu-only-2", readings=cpu(71, 71), action="none"),
    Row(id="flowchart:chart:pending-for-3", readings=({"pending": pods(1)},) * 3, action="scale_up", rule="pending"),
    Row(id="flowchart:chart:pending-only-2", readings=({"pending": pods(1)},) * 2, action="none"),
    Row(id="flowchart:chart:memory-75-at-once", readings=({"memory_percent": 76.0},), action="scale_up", rule="memory"),
    Row(id="flowchart:chart:normal-range", readings=cpu(50), action="none"),
    Row(id="flowchart:chart:at-max", readings=cpu(71, 71, 71, workers=light(10)), action="none"),
    Row(id="flowchart:chart:at-min", readings=low(6, workers=light(2)), action="none"),
    Row(id="flowchart:chart:down-for-10-min", readings=low(6), action="scale_down"),
    Row(id="flowchart:chart:down-not-yet", readings=low(5), action="none"),
    Row(id="flowchart:criteria:cpu-strictly-over", readings=cpu(70, 70, 70), action="none"),
    Row(id="flowchart:criteria:memory-strictly-over", readings=({"memory_percent": 75.0},) * 3, action="none"),
    Row(
        id="flowchart:criteria:latency-2-s",
        readings=(metric("latency_p95", 2001),),
        action="scale_up",
        rule="custom:latency_p95",
    ),
    Row(
        id="flowchart:criteria:queue-1000",
        readings=(metric("queue_depth", 1001),),
        action="scale_up",
        rule="custom:queue_depth",
    ),
    Row(
        id="flowchart:criteria:errors-5-for-2-min",
        readings=(metric("error_rate", 5.1),) * 2,
        action="scale_up",
        rule="custom:error_rate",
    ),
    Row(id="flowchart:criteria:errors-5-once", readings=(metric("error_rate", 5.1),), action="none"),
    Row(id="flowchart:urgency:cpu-86", readings=cpu(86, 86, 86), action="scale_up", count=2),
    Row(id="flowchart:urgency:cpu-85", readings=cpu(85, 85, 85), action="scale_up", count=1),
    Row(id="flowchart:urgency:pending-11", readings=({"pending": pods(11)},) * 3, action="scale_up", count=2),
    Row(id="flowchart:urgency:pending-10", readings=({"pending": pods(10)},) * 3, action="scale_up", count=1),
    Row(id="flowchart:down:queue-under-100", readings=low(6, **metric("queue_depth", 99)), action="scale_down"),
    Row(id="flowchart:down:queue-100", readings=low(6, **metric("queue_depth", 100)), action="none"),
    Row(id="flowchart:down:memory-50", readings=low(6, memory_percent=50.0), action="none"),
    Row(id="flowchart:down:pending", readings=low(6, pending=pods(1))[:1], action="none"),
    Row(id="flowchart:down:cooldown-10-min", readings=low(6), ago=600, action="scale_down"),
    Row(id="flowchart:history:last-10-readings", readings=cpu(*[50] * 12), action="none"),
)

SEQUENCE = (
    Row(id="003:3:cooldown-active", readings=({"pending": pods(1)},), ago=299, action="none"),
    Row(id="003:3:cooldown-over", readings=({"pending": pods(1)},), ago=300, action="scale_up"),
    Row(id="003:3:cooldown-holds-down-too", readings=low(1), ago=299, action="none"),
    Row(id="003:3:cooldown-over-for-down", readings=low(1), ago=300, action="scale_down"),
    Row(id="003:5:1-pending", readings=({"pending": pods(1), "cpu_percent": 10.0},), action="scale_up", rule="pending"),
    Row(id="003:5:2-cpu-over-70", readings=cpu(70.1), action="scale_up", rule="cpu"),
    Row(id="003:5:2-cpu-70", readings=cpu(70), action="none"),
    Row(id="003:5:3-cpu-under-30", readings=cpu(29.9), action="scale_down", rule="idle"),
    Row(id="003:5:3-cpu-30", readings=cpu(30), action="none"),
    Row(id="003:5:4-else", readings=cpu(50), action="none"),
    Row(id="003:5:pending-before-cpu", readings=cpu(99, pending=pods(1)), action="scale_up", rule="pending"),
    Row(id="003:5:max-10", readings=cpu(99, workers=light(10)), action="none"),
    Row(id="003:5:min-2", readings=cpu(5, workers=light(2)), action="none"),
    Row(id="003:5:no-memory", readings=({"memory_percent": 99.0},), action="none"),
    Row(id="003:5:no-memory-in-the-way", readings=cpu(5, memory_percent=None), action="scale_down"),
    Row(id="003:6a:one-instance", readings=cpu(99, pending=pods(50)), action="scale_up", count=1),
    Row(id="003:6b:one-instance", readings=cpu(1), action="scale_down", count=1),
)

README = (
    Row(
        id="readme:log:cpu-74.3-3-of-3-pending-3-2-of-2",
        readings=cpu(74.3, 74.3, 74.3, pending=pods(3))[:2],
        action="scale_up",
        count=1,
    ),
    Row(id="readme:log:cpu-2-of-3", readings=cpu(74.3, 74.3), action="none"),
    Row(id="readme:log:cpu-3-of-3", readings=cpu(74.3, 74.3, 74.3), action="scale_up", count=1, rule="cpu"),
    Row(id="readme:log:pending-1-of-2", readings=({"pending": pods(3)},), action="none"),
    Row(
        id="readme:log:pending-2-of-2", readings=({"pending": pods(3)},) * 2, action="scale_up", count=1, rule="pending"
    ),
    Row(id="readme:k6:ramp-up", readings=cpu(30, 40, workers=light(2)), action="none"),
    Row(id="readme:k6:sustain", readings=cpu(60, 60, 60, workers=light(2)), action="none"),
    Row(
        id="readme:k6:spike-cpu-over-85-adds-2", readings=cpu(90, 90, 90, workers=light(2)), action="scale_up", count=2
    ),
    Row(id="readme:k6:peak-stable", readings=cpu(60, 60, 60), action="none"),
    Row(id="readme:k6:ramp-down", readings=low(3), action="none"),
    Row(id="readme:k6:cool-down-10-min", readings=low(6), action="scale_down", count=1),
    Row(id="readme:env:cpu-up-70", readings=cpu(70, 70, 70), action="none"),
    Row(id="readme:env:cpu-down-30", readings=low(6, cpu_percent=30.0), action="none"),
    Row(id="readme:env:cooldown-up-300", readings=cpu(74, 74, 74), ago=299, action="none"),
    Row(id="readme:env:cooldown-down-600", readings=low(6), ago=599, action="none"),
    Row(id="readme:env:max-10", readings=cpu(74, 74, 74, workers=light(10)), action="none"),
    Row(id="readme:env:min-2", readings=low(6, workers=light(2)), action="none"),
    Row(
        id="readme:queries:latency-2000",
        readings=(metric("latency_p95", 2001),) * 2,
        action="scale_up",
        rule="custom:latency_p95",
    ),
    Row(
        id="readme:queries:errors-5",
        readings=(metric("error_rate", 5.1),) * 2,
        action="scale_up",
        rule="custom:error_rate",
    ),
    Row(
        id="readme:queries:queue",
        readings=(metric("queue_depth", 1001),) * 2,
        action="scale_up",
        rule="custom:queue_depth",
    ),
)

DEFAULT = (
    Row(id="spec:5:pending-at-once", readings=({"pending": pods(1)},), action="scale_up", rule="pending"),
    Row(id="spec:5:cpu-2", readings=cpu(71, 71), action="scale_up", rule="cpu"),
    Row(id="spec:5:memory-2", readings=({"memory_percent": 76.0},) * 2, action="scale_up", rule="memory"),
    Row(id="spec:5:two-when-pending-6", readings=({"pending": pods(6)},), action="scale_up", count=2),
    Row(id="spec:5:two-when-cpu-86", readings=cpu(86, 86), action="scale_up", count=2),
    Row(id="spec:5:down-600-s", readings=low(6), action="scale_down"),
    Row(id="spec:5:bypass", readings=({"pending": pods(1)},), ago=5, action="scale_up"),
    Row(id="spec:5:cooldown-up", readings=cpu(71, 71), ago=299, action="none"),
    Row(id="spec:5:cooldown-down", readings=low(6), ago=599, action="none"),
)

ROWS: dict[str, tuple[Row, ...]] = {
    "algorithm": ALGORITHM,
    "flowchart": FLOWCHART,
    "sequence": SEQUENCE,
    "readme": README,
    "node-fleet": DEFAULT,
}
ALL = [(preset, row) for preset, rows in ROWS.items() for row in rows]
