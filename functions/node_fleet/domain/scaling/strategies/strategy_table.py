"""The rule sets that SIZING chooses among, by name."""

from __future__ import annotations

from node_fleet.domain.scaling.signals.pending_pods import Demand
from node_fleet.domain.scaling.strategies.thresholds import RuleSet, Wanted, steps
from node_fleet.domain.scaling.tick import Tick


def _adaptive(view: Tick, demand: Demand | None, floor: int) -> Wanted:
    from node_fleet.domain.scaling.strategies.adaptive.strategy import (
        adaptive,  # a start with another rule set does without it
    )

    return adaptive(view, demand, floor)


RULE_SETS: dict[str, RuleSet] = {"steps": steps, "adaptive": _adaptive}
