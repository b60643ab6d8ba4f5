"""Prints the table of docs/backtest.md: every trace of a folder under every policy named, and the means.

python -m simulator.backtest FOLDER [POLICY ...] [--boot S] [--jump] [--stay-up S] [--set NAME=VALUE ...]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean

from node_fleet.settings import Settings
from simulator.backtest.compare import Assumptions, Study, policy_names, study
from simulator.backtest.measures import Measures
from simulator.backtest.model import Capacity, Scaling
from simulator.backtest.trace import read_csv

Row = tuple[str, str, float, float, float, float]


def main(words: list[str] | None = None) -> None:
    """Read the words typed, replay, print."""
    given = _parser().parse_args(words)
    settings = Settings.from_mapping(dict(pair.split("=", 1) for pair in given.set))
    assumptions = Assumptions(
        capacity=Capacity(boot_seconds=given.boot),
        scaling=Scaling(interpolation="jump" if given.jump else "ramp", stay_up_seconds=given.stay_up),
    )
    rows: list[Row] = []
    for path in sorted(Path(given.folder).glob("*.csv*")):
        trace = read_csv(path)
        stated = assumptions.fixed_to(trace)
        part = int(trace.start + (trace.end - trace.start) * given.share)
        if given.part:
            trace = trace.between(*((0, part) if given.part == "first" else (part, trace.end + 1)))
        found = study(trace, settings, stated, given.policies)
        new = [_row(found, measures) for measures in found.results if given.set or measures is not found.mine]
        sys.stdout.writelines(_line(row) for row in new)
        sys.stdout.flush()
        rows += new
    sys.stdout.writelines(_line(row) for row in means(rows))


def means(rows: Iterable[Row]) -> list[Row]:
    """The mean over the traces, policy by policy."""
    by_policy: dict[str, list[Row]] = {}
    for row in rows:
        by_policy.setdefault(row[1], []).append(row)
    return [
        (
            "mean",
            name,
            fmean(r[2] for r in found),
            fmean(r[3] for r in found),
            fmean(r[4] for r in found),
            fmean(r[5] for r in found),
        )
        for name, found in by_policy.items()
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m simulator.backtest")
    parser.add_argument("folder")
    parser.add_argument("policies", nargs="*", metavar="POLICY", help=", ".join(policy_names()))
    parser.add_argument("--boot", type=int, default=Capacity().boot_seconds)
    parser.add_argument("--jump", action="store_true")
    parser.add_argument("--stay-up", type=int, default=0)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--part", choices=("first", "second"), help="only this part of each trace")
    parser.add_argument("--share", type=float, default=0.5, help="where the parts divide")
    return parser


def _row(found: Study, measures: Measures) -> Row:
    return (
        found.load.name,
        measures.policy,
        found.times_bound(measures),
        measures.avoidable_per_day,
        measures.changes_per_day,
        measures.overload_minutes / measures.days,
    )


def _line(row: Row) -> str:
    trace, policy, cost, waiting, changes, overload = row
    return f"{trace:30} {policy:20} {cost:6.3f} {waiting:8.1f} {changes:6.1f} {overload:7.1f}\n"


if __name__ == "__main__":
    main()
