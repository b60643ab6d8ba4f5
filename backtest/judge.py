"""Judges settings on loads that did not choose them, against the references: traces of a folder and generated loads.

python -m backtest.judge FOLDER [--choose NAME=VALUE,VALUE ...] [--peers NAME ...] [--seeds 2] [--minutes 5] [--days 14]

Each trace, and each family of generated loads, is held out once: the other ones choose among the settings, and the held
out loads show what the choice is worth. Differences to each peer have a bootstrap interval over the loads.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from backtest.compare import REFERENCES, Assumptions, Study, study
from backtest.generated import generated_traces
from backtest.measures import Measures
from backtest.trace import DAY_SECONDS, Trace, read_trace
from node_fleet.domain.model.value_class import value_class
from node_fleet.settings import Settings

PEERS = ("cluster-autoscaler", "target-tracking-50", "karpenter", "karpenter-balanced")
CLAUSE_PEER = PEERS[0]
RESAMPLES = 2000
WORST_WAITING, WORST_CHANGES = 250.0, 50.0
TRACES = "traces"


class Figures(NamedTuple):
    """Cost as a multiple of the clairvoyant fleet's, avoidable pending pod-minutes a day, changes of direction a day.

    usd: the whole bill as a multiple of the clairvoyant fleet's.
    """

    cost: float
    waiting: float
    changes: float
    usd: float


@value_class
class Judged:
    """One load: its group (the traces or a family), and the figures of each setting and of each peer."""

    name: str
    group: str
    settings: Mapping[str, Figures]
    peers: Mapping[str, Figures]


def main(arguments: list[str] | None = None) -> None:
    """Replay every load under every setting and peer, and print the judgement."""
    given = _parser().parse_args(arguments)
    choices = combinations(dict(pair.split("=", 1) for pair in given.choose))
    judged: list[Judged] = []
    for group, trace in _loads(given):
        judged.append(judge(trace, group, choices, given.peers))
        shown = (f"{name}: {_shown(figures)}" for name, figures in judged[-1].settings.items())
        sys.stdout.write(f"{judged[-1].name}\n" + "".join(f"    {line}\n" for line in shown))
        sys.stdout.flush()
    sys.stdout.write(report(judged, given.peers))


def combinations(values: Mapping[str, str]) -> dict[str, Settings]:
    """Every combination of the values, by its text; the shipped values where none are given."""
    named = [[f"{name}={value}" for value in each.split(",")] for name, each in values.items()]
    return {
        " ".join(pairs) or "shipped": Settings.from_mapping(
            {"preset": "adaptive", **dict(pair.split("=", 1) for pair in pairs)}
        )
        for pairs in itertools.product(*named)
    }


def judge(trace: Trace, group: str, choices: Mapping[str, Settings], peers: Iterable[str]) -> Judged:
    """Replay one load under every setting and every peer."""
    names = list(choices)
    first, *others = choices.values()
    found = study(trace, first, Assumptions(), peers, configurations=dict(zip(names[1:], others, strict=True)))
    figures = [_figures(found, measures) for measures in found.results]
    return Judged(
        name=found.load.name,
        group=group,
        settings=dict(zip(names, figures, strict=False)),
        peers={m.policy: f for m, f in zip(found.results, figures, strict=True) if m.policy in REFERENCES},
    )


def _figures(found: Study, measures: Measures) -> Figures:
    return Figures(
        cost=found.times_bound(measures),
        waiting=measures.avoidable_per_day,
        changes=measures.changes_per_day,
        usd=found.cost(measures).usd / found.cost(found.bound).usd,
    )


def chosen(judged: Sequence[Judged]) -> str:
    """The cheapest setting with at most half of the peer's waiting and no more changes; else the nearest to that.

    The traces and the generated loads are two sides, each with the means of its loads.
    """
    sides = [side for side in ([j for j in judged if is_trace(j)], [j for j in judged if not is_trace(j)]) if side]

    def missed_and_cost(name: str) -> tuple[float, float]:
        missed = cost = 0.0
        for side in sides:
            mine, theirs = means(j.settings[name] for j in side), means(j.peers[CLAUSE_PEER] for j in side)
            missed += _over(mine.waiting, theirs.waiting / 2) + _over(mine.changes, theirs.changes)
            cost += mine.cost / theirs.cost
        return missed, cost

    return min(judged[0].settings, key=missed_and_cost)


def _over(value: float, limit: float) -> float:
    return max(0.0, value / limit - 1) if limit else value


def is_trace(judged: Judged) -> bool:
    return judged.group == TRACES


def out_of_fold(judged: Sequence[Judged]) -> dict[str, tuple[str, Figures]]:
    """Load -> the setting that the other traces and families choose, and its figures on this load."""
    found = {}
    for one in judged:
        others = [j for j in judged if (j.name != one.name if is_trace(one) else j.group != one.group)]
        setting = chosen(others or judged)
        found[one.name] = (setting, one.settings[setting])
    return found


def means(figures: Iterable[Figures]) -> Figures:
    """The mean of each figure."""
    return Figures(*(fmean(column) for column in zip(*figures, strict=True)))


def interval(differences: Sequence[float], *, seed: int = 1) -> tuple[float, float]:
    """The 95 % bootstrap interval of the mean of paired differences, over resampled loads."""
    chance = random.Random(seed)
    resampled = sorted(fmean(chance.choices(differences, k=len(differences))) for _ in range(RESAMPLES))
    return resampled[RESAMPLES // 40], resampled[-1 - RESAMPLES // 40]


def report(judged: Sequence[Judged], peers: Sequence[str]) -> str:
    """The judgement as text: what each fold chose, means, differences with intervals, the worst trace, the clause."""
    folds = out_of_fold(judged)
    kind = "out of fold" if len(judged[0].settings) > 1 else "one setting"
    lines = ["", f"{'load':36} {'chosen by the others':28} cost  waiting  changes   USD"]
    lines += [f"{name:36} {setting:28} {_shown(figures)}" for name, (setting, figures) in folds.items()]
    for title, side in (
        ("traces", [j for j in judged if is_trace(j)]),
        ("generated", [j for j in judged if not is_trace(j)]),
    ):
        if side:
            lines += ["", f"{title} ({len(side)}), {kind}: means", *_side(side, folds, peers)]
    lines += ["", f"chosen by all: {chosen(judged)}", ""]
    return "\n".join(lines)


def _side(side: Sequence[Judged], folds: Mapping[str, tuple[str, Figures]], peers: Sequence[str]) -> list[str]:
    mine = [folds[j.name][1] for j in side]
    lines = [f"{'adaptive':24} {_shown(means(mine))}"]
    for peer in peers:
        theirs = [j.peers[peer] for j in side]
        lines.append(f"{peer:24} {_shown(means(theirs))}")
        for index, name in enumerate(Figures._fields):
            differences = [a[index] - b[index] for a, b in zip(mine, theirs, strict=True)]
            low, high = interval(differences)
            lines.append(f"    {name:8} difference {fmean(differences):+8.3f}  [{low:+.3f}, {high:+.3f}]")
    worst = max(mine, key=lambda f: f.waiting), max(mine, key=lambda f: f.changes)
    lines.append(f"worst load: {worst[0].waiting:.0f} pod-minutes a day, {worst[1].changes:.0f} changes a day")
    if CLAUSE_PEER in peers:
        lines += _clause(means(mine), means(j.peers[CLAUSE_PEER] for j in side))
    return lines


def _clause(mine: Figures, theirs: Figures) -> list[str]:
    parts: tuple[tuple[str, float, float], ...] = (
        (f"cost at most that of {CLAUSE_PEER}", mine.cost, theirs.cost),
        ("at most half of its waiting", mine.waiting, theirs.waiting / 2),
        ("no more changes", mine.changes, theirs.changes),
    )
    return [
        f"{'holds' if value <= limit else 'FAILS':6} {text}: {value:.3f}, limit {limit:.3f}"
        for text, value, limit in parts
    ]


def _shown(figures: Figures) -> str:
    return f"{figures.cost:6.3f} {figures.waiting:7.1f} {figures.changes:7.1f} {figures.usd:7.3f}"


def _loads(given: argparse.Namespace) -> Iterable[tuple[str, Trace]]:
    for path in sorted(Path(given.folder).glob("*.csv*")):
        trace = read_trace(path)
        yield TRACES, trace.between(0, trace.start + given.days * DAY_SECONDS) if given.days else trace
    for trace in generated_traces(range(given.first_seed, given.first_seed + given.seeds), minutes=given.minutes):
        yield trace.name.rpartition("_")[0], trace


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m backtest.judge")
    parser.add_argument("folder", help="the folder of the traces")
    parser.add_argument("--choose", nargs="*", default=[], metavar="NAME=VALUE,VALUE", help="settings to choose among")
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=list(REFERENCES), metavar="NAME")
    parser.add_argument("--days", type=int, default=0, help="only so many days of each trace from its start")
    parser.add_argument("--seeds", type=int, default=2, help="generated loads of each family")
    parser.add_argument(
        "--first-seed", type=int, default=0, help="of the generated loads; another one gives other loads"
    )
    parser.add_argument("--minutes", type=int, default=5, help="interval of the readings of a generated load")
    return parser


if __name__ == "__main__":
    main()
