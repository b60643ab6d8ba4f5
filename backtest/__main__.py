"""Makes the tables of docs/backtest.md: every trace of a folder under every policy, and the means.

python -m backtest FOLDER [POLICY ...] [--write docs/backtest.md] [--part first] [--boot 180] [--jump] ...
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from backtest.compare import MINE, Assumptions, Study, policy_names, study
from backtest.measures import Measures
from backtest.model import Capacity, Scaling
from backtest.trace import read_csv
from node_fleet.settings import Settings

BEGIN, END = "<!-- written from the code: backtest -->", "<!-- end -->"
MEAN = "mean"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One policy on one trace: the three measures that are compared, and minutes of overload a day."""

    trace: str
    policy: str
    times_bound: float
    avoidable: float
    turns: float
    overload: float


TABLES: tuple[tuple[str, Callable[[Figure], str]], ...] = (
    ("Worker-hours, times the clairvoyant fleet's", lambda f: f"{f.times_bound:.3f}"),
    ("Avoidable pending pod-minutes a day", lambda f: f"{f.avoidable:.1f}"),
    ("Changes of direction a day", lambda f: f"{f.turns:.1f}"),
)


def main(words: list[str] | None = None) -> None:
    """Read the words typed, replay, print; write the tables where asked."""
    given = _parser().parse_args(words)
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
    """The mean over the traces, policy by policy; each trace counts the same."""
    by_policy: dict[str, list[Figure]] = {}
    for figure in figures:
        by_policy.setdefault(figure.policy, []).append(figure)
    return [
        Figure(
            trace=MEAN,
            policy=policy,
            times_bound=fmean(f.times_bound for f in found),
            avoidable=fmean(f.avoidable for f in found),
            turns=fmean(f.turns for f in found),
            overload=fmean(f.overload for f in found),
        )
        for policy, found in by_policy.items()
    ]


def markdown(figures: list[Figure], before: str = "") -> str:
    """One table for each measure: policies down, traces across, the mean last.

    Rows of policies that are not in the figures are kept from `before`, if its tables have the same traces.
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
    """Policy -> its row in the table of that title and those columns."""
    _, _, rest = text.partition(f"**{title}**\n\n{head}\n")
    lines = itertools.takewhile(lambda line: line.startswith("|"), rest.splitlines())
    return {line.split(" | ")[0].removeprefix("| "): line for line in lines if not line.startswith("|---")}


def write_between_marks(path: Path, figures: list[Figure]) -> None:
    """Bring the tables between the two marks of a document up to date."""
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    old, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n\n{markdown(figures, old)}\n\n{END}{after}", encoding="utf-8")


def _figures(path: Path, given: argparse.Namespace) -> Iterable[Figure]:
    settings = Settings.from_mapping(dict(pair.split("=", 1) for pair in given.set))
    trace = read_csv(path)
    assumptions = Assumptions(
        capacity=Capacity(boot_seconds=given.boot),
        scaling=Scaling(interpolation="jump" if given.jump else "ramp", stay_up_seconds=given.stay_up),
    ).fixed_to(trace)
    middle = int(trace.start + (trace.end - trace.start) * given.share)
    if given.part:
        trace = trace.between(*((0, middle) if given.part == "first" else (middle, trace.end + 1)))
    found = study(trace, settings, assumptions, given.policies or policy_names())
    return [_figure(found, m) for m in found.results if given.set or m.policy != MINE]


def _figure(found: Study, measures: Measures) -> Figure:
    return Figure(
        trace=found.load.name,
        policy=measures.policy,
        times_bound=found.times_bound(measures),
        avoidable=measures.avoidable_per_day,
        turns=measures.changes_per_day,
        overload=measures.overload_minutes / measures.days,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m backtest")
    parser.add_argument("folder")
    parser.add_argument("policies", nargs="*", metavar="POLICY", help=f"all when none is given: {policy_names()}")
    parser.add_argument("--boot", type=int, default=Capacity().boot_seconds, help="boot delay in seconds")
    parser.add_argument("--jump", action="store_true", help="load jumps from reading to reading")
    parser.add_argument("--stay-up", type=int, default=0, help="seconds that replicas stay up")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="a configuration of one's own")
    parser.add_argument("--part", choices=("first", "second"), help="only this part of each trace")
    parser.add_argument("--share", type=float, default=0.5, help="where the two parts divide")
    parser.add_argument("--write", default="", metavar="FILE", help="bring this document's tables up to date")
    return parser


def _line(f: Figure) -> str:
    return f"{f.trace:30} {f.policy:20} {f.times_bound:6.3f} {f.avoidable:8.1f} {f.turns:6.1f} {f.overload:7.1f}\n"


def _short(trace: str) -> str:
    return trace.removeprefix("nab_").removesuffix("_5min").removesuffix("_1min")


if __name__ == "__main__":
    main()
