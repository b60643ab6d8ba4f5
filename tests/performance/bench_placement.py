"""Times the plan of 10 launches over 3 zones beside 1,000 workers. Run: python tests/performance/bench_placement.py"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "functions")]

from node_fleet.domain.model.operation import LaunchSlot  # noqa: E402
from node_fleet.domain.model.snapshot import Instance  # noqa: E402
from node_fleet.domain.scale_up.placement import Placement, plan_slots  # noqa: E402

WORKERS, LAUNCHES, NOW = 1_000, 10, 1_790_000_000
ZONES = {"eu-central-1a": "subnet-a", "eu-central-1b": "subnet-b", "eu-central-1c": "subnet-c"}
LIMIT_MILLISECONDS = 50.0


def fleet() -> tuple[Instance, ...]:
    """1,000 workers, spread unevenly over three zones, two types and both markets."""
    zones = list(ZONES)
    return tuple(
        Instance(
            instance_id=f"i-{number:017x}",
            zone=zones[number * number % 3],
            instance_type="t3.small" if number % 4 else "t3a.small",
            market="spot" if number % 3 else "on-demand",
            state="running",
            launched_at=NOW - number,
        )
        for number in range(WORKERS)
    )


def plan(instances: tuple[Instance, ...]) -> tuple[LaunchSlot, ...]:
    """Ten launches from one listing."""
    placement = Placement(zones=ZONES, instance_types=("t3.small", "t3a.small"))
    return plan_slots(LAUNCHES, instances, placement, now=NOW)


def milliseconds(repeats: int = 50) -> list[float]:
    """How long each of several plans took."""
    instances, found = fleet(), []
    for _ in range(repeats):
        began = time.perf_counter()
        plan(instances)
        found.append(1000 * (time.perf_counter() - began))
    return found


def main() -> int:
    """Print the figures; exit status 1 when the median passes the limit."""
    took = milliseconds()
    median = statistics.median(took)
    print(f"plan of {LAUNCHES} beside {WORKERS}: median {median:.2f} ms, worst {max(took):.2f} ms")
    return int(median > LIMIT_MILLISECONDS)


if __name__ == "__main__":
    sys.exit(main())
