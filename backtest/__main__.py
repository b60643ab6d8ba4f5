"""Writes the tables of docs/backtest.md: every policy on every trace of a folder, and the means.

python -m backtest FOLDER [POLICY ...] [--write docs/backtest.md] [--part first] [--boot 180] [--jump] ...
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean

from backtest.compare import CONFIGURED, Assumptions, Study, policy_names, study
from backtest.measures import Measures
from backtest.model import Capacity, Scaling
from backtest.trace import read_trace
from node_fleet.domain.model.value_class import value_class
from node_fleet.settings import Settings

BEGIN, END = "<!-- written from the code: backtest -->", "<!-- end -->"
MEAN = "mean"


@value_class
class Figure:
    """One policy on one trace: the three compared measures, and minutes of overload and USD a day."""

    trace: str
    policy: str
    times_bound: float
    avoidable: float
    changes_of_direction: float
    overload: float
    instances_usd: float
    usd: float


TABLES: tuple[tuple[str, Callable[[Figure], str]], ...] = (
    ("Worker-hours, times the clairvoyant fleet's", lambda f: f"{f.times_bound:.3f}"),
    ("Avoidable pending pod-minutes a day", lambda f: f"{f.avoidable:.1f}"),
    ("Changes of direction a day", lambda f: f"{f.changes_of_direction:.1f}"),
    ("USD a day, the instances alone", lambda f: f"{f.instances_usd:.3f}"),
    ("USD a day, with volumes, public addresses and CPU credits", lambda f: f"{f.usd:.3f}"),
)


def main(arguments: list[str] | None = None) -> None:
    """Replay every trace, print the figures, and write the tables if --write names a document."""
    given = _parser().parse_args(arguments)
    figures: list[Figure] = []
    for path in sorted(Path(given.folder).glob("*.csv*")):
        new = list(_figures(path, given))
        sys.stdout.writelines(_line(figure) for figure in new)
        sys.stdout.flush()
        figures += new
    found = [*figures, *means(figures)]
    sys.stdout.writelines(_line(figure) for figure in found if figure.trace == MEAN)
    if given.write:
        write_between_marks(Path(given.write), found)


def means(figures: Iterable[Figure]) -> list[Figure]:
    """The mean of each policy over the traces; each trace has the same weight."""
    by_policy: dict[str, list[Figure]] = {}
    for figure in figures:
        by_policy.setdefault(figure.policy, []).append(figure)
    return [
        Figure(
            trace=MEAN,
            policy=policy,
            times_bound=fmean(f.times_bound for f in found),
            avoidable=fmean(f.avoidable for f in found),
            changes_of_direction=fmean(f.changes_of_direction for f in found),
            overload=fmean(f.overload for f in found),
            instances_usd=fmean(f.instances_usd for f in found),
            usd=fmean(f.usd for f in found),
        )
        for policy, found in by_policy.items()
    ]


def markdown(figures: list[Figure], before: str = "") -> str:
    """One table for each measure, with a row for each policy and a column for each trace.

    Policies without figures keep their rows from `before` if its tables have the same traces.
    """
    traces = list(dict.fromkeys(figure.trace for figure in figures))
    cells = {(figure.policy, figure.trace): figure for figure in figures}
    head = f"| policy | {' | '.join(_short(t) for t in traces)} |"
    tables = []
    for title, shown in TABLES:
        rows = _rows_under(before, title, head)
        for policy in dict.fromkeys(figure.policy for figure in figures):
            rows[policy] = f"| {policy} | {' | '.join(shown(cells[policy, t]) for t in traces)} |"
        ordered = sorted(rows, key=(*policy_names(), *rows).index)
        lines = [f"**{title}**", "", head, "|---|" + "---:|" * len(traces), *(rows[name] for name in ordered)]
        tables.append("\n".join(lines))
    return "\n\n".join(tables)


def _rows_under(text: str, title: str, head: str) -> dict[str, str]:
    """Policy -> its row in the table with this title and these columns."""
    _, _, rest = text.partition(f"**{title}**\n\n{head}\n")
    lines = itertools.takewhile(lambda line: line.startswith("|"), rest.splitlines())
    return {line.split(" | ")[0].removeprefix("| "): line for line in lines if not line.startswith("|---")}


def write_between_marks(path: Path, figures: list[Figure]) -> None:
    """Replace the tables between the two marks of a document."""
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    old, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n\n{markdown(figures, old)}\n\n{END}{after}", encoding="utf-8")


def _figures(path: Path, given: argparse.Namespace) -> Iterable[Figure]:
    settings = Settings.from_mapping(dict(pair.split("=", 1) for pair in given.set))
    trace = read_trace(path)
    assumptions = Assumptions(
        capacity=Capacity(boot_seconds=given.boot),
        scaling=Scaling(interpolation="jump" if given.jump else "ramp", stabilization_seconds=given.stay_up),
    ).with_unit_of(trace)
    middle = int(trace.start + (trace.end - trace.start) * given.share)
    if given.part:
        trace = trace.between(*((0, middle) if given.part == "first" else (middle, trace.end + 1)))
    found = study(trace, settings, assumptions, given.policies or policy_names())
    return [_figure(found, m) for m in found.results if given.set or m.policy != CONFIGURED]


def _figure(found: Study, measures: Measures) -> Figure:
    return Figure(
        trace=found.load.name,
        policy=measures.policy,
        times_bound=found.times_bound(measures),
        avoidable=measures.avoidable_per_day,
        changes_of_direction=measures.changes_per_day,
        overload=measures.overload_minutes / measures.days,
        instances_usd=(found.instances_usd(measures) or 0.0) / measures.days,
        usd=found.cost(measures).usd / measures.days,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m backtest")
    parser.add_argument("folder")
    parser.add_argument("policies", nargs="*", metavar="POLICY", help=f"all when none is given: {policy_names()}")
    parser.add_argument("--boot", type=int, default=Capacity().boot_seconds, help="boot delay in seconds")
    parser.add_argument("--jump", action="store_true", help="the load jumps from reading to reading")
    parser.add_argument("--stay-up", type=int, default=0, help="stabilization window of the replicas in seconds")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="also replay these settings")
    parser.add_argument("--part", choices=("first", "second"), help="only this part of each trace")
    parser.add_argument("--share", type=float, default=0.5, help="share of each trace in the first part")
    parser.add_argument("--write", default="", metavar="FILE", help="the document whose tables to update")
    return parser


def _line(f: Figure) -> str:
    figures = f"{f.times_bound:6.3f} {f.avoidable:8.1f} {f.changes_of_direction:6.1f} {f.overload:7.1f}"
    return f"{f.trace:30} {f.policy:20} {figures}\n"


def _short(trace: str) -> str:
    return trace.removeprefix("nab_").removesuffix("_5min").removesuffix("_1min")


if __name__ == "__main__":
    main()
