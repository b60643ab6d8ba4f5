"""Named sets of policy numbers, each taken from one document; only what differs from the default is listed.

A preset changes decisions, never safety: floors, headroom, live data and the projection guard bind all of them.
"""

from __future__ import annotations

from typing import Any

from node_fleet.domain.model.built_in_metrics import built_in

PRESETS: dict[str, dict[str, Any]] = {
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
    "adaptive": {
        "sizing": "adaptive",
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
    },
}
