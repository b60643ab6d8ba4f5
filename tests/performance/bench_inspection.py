"""The cost of one inspection of a large cluster: server CPU, characters of the answer, and the time to choose.

Run: python tests/performance/bench_inspection.py [--workers 100] [--pods 2000]. Prints the figures and fails when one
is above its limit: 2 s of server CPU, 12,000 characters, 50 ms for a choice among 1,000 workers. A cluster of 500 nodes
and 10,000 pods follows: its answer must count each node that it leaves out. One worker in three has a StatefulSet; the
fit of the others is judged, and one pod in ten has a spread constraint or an anti-affinity. The real kubectl asks a
small local server; where there is no kubectl, `cat` stands in for it and the output says so.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "functions")]

from cdk_app.scripts import read_script  # noqa: E402
from node_fleet.domain.scale_down.eligibility import judge_workers  # noqa: E402
from node_fleet.domain.scale_down.inspection import Inspection, parse_inspection  # noqa: E402
from node_fleet.domain.scale_down.selection import choose  # noqa: E402
from tests.support.fit_clusters import judged_fit  # noqa: E402
from tests.support.inspected_nodes import inspected_node, machine  # noqa: E402

SCRIPT = ROOT / "cluster" / "commands" / "inspect_nodes.sh"
CPU_LIMIT_SECONDS = 2.0
CHARACTERS_LIMIT = 12_000
CHOICE_LIMIT_SECONDS = 0.05
CHOICE_WORKERS = 1000
LARGE_WORKERS, LARGE_PODS = 500, 10_000


def instance_id(number: int) -> str:
    return f"i-{number:017x}"


def cluster(workers: int, pods: int) -> dict[str, list[dict[str, Any]]]:
    """API lists as fat as real ones: managed fields, conditions, volumes, long names, two blockers on each worker."""
    dice = random.Random(1)
    lists: dict[str, list[dict[str, Any]]] = {name: [] for name in PATHS}
    for number in range(workers):
        lists["nodes"].append(node(number))
    for number in range(pods):
        worker, kind = number % workers, number // workers
        app = f"checkout-service-{dice.randint(0, 39):02d}"
        lists["pods"].append(pod(number, instance_id(worker), app, stateful=kind < 2 and worker % 3 == 0))
    for number in range(40):
        app = f"checkout-service-{number:02d}"
        lists["replicasets"].append(owner(f"{app}-6f7d9c5b8d", f"{app}"))
        lists["deployments"].append(owner(app, ""))
        lists["poddisruptionbudgets"].append(budget(app))
    return lists


PATHS = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "persistentvolumes": "/api/v1/persistentvolumes",
    "persistentvolumeclaims": "/api/v1/persistentvolumeclaims",
    "poddisruptionbudgets": "/apis/policy/v1/poddisruptionbudgets",
    "replicasets": "/apis/apps/v1/replicasets",
    "deployments": "/apis/apps/v1/deployments",
    "daemonsets": "/apis/apps/v1/daemonsets",
    "storageclasses": "/apis/storage.k8s.io/v1/storageclasses",
}
PADDING = [{"manager": "k3s", "operation": "Update", "fieldsV1": {f"f:field-{n}": {".": {}} for n in range(40)}}] * 2


def node(number: int) -> dict[str, Any]:
    name = instance_id(number)
    zone = f"ap-southeast-1{'abc'[number % 3]}"
    return {
        "metadata": {
            "name": name,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "node-fleet.io/role": "worker",
                "topology.kubernetes.io/zone": zone,
                "kubernetes.io/hostname": name,
            },
            "managedFields": PADDING,
        },
        "spec": {"providerID": f"aws:///{zone}/{name}"},
        "status": {
            "allocatable": {"cpu": "2", "memory": "2Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(number: int, node_name: str, app: str, *, stateful: bool) -> dict[str, Any]:
    rules: dict[str, Any] = {}
    if app.endswith(("00", "10")):
        selector = {"matchLabels": {"app": app}}
        rules["topologySpreadConstraints"] = [
            {
                "maxSkew": 30,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": selector,
            }
        ]
    elif app.endswith(("20", "30")):
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "other"}}}
        rules["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    kind, owner_name = ("StatefulSet", f"orders-database-{number}") if stateful else ("ReplicaSet", f"{app}-6f7d9c5b8d")
    return {
        "metadata": {
            "name": f"{owner_name}-{number % 10}" if stateful else f"{owner_name}-{number:05d}",
            "namespace": "production-shop",
            "labels": {"app": app, "pod-template-hash": "6f7d9c5b8d"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": owner_name, "controller": True}],
            "managedFields": PADDING,
        },
        "spec": {
            "nodeName": node_name,
            **rules,
            "containers": [
                {"name": "main", "image": "registry/app:1", "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}}}
            ],
            "volumes": [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}] * 3}}],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": t, "status": "True"} for t in ("Ready", "PodScheduled")],
        },
    }


def owner(name: str, above: str) -> dict[str, Any]:
    references = [{"apiVersion": "apps/v1", "kind": "Deployment", "name": above, "controller": True}] if above else []
    return {
        "metadata": {"namespace": "production-shop", "name": name, "ownerReferences": references},
        "spec": {"replicas": 50},
    }


def budget(app: str) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "production-shop", "name": app},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": 3},
    }


class Quiet(SimpleHTTPRequestHandler):
    """Serves the lists as files, named by their path."""

    def translate_path(self, path: str) -> str:
        return str(Path(self.directory) / path.partition("?")[0].replace("/", "_"))

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


REAL = """#!/bin/sh
shift # the time limit of the request
case "$2" in
  --raw) exec "{kubectl}" --kubeconfig=/dev/null --server="{server}" "$@" ;;
