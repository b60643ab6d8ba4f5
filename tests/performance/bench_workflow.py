"""Prints what the simulator and the functions cost, as ratios to a fixed work on the same machine: ./node-fleet bench

The fixed work is a thousand parses of one answer by botocore. Only processor time is measured, children included, so
that busy machines, and different ones, can be compared. No figure has a limit here.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from botocore import session
from botocore.parsers import create_parser

from simulator.scenario.files import load_scenario, parse_scenario
from simulator.simulation import Simulation, synthesised_template
from tests.support.quick_run import last_quick_run

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


def fixed_work() -> float:
    """Processor seconds of a thousand parses of an answer of DynamoDB; the least of three tries."""
    model = session.get_session().get_service_model("dynamodb")
    item = {f"attribute-{number}": {"M": {"at": {"N": "1"}, "text": {"S": "x" * 40}}} for number in range(20)}
    wire = {"status_code": 200, "headers": {}, "body": json.dumps({"Item": item}).encode()}
    parser, shape = create_parser("json"), model.operation_model("GetItem").output_shape

    def parse() -> None:
        for _ in range(1000):
            parser.parse(wire, shape)

    return min(processor_seconds(parse) for _ in range(3))


def processor_seconds(work: Callable[[], object]) -> float:
    """Of this process and of those that it has ended."""
    before = os.times()
    work()
    after = os.times()
    return sum(after[:4]) - sum(before[:4])


def quiet_tick() -> float:
    """The median from StartExecution to the end, handlers included; the cluster's minutes in between are left out."""
    with Simulation(parse_scenario(QUIET, source="quiet"), template=synthesised_template(), alerts=False) as sim:
        sim.deployment.run_ticks(WARM_UP_TICKS)
        sim.deployment._fire = lambda *_: None  # type: ignore[method-assign]
        taken = []
        for _ in range(TICKS):
            sim.deployment.clock.advance(120)
            used = time.process_time()
            sim.deployment.start_workflow({"trigger": "manual"})
            sim.deployment.settle()
            taken.append(time.process_time() - used)
        return statistics.median(taken)


def day_under_load() -> float:
    """24 virtual hours of day-and-night: the schedule's 720 ticks and what the alert starts."""

    def simulate() -> None:
        with Simulation(load_scenario("day-and-night"), template=synthesised_template()) as sim:
            sim.run()

    return processor_seconds(simulate)


def demo() -> float:
    """The command from its start to its report."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "cli.main", "demo", "--report", f"{folder}/demo.html"]
        return processor_seconds(lambda: subprocess.run(command, cwd=ROOT, capture_output=True, check=True))


def memory(executions: int) -> str:
    """Resident memory after so many quiet ticks in one simulator."""
    with Simulation(parse_scenario(QUIET, source="quiet"), template=synthesised_template(), alerts=False) as sim:
        sim.deployment.run_ticks(50)
        before = resident_mib()
        sim.deployment.run_ticks(executions - 50)
        after = resident_mib()
    left = (after - before) * 1024 / (executions - 50)
    return f"{before:.0f} MiB after 50 executions, {after:.0f} MiB after {executions}; {left:.0f} KiB for each"


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def starts() -> None:
    """Processor time of importing each handler and making its clients, as a ratio to importing boto3."""
    base = _import_cost("import boto3")
    loaded = "from node_fleet.services import load_services; load_services().settings"
    decide = _import_cost(f"import handlers.decide; {loaded}")
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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="node-fleet bench", description="Costs, as ratios to a fixed work.")
    parser.add_argument("--executions", type=int, default=1000, help="quiet executions for the figure of memory")
    executions = parser.parse_args().executions
    print(f"memory: {memory(executions)}", flush=True)  # first, while this process has done nothing else
    unit = fixed_work()
    print(f"fixed work, 1,000 parses by botocore: {unit * 1000:.0f} ms of processor time = 1", flush=True)
    for name, measure in (("a quiet tick", quiet_tick), ("a day under load", day_under_load), ("the demo", demo)):
        seconds = measure()
        print(f"{name:18} {seconds / unit:8.2f}   ({seconds:.3f} s)", flush=True)
    if run := last_quick_run():
        seconds = run.processor_seconds
        print(f"{'the quick tier':18} {seconds / unit:8.2f}   ({seconds:.0f} s, {run.tests} tests: its last run here)")
    else:
        print("the quick tier: no run has passed here; ./node-fleet test measures it")
    starts()


if __name__ == "__main__":
    main()
