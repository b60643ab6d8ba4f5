"""windows: the next times at which the budgets and removal windows allow a worker to be removed or replaced.

It computes and prints; no cluster is changed.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from cli.configured import cluster_named
from cli.output import print_json, say, table
from cli.target import JsonOption, on_cluster
from cli.target import Opening as TargetOpening
from node_fleet.domain.disruption.budgets import HORIZON_DAYS, Opening, next_openings
from node_fleet.domain.model.budget import REASONS, Reason
from node_fleet.domain.model.local_time import zone
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.text import count_of, span
from node_fleet.domain.model.value_class import value_class

SHOWN = 5


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Examples: node-fleet windows | node-fleet windows --configured | node-fleet windows --json")(
        windows
    )


@value_class
class Windows:
    """The next openings for reasons that have the same ones."""

    reasons: tuple[Reason, ...]
    openings: tuple[Opening, ...]


@on_cluster(at="14m")
def windows(
    opening: TargetOpening,
    *,
    cluster: str,
    configured: Annotated[bool, typer.Option("--configured", help="Use cdk.json, not the deployed settings.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the next five times at which workers may be removed or replaced, with changes of the clock marked."""
    if configured:
        policy, now = cluster_named(cluster).settings.policy(), int(time.time())
        workers = policy.min_workers
    else:
        with opening as target:
            policy = target.services.settings.policy()
            workers, now = len(target.services.ec2.instances()), target.services.clock.now()
    found = next_windows(policy, now=now, workers=workers)
    if as_json:
        print_json(as_data(policy, found, workers))
        return
    for budget in policy.budgets:
        say(budget.text)
    if not policy.budgets:
        say("no budget and no removal window is set: budgets hold back no worker")
        return
    say()
    for group in found:
        _show(policy, group, workers)


def next_windows(policy: Policy, *, now: int, workers: int) -> list[Windows]:
    """The next openings for each reason, reasons with the same openings together."""
    groups: dict[tuple[Opening, ...], list[Reason]] = {}
    for reason in REASONS:
        openings = tuple(next_openings(policy.budgets, reason, now=now, workers=workers, count=SHOWN))
        groups.setdefault(openings, []).append(reason)
    return [Windows(reasons=tuple(reasons), openings=openings) for openings, reasons in groups.items()]


def as_data(policy: Policy, found: Iterable[Windows], workers: int) -> dict[str, Any]:
    """The same as plain data. Times are epoch seconds."""
    return {
        "timezone": policy.timezone,
        "workers": workers,
        "budgets": [b.text for b in policy.budgets],
        "windows": [
            {
                "reasons": list(group.reasons),
                "openings": [
                    {"start": o.start, "end": o.end, "limit": o.limit, "clock_changes": list(o.jumps)}
                    for o in group.openings
                ],
            }
            for group in found
        ],
    }


def _show(policy: Policy, group: Windows, workers: int) -> None:
    title = f"{', '.join(group.reasons)} (times in {policy.timezone}, {count_of(workers, 'worker')})"
    if not group.openings:
        say(f"{title}: no opening within {HORIZON_DAYS} days; these workers stay until a budget is changed")
        return
    columns = ("opens", "closes", "length", "at most", "clock change")
    table(title, columns, [opening_row(opening, policy.timezone) for opening in group.openings])


def opening_row(opening: Opening, timezone: str) -> tuple[str, ...]:
    """An opening in local time; a change of the clock on its days is marked."""
    end = opening.end
    return (
        _local(opening.start, timezone),
        "no end" if end is None else _closing(opening.start, end, timezone),
        "" if end is None else span(end - opening.start),
        str(opening.limit),
        "; ".join(_jump(at, timezone) for at in opening.jumps),
    )


def _local(at: int, timezone: str) -> str:
    return f"{dt.datetime.fromtimestamp(at, zone(timezone)):%a %Y-%m-%d %H:%M %Z}"


def _closing(start: int, end: int, timezone: str) -> str:
    """The end, with its day only when it is another one: a change of the clock fits beside it on a narrow terminal."""
    opens, closes = (dt.datetime.fromtimestamp(at, zone(timezone)) for at in (start, end))
    return f"{closes:%H:%M %Z}" if opens.date() == closes.date() else _local(end, timezone)


def _jump(at: int, timezone: str) -> str:
    before, after = (dt.datetime.fromtimestamp(when, zone(timezone)) for when in (at - 1, at))
    if before.utcoffset() == after.utcoffset():
        return f"in another zone at {after:%H:%M}"
    skipped = (after.utcoffset() or dt.timedelta()) - (before.utcoffset() or dt.timedelta())
    way = "forward" if skipped > dt.timedelta() else "back"
    return f"{before + dt.timedelta(seconds=1):%a %H:%M} {way} to {after:%H:%M}"
