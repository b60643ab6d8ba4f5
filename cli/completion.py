"""Completion of arguments: scenarios, policies, settings, workers and runs. A completion that fails offers nothing."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields

import typer

DAY_SECONDS = 86_400
RUNS_OFFERED = 20


def scenarios(incomplete: str) -> list[str]:
    """Shipped scenarios."""
    from simulator.scenario.files import scenario_names

    return _matching(scenario_names(), incomplete)


def policies(incomplete: str) -> list[str]:
    """The policies that a back-test compares."""
    from backtest.compare import policy_names

    return _matching(policy_names(), incomplete)


def settings(incomplete: str) -> list[str]:
    """`name=` of every setting, and the values of those that have a list: presets, strategies."""
    from node_fleet.domain.model.setting import spec_of
    from node_fleet.settings import Settings

    name, given, _ = incomplete.partition("=")
    if given:
        found = (spec_of(one).choices for one in fields(Settings) if one.name == name)
        return _matching([f"{name}={value}" for value in next(found, ())], incomplete)
    return _matching([f"{one.name}=" for one in fields(Settings)], incomplete)


def subjects(context: typer.Context, incomplete: str) -> list[str]:
    """What explain takes: now, the workers, and the last runs of the deployed cluster."""
    found = ["now"]
    with suppress(Exception):  # no credentials, no cluster, no network: the shell gets what is known without them
        from cli.status import short
        from cli.target import DEFAULT_CLUSTER, Deployed

        given = context.params
        services = Deployed(given.get("cluster") or DEFAULT_CLUSTER, given.get("region") or "").services
        now = services.clock.now()
        found += [one.instance_id for one in services.ec2.instances()]
        runs = services.records.events(now - DAY_SECONDS, now + 1, kind="decision")
        found += [short(one.key) for one in reversed(runs[-RUNS_OFFERED:])]
    return _matching(found, incomplete)


def workers(context: typer.Context, incomplete: str) -> list[str]:
    """The workers of the deployed cluster."""
    return [one for one in subjects(context, incomplete) if one.startswith("i-")]


def _matching(words: Iterable[str], incomplete: str) -> list[str]:
    return [one for one in words if one.startswith(incomplete)]
