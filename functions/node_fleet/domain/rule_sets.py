"""The rule sets that SIZING chooses among, by name."""

from __future__ import annotations

from node_fleet.domain.adaptive import adaptive
from node_fleet.domain.sizing import RuleSet, steps

RULE_SETS: dict[str, RuleSet] = {"steps": steps, "adaptive": adaptive}
