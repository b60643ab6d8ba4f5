"""CollectMetrics and the fake Prometheus, both compared with a real one that scraped the same metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from handlers import collect_metrics
from node_fleet.adapters.prometheus.http import PrometheusClient
from node_fleet.adapters.prometheus.reader import PrometheusReader
from node_fleet.adapters.prometheus.session import DeadlineSession
from node_fleet.domain.model.custom_metric import CustomMetric
from node_fleet.domain.model.errors import ServerUnreachableError
from node_fleet.domain.model.fleet_state import FleetState
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.payload import from_payload, to_payload
from node_fleet.settings import Settings
from simulator.cluster.load.meters import BUSY_SHARES
from simulator.cluster.workloads import pod_object
from tests.support.prometheus_fixture import PASSWORD, USERNAME, Fleet, RealPrometheus, real_prometheus
from tests.support.real_servers import free_port

CPU_TOLERANCE_POINTS = 0.5
MEMORY_TOLERANCE_POINTS = 0.1


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPrometheus]:
    with real_prometheus(tmp_path_factory.mktemp("prometheus")) as running:
        yield running


@dataclass
class Records:
    """Remembers what was recorded."""

    stored: list[Snapshot] = field(default_factory=list)
    latest: Snapshot | None = None

    def put_reading(self, snapshot: Snapshot) -> None:
        self.stored.append(snapshot)

    def latest_snapshot(self, since: int) -> Snapshot | None:
        return self.latest


Collect = Callable[..., Snapshot]


@pytest.fixture
def collect(monkeypatch: pytest.MonkeyPatch) -> Collect:
    """Run the real handler, with a real session, against a Prometheus at an URL, for a fleet at its present."""

    def run(fleet: Fleet, url: str = "", password: str = PASSWORD, **settings: Any) -> Snapshot:
        fitting = Settings(prometheus_url=url or fleet.server.url, prometheus_retries=0, **settings)
        clock = SimpleNamespace(now=lambda: int(fleet.clock.now()), sleep=lambda seconds: None)
        client = PrometheusClient(
            DeadlineSession(clock),
            fitting,
            address=lambda: "127.0.0.1",
            credentials=lambda fresh: (USERNAME, password),
            clock=clock,
        )
        tools = SimpleNamespace(
            settings=fitting,
            clock=clock,
            ec2=SimpleNamespace(with_standby=lambda: (fleet.instances(), ()), impaired=lambda before: frozenset()),
            state=SimpleNamespace(load=lambda **_: FleetState(cluster_id="test")),
            records=Records(),
            prometheus=PrometheusReader(client, fitting),
            server=SimpleNamespace(list_pending=unreachable),
        )
        monkeypatch.setattr(collect_metrics, "load_services", lambda: tools)
        snapshot: Snapshot = from_payload(
            Snapshot, collect_metrics.handler({"memory": to_payload(Memory())}, None)["snapshot"]
        )
        figures = (snapshot.cpu_percent, snapshot.memory_percent, snapshot.pending)
        assert len(tools.records.stored) == int(any(figure is not None for figure in figures))
        return snapshot

    return run


def unreachable() -> None:
    raise ServerUnreachableError("no server")


def same_as_truth(fleet: Fleet, snapshot: Snapshot) -> None:
    """The figures of the snapshot equal the state of the simulated cluster within the stated tolerances."""
    truth = fleet.cluster.truth()
    assert truth.cpu_percent is not None
    assert snapshot.source == "live"
    assert snapshot.missing == ()
    assert snapshot.cpu_percent == pytest.approx(truth.cpu_percent, abs=CPU_TOLERANCE_POINTS)
    assert snapshot.cpu_max_percent == pytest.approx(truth.cpu_max_percent, abs=CPU_TOLERANCE_POINTS)
    assert snapshot.memory_percent == pytest.approx(truth.memory_percent, abs=MEMORY_TOLERANCE_POINTS)
    assert snapshot.memory_max_percent == pytest.approx(truth.memory_max_percent, abs=MEMORY_TOLERANCE_POINTS)
    assert snapshot.pending_count == truth.unschedulable_pods
    assert len(snapshot.usable) == truth.usable_workers
    pods = {node.instance_id: node.pods for node in truth.nodes}
    assert all(worker.pods == pods[worker.instance_id] for worker in snapshot.usable)


def test_an_idle_fleet_reads_as_idle_as_it_is(server: RealPrometheus, collect: Collect) -> None:
    fleet = Fleet(server)
    for name in ("i-0a", "i-0b", "i-0c"):
        fleet.worker(name, cpu_milli=40)
    fleet.clock.advance(600)
    server.write(fleet.history)
    snapshot = collect(fleet)
    same_as_truth(fleet, snapshot)
    assert snapshot.cpu_percent is not None
    assert snapshot.cpu_percent < 10


def test_a_busy_fleet_of_unequal_workers_is_weighed_by_cores(server: RealPrometheus, collect: Collect) -> None:
    fleet = Fleet(server, replicas=2)
    fleet.worker("i-0a", instance_type="t3.xlarge", cpu_milli=3560, memory_mib=9000)
    fleet.worker("i-0b", cpu_milli=1760, memory_mib=3000)
    fleet.worker("i-0c", cpu_milli=560, memory_mib=500)
    for number in range(7):
        fleet.cluster.create(
            "pods", pod_object(f"large-{number}", cpu_milli=6000 + 1000 * (number % 2), memory_mib=512)
        )
    fleet.clock.advance(600)
    server.write(fleet.history)
    snapshot = collect(fleet)
    same_as_truth(fleet, snapshot)
    assert snapshot.cpu_percent == pytest.approx(100 * (3600 + 1800 + 600) / 8000, abs=CPU_TOLERANCE_POINTS)
    assert snapshot.pending is not None
    assert [(shape.cpu_milli, shape.count) for shape in snapshot.pending] == [(6000, 4), (7000, 3)]
    assert snapshot.pending[0].oldest_seconds == 600


@pytest.mark.parametrize("seconds_after", [30, 60, 120, 240, 360])
def test_a_worker_that_joined_inside_the_window_shows_its_own_load(
    server: RealPrometheus, collect: Collect, seconds_after: int
) -> None:
    fleet = Fleet(server)
    fleet.worker("i-0a", cpu_milli=1760)
    fleet.worker("i-0b", cpu_milli=1760)
    fleet.clock.advance(540)
    fleet.cluster.instance_started(instance_id="i-0c", instance_type="t3.medium", az="us-east-1a", boot_seconds=60)
    fleet.clock.advance(60 + seconds_after)
    server.write(fleet.history)
    snapshot = collect(fleet)
    same_as_truth(fleet, snapshot)
    assert len(snapshot.usable) == 3


@pytest.mark.parametrize("seconds_after", [15, 60, 120, 240])
def test_a_worker_that_left_no_longer_moves_the_figure(
    server: RealPrometheus, collect: Collect, seconds_after: int
) -> None:
    fleet = Fleet(server)
    fleet.worker("i-0a", cpu_milli=1760)
    fleet.worker("i-0b")
    fleet.clock.advance(600)
    fleet.cluster.delete("pods", "shop", "load-i-0b", grace_seconds=0)
    fleet.cluster.delete("nodes", "", "i-0b")
    fleet.cluster.instance_ended("i-0b")
    fleet.clock.advance(seconds_after)
    server.write(fleet.history)
    snapshot = collect(fleet)
    same_as_truth(fleet, snapshot)
    assert [worker.instance_id for worker in snapshot.workers] == ["i-0a"]


@pytest.mark.parametrize("seconds_after", [60, 120, 240])
def test_a_dead_worker_is_not_ready_and_out_of_every_figure(
    server: RealPrometheus, collect: Collect, seconds_after: int
) -> None:
    fleet = Fleet(server)
    fleet.worker("i-0a", cpu_milli=1360, memory_mib=2000)
    fleet.worker("i-0b", cpu_milli=1360, memory_mib=2000)
    fleet.worker("i-0c", cpu_milli=60)
    fleet.clock.advance(600)
    fleet.cluster.fail_node("i-0c")
    fleet.clock.advance(seconds_after)
    server.write(fleet.history)
    snapshot = collect(fleet)
    same_as_truth(fleet, snapshot)
    (dead,) = [worker for worker in snapshot.workers if worker.instance_id == "i-0c"]
    assert dead.phase == "not_ready"
    assert dead.not_ready_seconds == pytest.approx(seconds_after - 40, abs=75)


def test_cpu_may_come_from_cadvisor(server: RealPrometheus, collect: Collect) -> None:
    fleet = Fleet(server)
    fleet.worker("i-0a", cpu_milli=1760)
    fleet.clock.advance(600)
    server.write(fleet.history)
    truth = fleet.cluster.truth().cpu_percent
    waiting = BUSY_SHARES["iowait"] + BUSY_SHARES["steal"]
    assert truth is not None
    assert collect(fleet).cpu_percent == pytest.approx(truth, abs=CPU_TOLERANCE_POINTS)
    cadvisor = collect(fleet, cpu_source="cadvisor").cpu_percent
    assert cadvisor == pytest.approx(truth * (1 - waiting), abs=CPU_TOLERANCE_POINTS)


def test_a_wrong_password_is_one_sentence_that_names_the_secret(server: RealPrometheus, collect: Collect) -> None:
    fleet = Fleet(server)
    fleet.worker("i-0a")
    snapshot = collect(fleet, password="wrong")
    assert snapshot.source == "none"
    assert snapshot.problem == (
        f"Prometheus at {server.url} refuses the user name and password of secret node-fleet/prometheus-auth (HTTP 401)"
    )
    assert [worker.phase for worker in snapshot.workers] == ["unknown"]


def test_a_closed_port_is_one_sentence(server: RealPrometheus, collect: Collect) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    snapshot = collect(Fleet(server), url=url)
    assert snapshot.source == "none"
    assert snapshot.problem == f"Prometheus at {url} gives no answer to query nodes: cannot connect"


def test_a_custom_query_that_prometheus_refuses_is_named_and_stops_nothing_else(
    server: RealPrometheus, collect: Collect
) -> None:
    fleet = Fleet(server)
    fleet.worker("i-0a", cpu_milli=500)
    fleet.clock.advance(600)
    server.write(fleet.history)
    broken = CustomMetric(name="orders", query="sum(rate(orders_total[5m])", high=10, low=1)
    snapshot = collect(fleet, custom_metrics=(broken,))
    assert snapshot.source == "live"
    assert snapshot.cpu_percent is not None
    assert snapshot.custom[0].value is None
    assert snapshot.missing[0].startswith("custom:orders (Prometheus refuses query orders: bad_data: invalid parameter")


def test_an_empty_answer_is_missing_and_never_zero(server: RealPrometheus, collect: Collect) -> None:
    fleet = Fleet(server)
    fleet.worker("i-0a")
    snapshot = collect(fleet)
    assert snapshot.source == "live"
    assert set(snapshot.missing) == {"nodes", "requested", "pending", "cpu_percent", "memory_percent"}
    assert snapshot.cpu_percent is None
    assert snapshot.pending is None


def test_no_pending_pod_is_zero_but_an_exporter_that_is_gone_is_missing(
    server: RealPrometheus, collect: Collect
) -> None:
    fleet = Fleet(server)
    fleet.worker("i-0a", cpu_milli=500)
    fleet.clock.advance(300)
    living = Fleet.instances(fleet)
    fleet.history.replicas = 0
    fleet.clock.advance(60)
    server.write(fleet.history)
    snapshot = collect(fleet)
    assert living == fleet.instances()
    assert snapshot.pending is None
    assert {"nodes", "pending", "requested"} <= set(snapshot.missing)
    assert snapshot.cpu_percent == pytest.approx(27, abs=CPU_TOLERANCE_POINTS)
