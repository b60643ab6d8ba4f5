"""The rule sets that SIZING chooses among, by name."""

from __future__ import annotations

from node_fleet.domain.demand import Demand
from node_fleet.domain.sizing import RuleSet, Wanted, steps
from node_fleet.domain.view import View


def _adaptive(view: View, demand: Demand | None, floor: int) -> Wanted:
    from node_fleet.domain.adaptive import adaptive  # a start with another rule set does without it

    return adaptive(view, demand, floor)


RULE_SETS: dict[str, RuleSet] = {"steps": steps, "adaptive": _adaptive}
