"""Times one decision of the preset `adaptive` with 1,000 workers and 10,000 pods, 2,000 of them waiting in 500 shapes.

Run: python tests/performance/bench_adaptive.py [--workers 1000]. Prints processor time and the size of what is
remembered; fails when a decision takes more than 150 ms.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "functions")]

from node_fleet.domain.model.memory import Memory  # noqa: E402
from node_fleet.domain.model.snapshot import PodShape, Snapshot, Worker  # noqa: E402
from node_fleet.domain.scaling.decision import decide  # noqa: E402
from node_fleet.payload import to_payload  # noqa: E402
from node_fleet.settings import Settings  # noqa: E402

START = 1_790_000_040
TICK_SECONDS = 120
LIMIT_SECONDS = 0.15
SHAPES = 500
WAITING_PODS = 2000
RUNNING_PODS = 8000


def worker(number: int, pods: int) -> Worker:
    """A worker with a DaemonSet pod and `pods` others of 200m and 100 MiB."""
    return Worker(
        instance_id=f"i-{number:05d}",
        zone=f"zone-{number % 3}",
        market="spot",
        instance_type="t3.small",
        phase="usable",
        launched_at=START - 86_400,
        cpu_percent=50.0,
        cpu_allocatable_milli=1900,
        cpu_requested_milli=20 + 200 * pods,
        memory_allocatable_mib=1698,
        memory_requested_mib=32 + 100 * pods,
        pods=pods + 1,
        pods_allocatable=110,
    )


def snapshot(count: int, at: int) -> Snapshot:
    """The whole fleet busy, pods of many shapes waiting."""
    per_worker = max(1, RUNNING_PODS // count)
    waiting = tuple(
        PodShape(cpu_milli=150 + n, memory_mib=64 + n % 90, count=WAITING_PODS // SHAPES, oldest_seconds=40, zone=zone)
        for n in range(SHAPES)
        for zone in (("", "zone-0", "zone-1", "zone-2")[n % 4],)
    )
    return Snapshot(
        at=at,
        read_at=at,
        source="live",
        cpu_percent=60.0,
        memory_percent=50.0,
        pending=waiting,
        workers=tuple(worker(number, per_worker + number % 2) for number in range(count)),
    )


def main() -> int:
    """Decide a few times, print the median and the worst."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--times", type=int, default=15)
    given = parser.parse_args()
    policy = Settings.from_mapping({"preset": "adaptive", "max_workers": 1000}).policy()
    memory, taken = Memory(), []
    for index in range(given.times):
        now = START + index * TICK_SECONDS
        seen = snapshot(given.workers - 200, now)
        begun = time.process_time()
        decision = decide(seen, memory, policy, now)
        taken.append(time.process_time() - begun)
        memory = decision.memory
    remembered = len(json.dumps(to_payload(memory.learned)))
    sys.stdout.write(
        f"{given.workers - 200} workers, room for 200 more, {RUNNING_PODS + WAITING_PODS} pods: median "
        f"{statistics.median(taken) * 1000:.1f} ms, worst {max(taken) * 1000:.1f} ms; {decision.action} "
        f"{decision.count}; learned {remembered} characters\n"
    )
    return 1 if statistics.median(taken) > LIMIT_SECONDS else 0


if __name__ == "__main__":
    raise SystemExit(main())
