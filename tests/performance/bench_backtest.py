"""Prints how long 30 days of one-minute readings take under each policy, and how much memory.

Not a test: `python tests/performance/bench_backtest.py`. The limits are 5 s of CPU a policy and 500 MB.
"""

from __future__ import annotations

import math
import random
import resource
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "functions")]

from backtest.bound import clairvoyant  # noqa: E402
from backtest.compare import REFERENCES, preset_settings  # noqa: E402
from backtest.deployed import Deployed  # noqa: E402
from backtest.load import plan_load  # noqa: E402
from backtest.model import Capacity, Scaling  # noqa: E402
from backtest.replay import Sizer, replay  # noqa: E402
from backtest.trace import Trace, from_rows  # noqa: E402
from node_fleet.settings import Settings  # noqa: E402
from node_fleet.settings.presets import PRESETS  # noqa: E402

DAYS, MINUTE = 30, 60
SECONDS_ALLOWED, MEGABYTES_ALLOWED = 5.0, 500.0


def month() -> Trace:
    """Day and night with noise and a few crowds: 43,200 readings."""
    chance = random.Random(7)
    rows, crowd = [], 0.0
    for minute in range(DAYS * 24 * 60):
        crowd = max(crowd * 0.97, 80.0 if chance.random() < 0.0004 else 0.0)
        day = 60 - 40 * math.cos(minute / 1440 * 2 * math.pi)
        rows.append((1_780_272_000 + minute * MINUTE, max(0.0, day + crowd + chance.gauss(0, 4))))
    return from_rows(rows, name="month")


def main() -> None:
    """Measure and print; ends with 1 when a limit is broken."""
    capacity, settings = Capacity(), Settings()
    began = time.process_time()
    trace = month()
    load = plan_load(trace, capacity, Scaling(), min_workers=2, max_workers=10)
    print(f"{'trace and load':20} {time.process_time() - began:6.2f} s")
    began = time.process_time()
    clairvoyant(load, capacity)
    print(f"{'clairvoyant':20} {time.process_time() - began:6.2f} s")
    sizers: list[Sizer] = [Deployed(preset_settings(n, settings).policy(), capacity, name=n) for n in PRESETS]
    slowest = 0.0
    for sizer in (*sizers, *(make() for make in REFERENCES.values())):
        began = time.process_time()
        found = replay(load, capacity, sizer)
        spent = time.process_time() - began
        slowest = max(slowest, spent)
        print(f"{found.policy:20} {spent:6.2f} s  {len(found.actions):5} actions")
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"slowest {slowest:.2f} s of {SECONDS_ALLOWED:g} s, memory {megabytes:.0f} MB of {MEGABYTES_ALLOWED:g} MB")
    sys.exit(slowest > SECONDS_ALLOWED or megabytes > MEGABYTES_ALLOWED)


if __name__ == "__main__":
    main()
