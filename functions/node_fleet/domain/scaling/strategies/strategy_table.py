"""The rule sets that STRATEGY chooses among, by name."""

from __future__ import annotations

from node_fleet.domain.scaling.signals.pending_pods import PendingPods
from node_fleet.domain.scaling.strategies.thresholds import DesiredChange, Strategy, apply_thresholds
from node_fleet.domain.scaling.tick import Tick


def _adaptive(tick: Tick, pending_pods: PendingPods | None, minimum: int) -> DesiredChange:
    from node_fleet.domain.scaling.strategies.adaptive.strategy import (
        apply_adaptive,  # a start with another rule set does without it
    )

    return apply_adaptive(tick, pending_pods, minimum)


STRATEGIES: dict[str, Strategy] = {"thresholds": apply_thresholds, "adaptive": _adaptive}
