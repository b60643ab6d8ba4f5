"""Each preset against its document, row by row. A row's id names the document and the place it stands at.

Where a document contradicts itself the test says which line was followed, and why.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import pytest

from node_fleet.domain.model.memory import Memory, Streak
from node_fleet.domain.model.policy import Policy, StrategyName
from node_fleet.domain.model.snapshot import CustomReading, HourlyLoad, Snapshot
from node_fleet.domain.scaling.decision import STRATEGIES, Decision, decide
from node_fleet.domain.scaling.memory_update import record_failure
from node_fleet.settings import Settings
from tests.support.decisions import START, TICK, Fleet, pods, snapshot, worker, workers

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


def check(preset: str, row: Row) -> None:
    decision = row.decided(preset)
    assert decision.action == row.action, decision.sentence
    if row.action != "none":
        assert decision.count == (row.count or 1), decision.sentence
    if row.rule:
        assert decision.rule == row.rule, decision.sentence


ALGORITHM = (
    Row(id="000:parameters:evaluation-interval", readings=cpu(80, 80), action="scale_up"),
    Row(id="000:parameters:sustained-window-2-readings", readings=cpu(80), action="none"),
    Row(id="000:parameters:min-2", readings=(*low(1, workers=light(2)),), action="none"),
    Row(id="000:parameters:max-10", readings=({"pending": pods(3), "workers": light(10)},), action="none"),
    Row(id="000:parameters:cpu-up-70", readings=cpu(70, 70), action="none"),
    Row(id="000:parameters:cpu-down-30", readings=low(1, cpu_percent=30.0), action="none"),
    Row(id="000:parameters:memory-up-75", readings=({"memory_percent": 75.0},) * 2, action="none"),
    Row(id="000:parameters:memory-down-50", readings=low(1, memory_percent=50.0), action="none"),
    Row(id="000:parameters:up-cooldown-5-min", readings=({"pending": pods(1)},), ago=299, action="none"),
    Row(id="000:parameters:down-cooldown-10-min", readings=low(1), ago=599, last="scale_down", action="none"),
    Row(id="000:parameters:increment-up-1-to-2", readings=({"pending": pods(6)},), action="scale_up", count=2),
    Row(id="000:parameters:increment-down-1", readings=low(1), action="scale_down", count=1),
    Row(id="000:up:1-cpu-sustained", readings=cpu(71, 71), action="scale_up", rule="cpu"),
    Row(id="000:up:1-cpu-transient", readings=cpu(60, 71), action="none"),
    Row(id="000:up:2-pending-immediate", readings=({"pending": pods(1)},), action="scale_up", rule="pending"),
    Row(id="000:up:2-pending-5", readings=({"pending": pods(5)},), action="scale_up", count=1),
    Row(id="000:up:2-pending-6", readings=({"pending": pods(6)},), action="scale_up", count=2),
    Row(id="000:up:3-memory-sustained", readings=({"memory_percent": 76.0},) * 2, action="scale_up", rule="memory"),
    Row(id="000:up:3-memory-transient", readings=({"memory_percent": 76.0},), action="none"),
    Row(
        id="000:up:4-queue-100",
        readings=(metric("queue_depth", 101),) * 2,
        action="scale_up",
        rule="custom:queue_depth",
    ),
    Row(
        id="000:up:4-latency-500",
        readings=(metric("latency_p95", 501),) * 2,
        action="scale_up",
        rule="custom:latency_p95",
    ),
    Row(
        id="000:up:4-rate-1000",
        readings=(metric("request_rate", 1001),) * 2,
        action="scale_up",
        rule="custom:request_rate",
    ),
    Row(id="000:count:high-cpu-1", readings=cpu(99, 99), action="scale_up", count=1),
    Row(
        id="000:count:not-beyond-max", readings=({"pending": pods(9), "workers": light(9)},), action="scale_up", count=1
    ),
    Row(id="000:down:all-true", readings=low(1), action="scale_down"),
    Row(id="000:down:cpu-not-low", readings=low(1, cpu_percent=31.0), action="none"),
    Row(id="000:down:memory-not-low", readings=low(1, memory_percent=51.0), action="none"),
    Row(id="000:down:pending", readings=low(1, pending=pods(1)), action="scale_up"),
    Row(id="000:down:at-min", readings=low(1, workers=light(2)), action="none"),
    Row(id="000:safety:1-below-min", readings=({"workers": light(1)},), ago=10, action="scale_up", rule="minimum"),
    Row(id="000:safety:2-at-max", readings=({"pending": pods(1), "workers": light(10)},), action="none"),
    Row(id="000:safety:4-after-up-under-300", readings=({"pending": pods(8)},), ago=240, action="none"),
    Row(id="000:safety:4-after-up-300", readings=({"pending": pods(8)},), ago=300, action="scale_up", count=2),
    Row(id="000:safety:4-down-300-after-up", readings=low(1), ago=300, action="scale_down"),
    Row(
        id="000:safety:4-up-under-600-after-down",
        readings=({"pending": pods(1)},),
        ago=599,
        last="scale_down",
        action="none",
    ),
    Row(id="000:safety:4-after-down-600", readings=low(1), ago=600, last="scale_down", action="scale_down"),
    Row(id="000:pseudocode:step-3-within", readings=({"cpu_percent": 50.0},), action="none"),
)

FLOWCHART = (
    Row(id="002:chart:cooldown-up-under-5-min", readings=({"pending": pods(3)},) * 3, ago=299, action="none"),
    Row(id="002:chart:cooldown-down-under-10-min", readings=low(6), ago=599, action="none"),
    Row(id="002:chart:cpu-70-for-3", readings=cpu(71, 71, 71), action="scale_up", rule="cpu"),
    Row(id="002:chart:cpu-only-2", readings=cpu(71, 71), action="none"),
    Row(id="002:chart:pending-for-3", readings=({"pending": pods(1)},) * 3, action="scale_up", rule="pending"),
    Row(id="002:chart:pending-only-2", readings=({"pending": pods(1)},) * 2, action="none"),
    Row(id="002:chart:memory-75-at-once", readings=({"memory_percent": 76.0},), action="scale_up", rule="memory"),
    Row(id="002:chart:normal-range", readings=cpu(50), action="none"),
    Row(id="002:chart:at-max", readings=cpu(71, 71, 71, workers=light(10)), action="none"),
    Row(id="002:chart:at-min", readings=low(6, workers=light(2)), action="none"),
    Row(id="002:chart:down-for-10-min", readings=low(6), action="scale_down"),
    Row(id="002:chart:down-not-yet", readings=low(5), action="none"),
    Row(id="002:criteria:cpu-strictly-over", readings=cpu(70, 70, 70), action="none"),
    Row(id="002:criteria:memory-strictly-over", readings=({"memory_percent": 75.0},) * 3, action="none"),
    Row(
        id="002:criteria:latency-2-s",
        readings=(metric("latency_p95", 2001),),
        action="scale_up",
        rule="custom:latency_p95",
    ),
    Row(
        id="002:criteria:queue-1000",
        readings=(metric("queue_depth", 1001),),
        action="scale_up",
        rule="custom:queue_depth",
    ),
    Row(
        id="002:criteria:errors-5-for-2-min",
        readings=(metric("error_rate", 5.1),) * 2,
        action="scale_up",
        rule="custom:error_rate",
    ),
    Row(id="002:criteria:errors-5-once", readings=(metric("error_rate", 5.1),), action="none"),
    Row(id="002:urgency:cpu-86", readings=cpu(86, 86, 86), action="scale_up", count=2),
    Row(id="002:urgency:cpu-85", readings=cpu(85, 85, 85), action="scale_up", count=1),
    Row(id="002:urgency:pending-11", readings=({"pending": pods(11)},) * 3, action="scale_up", count=2),
    Row(id="002:urgency:pending-10", readings=({"pending": pods(10)},) * 3, action="scale_up", count=1),
    Row(id="002:down:queue-under-100", readings=low(6, **metric("queue_depth", 99)), action="scale_down"),
    Row(id="002:down:queue-100", readings=low(6, **metric("queue_depth", 100)), action="none"),
    Row(id="002:down:memory-50", readings=low(6, memory_percent=50.0), action="none"),
    Row(id="002:down:pending", readings=low(6, pending=pods(1))[:1], action="none"),
    Row(id="002:down:cooldown-10-min", readings=low(6), ago=600, action="scale_down"),
    Row(id="002:history:last-10-readings", readings=cpu(*[50] * 12), action="none"),
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
        id="004:log:cpu-74.3-3-of-3-pending-3-2-of-2",
        readings=cpu(74.3, 74.3, 74.3, pending=pods(3))[:2],
        action="scale_up",
        count=1,
    ),
    Row(id="004:log:cpu-2-of-3", readings=cpu(74.3, 74.3), action="none"),
    Row(id="004:log:cpu-3-of-3", readings=cpu(74.3, 74.3, 74.3), action="scale_up", count=1, rule="cpu"),
    Row(id="004:log:pending-1-of-2", readings=({"pending": pods(3)},), action="none"),
    Row(id="004:log:pending-2-of-2", readings=({"pending": pods(3)},) * 2, action="scale_up", count=1, rule="pending"),
    Row(id="004:k6:ramp-up", readings=cpu(30, 40, workers=light(2)), action="none"),
    Row(id="004:k6:sustain", readings=cpu(60, 60, 60, workers=light(2)), action="none"),
    Row(id="004:k6:spike-cpu-over-85-adds-2", readings=cpu(90, 90, 90, workers=light(2)), action="scale_up", count=2),
    Row(id="004:k6:peak-stable", readings=cpu(60, 60, 60), action="none"),
    Row(id="004:k6:ramp-down", readings=low(3), action="none"),
    Row(id="004:k6:cool-down-10-min", readings=low(6), action="scale_down", count=1),
    Row(id="004:env:cpu-up-70", readings=cpu(70, 70, 70), action="none"),
    Row(id="004:env:cpu-down-30", readings=low(6, cpu_percent=30.0), action="none"),
    Row(id="004:env:cooldown-up-300", readings=cpu(74, 74, 74), ago=299, action="none"),
    Row(id="004:env:cooldown-down-600", readings=low(6), ago=599, action="none"),
    Row(id="004:env:max-10", readings=cpu(74, 74, 74, workers=light(10)), action="none"),
    Row(id="004:env:min-2", readings=low(6, workers=light(2)), action="none"),
    Row(
        id="004:queries:latency-2000",
        readings=(metric("latency_p95", 2001),) * 2,
        action="scale_up",
        rule="custom:latency_p95",
    ),
    Row(
        id="004:queries:errors-5",
        readings=(metric("error_rate", 5.1),) * 2,
        action="scale_up",
        rule="custom:error_rate",
    ),
    Row(
        id="004:queries:queue",
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


@pytest.mark.parametrize(("preset", "row"), ALL, ids=[row.id for _, row in ALL])
def test_the_row_comes_out_as_its_document_says(preset: str, row: Row) -> None:
    check(preset, row)


def test_row_ids_are_counted_and_each_stands_once() -> None:
    assert {preset: len(rows) for preset, rows in ROWS.items()} == {
        "algorithm": 37,
        "flowchart": 28,
        "sequence": 17,
        "readme": 20,
        "node-fleet": 9,
    }
    assert max(Counter(row.id for _, row in ALL).values()) == 1


def walk(preset: str, timeline: tuple[tuple[int, Seen], ...], start_workers: int, **changes: Any) -> list[Decision]:
    """Decide at each (minute, what is seen); the fleet grows and shrinks by the decisions, at once."""
    fleet, count, decisions = Fleet(policy(preset, **changes)), start_workers, []
    for minute, seen in timeline:
        decision = fleet.tick(snapshot(START + minute * 60, **{"workers": light(count), **seen}))
        count = decision.workers_after
        decisions.append(decision)
    return decisions


class TestAlgorithmScenarios:
    def test_scenario_1_flash_sale(self) -> None:
        """Eight rows. Row 20:04 says "+2" for three pending pods; the document's own count of nodes (two only when
        more than five are pending) gives 1, in its table of increments, in condition 2 and in its code: those three
        were followed. Row 20:30 and row 20:40 stand ten minutes apart, so the load is low for longer than its window.
        """
        rows: tuple[tuple[str, int, float, int, str], ...] = (
            ("000:scenario-1:20:00", 0, 35.0, 0, "none"),
            ("000:scenario-1:20:02", 2, 65.0, 0, "none"),
            ("000:scenario-1:20:04", 4, 82.0, 3, "scale_up"),
            ("000:scenario-1:20:06", 6, 85.0, 8, "none"),
            ("000:scenario-1:20:08", 8, 78.0, 2, "none"),
            ("000:scenario-1:20:10", 10, 68.0, 0, "none"),
            ("000:scenario-1:20:30", 30, 40.0, 0, "none"),
            ("000:scenario-1:20:40", 40, 28.0, 0, "scale_down"),
        )
        timeline = tuple((minute, {"cpu_percent": value, "pending": pods(p)}) for _, minute, value, p, _ in rows)
        decisions = walk("algorithm", timeline, 4)
        assert [d.action for d in decisions] == [action for *_, action in rows]
        assert decisions[2].count == 1 and len({row[0] for row in rows}) == 8
        assert decisions[3].blocked_by == decisions[4].blocked_by == ("cooldown",)

    def test_scenario_2_spot_interruption(self) -> None:
        """Four rows; the minimum is 4 there. The document restores it at the next cycle, two minutes later; a worker
        under notice does not count from then on, so that the next decision after the warning already launches."""
        minimum = {"min_workers": 4}
        quiet = decide(snapshot(workers=light(4)), Memory(), policy("algorithm", **minimum), START)
        noticed = (*light(3), worker(9, under_notice=True))
        warned = decide(snapshot(workers=noticed), Memory(), policy("algorithm", **minimum), START)
        next_cycle = decide(snapshot(workers=light(3)), Memory(), policy("algorithm", **minimum), START)
        restored = decide(snapshot(workers=light(4)), Memory(), policy("algorithm", **minimum), START)
        rows = {
            "000:scenario-2:10:00": (quiet.action, quiet.count),
            "000:scenario-2:10:02": (warned.action, warned.count),
            "000:scenario-2:10:04": (next_cycle.action, next_cycle.count),
            "000:scenario-2:10:07": (restored.action, restored.count),
        }
        assert list(rows.values()) == [("none", 0), ("scale_up", 1), ("scale_up", 1), ("none", 0)]

    def test_prediction_at_minute_50(self) -> None:
        """Row 000:up:5. The document's plain mean of seven days is replaced by the specification's robust average."""
        now = 1_789_948_800 + 8 * 3600 + 50 * 60
        hourly = tuple(
            HourlyLoad(hour_epoch=h, cpu_percent=80.0 if 9 <= h % 86400 // 3600 < 17 else 20.0, readings=30, workers=4)
            for h in range(1_789_948_800 - 21 * 86400, 1_789_948_800 + 8 * 3600, 3600)
        )
        seen = snapshot(now, cpu_percent=40.0, hourly=hourly, workers=light(4))
        decision = decide(seen, Memory(), policy("algorithm", predictive=True), now)
        assert (decision.action, decision.count, decision.rule) == ("scale_up", 1, "prediction")

    def test_cooldown_applies_after_the_last_action_whatever_comes_next(self) -> None:
        """The document's parameter table gives each direction its own cooldown; its function chooses by the last
        action. The function was followed: it is what ran."""
        rows = {row.id: row for row in ALGORITHM}
        for name in ("000:safety:4-down-300-after-up", "000:safety:4-up-under-600-after-down"):
            check("algorithm", rows[name])


class TestFlowchartNotes:
    def test_three_minutes_or_three_readings(self) -> None:
        """The criteria say "for 3 consecutive minutes", the history code looks at the last three readings of two
        minutes each, which is four minutes: the readings were followed, as the specification does."""
        rows = {row.id: row for row in FLOWCHART}
        check("flowchart", rows["002:chart:cpu-70-for-3"])
        check("flowchart", rows["002:chart:cpu-only-2"])

    def test_cooldown_comes_before_every_trigger(self) -> None:
        """The chart ends at an active cooldown before it evaluates anything, so pending pods do not bypass it; below
        the minimum the specification's first rule goes before the chart, as it does for every preset."""
        below = replace(FLOWCHART[0], id="below", readings=({"workers": light(1)},), action="scale_up")
        check("flowchart", FLOWCHART[0])
        check("flowchart", below)


