"""Rows for each preset: readings, and the decision that its document asks for. An id names document and place."""

from __future__ import annotations

from dataclasses import dataclass, replace
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


@dataclass(frozen=True, slots=True)
class Row:
    """One row: readings two minutes apart, what must come of the last one; `ago` is the age of the last action."""

    id: str
    readings: tuple[Seen, ...]
    action: str
    rule: str = ""
    count: int = 0
    ago: int = 0
    last: str = "scale_up"

    def decided(self, preset: str) -> Decision:
        begin = START + (len(self.readings) - 1) * TICK
        memory = Memory(last_action=self.last, last_action_at=begin - self.ago) if self.ago else Memory()
        fleet = Fleet(policy(preset), memory)
        seen = [
            snapshot(START + k * TICK, **{"workers": light(4), **changes}) for k, changes in enumerate(self.readings)
        ]
        for one in seen[:-1]:
            before = fleet.tick(one)
            assert before.action == "none", before.sentence
        if self.ago:  # the readings before the last one may be older than the action
            fleet.memory = replace(fleet.memory, last_action_at=begin - self.ago)
        return fleet.tick(seen[-1])


def cpu(*values: float, **more: Any) -> tuple[Seen, ...]:
    return tuple({"cpu_percent": value, **more} for value in values)


def low(readings: int, **more: Any) -> tuple[Seen, ...]:
    return ({"cpu_percent": 20.0, "memory_percent": 30.0, **more},) * readings


def memory(percent: float) -> tuple[Seen, ...]:
    return ({"memory_percent": percent},)


def pending(count: int, **more: Any) -> tuple[Seen, ...]:
    return ({"pending": pods(count), **more},)


def metric(name: str, value: float) -> Seen:
    return {"custom": (CustomReading(name=name, value=value, traffic=50.0),)}


def custom(name: str, value: float) -> tuple[Seen, ...]:
    return (metric(name, value),)


ALGORITHM = (
    Row("algorithm:parameters:evaluation-interval", cpu(80, 80), "scale_up"),
    Row("algorithm:parameters:sustained-window-2-readings", cpu(80), "none"),
    Row("algorithm:parameters:min-2", low(1, workers=light(2)), "none"),
    Row("algorithm:parameters:max-10", pending(3, workers=light(10)), "none"),
    Row("algorithm:parameters:cpu-up-70", cpu(70, 70), "none"),
    Row("algorithm:parameters:cpu-down-30", low(1, cpu_percent=30.0), "none"),
    Row("algorithm:parameters:memory-up-75", memory(75.0) * 2, "none"),
    Row("algorithm:parameters:memory-down-50", low(1, memory_percent=50.0), "none"),
    Row("algorithm:parameters:up-cooldown-5-min", pending(1), "none", ago=299),
    Row("algorithm:parameters:down-cooldown-10-min", low(1), "none", ago=599, last="scale_down"),
    Row("algorithm:parameters:increment-up-1-to-2", pending(6), "scale_up", count=2),
    Row("algorithm:parameters:increment-down-1", low(1), "scale_down", count=1),
    Row("algorithm:up:1-cpu-sustained", cpu(71, 71), "scale_up", "cpu"),
    Row("algorithm:up:1-cpu-transient", cpu(60, 71), "none"),
    Row("algorithm:up:2-pending-immediate", pending(1), "scale_up", "pending"),
    Row("algorithm:up:2-pending-5", pending(5), "scale_up", count=1),
    Row("algorithm:up:2-pending-6", pending(6), "scale_up", count=2),
    Row("algorithm:up:3-memory-sustained", memory(76.0) * 2, "scale_up", "memory"),
    Row("algorithm:up:3-memory-transient", memory(76.0), "none"),
    Row("algorithm:up:4-queue-100", custom("queue_depth", 101) * 2, "scale_up", "custom:queue_depth"),
    Row("algorithm:up:4-latency-500", custom("latency_p95", 501) * 2, "scale_up", "custom:latency_p95"),
    Row("algorithm:up:4-rate-1000", custom("request_rate", 1001) * 2, "scale_up", "custom:request_rate"),
    Row("algorithm:count:high-cpu-1", cpu(99, 99), "scale_up", count=1),
    Row("algorithm:count:not-beyond-max", pending(9, workers=light(9)), "scale_up", count=1),
    Row("algorithm:down:all-true", low(1), "scale_down"),
    Row("algorithm:down:cpu-not-low", low(1, cpu_percent=31.0), "none"),
    Row("algorithm:down:memory-not-low", low(1, memory_percent=51.0), "none"),
    Row("algorithm:down:pending", low(1, pending=pods(1)), "scale_up"),
    Row("algorithm:down:at-min", low(1, workers=light(2)), "none"),
    Row("algorithm:safety:1-below-min", ({"workers": light(1)},), "scale_up", "minimum", ago=10),
    Row("algorithm:safety:2-at-max", pending(1, workers=light(10)), "none"),
    Row("algorithm:safety:4-after-up-under-300", pending(8), "none", ago=240),
    Row("algorithm:safety:4-after-up-300", pending(8), "scale_up", count=2, ago=300),
    # The table of parameters gives each direction its own cooldown; the function chooses by the last action and ran.
    Row("algorithm:safety:4-down-300-after-up", low(1), "scale_down", ago=300),
    Row("algorithm:safety:4-up-under-600-after-down", pending(1), "none", ago=599, last="scale_down"),
    Row("algorithm:safety:4-after-down-600", low(1), "scale_down", ago=600, last="scale_down"),
    Row("algorithm:pseudocode:step-3-within", cpu(50.0), "none"),
)

