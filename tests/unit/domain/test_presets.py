"""Each preset against its document, row by row. A row's id names the document and the place it stands at.

Where a document contradicts itself the test says which line was followed, and why.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, get_args

import pytest

from node_fleet.domain.model.memory import Memory, Streak
from node_fleet.domain.model.policy import StrategyName
from node_fleet.domain.model.snapshot import HourlyLoad, Snapshot
from node_fleet.domain.scaling.decision import STRATEGIES, Decision, decide
from node_fleet.domain.scaling.memory_update import record_failure
from node_fleet.settings import Settings
from tests.support.decisions import START, TICK, Fleet, pods, snapshot, worker, workers
from tests.support.preset_rows import ALL, FLOWCHART, ROWS, Row, Seen, light, policy


def check(preset: str, row: Row) -> None:
    decision = row.decided(preset)
    assert decision.action == row.action, decision.sentence
    if row.action != "none":
        assert decision.count == (row.count or 1), decision.sentence
    if row.rule:
        assert decision.rule == row.rule, decision.sentence


@pytest.mark.parametrize(("preset", "row"), ALL, ids=[row.id for _, row in ALL])
def test_the_row_comes_out_as_its_document_says(preset: str, row: Row) -> None:
    check(preset, row)


def test_each_row_id_stands_once() -> None:
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
            ("algorithm:scenario-1:20:00", 0, 35.0, 0, "none"),
            ("algorithm:scenario-1:20:02", 2, 65.0, 0, "none"),
            ("algorithm:scenario-1:20:04", 4, 82.0, 3, "scale_up"),
            ("algorithm:scenario-1:20:06", 6, 85.0, 8, "none"),
            ("algorithm:scenario-1:20:08", 8, 78.0, 2, "none"),
            ("algorithm:scenario-1:20:10", 10, 68.0, 0, "none"),
            ("algorithm:scenario-1:20:30", 30, 40.0, 0, "none"),
            ("algorithm:scenario-1:20:40", 40, 28.0, 0, "scale_down"),
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
            "algorithm:scenario-2:10:00": (quiet.action, quiet.count),
            "algorithm:scenario-2:10:02": (warned.action, warned.count),
            "algorithm:scenario-2:10:04": (next_cycle.action, next_cycle.count),
            "algorithm:scenario-2:10:07": (restored.action, restored.count),
        }
        assert list(rows.values()) == [("none", 0), ("scale_up", 1), ("scale_up", 1), ("none", 0)]

    def test_prediction_at_minute_50(self) -> None:
        """Row algorithm:up:5. The specification's robust average replaces the document's plain mean of seven days."""
        now = 1_789_948_800 + 8 * 3600 + 50 * 60
        hourly = tuple(
            HourlyLoad(hour_epoch=h, cpu_percent=80.0 if 9 <= h % 86400 // 3600 < 17 else 20.0, readings=30, workers=4)
            for h in range(1_789_948_800 - 21 * 86400, 1_789_948_800 + 8 * 3600, 3600)
        )
        seen = snapshot(now, cpu_percent=40.0, hourly=hourly, workers=light(4))
        decision = decide(seen, Memory(), policy("algorithm", predictive=True), now)
        assert (decision.action, decision.count, decision.rule) == ("scale_up", 1, "prediction")


class TestFlowchartNotes:
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
