"""The demo's table and report say what really ran: every figure is derived again from EC2's calls and the histories."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cli.demo import DEMO, as_data, report_of, write_report
from cli.explain import explain_past
from cli.history import short
from cli.live_view import simulated_live
from cli.target import LocalTarget
from node_fleet.domain.cost.prices import PriceList
from node_fleet.domain.cost.tariff import Currency
from node_fleet.domain.model.value_class import value_class
from simulator.report.figures import Figures, figures_of, headline
from simulator.report.story import Row, account_of, changed_something, quiet_runs, rows_of
from simulator.runner import Execution
from simulator.scenario.files import load_scenario
from simulator.simulation import Simulation


@dataclass(slots=True, kw_only=True)
class Ledger:
    """What the functions asked of EC2, in order: (time, instance, +1 or -1), and how each launched worker is billed."""

    changes: list[tuple[float, str, int]] = field(default_factory=list)
    billed: dict[str, tuple[str, str]] = field(default_factory=dict)

    def workers_before(self, at: float, start: int) -> int:
        """A launch has the very time of the run it belongs to: virtual time stands still while functions work."""
        return start + sum(step for when, _, step in self.changes if when < at)

    def workers_at(self, at: float, start: int) -> int:
        return start + sum(step for when, _, step in self.changes if when <= at)


@value_class
class Demo:
    """The finished demo and what it showed."""

    simulation: Simulation
    figures: Figures
    rows: list[Row]
    screen: str
    page: str

    @property
    def changed(self) -> list[Execution]:
        return [one for one in self.simulation.executions if changed_something(one)]

    def ledger(self) -> Ledger:
        found = Ledger()
        for call in self.simulation.deployment.cloud.recorder.calls:
            if call.function is None or call.error is not None:
                continue
            if call.operation == "CreateFleet":
                assert call.result is not None
                for part in call.result["Instances"]:
                    found.changes += [(call.at, instance_id, 1) for instance_id in part["InstanceIds"]]
                    found.billed |= dict.fromkeys(part["InstanceIds"], (part["InstanceType"], part["Lifecycle"]))
            if call.operation == "TerminateInstances":
                gone = set(call.parameters["InstanceIds"]) - {one for _, one, step in found.changes if step < 0}
                found.changes += [(call.at, one, -1) for one in sorted(gone)]
        return found


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    text = io.StringIO()
    target: Path = tmp_path_factory.mktemp("demo") / "reports" / "demo.html"
    with simulated_live(load_scenario(DEMO), Console(file=text, width=160, highlight=False)) as simulation:
        figures = figures_of(simulation)
        write_report(simulation, figures, Currency(), target)
        rows = rows_of(one for one in simulation.executions if changed_something(one))
        yield Demo(
            simulation=simulation, figures=figures, rows=rows, screen=text.getvalue(), page=target.read_text("utf-8")
        )


def test_the_sale_makes_the_fleet_grow_by_alert_hold_and_go_back_to_two(demo: Demo) -> None:
    assert demo.figures.workers_start == demo.figures.workers_end == 2
    assert demo.figures.workers_highest >= 5
    assert demo.figures.failed == 0
    grown = [row for row in demo.rows if row.decision.startswith("+")]
    assert grown and grown[0].trigger == "alert"
    removals = [row.decision for row in demo.rows if row not in grown]
    assert len(removals) > 1 and sum(map(int, removals)) == 2 - demo.figures.workers_highest


def test_launches_and_removals_are_the_calls_that_ec2_got(demo: Demo) -> None:
    ledger = demo.ledger()
    assert demo.figures.launched == sum(step > 0 for _, _, step in ledger.changes)
    assert demo.figures.removed == sum(step < 0 for _, _, step in ledger.changes)
    counts = [ledger.workers_at(when, demo.figures.workers_start) for when, _, _ in ledger.changes]
    assert demo.figures.workers_highest == max(counts)
    assert demo.figures.workers_end == counts[-1]


def test_each_rows_workers_are_what_ec2_had_before_and_after_that_execution(demo: Demo) -> None:
    ledger = demo.ledger()
    for row, execution in zip(demo.rows, demo.changed, strict=True):
        assert execution.ended_at is not None
        assert row.workers_before == ledger.workers_before(execution.started_at, demo.figures.workers_start)
        assert row.workers_after == ledger.workers_at(execution.ended_at, demo.figures.workers_start)
        wanted = [int(number) for number in re.findall(r"[+-]\d+", row.decision)]
        assert row.workers_after - row.workers_before == sum(wanted)


def test_each_rows_path_trigger_and_reason_stand_in_its_history(demo: Demo) -> None:
    for row, execution in zip(demo.rows, demo.changed, strict=True):
        assert row.trigger == execution.input["trigger"]
        names = set(re.findall(r"[A-Z]\w+", row.path))
        assert names == set(execution.path)
        assert set(re.findall(r"[A-Z]\w+", row.tasks)) == names - {
            visit.name for visit in execution.history if visit.type in ("Choice", "Wait", "Pass")
        }
        deciding = [visit.output for visit in execution.history if visit.name in ("Decide", "SelectNodes")]
        assert row.reason in json.dumps(deciding, ensure_ascii=False)


def test_the_time_to_ready_is_the_longest_way_from_launch_to_joined_in_the_histories(demo: Demo) -> None:
    longest = 0.0
    for execution in demo.changed:
        begun = None
        for visit in execution.history:
            if visit.name == "LaunchNodes":
                begun = visit.entered_at
            if visit.name == "CheckJoin" and visit.output["join"]["status"] == "joined":
                assert begun is not None and visit.exited_at is not None
                longest = max(longest, visit.exited_at - begun)
    assert demo.figures.slowest_ready_seconds == pytest.approx(longest, abs=1)
    assert longest < 180, "a worker must be Ready within three minutes of the decision"


def test_cost_is_the_price_of_every_workers_hours_as_ec2_was_asked(demo: Demo) -> None:
    ledger, region = demo.ledger(), demo.simulation.deployment.cloud.region
    start, end = demo.simulation.scenario.start_at, demo.simulation.deployment.clock.now()
    begun = {
        **dict.fromkeys(demo.simulation.starting_ids, start),
        **{i: at for at, i, step in ledger.changes if step > 0},
    }
    ended = {one: at for at, one, step in ledger.changes if step < 0}
    billed = {**dict.fromkeys(demo.simulation.starting_ids, ("t3.small", "on-demand")), **ledger.billed}
    prices, points = PriceList.shipped(region), demo.simulation.points
    instances = whole = 0.0
    for one, at in begun.items():
        until = ended.get(one, end)
        cpus = [point.cpu_percent for point in points if point.cpu_percent is not None and at <= point.at <= until]
        credits = 2 * max(0.0, sum(cpus) / len(cpus) - 20) / 100 * 0.05
        hours = (until - at) / 3600
        instances += prices.instances[billed[one]].usd * hours
        whole += (prices.instances[billed[one]].usd + 20 * 0.096 / 730 + 0.005 + credits) * hours
    assert demo.figures.instances_usd == pytest.approx(instances, rel=0.02)
    assert demo.figures.spent.usd == pytest.approx(whole, rel=0.02)
    assert demo.figures.spent.is_complete
    page = (
        (Path(__file__).resolve().parents[2] / "docs" / "cost.md")
        .read_text(encoding="utf-8")
        .split("For the simulated fleet of the demo itself")[1]
    )
    stated = [float(usd) for usd in re.findall(r"(\d\.\d{3}) USD", page)]
    assert stated == pytest.approx([demo.figures.instances_usd, demo.figures.spent.usd], abs=0.002)
    fixed = demo.figures.fixed.usd
    assert demo.figures.saved_percent == pytest.approx(100 * (1 - demo.figures.spent.usd / fixed))


def test_the_report_carries_the_same_rows_figures_and_payloads(demo: Demo) -> None:
    data = json.loads(page_data(demo.page))
    changed = [run for run in data["runs"] if not run["alike"]]
    assert [(run["decision"], run["before"], run["after"]) for run in changed] == [
        (row.decision, row.workers_before, row.workers_after) for row in demo.rows
    ]
    for name, value in headline(demo.figures, Currency()).items():
        assert f"<b>{value}</b><span>{name}</span>" in demo.page
    for run, execution in zip(changed, demo.changed, strict=True):
        assert [visit[0] for visit in run["steps"]["visits"]] == execution.path
        last = run["steps"]["visits"][-1]
        assert json.loads(run["steps"]["texts"][last[3]]) == execution.history[-1].input
    assert sum(run["alike"] for run in data["runs"]) == len(demo.simulation.executions) - len(demo.changed)
    assert all(run["reason"] and run["steps"]["visits"] for run in data["runs"] if run["alike"])
    assert max(point[2] for point in data["points"]) > 0, "the story shows pods that found no place"
    for address in ("http://", "https://", "src="):
        assert address not in demo.page.replace("http://www.w3.org/2000/svg", ""), "the page needs no network"


def test_history_and_explain_agree_with_the_report_on_every_run(demo: Demo) -> None:
    target = LocalTarget(demo.simulation, "here")
    events = target.services.records.events(0, int(target.clock.now()) + 1, kind="decision")
    recorded = {short(event.key): account_of(event.data) for event in events}
    rows = [row for row in rows_of(demo.simulation.executions) if row.name in recorded]
    assert len(rows) == len(recorded) > 30
    assert any(row.workers_after - row.workers_before < -1 for row in rows), "one removes several workers"
    for row in rows:
        account = recorded[row.name]
        assert (account.what, account.before, account.after, account.reason) == (
            *(row.decision, row.workers_before, row.workers_after),
            row.reason,
        )
        assert explain_past(target, row.name).account == account


def test_progress_is_answer_line_by_line_where_nobody_looks(demo: Demo) -> None:
    lines = [line for line in demo.screen.splitlines() if "→" in line]
    assert len(lines) == len(demo.rows)
    for line, row in zip(lines, demo.rows, strict=True):
        assert line.startswith(row.clock)


def test_json_has_the_figures_and_the_rows(demo: Demo) -> None:
    answer = json.loads(
        json.dumps(as_data(demo.figures, demo.rows, quiet_runs(demo.simulation.executions), Path("r.html")))
    )
    assert answer["figures"]["launched"] == demo.figures.launched
    assert [row["time"] for row in answer["executions"]] == [row.clock for row in demo.rows]
    assert sum(group["runs"] for group in answer["unchanged"]) == len(demo.simulation.executions) - len(demo.changed)
    assert report_of(demo.simulation, demo.figures, Currency()).title == "Flash sale"


def page_data(page: str) -> str:
    """The JSON inside the page."""
    found: Any = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return str(found[1])


def test_the_readme_shows_what_the_demo_prints(demo: Demo) -> None:
    root = Path(__file__).parents[2]
    block = (root / "README.md").read_text(encoding="utf-8").split("ends with this (shortened):")[1].split("Report:")[0]
    shown = re.findall(r"^ +(\d\d:\d\d:\d\d) +\w+ +(\+.*?)  +(\d+) → (\d+) +(.*)$", block, re.MULTILINE)
    grown = [row for row in demo.rows if row.decision.startswith("+")]
    changes = [(row.decision, row.workers_before, row.workers_after) for row in grown]
    assert [(decision, int(before), int(after)) for _, decision, before, after, _ in shown] == changes
    assert all(reason and row.reason.startswith(reason) for row, (*_, reason) in zip(grown, shown, strict=True))
    assert f"{demo.figures.failed} of {demo.figures.executions}" in block
