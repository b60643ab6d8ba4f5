"""The metrics of node-fleet in the text format of Prometheus, as one run leaves them in the state item.

A value that a run does not know is left out: it is missing, never 0. The server adds the ages of lock and operation.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Iterable, Mapping

from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.domain.notify.totals import by_labels, unpacked

COUNTERS = {
    "runs": ("node_fleet_runs_total", "Runs that released the lock", ("result",)),
    "decisions": ("node_fleet_decisions_total", "Decisions", ("action",)),
    "launches": ("node_fleet_launches_total", "Launches of operations that ended", ("result", "reason")),
    "removals": ("node_fleet_removals_total", "Removals of operations that ended", ("result", "reason")),
}
"""Count -> name, help and labels of its metric."""
GAUGES = {
    "node_fleet_last_run_timestamp_seconds": "When the last run released the lock",
    "node_fleet_last_success_timestamp_seconds": "When the last run without a failure released the lock",
    "node_fleet_workers_wanted": "Workers that the last decision wants",
    "node_fleet_workers_actual": "Instances that count against the maximum",
    "node_fleet_workers_usable": "Workers that accept pods",
    "node_fleet_workers_min": "Setting min_workers",
    "node_fleet_workers_max": "Setting max_workers",
    "node_fleet_pending_pods": "Unschedulable pods that the last run saw",
    "node_fleet_cost_usd_per_hour": "Estimated cost of the fleet, of the known prices",
}
"""Gauge -> help."""


def exposition(
    memory: Memory,
    snapshot: Snapshot | None,
    policy: Policy,
    *,
    now: int,
    change: int | None,
    usd_per_hour: float | None,
    node_count: int | None,
) -> str:
    """change: how many workers the last decision adds, None without one. node_count: after the run."""
    counted = len(snapshot.counted) if snapshot else None
    values = {
        "node_fleet_last_run_timestamp_seconds": now,
        "node_fleet_last_success_timestamp_seconds": memory.succeeded_at or None,
        "node_fleet_workers_wanted": None if counted is None or change is None else max(0, counted + change),
        "node_fleet_workers_actual": counted if node_count is None else node_count,
        "node_fleet_workers_usable": len(snapshot.usable) if snapshot and snapshot.source == "live" else None,
        "node_fleet_workers_min": policy.min_workers,
        "node_fleet_workers_max": policy.max_workers,
        "node_fleet_pending_pods": snapshot.pending_count if snapshot else None,
        "node_fleet_cost_usd_per_hour": usd_per_hour,
    }
    return "\n".join([*_gauges(values), *_counters(unpacked(memory.totals))]) + "\n"


def stored(text: str) -> str:
    """The text as the state item keeps it: every write of the item is paid by its size."""
    return base64.b85encode(zlib.compress(text.encode(), 9)).decode()


def change_of(action: str, count: int) -> int:
    """How many workers a decision adds; negative when it removes some."""
    return {"scale_up": count, "scale_down": -count}.get(action, 0)


def _gauges(values: Mapping[str, float | None]) -> Iterable[str]:
    for name, value in values.items():
        if value is not None and math.isfinite(value):
            yield f"# HELP {name} {GAUGES[name]}"
            yield f"# TYPE {name} gauge"
            yield f"{name} {value:.10g}"


def _counters(totals: Mapping[str, int]) -> Iterable[str]:
    for count, (name, text, labels) in COUNTERS.items():
        rows = by_labels(totals, count)
        if rows:
            yield f"# HELP {name} {text}"
            yield f"# TYPE {name} counter"
        for result, reason, value in rows:
            shown = ",".join(f'{label}="{each}"' for label, each in zip(labels, (result, reason), strict=False))
            yield f"{name}{{{shown}}} {value}"
