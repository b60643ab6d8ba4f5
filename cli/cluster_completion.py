"""Completion of workers and runs of the deployed cluster. Without an account or a network it offers nothing of them."""

from __future__ import annotations

from contextlib import suppress

import typer

from cli.completion import matching
from cli.history import short
from cli.target import DEFAULT_CLUSTER, Deployed
from cli.times import DAY_SECONDS

RUNS_OFFERED = 20


def subjects(context: typer.Context, incomplete: str) -> list[str]:
    """What explain takes: now, the workers, and the last runs of the deployed cluster."""
    found = ["now"]
    with suppress(Exception):  # no credentials, no cluster, no network: the shell gets what is known without them
        given = context.params
        services = Deployed(given.get("cluster") or DEFAULT_CLUSTER, given.get("region") or "").services
        now = services.clock.now()
        found += [one.instance_id for one in services.ec2.instances()]
        runs = services.records.events(now - DAY_SECONDS, now + 1, kind="decision")
        found += [short(one.key) for one in reversed(runs[-RUNS_OFFERED:])]
    return matching(found, incomplete)


def workers(context: typer.Context, incomplete: str) -> list[str]:
    """The workers of the deployed cluster."""
    return [one for one in subjects(context, incomplete) if one.startswith("i-")]
