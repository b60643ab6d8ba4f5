"""A real Prometheus with basic auth that receives the world's exposition in virtual time, by remote write.

Where no Prometheus is found the tests skip and name it; where CI is set that is a failure.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
import yaml

from node_fleet.domain.model.snapshot import Instance
from simulator.clock import VirtualClock
from simulator.cluster.model import SimulatedCluster
from simulator.cluster.objects import LABEL_HOSTNAME, USAGE_CPU_MILLI, USAGE_MEMORY_MIB
from simulator.cluster.workloads import pod_object
from simulator.fakes.exposition import SCRAPE_SECONDS, Targets, scrape
from simulator.fakes.scrapes import PHASE_SECONDS
from tests.support.real_servers import free_port, process, tool, wait_until

USERNAME, PASSWORD = "prometheus", "simulator"
PASSWORD_HASH = "$2b$04$Hz31xkQJzgMa2.IZMGerh.HNRDxNE4EFL27ug/3zcQWxQtVLos456"
STALE = struct.pack("<Q", 0x7FF0000000000002)
SLICE_SECONDS = 1200
HOURS_BETWEEN_CLUSTERS = 6
FIRST_START = 1_780_300_800.0

Key = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class RealPrometheus:
    """A running server. Worlds written to it one after the other must start at `next_start()`, so that none overlap."""

    url: str
    session: requests.Session
    clusters: int = 0

    def next_start(self) -> float:
        self.clusters += 1
        return FIRST_START + self.clusters * HOURS_BETWEEN_CLUSTERS * 3600

    def write(self, history: History) -> None:
        """Send everything recorded, oldest slice first."""
        for series in history.slices():
            body = _snappy(b"".join(_field(1, _series(key, samples)) for key, samples in series.items()))
            headers = {"Content-Encoding": "snappy", "X-Prometheus-Remote-Write-Version": "0.1.0"}
            reply = self.session.post(f"{self.url}/api/v1/write", data=body, headers=headers, timeout=30)
            assert reply.status_code in (200, 204), reply.text

    def query(self, text: str, at: float) -> list[tuple[dict[str, str], float]]:
        reply = self.session.post(f"{self.url}/api/v1/query", data={"query": text, "time": repr(at)}, timeout=10).json()
        assert reply["status"] == "success", reply
        return [(one["metric"], float(one["value"][1])) for one in reply["data"]["result"]]


@contextlib.contextmanager
def real_prometheus(folder: Path, scrape_configs: list[dict[str, Any]] | None = None) -> Iterator[RealPrometheus]:
    """Start it on a free loopback port; it scrapes nothing unless a configuration says so."""
    path = tool("prometheus")
    (folder / "prometheus.yml").write_text(yaml.safe_dump({"scrape_configs": scrape_configs or []}))
    (folder / "web.yml").write_text(yaml.safe_dump({"basic_auth_users": {USERNAME: PASSWORD_HASH}}))
    port = free_port()
    command = [
        path,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--web.config.file={folder / 'web.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=100y",
        "--web.enable-remote-write-receiver",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    url = f"http://127.0.0.1:{port}"
    with process(command, folder / "prometheus.log"), requests.Session() as session:
        session.trust_env = False
        session.auth = (USERNAME, PASSWORD)
        wait_until(lambda: _ready(session, url), "Prometheus")
        yield RealPrometheus(url, session)


def _ready(session: requests.Session, url: str) -> bool:
    try:
        return session.get(f"{url}/-/ready", timeout=2).status_code == 200
    except requests.RequestException:
        return False


@dataclass(slots=True)
class History:
    """Scrapes a world on the beat of the fake Prometheus and marks series stale as a real one does."""

    cluster: SimulatedCluster
    clock: VirtualClock
    replicas: int = 1
    targets: Targets = field(init=False)
    series: dict[Key, list[tuple[float, bytes]]] = field(default_factory=dict)
    present: set[Key] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.targets = Targets(self.cluster)
        first = (self.clock.now() - PHASE_SECONDS) // SCRAPE_SECONDS * SCRAPE_SECONDS + SCRAPE_SECONDS + PHASE_SECONDS
        self.clock.every(SCRAPE_SECONDS, self.scrape, first=first)

    def scrape(self) -> None:
        before, self.present = self.present, set()
        for sample in scrape(self.cluster, self.targets, replicas=self.replicas):
            labels = {name: value for name, value in sample.labels.items() if value}
            key = tuple(sorted({"__name__": sample.name, **labels}.items()))
            self.present.add(key)
            self.series.setdefault(key, []).append((self.clock.now(), struct.pack("<d", sample.value)))
        for key in before - self.present:
            self.series[key].append((self.clock.now(), STALE))

    def slices(self) -> Iterator[dict[Key, list[tuple[float, bytes]]]]:
        times = [at for samples in self.series.values() for at, _ in samples]
        start, end = min(times), max(times)
        while start <= end:
            stop = start + SLICE_SECONDS
            found = {key: [one for one in samples if start <= one[0] < stop] for key, samples in self.series.items()}
            yield {key: samples for key, samples in found.items() if samples}
            start = stop


def _series(key: Key, samples: list[tuple[float, bytes]]) -> bytes:
    """The protobuf message prometheus.TimeSeries."""
    labels = b"".join(_field(1, _field(1, name.encode()) + _field(2, value.encode())) for name, value in key)
    values = b"".join(_field(2, b"\x09" + value + b"\x10" + _varint(round(at * 1000))) for at, value in samples)
    return labels + values


def _field(number: int, body: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(body)) + body


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _snappy(data: bytes) -> bytes:
    """Snappy's block format with literals only: valid, merely not small."""
    found = bytearray(_varint(len(data)))
    for start in range(0, len(data), 0x10000):
        chunk = data[start : start + 0x10000]
        found += b"\xf4" + struct.pack("<H", len(chunk) - 1) + chunk
    return bytes(found)


@dataclass
class Fleet:
    """A simulated cluster whose load is set worker by worker, recorded for the real Prometheus."""

    server: RealPrometheus
    replicas: int = 1
    clock: VirtualClock = field(init=False)
    cluster: SimulatedCluster = field(init=False)
    history: History = field(init=False)

    def __post_init__(self) -> None:
        self.clock = VirtualClock(self.server.next_start())
        self.cluster = SimulatedCluster(self.clock)
        self.cluster.add_server("i-0server", "us-east-1a", "t3.medium")
        self.history = History(self.cluster, self.clock, replicas=self.replicas)

    def worker(self, name: str, *, instance_type: str = "t3.medium", cpu_milli: int = 0, memory_mib: int = 64) -> None:
        self.cluster.add_worker(name, instance_type=instance_type)
        self.load(name, cpu_milli, memory_mib)

    def load(self, node: str, cpu_milli: int, memory_mib: int = 64) -> None:
        usage = {USAGE_CPU_MILLI: str(cpu_milli), USAGE_MEMORY_MIB: str(memory_mib)}
        pod = pod_object(f"load-{node}", annotations=usage, nodeSelector={LABEL_HOSTNAME: node})
        self.cluster.create("pods", pod)

    def instances(self) -> tuple[Instance, ...]:
        return tuple(
            Instance(
                instance_id=machine.instance_id,
                zone=machine.az,
                instance_type=machine.type.name,
                market="on-demand",
                state="running",
                launched_at=int(machine.started_at),
            )
            for machine in self.cluster.state.machines.values()
            if machine.role == "worker" and machine.powered
        )
