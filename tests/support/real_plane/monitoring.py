"""The shipped monitoring beside a real control plane: Prometheus, kube-state-metrics, and figures for each worker.

Prometheus has the shipped configuration, with addresses of this machine and a scrape each second. kube-state-metrics
has the shipped arguments and reads the API server with the shipped role. Workers have no machine: a local server lists
them in place of EC2, and answers in place of their node exporters.
"""

from __future__ import annotations

import contextlib
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import yaml

from simulator.cluster.state import Machine
from simulator.fakes.http import Answer
from tests.support.real_plane.build import KUBE_STATE_METRICS
from tests.support.real_plane.cluster import RealCluster
from tests.support.real_servers import (
    CLUSTER,
    Prometheus,
    answers,
    free_port,
    local_server,
    process,
    prometheus,
    rendered,
    wait_until,
)

BUSY_SHARE = 0.1
USED_MEMORY_SHARE = 0.2
LIST_PATH = "/workers"
ACCOUNT_KINDS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")


class PrometheusServer:
    """Passes the requests of functions on to a running Prometheus."""

    def __init__(self, prometheus: Prometheus) -> None:
        self._url = prometheus.url
        self.vector = prometheus.vector

    def handle(self, path: str, params: Mapping[str, str], headers: Mapping[str, str]) -> Answer:
        request = urllib.request.Request(f"{self._url}{path}", urllib.parse.urlencode(params).encode())
        try:
            with urllib.request.urlopen(request, timeout=20) as reply:
                return reply.status, dict(reply.headers), reply.read()
        except urllib.error.HTTPError as refused:
            return refused.code, dict(refused.headers), refused.read()


@contextlib.contextmanager
def monitoring(cluster: RealCluster, folder: Path) -> Iterator[PrometheusServer]:
    """Prometheus with its targets, for the length of the block."""
    with (
        _node_exporters(cluster.kubelets.machines) as exporters,
        _kube_state_metrics(cluster, folder) as state_metrics,
        prometheus(folder, _configuration(exporters, state_metrics)) as server,
    ):
        yield PrometheusServer(server)


def _configuration(exporters: int, state_metrics: int) -> dict[str, Any]:
    configuration = rendered("monitoring/prometheus/prometheus.yml")
    configuration["global"].update(scrape_interval="1s", scrape_timeout="1s")
    jobs = {job["job_name"]: job for job in configuration["scrape_configs"]}
    workers, state = jobs["node-exporter"], jobs["kube-state-metrics"]
    del workers["ec2_sd_configs"]
    workers["http_sd_configs"] = [{"url": f"http://127.0.0.1:{exporters}{LIST_PATH}", "refresh_interval": "1s"}]
    state["static_configs"] = [{"targets": [f"127.0.0.1:{state_metrics}"]}]
    configuration["scrape_configs"] = [workers, state]
    del configuration["alerting"]
    return configuration


@contextlib.contextmanager
def _kube_state_metrics(cluster: RealCluster, folder: Path) -> Iterator[int]:
    """The shipped version with the arguments and the role of the shipped manifest; its port."""
    port, telemetry = free_port(), free_port()
    manifests = list(yaml.safe_load_all((CLUSTER / "monitoring/manifests/kube-state-metrics.yaml").read_text()))
    account = folder / "account.yaml"
    account.write_text(yaml.safe_dump_all(one for one in manifests if one["kind"] in ACCOUNT_KINDS))
    applied = cluster.kubectl("apply", "--filename", str(account))
    assert applied.exit_code == 0, applied.stderr
    (deployment,) = (one for one in manifests if one["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    shipped = [argument for argument in container["args"] if "port=" not in argument]
    command = [
        str(KUBE_STATE_METRICS.built()),
        *shipped,
        f"--kubeconfig={cluster.plane.account_kubeconfig('monitoring', 'kube-state-metrics')}",
        f"--port={port}",
        f"--telemetry-port={telemetry}",
        "--host=127.0.0.1",
        "--telemetry-host=127.0.0.1",
    ]
    with process(command, folder / "kube-state-metrics.log"):
        wait_until(lambda: answers(f"http://127.0.0.1:{telemetry}/readyz"), "kube-state-metrics")
        yield port


@contextlib.contextmanager
def _node_exporters(machines: Mapping[str, Machine]) -> Iterator[int]:
    """One port for all workers: the list that EC2 would give, and the figures of each under its instance id."""

    def answer(request: BaseHTTPRequestHandler, _body: bytes) -> tuple[int, str, str]:
        workers = {name: one for name, one in list(machines.items()) if one.role == "worker" and one.powered}
        if request.path == LIST_PATH:
            address = request.headers["Host"]
            return 200, "application/json", json.dumps([_target(one, address) for one in workers.values()])
        worker = workers.get(request.path.removeprefix("/"))
        if worker is None or not worker.serves:
            return 503, "text/plain", ""
        return 200, "text/plain; version=0.0.4", _figures(worker)

    with local_server(answer) as port:
        yield port


def _target(machine: Machine, address: str) -> dict[str, Any]:
    facts = {"instance_id": machine.instance_id, "availability_zone": machine.az, "instance_type": machine.type.name}
    labels = {f"__meta_ec2_{name}": value for name, value in facts.items()}
    return {"targets": [address], "labels": {**labels, "__metrics_path__": f"/{machine.instance_id}"}}


def _figures(machine: Machine) -> str:
    """A worker that is busy for a tenth of its time and has a fifth of its memory in use."""
    seconds, total = time.time() - machine.started_at, machine.type.memory_mib << 20
    lines = ["# TYPE node_cpu_seconds_total counter"]
    for cpu in range(machine.type.vcpus):
        for mode, share in (("idle", 1 - BUSY_SHARE), ("user", BUSY_SHARE)):
            lines.append(f'node_cpu_seconds_total{{cpu="{cpu}",mode="{mode}"}} {seconds * share}')
    for name, size in (("MemTotal", total), ("MemAvailable", total * (1 - USED_MEMORY_SHARE))):
        lines += [f"# TYPE node_memory_{name}_bytes gauge", f"node_memory_{name}_bytes {size}"]
    return "\n".join(lines) + "\n"
