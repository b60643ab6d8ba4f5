"""The fake Prometheus by itself: its HTTP manners, its arithmetic, and what it has scraped when."""

from __future__ import annotations

import base64
import json
import math
from dataclasses import dataclass, field

import pytest

from node_fleet.adapters.prometheus import queries
from simulator.clock import VirtualClock
from simulator.cluster.model import SimulatedCluster
from simulator.cluster.objects import LABEL_HOSTNAME, USAGE_CPU_MILLI
from simulator.cluster.workloads import pod_object
from simulator.fakes.exposition import Sample, Targets, scrape, text
from simulator.fakes.prometheus import FakePrometheus, Row, histogram_quantile
from simulator.fakes.scrapes import Scrapes

OURS = {"Authorization": "Basic " + base64.b64encode(b"prometheus:simulator").decode()}


@dataclass
class WatchedCluster:
    """A server, two workers at 90 % and 10 %, and a Prometheus that watches them."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    cluster: SimulatedCluster = field(init=False)
    scrapes: Scrapes = field(init=False)
    fake: FakePrometheus = field(init=False)

    def __post_init__(self) -> None:
        self.cluster = SimulatedCluster(self.clock)
        self.cluster.add_server("i-0server", "us-east-1a")
        for name, cpu in (("i-0a", 1760), ("i-0b", 160)):
            self.cluster.add_worker(name, instance_type="t3.medium")
            usage = {USAGE_CPU_MILLI: str(cpu)}
            pod = pod_object(f"load-{name}", annotations=usage, nodeSelector={LABEL_HOSTNAME: name})
            self.cluster.create("pods", pod)
        self.scrapes = Scrapes(self.cluster, self.clock)
        self.fake = FakePrometheus(self.scrapes)

    def ask(self, query: str, later_seconds: float = 0) -> list[Row]:
        at = self.clock.now() + later_seconds
        status, _, body = self.fake.handle("/api/v1/query", {"query": query, "time": str(at)}, OURS)
        assert status == 200, body
        return [(one["metric"], float(one["value"][1])) for one in json.loads(body)["data"]["result"]]

    def cpu(self) -> dict[str, float]:
        return {labels["instance_id"]: value for labels, value in self.ask(queries.WORKER_CPU)}


@pytest.fixture
def watched() -> WatchedCluster:
    found = WatchedCluster()
    found.clock.advance(600)
    return found


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Basic d3Jvbmc6d3Jvbmc="}, {"Authorization": "Bearer x"}, {"authorization": ""}]
)
def test_without_the_right_user_nothing_is_answered(watched: WatchedCluster, headers: dict[str, str]) -> None:
    status, found, body = watched.fake.handle("/api/v1/query", {"query": queries.NODE}, headers)
    assert (status, body) == (401, b"Unauthorized\n")
    assert found["WWW-Authenticate"] == "Basic"


def test_a_query_that_is_not_ours_is_refused_and_not_guessed(watched: WatchedCluster) -> None:
    status, _, body = watched.fake.handle("/api/v1/query", {"query": "up == 1"}, OURS)
    assert status == 400
    assert json.loads(body)["errorType"] == "bad_data"
    assert json.loads(body)["error"].endswith("not up == 1")


def test_another_path_is_not_found_and_header_names_have_no_case(watched: WatchedCluster) -> None:
    assert watched.fake.handle("/graph", {}, {"AUTHORIZATION": OURS["Authorization"]})[0] == 404


def test_each_worker_shows_its_own_load_and_the_server_none(watched: WatchedCluster) -> None:
    truth = {node.instance_id: node.cpu_percent for node in watched.cluster.truth().nodes if node.role == "worker"}
    assert watched.cpu() == pytest.approx(truth)
    assert truth["i-0a"] > 8 * truth["i-0b"]


def test_a_new_worker_has_no_load_before_its_second_scrape(watched: WatchedCluster) -> None:
    watched.cluster.instance_started(instance_id="i-0c", instance_type="t3.small", az="us-east-1a", boot_seconds=20)
    watched.clock.advance(20 + 7)
    assert "i-0c" not in watched.cpu()
    assert ({"instance_id": "i-0c"}, 2.0) in watched.ask(queries.WORKER_CORES)
    watched.clock.advance(15)
    assert 0 < watched.cpu()["i-0c"] < 5


def test_a_dead_worker_leaves_with_the_next_scrape(watched: WatchedCluster) -> None:
    watched.cluster.fail_node("i-0a")
    assert watched.cpu().keys() == {"i-0a", "i-0b"}
    watched.clock.advance(15)
    assert watched.cpu().keys() == {"i-0b"}


def test_what_is_shown_is_what_was_scraped_and_not_what_is(watched: WatchedCluster) -> None:
    watched.cluster.cordon("i-0a")
    assert ({"node": "i-0a"}, 0.0) in watched.ask(queries.NODE_UNSCHEDULABLE)
    watched.clock.advance(15)
    assert ({"node": "i-0a"}, 1.0) in watched.ask(queries.NODE_UNSCHEDULABLE)


def test_no_waiting_pod_and_no_exporter_are_two_answers(watched: WatchedCluster) -> None:
    assert watched.ask(queries.PENDING_AGE) == []
    assert len(watched.ask(queries.PENDING.text)) == 1
    watched.scrapes.state_metrics_up = False
    watched.clock.advance(15)
    assert watched.ask(queries.PENDING.text) == []


def test_workers_without_fresh_samples_are_not_live(watched: WatchedCluster) -> None:
    behind = watched.clock.now() - watched.scrapes.last_at
    assert len(watched.ask(queries.WORKER_CPU, 60 - behind)) == 2
    assert watched.ask(queries.WORKER_CPU, 61 - behind) == []
    assert len(watched.ask(queries.NODE_READY, 299 - behind)) == 3
    assert watched.ask(queries.NODE_READY, 300 - behind) == []


def test_a_node_that_was_never_ready_counts_from_when_it_was_seen(watched: WatchedCluster) -> None:
    watched.cluster.fail_node("i-0a")
    watched.clock.advance(240)
    seconds = {labels["node"]: value for labels, value in watched.ask(queries.not_ready_seconds(1800))}
    assert seconds["i-0b"] == 0
    assert 200 <= seconds["i-0a"] <= 260


# arithmetic -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quantile", "expected"), [(0.5, 1.0), (0.25, 0.5), (0.75, 2.5), (0.9, 4.0), (0.99, 4.0), (0.05, 0.1)]
)
def test_quantiles_are_interpolated_inside_their_bucket(quantile: float, expected: float) -> None:
    buckets = [(1.0, 50.0), (2.0, 70.0), (4.0, 80.0), (math.inf, 100.0)]
    assert histogram_quantile(quantile, buckets) == pytest.approx(3.0 if quantile == 0.75 else expected)


def test_the_quantile_of_no_request_is_not_a_number() -> None:
    assert math.isnan(histogram_quantile(0.95, [(1.0, 0.0), (math.inf, 0.0)]))


# exposition -----------------------------------------------------------------------------------------------------------


def test_the_text_format_escapes_labels_and_keeps_every_digit() -> None:
    samples = [Sample("up", {"job": 'a"b\\c\nd'}, 1.0), Sample("bytes", {}, 123456789.125)]
    assert text(samples) == 'up{job="a\\"b\\\\c\\nd"} 1.0\nbytes 123456789.125\n'


def test_a_machine_without_power_is_a_failing_target_until_discovery_looks_again(watched: WatchedCluster) -> None:
    targets = Targets(watched.cluster)
    watched.cluster.instance_ended("i-0a")
    states = []
    for _ in range(4):
        ups = {s.labels.get("instance_id"): s.value for s in scrape(watched.cluster, targets) if s.name == "up"}
        states.append(ups.get("i-0a"))
        watched.clock.advance(15)
    assert states == [0.0, 0.0, None, None]


def test_two_replicas_of_the_exporter_say_everything_twice(watched: WatchedCluster) -> None:
    names = [s.name for s in scrape(watched.cluster, Targets(watched.cluster), replicas=2)]
    single = [s.name for s in scrape(watched.cluster, Targets(watched.cluster))]
    assert names.count("kube_pod_info") == 2 * single.count("kube_pod_info") > 0
