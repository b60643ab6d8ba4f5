"""Named sets of settings; each lists only what differs from the defaults.

A preset changes decisions, never safety: minimum, maximum, live data and the projection hold for every preset.
"""

from __future__ import annotations

from typing import Any

from node_fleet.domain.model.custom_metric import built_in
from node_fleet.domain.model.policy import PresetName
from node_fleet.domain.scaling.strategies.adaptive.preset import ADAPTIVE_PRESET

PRESETS: dict[PresetName, dict[str, Any]] = {
    "node-fleet": {},
    "algorithm": {
        "pending_bypasses_cooldown": False,
        "cooldown_by": "last",
        "idle_seconds": 0,
        "cpu_urgent_percent": 100.0,
        "custom_metrics": (
            built_in("queue_depth", high=100, low=50),
            built_in("latency_p95", high=500, low=250),
            built_in("request_rate", high=1000, low=500),
        ),
    },
    "flowchart": {
        "cpu_readings": 3,
        "pending_readings": 3,
        "memory_readings": 1,
        "pending_urgent": 10,
        "pending_bypasses_cooldown": False,
        "custom_metrics": (
            built_in("latency_p95", readings=1),
            built_in("queue_depth", readings=1),
            built_in("error_rate"),
        ),
    },
    "sequence": {
        "use_memory": False,
        "cooldown_up_seconds": 300,
        "cooldown_down_seconds": 300,
        "pending_bypasses_cooldown": False,
        "cpu_readings": 1,
        "idle_seconds": 0,
        "step_urgent": 1,
        "custom_metrics": (),
        "scale_down_order": "oldest",
        "placement": "round-robin",
        "spot_percent": 0,
        "instance_types": ("t2.small",),
        "cpu_source": "cadvisor",
    },
    "readme": {"cpu_readings": 3, "pending_readings": 2},
    "adaptive": ADAPTIVE_PRESET,
}