class TestSequenceNotes:
    def test_other_choices_of_the_document(self) -> None:
        """Oldest first, round-robin subnets, on-demand t2.small, the cAdvisor query. The document counts Ready nodes,
        the server among them, against 10 and 2; the specification counts workers only, which was followed."""
        s = Settings.from_mapping({"preset": "sequence"})
        assert (s.scale_down_order, s.placement) == ("oldest", "round-robin")
        assert (s.spot_percent, s.instance_types, s.cpu_source) == (0, ("t2.small",), "cadvisor")


class TestReadmeScenarios:
    def test_flash_sale_2_to_4_to_6_to_7_and_back_by_one_each_10_minutes(self) -> None:
        """Rows flash:baseline, flash:spike, flash:sustained, flash:cool-down. The document's second step (4 to 6)
        comes within its own up-cooldown of 300 s only if pending pods bypass it, as they do by default."""
        spike = [(k * 2, {"cpu_percent": 95.0, "pending": pods(8)}) for k in range(6)]
        decisions = walk("readme", tuple(spike), 2)
        assert [d.workers_after for d in decisions] == [2, 4, 6, 8, 10, 10]
        quiet = tuple((20 + k * 2, {"cpu_percent": 10.0, "memory_percent": 10.0}) for k in range(31))
        removals = [k * 2 for k, d in enumerate(walk("readme", quiet, 7)) if d.action == "scale_down"]
        assert removals == [10, 20, 30, 40, 50]


