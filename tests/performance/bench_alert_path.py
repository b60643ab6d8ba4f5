"""The time from an unschedulable pod to CreateFleet by the alert path, with and without the list of pending pods.

Run: python tests/performance/bench_alert_path.py. Both runs act out the same scenario in virtual time: Alertmanager
starts the run, and 16 pods wait. Without the list, CollectMetrics counts the pods as Prometheus shows them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "functions")]

from handlers import collect_metrics  # noqa: E402
from simulator.cluster.workloads import deployment_object  # noqa: E402
from simulator.scenario.files import parse_scenario  # noqa: E402
from simulator.simulation import Simulation  # noqa: E402

LIMIT_SECONDS = 600
SCENARIO = """
name: waiting
description: pods that no worker can hold
duration: 30m
workers: [{count: 2, instance_type: t3.small}]
applications:
  - {name: web, replicas: 2, cpu_milli: 500, memory_mib: 64}
"""


def seconds_to_launch() -> float:
    """Virtual seconds; the pods come half a minute after a tick, so that no tick sees them first."""
    with Simulation(parse_scenario(SCENARIO, source="waiting"), alerts=True) as sim:
        clock = sim.deployment.clock
        clock.advance(4 * 120 + 30)
        waiting = deployment_object("late", namespace="shop", replicas=16, cpu_milli=500, memory_mib=64)
        sim.cluster.create("deployments", waiting)
        begun, recorder = clock.now(), sim.deployment.cloud.recorder
        asked = len(recorder.of("CreateFleet"))
        clock.run_until(lambda: len(recorder.of("CreateFleet")) > asked, limit=begun + LIMIT_SECONDS)
        return float(recorder.of("CreateFleet")[-1].at - begun)


def main() -> int:
    with (
        mock.patch.object(collect_metrics, "with_listing", lambda snapshot, listing: snapshot),
        mock.patch.object(collect_metrics, "list_pending", lambda server: None),
    ):
        without = seconds_to_launch()
    listed = seconds_to_launch()
    print(f"from the first unschedulable pod to CreateFleet: {without:.0f} s without the list, {listed:.0f} s with it")
    return 0 if listed < LIMIT_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
