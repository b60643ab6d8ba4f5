"""Settings that the preset `adaptive` changes, for the presets and for the strategy, which neither import the other."""

from __future__ import annotations

from typing import Any

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
