"""Completion of arguments: scenarios, policies and settings. Those of a cluster are in cluster_completion."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields


def scenarios(incomplete: str) -> list[str]:
    """Shipped scenarios."""
    from simulator.scenario.files import scenario_names

    return matching(scenario_names(), incomplete)


def policies(incomplete: str) -> list[str]:
    """The policies that a back-test compares."""
    from backtest.compare import policy_names

    return matching(policy_names(), incomplete)


def settings(incomplete: str) -> list[str]:
    """`name=` of every setting, and the values of those that have a list: presets, strategies."""
    from node_fleet.domain.model.setting import spec_of
    from node_fleet.settings import Settings

    name, given, _ = incomplete.partition("=")
    if given:
        found = (spec_of(one).choices for one in fields(Settings) if one.name == name)
        return matching([f"{name}={value}" for value in next(found, ())], incomplete)
    return matching([f"{one.name}=" for one in fields(Settings)], incomplete)


def matching(words: Iterable[str], incomplete: str) -> list[str]:
    """The words that begin so."""
    return [one for one in words if one.startswith(incomplete)]
