"""The shell that SSM runs, once with the real kubectl and once with the fake: same answer, same cluster."""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simulator.clock import VirtualClock
from simulator.cluster.model import ApplicationSpec, SimulatedCluster
from simulator.fakes.shell import ServerShell
from tests.integration.test_kubectl_conformance import KUBECTL, needs_kubectl
from tests.support.budget_checker import BudgetChecker
from tests.support.kube_api import kubernetes_api, realtime_pump
from tests.support.shipped_scripts import script

TARGET = "i-0a1b2c3d4e5f60718"
Step = tuple[str, dict[str, str]]

DRAIN: Step = ("drain_node", {"OPERATION_ID": "op-1", "DRAIN_TIMEOUT_SECONDS": "40", "NOT_AFTER": "{now+60}"})
LATE: Step = ("drain_node", {**DRAIN[1], "NOT_AFTER": "{now-60}"})
CHECK: Step = ("check_node", {})
INSPECT: Step = ("inspect_nodes", {})
UNCORDON: Step = ("uncordon_node", {"OPERATION_ID": "op-1"})
UNCORDON_OTHER: Step = ("uncordon_node", {"OPERATION_ID": "op-2"})
FORGET: Step = ("forget_node", {"INSTANCE_ID": TARGET})


def free(cluster: SimulatedCluster) -> None:
    app(cluster, "web", replicas=3)


def budget(cluster: SimulatedCluster) -> None:
    app(cluster, "web", replicas=3, max_unavailable=1)


def blocked(cluster: SimulatedCluster) -> None:
    app(cluster, "db", kind="StatefulSet", replicas=2, volume="local-path")


def cordoned_by_a_person(cluster: SimulatedCluster) -> None:
    app(cluster, "web", replicas=3)
    cluster.cordon(TARGET)


def app(cluster: SimulatedCluster, name: str, **fields: Any) -> None:
    spec = {"cpu_request_milli": 50, "memory_request_mib": 16, "shutdown_seconds": 1.0, "start_seconds": 1.0}
    cluster.add_application(ApplicationSpec(name=name, **{**spec, **fields}))


STORIES: tuple[tuple[str, Callable[[SimulatedCluster], None], tuple[Step, ...]], ...] = (
    ("inspect, drain, check", free, (INSPECT, DRAIN, CHECK)),
    ("drain past a budget", budget, (DRAIN, CHECK)),
    ("drain twice, then uncordon", free, (DRAIN, DRAIN, UNCORDON, CHECK)),
    ("too late", free, (LATE, CHECK)),
    ("blocked", blocked, (DRAIN, CHECK, UNCORDON)),
    ("a person's cordon stays", cordoned_by_a_person, (DRAIN, UNCORDON, CHECK)),
    ("only the operation's own cordon is removed", free, (DRAIN, UNCORDON_OTHER, CHECK)),
    ("a ready node is not forgotten", free, (DRAIN, FORGET, CHECK)),
)


def prepared(
    setup: Callable[[SimulatedCluster], None], now: float
) -> tuple[VirtualClock, SimulatedCluster, BudgetChecker]:
    clock = VirtualClock(now - 100)
    cluster = SimulatedCluster(clock)
    checker = BudgetChecker(cluster)
    cluster.add_server("i-0aaaaaaaaaaaaaaaa", "eu-west-1a")
    cluster.add_worker("i-0bbbbbbbbbbbbbbbb", az="eu-west-1a")
    cluster.add_worker(TARGET, az="eu-west-1a")
    setup(cluster)
    clock.advance_to(now)
    return clock, cluster, checker


def variables(step: Step, now: float) -> dict[str, str]:
    times = {"{now+60}": str(int(now) + 60), "{now-60}": str(int(now) - 60)}
    return {"NODE_NAME": TARGET, **{name: times.get(value, value) for name, value in step[1].items()}}


def last_line(code: int, output: str) -> tuple[int, str]:
    """The exit and the last line, which the workflow reads; without the inspection's checksum, which covers ages."""
    last = (output.splitlines() or [""])[-1]
    return code, " ".join(last.split()[:2]) if last.startswith("end ") else last


def state(cluster: SimulatedCluster) -> tuple[Any, ...]:
    nodes = tuple((n.name, n.unschedulable, n.annotations.get("node-fleet.io/cordoned-by")) for n in cluster.nodes())
    pods = Counter((pod.namespace, pod.owner_kind, pod.node, pod.terminating) for pod in cluster.pods())
    return nodes, pods


def with_the_fake(setup: Callable[[SimulatedCluster], None], steps: tuple[Step, ...], now: float) -> tuple[Any, ...]:
    clock, cluster, checker = prepared(setup, now)
    shell = ServerShell(cluster, clock.advance)
    try:
        done = [shell.run(script(step[0]), variables(step, now)) for step in steps]
    finally:
        shell.close()
    clock.advance(5)
    return [last_line(one.exit_code, one.stdout) for one in done], state(cluster), checker.violations


def with_the_real_one(
    setup: Callable[[SimulatedCluster], None], steps: tuple[Step, ...], now: float, home: Path
) -> tuple[Any, ...]:
    clock, cluster, checker = prepared(setup, now)
    results = []
    with kubernetes_api(cluster) as api, realtime_pump(cluster, clock):
        for step in steps:
            environment = {
                "PATH": f"{Path(str(KUBECTL)).parent}:{os.environ['PATH']}",
                "HOME": str(home),
                "KUBECONFIG": str(api.kubeconfig),
                "NODE_FLEET_LOCK_DIRECTORY": str(home),
                **variables(step, now),
            }
            done = subprocess.run(
                ["sh", "-c", script(step[0])], env=environment, capture_output=True, text=True, timeout=90, check=False
            )
            results.append(last_line(done.returncode, done.stdout))
        time.sleep(2.5)
        return results, state(cluster), checker.violations


@needs_kubectl
@pytest.mark.parametrize(("setup", "steps"), [story[1:] for story in STORIES], ids=[story[0] for story in STORIES])
def test_a_shipped_script_ends_alike_with_kubectl_and_with_the_fake(
    setup: Callable[[SimulatedCluster], None], steps: tuple[Step, ...], tmp_path: Path
) -> None:
    now = float(int(time.time()))
    real, fake = with_the_real_one(setup, steps, now, tmp_path), with_the_fake(setup, steps, now)
    assert fake == real
    assert real[2] == []
