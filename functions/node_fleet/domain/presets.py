"""Named sets of policy numbers, each taken from one document; only what differs from the default is listed."""

from __future__ import annotations

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    "node-fleet": {},
    "algorithm": {"pending_bypasses_cooldown": False, "idle_seconds": 0},
    "flowchart": {"cpu_readings": 3, "pending_readings": 3, "memory_readings": 1, "pending_urgent": 10},
    "sequence": {"use_memory": False, "cooldown_down_seconds": 300, "cpu_readings": 1, "idle_seconds": 0},
    "readme": {"cpu_readings": 3, "pending_readings": 2},
}
