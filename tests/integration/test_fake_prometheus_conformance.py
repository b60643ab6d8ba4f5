"""The fake Prometheus of the simulator answers every query of node-fleet as a real Prometheus does."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from node_fleet.adapters.prometheus import queries
from simulator.cluster.load.applications import ApplicationSpec
from simulator.cluster.load.curves import constant
from simulator.cluster.workloads import pod_object
from simulator.fakes.prometheus import FakePrometheus
from simulator.fakes.scrapes import Scrapes
from tests.support.prometheus_fixture import PASSWORD, USERNAME, Fleet, RealPrometheus, real_prometheus

CONFORMANCE_TOLERANCE = 1e-9


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPrometheus]:
    with real_prometheus(tmp_path_factory.mktemp("prometheus")) as running:
        yield running


BATCHES = (queries.NODES, queries.PODS, queries.PENDING, queries.WORKERS, queries.CUSTOM)
TEXTS: dict[str, str] = {
    **{f"{batch.name}.{name}": text for batch in BATCHES for name, text in batch.parts.items()},
    **{batch.name: batch.text for batch in BATCHES},
    "pending_requests": queries.PENDING_REQUESTS,
    "node_cpu_cadvisor": queries.NODE_CPU_CADVISOR,
    "not_ready_seconds": queries.not_ready_seconds(1800),
    "not_ready_seconds over a short window": queries.not_ready_seconds(300),
}


@dataclass
class Eventful:
    """The answers of the fake Prometheus along the story, and the real server."""

    server: RealPrometheus
    answers: dict[tuple[float, str], list[tuple[dict[str, str], float]]]


@pytest.fixture(scope="module")
def eventful(server: RealPrometheus) -> Eventful:
    fleet = Fleet(server, replicas=2)
    fake = FakePrometheus(Scrapes(fleet.cluster, fleet.clock), username=USERNAME, password=PASSWORD)
    reader = FakeReader(fake)
    found = Eventful(server, {})
    for act in _story(fleet):
        act()
        for seconds in (14, 31, 60, 75, 120):
            fleet.clock.advance(seconds)
            for text in TEXTS.values():
                found.answers[fleet.clock.now(), text] = reader.query(text, fleet.clock.now())
    server.write(fleet.history)
    return found


def _story(fleet: Fleet) -> list[Callable[[], None]]:
    cluster = fleet.cluster
    gates = [{"name": "example.com/quota"}]

    def begin() -> None:
        fleet.worker("i-0a", cpu_milli=1300)
        fleet.worker("i-0b", instance_type="t3.xlarge", cpu_milli=400)
        shop = ApplicationSpec(name="web", replicas=3, curve=constant(90), cpu_milli_per_request=8, queues=True)
        cluster.add_application(shop)
        cluster.add_application(ApplicationSpec(name="api", replicas=1, curve=constant(300), cpu_milli_per_request=5))

    def wait_for_capacity() -> None:
        cluster.create("pods", pod_object("gated", schedulingGates=gates))
        for number in range(3):
            cluster.create("pods", pod_object(f"big-{number}", cpu_milli=5000, memory_mib=100 + number))
        first = pod_object("with-init", cpu_milli=100)
        first["spec"]["initContainers"] = [
            {"name": "init", "resources": {"requests": {"cpu": "9", "memory": "32Mi"}, "limits": {"memory": "64Mi"}}}
        ]
        cluster.create("pods", first)

    def join() -> None:
        cluster.instance_started(instance_id="i-0c", instance_type="t3.large", az="us-east-1b", boot_seconds=20)

    def disturb() -> None:
        cluster.cordon("i-0a")
        cluster.set_exporter("i-0b", up=False)
        cluster.set_node_condition("i-0b", "DiskPressure", holds=True)

    def die() -> None:
        cluster.set_exporter("i-0b", up=True)
        cluster.fail_node("i-0c")

    def leave() -> None:
        cluster.instance_ended("i-0a", voluntary=False)
        for number in range(3):
            cluster.delete("pods", "shop", f"big-{number}", grace_seconds=0)

    def revive() -> None:
        cluster.recover_node("i-0c")
        cluster.delete("nodes", "", "i-0a")

    return [begin, wait_for_capacity, join, disturb, die, leave, revive]


@dataclass
class FakeReader:
    """Asks the fake Prometheus as the adapter does, over HTTP's shapes."""

    fake: FakePrometheus

    def query(self, text: str, at: float) -> list[tuple[dict[str, str], float]]:
        import base64
        import json

        token = base64.b64encode(f"{USERNAME}:{PASSWORD}".encode()).decode()
        status, _, body = self.fake.handle(
            "/api/v1/query", {"query": text, "time": repr(at)}, {"Authorization": f"Basic {token}"}
        )
        assert status == 200, body
        return [(one["metric"], float(one["value"][1])) for one in json.loads(body)["data"]["result"]]


@pytest.mark.parametrize("name", TEXTS)
def test_the_fake_prometheus_answers_as_the_real_one(eventful: Eventful, name: str) -> None:
    compared = filled = 0
    for (at, text), rows in eventful.answers.items():
        if text == TEXTS[name]:
            ours, real = _by_labels(rows), _by_labels(eventful.server.query(text, at))
            assert ours.keys() == real.keys(), f"at {at}"
            for labels, value in real.items():
                assert _close(ours[labels], value), f"at {at}: {labels}"
            compared, filled = compared + 1, filled + bool(real)
    assert compared == 35
    assert filled >= 5, "the story must make this query answer something"


def _by_labels(rows: list[tuple[dict[str, str], float]]) -> dict[tuple[tuple[str, str], ...], float]:
    found = {tuple(sorted(labels.items())): value for labels, value in rows}
    assert len(found) == len(rows)
    return found


def _close(ours: float, real: float) -> bool:
    both_nan = math.isnan(ours) and math.isnan(real)
    return both_nan or math.isclose(ours, real, rel_tol=CONFORMANCE_TOLERANCE, abs_tol=1e-6)
