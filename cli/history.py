"""history: what the runs of the fleet decided and did. It only reads."""

from __future__ import annotations

from typing import Any

import typer

from cli.output import print_json, say, table, working
from cli.target import JsonOption, Opening, on_cluster, seconds_of
from cli.times import clock
from node_fleet.adapters.records import Event
from node_fleet.domain.model.text import count_of
from simulator.report.story import QuietGroup, account_of, quiet_groups

HISTORY_AT = "30m"
"""With --local: the moment of the scenario at which its history is read. explain finds what history lists there."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Examples: node-fleet history --since 2h | node-fleet history --all --json")(history)


@on_cluster(at=HISTORY_AT)
def history(
    opening: Opening,
    *,
    since: str = typer.Option("24h", "--since", help="How far to look back, such as 2h or 7d."),
    everything: bool = typer.Option(False, "--all", help="Also list the runs that changed nothing, by reason."),
    as_json: JsonOption = False,
) -> None:
    """List scale-ups, scale-downs, interruptions, clean-ups and failures."""
    seconds = seconds_of(since, "--since")
    with opening as target, working("reading the recorded runs"):
        now = target.services.clock.now()
        found = target.services.records.events(now - seconds, now + 1)
    events = [one for one in found if is_notable(one)]
    if as_json:
        shown = found if everything else events
        print_json([{"at": one.at, "kind": one.kind, "key": one.key, "data": one.data} for one in shown])
        return
    if events:
        table("", ("time (UTC)", "what", "workers", "why or how", "execution"), [_event_row(one) for one in events])
    quiet = [(short(one.key), one.at, account_of(one.data)) for one in found if not is_notable(one)]
    if everything:
        columns = ("from (UTC)", "to", "runs", "why nothing changed", "executions")
        table("Runs that changed nothing", columns, [_quiet_row(one) for one in quiet_groups(quiet)])
    elif not events:
        text = f"no run changed anything within {since}"
        say(f"{text}; --all lists the reasons of {count_of(len(quiet), 'run')}" if quiet else text)


def _quiet_row(group: QuietGroup) -> tuple[str, ...]:
    begin, end = clock(group.first_at, day=True), clock(group.last_at, day=True)
    names = dict.fromkeys((group.first, group.last))
    return begin, end, str(group.runs), group.reason, " to ".join(names)


def is_notable(event: Event) -> bool:
    """True for everything but a decision that changed nothing and did not fail."""
    data = event.data
    dry_run = (data.get("outcome") or {}).get("kind") == "dry_run"
    return event.kind != "decision" or dry_run or bool(data.get("operation") or data.get("failure"))


def _event_row(event: Event) -> tuple[str, ...]:
    data = event.data
    when = clock(event.at, day=True)
    if event.kind != "decision":
        return when, event.kind.replace("_", " "), "", str(data.get("text", "")), event.key
    account = account_of(data)
    before, after = ("" if account.before is None else str(account.before)), account.after
    workers = f"{before} → {after}" if after is not None and str(after) != before else before
    what = f"{account.what}, failed" if data.get("failure") else account.what
    return when, what, workers, account.text, short(event.key)


def decision_of(event: Event) -> dict[str, Any]:
    """The decision that a recorded run carries."""
    found: dict[str, Any] = event.data.get("decision") or {}
    return found


def short(execution: str) -> str:
    """The name at the end of an execution's ARN."""
    return execution.rsplit(":", 1)[-1]