class TestNoPresetTouchesSafety:
    @pytest.mark.parametrize("preset", sorted(ROWS))
    def test_minimum_maximum_live_data_projection_and_back_off_hold(self, preset: str) -> None:
        rules = policy(preset)
        idle_long = Memory(since={"idle": Streak(since=START - 900, last=START - TICK, readings=8)})
        quiet: Seen = {"cpu_percent": 5.0, "memory_percent": 5.0, "workers": light(4)}

        def action(memory: Memory = idle_long, **seen: Any) -> Decision:
            return decide(snapshot(**{**quiet, **seen}), memory, rules, START)

        assert action().action == "scale_down"
        assert action(workers=light(2)).action == "none"
        assert action(workers=light(1)).rule == "minimum"
        assert action(source="cached").action == "none"
        assert action(cpu_percent=float("nan")).action == "none"
        assert action(pending=None).action == "none"
        assert action(workers=workers(3, cpu_requested_milli=1900)).action == "none"
        broken = record_failure(
            record_failure(record_failure(Memory(), "join", START, rules), "join", START, rules), "join", START, rules
        )
        assert action(broken, workers=light(1)).blocked_by == ("circuit_breaker",)
        full: Snapshot = snapshot(pending=pods(20), workers=light(10), cpu_percent=99.0)
        fleet = Fleet(rules)
        assert {fleet.tick(replace(full, at=START + k * TICK, read_at=START + k * TICK)).action for k in range(5)} == {
            "none"
        }


def test_settings_know_every_strategy_by_name() -> None:
    assert tuple(STRATEGIES) == get_args(StrategyName)
