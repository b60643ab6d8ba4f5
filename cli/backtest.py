"""backtest: cost, waiting and overload of a configuration on a load trace, beside other policies, before deployment.

Parses the options and prints the study; the model is the package backtest.
"""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from backtest.compare import Assumptions, policy_names, study
from backtest.frontier import PEERS, frontier_settings, recommendation
from backtest.model import Capacity, ModelError, Scaling
from backtest.off_times import replay_off_times
from backtest.page import render
from backtest.sources import Range, from_history, from_prometheus, is_url
from backtest.summary import COLUMNS, answer, as_data, rows, tuned_data, tuned_sentence
from backtest.trace import Trace, TraceError, read_trace
from backtest.tune import tune
from cli import completion
from cli.backtest_settings import as_names, changes_of, configuration, configurations_beside, overridden, settings_of
from cli.backtest_types import Asked, Market, compare_types, fleets_of
from cli.output import CommandError, WrongUseError, note, print_json, say, table, working, write_page
from cli.target import DEFAULT_CLUSTER, Target, open_target, seconds_of
from node_fleet.domain.cost.prices import PriceList
from node_fleet.domain.model.errors import StateStoreError
from node_fleet.domain.model.value_class import value_class
from node_fleet.settings import Settings

HISTORY = "history"
POINTS_SHOWN = 1500
USER_ENV, PASSWORD_ENV = "NODE_FLEET_PROMETHEUS_USER", "NODE_FLEET_PROMETHEUS_PASSWORD"

