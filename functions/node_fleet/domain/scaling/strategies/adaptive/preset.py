"""Settings that the preset `adaptive` changes, for the presets and for the strategy, which neither import the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from node_fleet.domain.model.policy import Policy

ADAPTIVE_PRESET: dict[str, Any] = {
    "strategy": "adaptive",
    "cpu_up_percent": 85.0,
    "cpu_urgent_percent": 95.0,
    "cpu_down_percent": 75.0,
    "memory_up_percent": 85.0,
    "memory_down_percent": 75.0,
    "projection_margin_percent": 0.0,
    "cooldown_up_seconds": 0,
    "cooldown_down_seconds": 0,
    "idle_seconds": 0,
    "scale_down_order": "fewest-pods",
    "max_targets": 3,
}

DEFAULT_RULES = "requests"
"""The check of a decision that says that the rules of the preset node-fleet decide, and why."""


def with_default_rules(policy: Policy) -> Policy:
    """The policy with the thresholds and cooldowns of the preset node-fleet, where those of adaptive are unchanged."""
    default = Policy()
    thresholds = {
        name: getattr(default, name)
        for name, value in ADAPTIVE_PRESET.items()
        if hasattr(default, name) and name != "max_targets" and getattr(policy, name) == value
    }
    return replace(policy, **thresholds)
