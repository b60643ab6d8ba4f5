"""status: the state of the fleet. It only reads."""

from __future__ import annotations

from typing import Any

import typer

from cli.cluster_status import ClusterStatus, read_status
from cli.history import decision_of
from cli.output import facts, print_json, say, table, working
from cli.status_rows import status_rows, worker_rows
from cli.target import JsonOption, Opening, on_cluster
from node_fleet.payload import to_payload


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Examples: node-fleet status | node-fleet status --local --at 20m | node-fleet status --json")(
        status
    )


@on_cluster(at="14m")
def status(
    opening: Opening,
    *,
    as_json: JsonOption = False,
) -> None:
    """Show the fleet, the lock, the last decision and why, cooldowns, the circuit breaker, and the next schedule."""
    with opening as target, working("reading the state item, the instances and the last decision"):
        found = read_status(target)
    if as_json:
        print_json(as_data(found))
        return
    facts(status_rows(found), title=found.place)
    say()
    images = ("images",) if any(one.images for one in found.instances) else ()
    table("Workers", ("instance", "zone", "type", "market", "state", "age", *images, "notice"), worker_rows(found))


def as_data(found: ClusterStatus) -> dict[str, Any]:
    """The same as plain data."""
    return {
        "cluster": found.settings.cluster_id,
        "at": found.now,
        "state": to_payload(found.state),
        "instances": [to_payload(one) for one in found.instances],
        "standby": [to_payload(one) for one in found.standby],
        "usd_per_hour": found.hourly_cost.usd,
        "missing": list(found.hourly_cost.missing),
        "last_decision": None if found.last is None else {"at": found.last.at, **decision_of(found.last)},
        "summary": dict(status_rows(found)),
    }
