"""Prints what the workflow costs in the simulator: a quiet tick, a day under load, memory, and how handlers start.

Run: PYTHONPATH=.:functions python tests/performance/bench_workflow.py [--executions 5000]
Processor time is printed beside wall time: on a shared machine only the first can be compared.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from simulator.clock import real_monotonic
from simulator.scenario.files import load_scenario, parse_scenario
from simulator.simulation import Simulation, synthesised_template

ROOT = Path(__file__).resolve().parents[2]
QUIET = """
name: quiet
description: Three workers with little to do.
duration: 100d
workers:
  - {count: 3}
settings: {min_workers: 3}
applications:
  - name: web
    replicas: 4
    load: {constant: 60}
    autoscale: {min: 4, max: 60}
"""
WARM_UP_TICKS, TICKS = 10, 60
CLIENTS = {
    "acquire_lock": ["dynamodb"],
    "collect_metrics": ["dynamodb", "ec2", "secretsmanager"],
    "launch_nodes": ["dynamodb", "ec2"],
    "check_join": ["dynamodb", "ec2", "secretsmanager"],
    "start_drain": ["dynamodb", "ec2", "ssm"],
    "terminate_nodes": ["dynamodb", "ec2", "ssm"],
    "notify": ["sns"],
    "release_lock": ["dynamodb"],
}


def quiet_tick() -> None:
    """From StartExecution to the end, handlers included; the world's own minutes in between are left out."""
    with Simulation(parse_scenario(QUIET, source="quiet"), template=synthesised_template(), alerts=False) as sim:
        sim.deployment.run_ticks(WARM_UP_TICKS)
        sim.deployment._fire = lambda *_: None  # type: ignore[method-assign]
        wall, processor, transitions = [], [], []
        for _ in range(TICKS):
            sim.deployment.clock.advance(120)
            began, used = real_monotonic(), time.process_time()
            run = sim.deployment.start_workflow({"trigger": "manual"})
            sim.deployment.settle()
            wall.append((real_monotonic() - began) * 1000)
            processor.append((time.process_time() - used) * 1000)
            transitions.append(len(run.path))
        print(
            f"quiet tick: median {statistics.median(wall):.1f} ms wall, {statistics.median(processor):.1f} ms processor"
            f", best {min(processor):.1f} ms; {max(transitions)} transitions, {TICKS} ticks"
        )


def day_under_load() -> None:
    """24 virtual hours of day-and-night: the schedule's 720 ticks and what the alert starts."""
    began, used = real_monotonic(), time.process_time()
    with Simulation(load_scenario("day-and-night"), template=synthesised_template()) as sim:
        executions = sim.run()
        print(
            f"day-and-night: {len(executions)} executions in {real_monotonic() - began:.1f} s wall,"
            f" {time.process_time() - used:.1f} s processor"
        )


def memory(executions: int) -> None:
    """Resident memory after so many quiet ticks in one simulator."""
    with Simulation(parse_scenario(QUIET, source="quiet"), template=synthesised_template(), alerts=False) as sim:
        sim.deployment.run_ticks(50)
        before = _resident_mib()
        sim.deployment.run_ticks(executions - 50)
        print(f"memory: {before:.0f} MiB after 50 executions, {_resident_mib():.0f} MiB after {executions}")


def starts() -> None:
    """Processor time of importing each handler and making its clients, as a ratio to importing boto3."""
    base = _import_cost("import boto3")
    decide = _import_cost("import handlers.decide; from node_fleet.services import services; load_services().settings")
    print(f"import boto3: {base * 1000:.0f} ms processor; decide: {decide / base:.2f} of it")
    for name, clients in CLIENTS.items():
        make = "".join(f"boto3.client('{c}', region_name='ap-southeast-1');" for c in clients)
        needs = _import_cost(f"import boto3; {make.rstrip(';')}")
        own = _import_cost(f"import handlers.{name}; import boto3; {make.rstrip(';')}")
        print(f"  {name}: {own / needs:.2f} of boto3 with {', '.join(clients)}")


def _import_cost(code: str) -> float:
    script = f"import time; began = time.process_time(); {code}; print(time.process_time() - began)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "functions"), "AWS_EC2_METADATA_DISABLED": "true"}
    command = [sys.executable, "-c", script]
    return min(
        float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
        for _ in range(7)
    )


def _resident_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=5000)
    given = parser.parse_args()
    starts()
    quiet_tick()
    day_under_load()
    memory(given.executions)