TraceArgument = Annotated[
    str,
    typer.Argument(
        help="A CSV of time,value or the JSON of query_range (.gz too), the URL of a Prometheus, or the word history."
    ),
]

ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="Settings, as JSON or YAML (cdk.json; with history as deployed).")
]
ChangedOption = Annotated[
    list[str] | None,
    typer.Option("--set", autocompletion=completion.settings, help="One setting, NAME=VALUE; may be repeated."),
]
CompareOption = Annotated[bool, typer.Option("--compare", help="Also replay the presets and the reference policies.")]
BesideOption = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        autocompletion=completion.policies,
        help="Also replay this policy, or the settings in this file; may be repeated.",
    ),
]
TypesOption = Annotated[
    list[str] | None,
    typer.Option("--types", help="Compare fleets: t3.small,t3.small+t3.medium, or requirements as JSON; repeatable."),
]
FrontierOption = Annotated[
    bool, typer.Option("--frontier", help="Replay a grid of wait_cost and change_cost, and recommend one.")
]
TuningOption = Annotated[bool, typer.Option("--tune", help="Search for the cheapest settings within --limit.")]
LimitOption = Annotated[float, typer.Option(min=0, help="With --tune: pending pod-minutes a day allowed.")]
ShareOption = Annotated[float, typer.Option(min=0.1, max=0.9, help="With --tune: share of the trace that is searched.")]
TriesOption = Annotated[int, typer.Option(min=1, help="With --tune: most configurations to try.")]
PageOption = Annotated[Path | None, typer.Option("--page", help="Write the study as one HTML page.")]
AsJsonOption = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
QueryOption = Annotated[str, typer.Option(help="With a Prometheus: the expression, one series.")]
SinceOption = Annotated[str, typer.Option(help="Prometheus, history: start as an ISO time (UNTIL minus PAST).")]
UntilOption = Annotated[str, typer.Option(help="Prometheus, history: end as an ISO time (now).")]
PastOption = Annotated[str, typer.Option(help="Prometheus, history: how far back without --since.")]
StepOption = Annotated[str, typer.Option(help="Prometheus: time between two readings.")]
BootOption = Annotated[str, typer.Option(help="From launch to usable.")]
StartOption = Annotated[str, typer.Option(help="From the start of a standby worker to usable.")]
DrainOption = Annotated[str, typer.Option(help="From the start of a drain to the end of the bill.")]
JumpOption = Annotated[bool, typer.Option("--jump", help="The load jumps from reading to reading instead of ramping.")]
StayUpOption = Annotated[str, typer.Option(help="Time that replicas stay up after the load has fallen.")]
FullWorkersOption = Annotated[
    float, typer.Option(min=0.1, help="Full workers that the trace's 99.5th percentile needs.")
]
UnitMilliOption = Annotated[
    float, typer.Option(min=0, help="CPU milli that one unit of the trace needs, instead of --full-workers.")
]
PodCpuOption = Annotated[int, typer.Option(min=1, help="Requests of a pod: CPU milli.")]
PodMemoryOption = Annotated[int, typer.Option(min=1, help="Requests of a pod: MiB.")]
ClusterOption = Annotated[str, typer.Option(envvar="NODE_FLEET_CLUSTER", help="Cluster id, as in cdk.json.")]
RegionOption = Annotated[str, typer.Option(envvar="AWS_REGION", help="AWS region: of prices, and of history.")]
LocalOption = Annotated[bool, typer.Option("--local", help="With history: use the simulator.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples: node-fleet backtest load.csv --compare --page study.html | "
        "node-fleet backtest http://10.0.0.5:30090 --query 'sum(rate(http_requests_total[5m]))' --past 30d | "
        "node-fleet backtest history --set idle_seconds=300 --compare | "
        "node-fleet backtest load.csv --tune --limit 20 | "
        "node-fleet backtest load.csv --frontier --page frontier.html | "
        "node-fleet backtest history --types t3.small,t3.small+t3.medium,c6i.large"
    )(backtest)


def backtest(
    trace: TraceArgument,
    *,
    config: ConfigOption = None,
    changed: ChangedOption = None,
    compare: CompareOption = False,
    beside: BesideOption = None,
    types: TypesOption = None,
    frontier: FrontierOption = False,
    tuning: TuningOption = False,
    limit: LimitOption = 30.0,
    share: ShareOption = 0.5,
    tries: TriesOption = 60,
    page: PageOption = None,
    as_json: AsJsonOption = False,
    query: QueryOption = "",
    since: SinceOption = "",
    until: UntilOption = "",
    past: PastOption = "30d",
    step: StepOption = "1m",
    boot: BootOption = "90s",
    start: StartOption = "40s",
    drain: DrainOption = "60s",
    jump: JumpOption = False,
    stay_up: StayUpOption = "0s",
    pod_cpu: PodCpuOption = 250,
    pod_memory: PodMemoryOption = 128,
    full_workers: FullWorkersOption = 8.0,
    unit_milli: UnitMilliOption = 0.0,
    cluster: ClusterOption = "",
    region: RegionOption = "",
    local: LocalOption = False,
) -> None:
    """Replay a load trace through the deployed decision code: cost, waiting, overload and changes of direction."""
    if types and (compare or beside or tuning or page or frontier):
        raise WrongUseError("--types with --compare, --with, --frontier, --tune or --page", hint="give --types alone")
    if frontier and (compare or beside or tuning):
        raise WrongUseError("--frontier with --compare, --with or --tune", hint="give --frontier with --page or --json")
    asked, span, changes = fleets_of(types or ()), (since, until, past), changes_of(changed or [], region)
    try:
        opening = open_target(cluster=cluster or DEFAULT_CLUSTER, region=region, local=local)
        recorded = _history(opening, span, asked) if trace == HISTORY else None
        source, base = configuration(config, cluster, recorded.settings if recorded else None)
        raw = overridden(base, changes)
        settings = settings_of(raw)
        source = f"settings: {source}, preset {settings.preset}"
        capacity = capacity_of(settings, (boot, start, drain), pod_cpu, pod_memory)
        unit = capacity.vcpus * 1000.0 if recorded else unit_milli
        scaling = scaling_of(stay_up, jump=jump, full_workers=full_workers, unit_milli=unit)
        assumptions = Assumptions(capacity=capacity, scaling=scaling)
        found = recorded.trace if recorded else _read(trace, query, span, step)
        if types:
            market = recorded.market if recorded else None
            compare_types(found, settings, assumptions, asked, market=market, source=source, as_json=as_json)
            return
        if tuning:
            _tune(found, raw, assumptions, source, limit=limit, share=share, tries=tries, as_json=as_json)
            return
        names = dict.fromkeys([*(policy_names() if compare else ()), *(beside or ()), *(PEERS if frontier else ())])
        grid = frontier_settings(settings) if frontier else {}
        _show_study(found, settings, assumptions, list(names), source, grid=grid, page=page, as_json=as_json)
    except (TraceError, ModelError) as error:
        raise CommandError(str(error), hint=error.hint) from error


def _read(trace: str, query: str, span: tuple[str, str, str], step: str) -> Trace:
    """The trace of a Prometheus or of a file."""
    if is_url(trace):
        return from_prometheus(prometheus_session(), trace, _asked(query, _span(*span), seconds_of(step, "--step")))
    return read_trace(Path(trace))


def capacity_of(settings: Settings, times: tuple[str, str, str], pod_cpu: int, pod_memory: int) -> Capacity:
    """A worker of the first configured type. A pod may use twice its CPU request and uses 80 % of its memory."""
    return Capacity.of_type(
        settings.instance_types[0],
        boot_seconds=seconds_of(times[0], "--boot"),
        start_seconds=seconds_of(times[1], "--start"),
        drain_seconds=seconds_of(times[2], "--drain"),
        pod_cpu_milli=pod_cpu,
        pod_cpu_limit_milli=2 * pod_cpu,
        pod_memory_mib=pod_memory,
        pod_memory_used_mib=pod_memory * 4 // 5,
    )


def scaling_of(stay_up: str, *, jump: bool, full_workers: float, unit_milli: float) -> Scaling:
    """How the trace becomes pods, from the values of the options."""
    return Scaling(
        interpolation="jump" if jump else "ramp",
        stabilization_seconds=seconds_of(stay_up, "--stay-up"),
        workers_at_quantile=full_workers,
        milli_per_unit=unit_milli,
    )


def _show_study(
    found: Trace,
    settings: Settings,
    assumptions: Assumptions,
    names: list[str],
    source: str,
    *,
    grid: dict[str, Settings],
    page: Path | None,
    as_json: bool,
) -> None:
    """Replay the configuration beside the named policies and files of settings, and beside the grid of a frontier."""
    with working("replaying the trace"):
        shown = study(
            found,
            settings,
            assumptions,
            [name for name in names if name in policy_names()],
            configurations={**configurations_beside(names), **grid},
            chart_seconds=_chart_seconds(found) if page else 0,
        )
        off = replay_off_times(found, settings, assumptions, shown)
    said = recommendation(shown, grid) if grid else answer(shown)
    note(source)
    if page:
        write_page(page, render(shown, said), "--page")
    if as_json:
        more = {"hibernate": off.as_data()} if off else {}
        print_json({**as_data(shown), **({"recommendation": said} if grid else {}), **more})
    else:
        say(said)
        table("", COLUMNS, rows(shown))
        say(shown.left_out) if shown.left_out else None
        say(off.sentence) if off else None
    if page:
        note(f"page: {page}")


def _tune(
    found: Trace,
    raw: dict[str, Any],
    assumptions: Assumptions,
    source: str,
    *,
    limit: float,
    share: float,
    tries: int,
    as_json: bool,
) -> None:
    with working("replaying the trace with other settings"):
        tuned = tune(found, raw, assumptions, limit_per_day=limit, share=share, max_tries=tries)
    note(source)
    if as_json:
        print_json(tuned_data(tuned))
    else:
        say(tuned_sentence(tuned))


@value_class
class Recorded:
    """The recorded load of a cluster, its settings by field name, and the prices of the compared types."""

    trace: Trace
    settings: dict[str, Any]
    market: Market


def _history(opening: AbstractContextManager[Target], span: tuple[str, str, str], asked: tuple[Asked, ...]) -> Recorded:
    with opening as target:
        begin, end = _span(*span, now=int(target.services.clock.now()))
        try:
            found = from_history(target.services.records, begin, end)
        except StateStoreError as error:
            raise CommandError(str(error)) from error
        settings = target.services.settings
        market = Market.of(target, asked) if asked else Market(prices=PriceList.shipped(settings.region))
        return Recorded(trace=found, settings=as_names(settings), market=market)


def _asked(query: str, span: tuple[int, int], step_seconds: int) -> Range:
    if not query:
        raise WrongUseError("which series?", hint="give --query 'sum(rate(http_requests_total[5m]))'")
    return Range(query=query, since=span[0], until=span[1], step_seconds=step_seconds)


def _span(since: str, until: str, past: str, *, now: int | None = None) -> tuple[int, int]:
    end = _epoch(until, "--until") if until else int(time.time()) if now is None else now
    return (_epoch(since, "--since") if since else end - seconds_of(past, "--past")), end


def _epoch(text: str, name: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise WrongUseError(f"{name} {text!r} is not a time with its zone", hint="type it like 2026-06-01T00:00:00Z")
    return int(moment.timestamp())


def prometheus_session() -> Any:
    """A session with basic auth from the environment, so that no password stands on the command line."""
    import requests

    session = requests.Session()
    session.trust_env = False
    if os.environ.get(USER_ENV):
        username, password = (os.fsencode(os.environ.get(name, "")) for name in (USER_ENV, PASSWORD_ENV))
        session.auth = requests.auth.HTTPBasicAuth(username, password)  # of text, requests would send Latin-1
    return session


def _chart_seconds(found: Trace) -> int:
    """The interval of the charts: few enough points for a page that opens on a phone."""
    return max(60, (found.end - found.start) // POINTS_SHOWN // 60 * 60)
