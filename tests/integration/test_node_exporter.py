"""Our queries over a real node-exporter, scraped by a real Prometheus: this machine's own CPU and memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from node_fleet.adapters.prometheus import queries
from tests.support.prometheus_fixture import RealPrometheus, real_prometheus
from tests.support.real_servers import answers, free_port, process, tool, wait_until

INSTANCE = "i-0123456789abcdef0"
LABELS = {"instance_id": INSTANCE}
MEMORY_TOLERANCE_BYTES = 256 * 1024 * 1024


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPrometheus]:
    """A node-exporter of this machine, and one target that does not answer."""
    folder = tmp_path_factory.mktemp("node-exporter")
    port, silent = free_port(), free_port()
    command = [
        tool("prometheus-node-exporter", "node_exporter"),
        f"--web.listen-address=127.0.0.1:{port}",
        "--collector.disable-defaults",
        "--collector.cpu",
        "--collector.meminfo",
    ]
    targets = [
        {"targets": [f"127.0.0.1:{port}"], "labels": LABELS},
        {"targets": [f"127.0.0.1:{silent}"], "labels": {"instance_id": "i-0silent"}},
    ]
    config = [{"job_name": "node-exporter", "scrape_interval": "1s", "scrape_timeout": "1s", "static_configs": targets}]
    with process(command, folder / "node-exporter.log"):
        wait_until(lambda: answers(f"http://127.0.0.1:{port}/metrics"), "node-exporter")
        with real_prometheus(folder, config) as running:
            wait_until(lambda: running.query(queries.WORKER_CPU, time.time()), "two scrapes of node-exporter")
            yield running


def cpu_seconds() -> tuple[float, float]:
    """(idle, all) jiffies of this machine since boot, guest time not counted twice."""
    fields = [float(one) for one in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return fields[3], sum(fields)


def memory_bytes(name: str) -> int:
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines[name].split()[0]) * 1024


def test_the_busy_share_is_that_of_the_kernel_over_the_same_time(scraped: RealPrometheus) -> None:
    idle_before, all_before = cpu_seconds()
    begun = time.time()
    ends = begun + 4
    while time.time() < ends:
        sum(range(20_000))
    idle_after, all_after = cpu_seconds()
    busy = 100 * (1 - (idle_after - idle_before) / (all_after - all_before))
    text = queries.WORKER_CPU.replace("[5m]", "[3s]")
    ((labels, value),) = scraped.query(text, ends)
    assert labels == LABELS
    assert value == pytest.approx(busy, abs=25)
    assert value > 100 / cores() / 2


def cores() -> int:
    return sum(1 for line in Path("/proc/stat").read_text().splitlines() if line[:3] == "cpu" and line[3:4].isdigit())


def test_the_shipped_query_answers_between_0_and_100_for_the_live_target_only(scraped: RealPrometheus) -> None:
    ((labels, value),) = scraped.query(queries.WORKER_CPU, time.time())
    assert labels == LABELS
    assert 0 <= value <= 100


def test_cores_are_those_of_the_kernel(scraped: RealPrometheus) -> None:
    assert scraped.query(queries.WORKER_CORES, time.time()) == [(LABELS, float(cores()))]


def test_memory_is_that_of_the_kernel(scraped: RealPrometheus) -> None:
    assert scraped.query(queries.WORKER_MEMORY_TOTAL, time.time()) == [(LABELS, float(memory_bytes("MemTotal")))]
    ((labels, available),) = scraped.query(queries.WORKER_MEMORY_AVAILABLE, time.time())
    assert labels == LABELS
    assert available == pytest.approx(memory_bytes("MemAvailable"), abs=MEMORY_TOLERANCE_BYTES)


def test_the_batch_of_a_reading_holds_the_same_figures(scraped: RealPrometheus) -> None:
    rows = scraped.query(queries.WORKERS.text, time.time())
    assert {labels["figure"] for labels, _ in rows} == {"cpu", "cores", "memory_total", "memory_available"}
    assert {labels["instance_id"] for labels, _ in rows} == {INSTANCE}
