"""The frontier of cost and waiting: a grid of prices of the preset `adaptive`, and what a change of them would bring.

Each setting of the grid keeps everything else of the configuration.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from backtest.compare import Study, preset_settings
from backtest.measures import Measures
from node_fleet.settings import Settings

WAIT_COSTS = (1.0, 4.0, 8.0)
CHANGE_COSTS = (10.0, 21.0, 60.0)
PEERS = ("cluster-autoscaler", "karpenter", "target-tracking-50")


def frontier_settings(settings: Settings) -> dict[str, Settings]:
    """The grid, by the text that `--set` takes; without the configuration itself."""
    is_adaptive = settings.strategy == "adaptive"
    base = settings if is_adaptive else preset_settings("adaptive", settings)
    grid = {
        f"{'' if is_adaptive else 'preset=adaptive '}wait_cost={wait:g} change_cost={change:g}": replace(
            base, wait_cost=wait, change_cost=change
        )
        for wait, change in itertools.product(WAIT_COSTS, CHANGE_COSTS)
    }
    return {name: each for name, each in grid.items() if each != settings}


def recommended(study: Study, grid: dict[str, Settings]) -> Measures | None:
    """The setting with the lowest bill and no more waiting and changes than the present one; None if there is none."""
    now = study.configured
    better = [
        m
        for m in study.results
        if m.policy in grid
        and m.avoidable_per_day <= now.avoidable_per_day
        and m.changes_per_day <= now.changes_per_day
        and study.cost(m).usd < study.cost(now).usd
    ]
    return min(better, key=lambda m: study.cost(m).usd, default=None)


def recommendation(study: Study, grid: dict[str, Settings]) -> str:
    """The recommended setting and its effect in one sentence."""
    now, found = study.configured, recommended(study, grid)
    if found is None:
        return (
            "keep these settings: none of the grid has a lower bill without more waiting or more changes of direction"
        )
    saved = 100 * (1 - study.cost(found).usd / study.cost(now).usd)
    return (
        f"set {found.policy}: the bill is {saved:.1f} % lower, avoidable pending pod-minutes a day "
        f"{now.avoidable_per_day:.1f} -> {found.avoidable_per_day:.1f}, changes of direction a day "
        f"{now.changes_per_day:.1f} -> {found.changes_per_day:.1f}"
    )