FLOWCHART = (
    Row("flowchart:chart:cooldown-up-under-5-min", pending(3) * 3, "none", ago=299),
    Row("flowchart:chart:cooldown-down-under-10-min", low(6), "none", ago=599),
    # The criteria say "for 3 consecutive minutes"; the code looks at three readings, which take four minutes.
    Row("flowchart:chart:cpu-70-for-3", cpu(71, 71, 71), "scale_up", "cpu"),
    Row("flowchart:chart:cpu-only-2", cpu(71, 71), "none"),
    Row("flowchart:chart:pending-for-3", pending(1) * 3, "scale_up", "pending"),
    Row("flowchart:chart:pending-only-2", pending(1) * 2, "none"),
    Row("flowchart:chart:memory-75-at-once", memory(76.0), "scale_up", "memory"),
    Row("flowchart:chart:normal-range", cpu(50), "none"),
    Row("flowchart:chart:at-max", cpu(71, 71, 71, workers=light(10)), "none"),
    Row("flowchart:chart:at-min", low(6, workers=light(2)), "none"),
    Row("flowchart:chart:down-for-10-min", low(6), "scale_down"),
    Row("flowchart:chart:down-not-yet", low(5), "none"),
    Row("flowchart:criteria:cpu-strictly-over", cpu(70, 70, 70), "none"),
    Row("flowchart:criteria:memory-strictly-over", memory(75.0) * 3, "none"),
    Row("flowchart:criteria:latency-2-s", custom("latency_p95", 2001), "scale_up", "custom:latency_p95"),
    Row("flowchart:criteria:queue-1000", custom("queue_depth", 1001), "scale_up", "custom:queue_depth"),
    Row("flowchart:criteria:errors-5-for-2-min", custom("error_rate", 5.1) * 2, "scale_up", "custom:error_rate"),
    Row("flowchart:criteria:errors-5-once", custom("error_rate", 5.1), "none"),
    Row("flowchart:urgency:cpu-86", cpu(86, 86, 86), "scale_up", count=2),
    Row("flowchart:urgency:cpu-85", cpu(85, 85, 85), "scale_up", count=1),
    Row("flowchart:urgency:pending-11", pending(11) * 3, "scale_up", count=2),
    Row("flowchart:urgency:pending-10", pending(10) * 3, "scale_up", count=1),
    Row("flowchart:down:queue-under-100", low(6, **metric("queue_depth", 99)), "scale_down"),
    Row("flowchart:down:queue-100", low(6, **metric("queue_depth", 100)), "none"),
    Row("flowchart:down:memory-50", low(6, memory_percent=50.0), "none"),
    Row("flowchart:down:pending", low(6, pending=pods(1))[:1], "none"),
    Row("flowchart:down:cooldown-10-min", low(6), "scale_down", ago=600),
    Row("flowchart:history:last-10-readings", cpu(*[50] * 12), "none"),
)

