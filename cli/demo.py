"""demo and simulate: a scenario through the real workflow in virtual time, its runs as a table, and an HTML report."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic as real_monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.padding import Padding
from rich.text import Text

from cdk_app.json_file import configuration_file
from cdk_app.workflow import definitions
from cli import completion
from cli.live_view import simulated_live
from cli.output import (
    CommandError,
    WrongUseError,
    console,
    facts,
    leaving,
    note,
    print_json,
    say,
    table,
    working,
    write_page,
)
from node_fleet.domain.cost.tariff import Currency
from node_fleet.domain.model.errors import InvalidSettingsError
from node_fleet.domain.model.text import count_of
from simulator.report.figures import Figures, figures_of, headline, sentence
from simulator.report.page import Point, Report, render
from simulator.report.story import QuietGroup, Row, changed_something, quiet_runs, rows_of

if TYPE_CHECKING:
    from simulator.runner import Execution
    from simulator.scenario.model import Scenario
    from simulator.simulation import Simulation

DEMO = "flash-sale"
INDENT = 10

JsonOption = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
ReportOption = Annotated[Path | None, typer.Option("--report", help="File of the HTML report (reports/NAME.html).")]
FixedOption = Annotated[
    int, typer.Option("--fixed", min=1, help="Workers of the fixed fleet that the cost is compared with.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(epilog=f"Example: node-fleet demo --report {DEMO}.html")(demo)
    app.command(
        epilog="Examples: node-fleet simulate spot-storm | node-fleet simulate ./my-scenario.yaml | "
        "node-fleet simulate --list"
    )(simulate)


def demo(as_json: JsonOption = False, report: ReportOption = None, fixed: FixedOption = 5) -> None:
    """Show a flash sale: two workers, load rises, the fleet grows, holds, and drains back to two."""
    from simulator.scenario.files import load_scenario

    _simulate(load_scenario(DEMO), as_json=as_json, report=report, fixed=fixed)


def simulate(
    scenario: Annotated[
        str, typer.Argument(autocompletion=completion.scenarios, help="A shipped scenario's name, or a scenario file.")
    ] = "",
    as_json: JsonOption = False,
    report: ReportOption = None,
    fixed: FixedOption = 5,
    listed: Annotated[bool, typer.Option("--list", help="List the shipped scenarios.")] = False,
) -> None:
    """Run a scenario file through the real workflow in the simulator."""
    from simulator.scenario.files import scenario_names

    if listed:
        _list(as_json)
        return
    if not scenario:
        raise WrongUseError("which scenario?", hint=f"type one of: {', '.join(scenario_names())}, or a file")
    _simulate(read_scenario(scenario), as_json=as_json, report=report, fixed=fixed)


def read_scenario(name: str) -> Scenario:
    """The scenario of that name or file. Every error in a file is listed, one a line."""
    from simulator.scenario.files import ScenarioError, load_scenario

    try:
        return load_scenario(name)
    except ScenarioError as error:
        problems = [f"  line {one.line}, {one.key}: {one.message}" for one in error.problems]
        if len(problems) == 1 and error.problems[0].key == "(file)":
            hint = "type node-fleet simulate --list to see all"
            raise WrongUseError(f"scenario {name}: {error.problems[0].message}", hint=hint) from error
        for line in problems:
            console(stderr=True).print(line, markup=False, soft_wrap=True)
        text = f"scenario {name} has {count_of(len(problems), 'error')}, listed above"
        raise WrongUseError(text, hint="correct them in the file and run it again") from error
    except OSError as error:
        raise CommandError(f"cannot read {name}: {error.strerror}") from error


@contextmanager
def suitable(scenario: Scenario) -> Iterator[None]:
    """Wrong settings end the command inside the block: those of cdk.json, or of the scenario that contradict them."""
    from cdk_app.synth import SynthesisError  # loads the CDK's packages

    try:
        yield
    except SynthesisError as error:
        text = str(error).removeprefix("node-fleet: ")
        raise WrongUseError(f"{configuration_file()}: {text}", hint="correct that file, nothing was run") from error
    except InvalidSettingsError as error:
        text = f"scenario {scenario.name} with the settings of cdk.json: {error}"
        raise WrongUseError(text, hint="give the scenario its own preset, for example preset: node-fleet") from error


def _list(as_json: bool) -> None:
    from simulator.scenario.files import load_scenario, scenario_names

    shipped = [load_scenario(name) for name in scenario_names()]
    if as_json:
        print_json([{"name": one.name, "description": one.description} for one in shipped])
        return
    table("", ("scenario", "minutes", "what happens"), [_listed(one) for one in shipped])


def _listed(scenario: Scenario) -> tuple[str, str, str]:
    return scenario.name, f"{scenario.duration_seconds / 60:.0f}", scenario.description


def _simulate(scenario: Scenario, *, as_json: bool, report: Path | None, fixed: int) -> None:
    begun = real_monotonic()
    target = report or Path("reports") / f"{scenario.name}.html"
    stage = console(stderr=True)
    note(f"settings: {configuration_file()}, overridden by those of the scenario")
    stage.print(f"{scenario.name}: {scenario.description}", markup=False)
    text = "no report was written and nothing is left"
    with leaving(text), suitable(scenario), simulated_live(scenario, stage) as simulation:
        with working("writing the report"):
            figures = figures_of(simulation, fixed_workers=fixed)
            money = money_of(simulation)
            rows = rows_of(one for one in simulation.executions if changed_something(one) or _failed(one))
            quiet = quiet_runs(simulation.executions)
            write_report(simulation, figures, money, target)
        took = real_monotonic() - begun
    if as_json:
        print_json(as_data(figures, rows, quiet, target))
        return
    _show(rows, quiet, figures, money)
    say(f"\n{sentence(figures)}")
    say(f"Report: {target}  (simulated {scenario.duration_seconds / 60:.0f} minutes in {took:.0f} s)")


def _failed(execution: Execution) -> bool:
    return execution.status not in ("SUCCEEDED", "RUNNING")


def _show(rows: list[Row], quiet: list[QuietGroup], figures: Figures, money: Currency) -> None:
    out = console()
    out.print("\nExecutions that changed something", style="bold")
    head = _line("time", "trigger", "decision", "workers", "reason, and the path") if rows else "none"
    out.print(head, style="dim", no_wrap=True, overflow="ellipsis")
    for row in rows:
        why = row.reason
        colour = "red" if row.status != "SUCCEEDED" else "green" if row.decision.startswith("+") else "yellow"
        line = _line(row.clock, row.trigger, row.decision, _workers(row), why)
        if len(line) <= out.width:
            out.print(line, style=colour, markup=False)
        else:
            out.print(_line(row.clock, row.trigger, row.decision, _workers(row), ""), style=colour, markup=False)
            out.print(Padding(Text(why, colour), (0, 0, 0, INDENT)))
        out.print(Padding(Text(row.tasks, "dim"), (0, 0, 0, INDENT)))
    if quiet:
        _show_quiet(quiet)
    out.print()
    facts(headline(figures, money).items())


def _show_quiet(groups: list[QuietGroup]) -> None:
    """One line for each reason, the longest first."""
    out = console()
    out.print("\nExecutions that changed nothing, by reason", style="bold")
    for group in sorted(groups, key=lambda one: -one.runs):
        out.print(Text(f"{group.runs:>4} {'runs' if group.runs > 1 else 'run '} {group.last}"), style="dim")
        out.print(Padding(Text(group.reason), (0, 0, 0, INDENT)))


def _line(time: str, trigger: str, decision: str, workers: str, why: str) -> str:
    return f"{time:<9} {trigger:<9} {decision:<12} {workers:<8} {why}".rstrip()


def _workers(row: Row) -> str:
    return "" if row.workers_before is None else f"{row.workers_before} → {row.workers_after}"


def money_of(simulation: Simulation) -> Currency:
    """The currency that the deployed settings name."""
    deployment = simulation.deployment.resources
    return Currency(
        currency=deployment.setting("CURRENCY", "USD"), per_usd=float(deployment.setting("CURRENCY_PER_USD", "1"))
    )


def as_data(figures: Figures, rows: list[Row], quiet: list[QuietGroup], report: Path) -> dict[str, Any]:
    """The same answer as plain data."""
    return {
        "figures": {**dataclasses.asdict(figures), "saved_percent": figures.saved_percent},
        "executions": [{**dataclasses.asdict(row), "time": row.clock} for row in rows],
        "unchanged": [dataclasses.asdict(group) for group in quiet],
        "report": str(report),
    }


def report_of(simulation: Simulation, figures: Figures, money: Currency) -> Report:
    """What the page shows of a simulation."""
    scenario = simulation.scenario
    day = dt.datetime.fromtimestamp(scenario.start_at, tz=dt.UTC).strftime("%d %B %Y")
    return Report(
        title=scenario.name.replace("-", " ").capitalize(),
        sentence=f"{scenario.description} {sentence(figures)}",
        figures=headline(figures, money),
        points=[
            Point(
                at=one.at,
                load=one.load_per_second,
                pending=one.unschedulable_pods,
                usable=one.workers_usable,
                joining=one.workers_booting,
                leaving=one.workers_cordoned,
            )
            for one in simulation.points
        ],
        executions=simulation.executions,
        definitions=definitions(),
        subtitle=f"{day}, {scenario.duration_seconds / 60:.0f} simulated minutes, times in UTC",
    )


def write_report(simulation: Simulation, figures: Figures, money: Currency, target: Path) -> None:
    """Write the page of a simulation."""
    write_page(target, render(report_of(simulation, figures, money)), "--report")