esac
"""
STAND_IN = """#!/bin/sh
shift
case "$2" in
  --raw) exec cat "{folder}/$(printf '%s' "$3" | tr / _)" ;;
esac
"""


def find_kubectl() -> str:
    beside = Path(sys.executable).parent / "kubectl"
    return str(beside) if beside.exists() else shutil.which("kubectl") or ""


def inspect(workers: int, pods: int) -> tuple[float, str]:
    """(CPU seconds of the script and its children, what it printed)."""
    with tempfile.TemporaryDirectory() as name, serving(Path(name)) as server:
        folder, kubectl = Path(name), find_kubectl()
        for kind, items in cluster(workers, pods).items():
            (folder / PATHS[kind].replace("/", "_")).write_text(json.dumps({"items": items}))
        text = REAL if kubectl else STAND_IN
        shim = folder / "kubectl"
        shim.write_text(text.replace("{folder}", name).replace("{kubectl}", kubectl).replace("{server}", server))
        shim.chmod(0o755)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        environment = {**os.environ, "PATH": f"{name}:{os.environ['PATH']}"}
        done = subprocess.run(
            ["sh", "-c", read_script(SCRIPT)], env=environment, capture_output=True, text=True, check=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def choose_among(workers: int) -> float:
    """Seconds to judge and choose among that many workers."""
    nodes = tuple(
        inspected_node(instance_id(n), zone="abc"[n % 3], pods_to_move=n % 20, cpu_requested_milli=n % 2000)
        for n in range(workers)
    )
    markets = ("on-demand", "spot", "spot")
    machines = tuple(
        machine(instance_id(n), zone="abc"[n % 3], market=markets[n % 3], launched_at=n) for n in range(workers)
    )
    begun = time.perf_counter()
    judged = judge_workers(Inspection(known=True, nodes=nodes), machines, under_notice=frozenset(), back_offs=(), now=1)
    plan = choose(judged, count=1, minimum=2, order="balance", spot_percent=70)
    assert plan.targets
    return time.perf_counter() - begun


def measure(workers: int, pods: int) -> tuple[float, bool]:
    """Print the figures of one cluster; the CPU seconds, and whether the answer accounts for every node."""
    cpu, text = inspect(workers, pods)
    found = parse_inspection(text)
    print(f"inspection of {workers} nodes and {pods} pods: {cpu:.2f} s CPU, {len(text)} characters")
    late = sum(b.detail.endswith("/time") for node in found.nodes for b in node.blockers)
    free = sum(not node.blockers for node in found.nodes)
    print(
        f"  read back: {len(found.nodes)} nodes, {found.left_out} left out, {free} eligible, {late} not judged in time"
    )
    begun = time.process_time()
    judged, _ = judged_fit(cluster(workers, pods))
    seconds = time.process_time() - begun
    print(f"  the fit of all {len(judged)} workers would take {seconds:.2f} s CPU without its limit of 1 s")
    return cpu, found.known and len(found.nodes) + found.left_out == workers and len(text) < CHARACTERS_LIMIT


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--pods", type=int, default=2000)
    given = parser.parse_args()
    print(f"kubectl: {find_kubectl() or 'not found, cat stands in for it'}")
    cpu, is_complete = measure(given.workers, given.pods)
    _, is_large_complete = measure(LARGE_WORKERS, LARGE_PODS)
    choice = min(choose_among(CHOICE_WORKERS) for _ in range(5))
    print(f"choice among {CHOICE_WORKERS} workers: {choice * 1000:.1f} ms")
    is_good = cpu < CPU_LIMIT_SECONDS and choice < CHOICE_LIMIT_SECONDS and is_complete and is_large_complete
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