SEQUENCE = (
    Row("003:3:cooldown-active", pending(1), "none", ago=299),
    Row("003:3:cooldown-over", pending(1), "scale_up", ago=300),
    Row("003:3:cooldown-holds-down-too", low(1), "none", ago=299),
    Row("003:3:cooldown-over-for-down", low(1), "scale_down", ago=300),
    Row("003:5:1-pending", pending(1, cpu_percent=10.0), "scale_up", "pending"),
    Row("003:5:2-cpu-over-70", cpu(70.1), "scale_up", "cpu"),
    Row("003:5:2-cpu-70", cpu(70), "none"),
    Row("003:5:3-cpu-under-30", cpu(29.9), "scale_down", "idle"),
    Row("003:5:3-cpu-30", cpu(30), "none"),
    Row("003:5:4-else", cpu(50), "none"),
    Row("003:5:pending-before-cpu", cpu(99, pending=pods(1)), "scale_up", "pending"),
    Row("003:5:max-10", cpu(99, workers=light(10)), "none"),
    Row("003:5:min-2", cpu(5, workers=light(2)), "none"),
    Row("003:5:no-memory", memory(99.0), "none"),
    Row("003:5:no-memory-in-the-way", cpu(5, memory_percent=None), "scale_down"),
    Row("003:6a:one-instance", cpu(99, pending=pods(50)), "scale_up", count=1),
    Row("003:6b:one-instance", cpu(1), "scale_down", count=1),
)

README = (
    Row("readme:log:cpu-74.3-3-of-3-pending-3-2-of-2", cpu(74.3, 74.3, 74.3, pending=pods(3))[:2], "scale_up", count=1),
    Row("readme:log:cpu-2-of-3", cpu(74.3, 74.3), "none"),
    Row("readme:log:cpu-3-of-3", cpu(74.3, 74.3, 74.3), "scale_up", "cpu", count=1),
    Row("readme:log:pending-1-of-2", pending(3), "none"),
    Row("readme:log:pending-2-of-2", pending(3) * 2, "scale_up", "pending", count=1),
    Row("readme:k6:ramp-up", cpu(30, 40, workers=light(2)), "none"),
    Row("readme:k6:sustain", cpu(60, 60, 60, workers=light(2)), "none"),
    Row("readme:k6:spike-cpu-over-85-adds-2", cpu(90, 90, 90, workers=light(2)), "scale_up", count=2),
    Row("readme:k6:peak-stable", cpu(60, 60, 60), "none"),
    Row("readme:k6:ramp-down", low(3), "none"),
    Row("readme:k6:cool-down-10-min", low(6), "scale_down", count=1),
    Row("readme:env:cpu-up-70", cpu(70, 70, 70), "none"),
    Row("readme:env:cpu-down-30", low(6, cpu_percent=30.0), "none"),
    Row("readme:env:cooldown-up-300", cpu(74, 74, 74), "none", ago=299),
    Row("readme:env:cooldown-down-600", low(6), "none", ago=599),
    Row("readme:env:max-10", cpu(74, 74, 74, workers=light(10)), "none"),
    Row("readme:env:min-2", low(6, workers=light(2)), "none"),
    Row("readme:queries:latency-2000", custom("latency_p95", 2001) * 2, "scale_up", "custom:latency_p95"),
    Row("readme:queries:errors-5", custom("error_rate", 5.1) * 2, "scale_up", "custom:error_rate"),
    Row("readme:queries:queue", custom("queue_depth", 1001) * 2, "scale_up", "custom:queue_depth"),
)

DEFAULT = (
    Row("spec:5:pending-at-once", pending(1), "scale_up", "pending"),
    Row("spec:5:cpu-2", cpu(71, 71), "scale_up", "cpu"),
    Row("spec:5:memory-2", memory(76.0) * 2, "scale_up", "memory"),
    Row("spec:5:two-when-pending-6", pending(6), "scale_up", count=2),
    Row("spec:5:two-when-cpu-86", cpu(86, 86), "scale_up", count=2),
    Row("spec:5:down-600-s", low(6), "scale_down"),
    Row("spec:5:bypass", pending(1), "scale_up", ago=5),
    Row("spec:5:cooldown-up", cpu(71, 71), "none", ago=299),
    Row("spec:5:cooldown-down", low(6), "none", ago=599),
)


ROWS: dict[str, tuple[Row, ...]] = {
    "algorithm": ALGORITHM,
    "flowchart": FLOWCHART,
    "sequence": SEQUENCE,
    "readme": README,
    "node-fleet": DEFAULT,
}
ALL = [(preset, row) for preset, rows in ROWS.items() for row in rows]
