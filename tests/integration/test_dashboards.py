"""The five Grafana dashboards: their addresses and panels, and every Prometheus query run for its answer.

The real Prometheus has received nothing but the simulated world's exposition.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import yaml

from node_fleet.adapters.prometheus import queries
from node_fleet.adapters.state_store import AcquireStatus
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.notify.exposition import exposition, stored
from node_fleet.domain.notify.totals import packed
from node_fleet.logs import NAMESPACE, UNITS
from node_fleet.settings import Settings
from simulator.clock import VirtualClock
from simulator.cluster.load.applications import ApplicationSpec
from simulator.cluster.load.curves import flash_sale
from simulator.cluster.model import SimulatedCluster
from simulator.cluster.workloads import pod_object
from tests.support.prometheus_fixture import SCRAPE_SECONDS, History, RealPrometheus, real_prometheus
from tests.support.real_servers import CLUSTER
from tests.support.shipped_scripts import load_server
from tools.dashboards import LOCK_STATUSES, files

METRICS = load_server("state_metrics")
SPOT, ON_DEMAND = ("i-0aaa", "i-0bbb", "i-0ccc"), ("i-0ddd",)
SEED_PANELS = {
    "cluster-overview": {
        *("Workers", "CPU", "CPU by worker", "Memory", "Memory by worker", "Unschedulable pods"),
        *("Network I/O", "Disk I/O", "Scaling events timeline", "Pod distribution by node"),
    },
    "autoscaler-perf": {
        *("Lambda duration, p95", "Scale-up and scale-down events", "Node join latency", "Decision reasons"),
    },
    "app-metrics": {"Request rate", "Latency", "Error rate", "Queue depth"},
    "cost-tracking": {"Hourly cost", "Daily projection", "Savings against the baseline", "Spot share"},
    "node-fleet": set(),
}


def dashboards() -> dict[str, dict[str, Any]]:
    return {name.removesuffix(".json"): json.loads(text) for name, text in files().items()}


def prometheus_targets() -> list[tuple[str, str, str]]:
    """Dashboard, panel and query of everything that asks Prometheus."""
    return [
        (uid, f"{panel['title']} {target['refId']}", target["expr"])
        for uid, dashboard in dashboards().items()
        for panel in dashboard["panels"]
        for target in panel["targets"]
        if target["datasource"]["uid"] == "prometheus"
    ]


def expression(uid: str, title: str, reference: str = "A") -> str:
    (found,) = [query for one, panel, query in prometheus_targets() if (one, panel) == (uid, f"{title} {reference}")]
    return found


@value_class
class Recorded:
    """A world in the middle of a flash sale, as the real Prometheus knows it."""

    server: RealPrometheus
    cluster: SimulatedCluster
    at: float

    def ask(self, query: str) -> list[tuple[dict[str, str], float]]:
        return self.server.query(query, self.at)

    def value(self, query: str) -> float:
        ((_, value),) = self.ask(query)
        return value


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    with real_prometheus(tmp_path_factory.mktemp("prometheus")) as server:
        clock = VirtualClock(server.next_start())
        cluster = SimulatedCluster(clock)
        cluster.add_server("i-0server", "us-east-1a")
        for number, name in enumerate(SPOT + ON_DEMAND):
            market = "spot" if name in SPOT else "on-demand"
            cluster.add_worker(name, az=f"us-east-1{'ab'[number % 2]}", market=market)
        curve = flash_sale(base=40, peak=900, start_seconds=300, ramp_seconds=60, hold_seconds=600, fall_seconds=60)
        cluster.add_application(ApplicationSpec(name="checkout", replicas=6, queues=True, curve=curve))
        history = History(cluster, clock)
        clock.every(SCRAPE_SECONDS, lambda: add_own_metrics(history), first=clock.now() + 1)
        clock.advance(420)
        for name in ("too-big-1", "too-big-2"):
            cluster.create("pods", pod_object(name, cpu_milli=8000))
        gates = {"schedulingGates": [{"name": "example.com/later"}]}
        cluster.create("pods", pod_object("gated", **gates))
        clock.advance(180)
        server.write(history)
        yield Recorded(server=server, cluster=cluster, at=history_end(history))


def add_own_metrics(history: History) -> None:
    """What cluster/server/state_metrics.py gives: a fleet that removes a worker, and counts that grow."""
    now = int(history.clock.now())
    keys = ("decisions/none/", "runs/succeeded/", "launches/joined/cpu", "removals/forgotten/idle")
    counts = dict.fromkeys(keys, now)
    memory, snapshot = Memory(succeeded_at=now - 60, totals=packed(counts)), Snapshot(at=now, source="live", pending=())
    text = exposition(memory, snapshot, Policy(), now=now, change=0, usd_per_hour=0.2, node_count=4)
    operation = {"M": {"started_at": {"N": str(now - 90)}, "kind": {"S": "scale_down"}}}
    item = {"exposition": {"S": stored(text)}, "lock_acquired_at": {"N": str(now)}, "operation": operation}
    served = METRICS.metrics(item, now)
    for line in served.splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            labels = dict(re.findall(r'([a-z]+)="([^"]*)"', name))
            named = {"__name__": name.partition("{")[0], "job": "node-fleet", "instance": "s", **labels}
            sample = (history.clock.now(), struct.pack("<d", float(value)))
            history.series.setdefault(tuple(sorted(named.items())), []).append(sample)


def history_end(history: History) -> float:
    return max(at for samples in history.series.values() for at, _ in samples)


@pytest.mark.parametrize(
    ("uid", "panel", "query"), prometheus_targets(), ids=[f"{uid}: {panel}" for uid, panel, _ in prometheus_targets()]
)
def test_every_prometheus_query_answers_with_data(recorded: Recorded, uid: str, panel: str, query: str) -> None:
    answer = recorded.ask(query)
    assert answer, query
    assert all(math.isfinite(value) for _, value in answer), "NaN is no data"


def test_counts_and_shares_are_those_of_the_cluster(recorded: Recorded) -> None:
    workers = len(SPOT) + len(ON_DEMAND)
    assert recorded.value(expression("cluster-overview", "Workers")) == workers
    assert recorded.value(expression("cluster-overview", "Workers over time", "B")) == workers
    assert recorded.value(expression("cost-tracking", "Spot share")) == 100 * len(SPOT) / workers
    by_market = {labels["market"]: n for labels, n in recorded.ask(expression("cost-tracking", "Workers by market"))}
    assert by_market == {"spot": len(SPOT), "on-demand": len(ON_DEMAND)}


def test_the_gated_pod_is_not_counted_as_unschedulable(recorded: Recorded) -> None:
    waiting = [pod for pod in recorded.cluster.pods() if pod.unschedulable and not pod.gated]
    assert [pod for pod in recorded.cluster.pods() if pod.gated]
    assert len(waiting) >= 2
    assert recorded.value(expression("cluster-overview", "Unschedulable pods")) == len(waiting)


def test_the_alert_fires_for_exactly_the_pods_that_a_reading_counts(recorded: Recorded) -> None:
    groups = yaml.safe_load((CLUSTER / "monitoring/prometheus/rules.yml").read_text())["groups"]
    (alert,) = [rule["expr"] for group in groups for rule in group["rules"] if rule["alert"] == "UnschedulablePods"]
    counted = recorded.ask(queries.PENDING_AGE)
    assert recorded.value(alert) == len(counted) > 0
    before_the_sale = recorded.at - 500
    assert (
        recorded.server.query(alert, before_the_sale)
        == recorded.server.query(queries.PENDING_AGE, before_the_sale)
        == []
    )


def test_no_unschedulable_pod_reads_as_0_and_a_dead_exporter_as_nothing(recorded: Recorded) -> None:
    query = expression("cluster-overview", "Unschedulable pods")
    before_the_sale, before_the_cluster = recorded.at - 500, recorded.at - 3600
    assert recorded.server.query(query, before_the_sale)[0][1] == 0
    assert recorded.server.query(query, before_the_cluster) == []


def test_cpu_and_memory_are_those_of_the_workers_not_of_the_server(recorded: Recorded) -> None:
    truth = {node.instance_id: node for node in recorded.cluster.truth().nodes if node.role == "worker"}
    for labels, percent in recorded.ask(expression("cluster-overview", "CPU by worker")):
        assert 0 < percent <= 100, labels
    shown = {labels["instance_id"] for labels, _ in recorded.ask(expression("cluster-overview", "CPU by worker"))}
    assert (
        shown
        == set(truth)
        == {labels["instance_id"] for labels, _ in recorded.ask(expression("cluster-overview", "Memory by worker"))}
    )


def test_the_heatmap_shows_every_pod_on_its_node(recorded: Recorded) -> None:
    shown = {
        labels["node"]: n for labels, n in recorded.ask(expression("cluster-overview", "Pod distribution by node"))
    }
    placed = [pod.node for pod in recorded.cluster.pods() if pod.node]
    assert shown == {node: placed.count(node) for node in set(placed)}


def test_no_error_reads_as_0_percent_not_as_nothing(recorded: Recorded) -> None:
    query = expression("app-metrics", "Error rate")
    without_series = query.replace('status=~"5.."', 'status="599"')
    assert recorded.value(without_series) == 0


UNITS_OF_PANELS = {
    "cluster-overview": {
        "Workers": "short",
        "CPU": "percent",
        "Memory": "percent",
        "Unschedulable pods": "short",
        "Workers over time": "short",
        "Scaling events timeline": "short",
        "CPU by worker": "percent",
        "Memory by worker": "percent",
        "Network I/O": "binBps",
        "Disk I/O": "binBps",
        "Pod distribution by node": "short",
    },
    "autoscaler-perf": {
        "Lambda duration, median": "ms",
        "Lambda duration, p95": "ms",
        "Scale-up and scale-down events": "short",
        "Node join latency": "s",
        "Drain time": "s",
        "Failures": "short",
        "Decision reasons": "short",
        "Lock and pause": "short",
        "Held lock and pauses": "short",
    },
    "app-metrics": {"Request rate": "reqps", "Latency": "ms", "Error rate": "percent", "Queue depth": "short"},
    "cost-tracking": {
        "Hourly cost": "currencyUSD",
        "Daily projection": "currencyUSD",
        "Savings against the baseline": "currencyUSD",
        "Savings": "percent",
        "Spot share": "percent",
        "Workers by market": "short",
    },
    "node-fleet": {
        "Since the last successful run": "s",
        "Pending pods seen": "short",
        "Cost per hour": "currencyUSD",
        "Paused": "short",
        "Workers": "short",
        "Age of lock and operation": "s",
        "Decisions per hour": "short",
        "Runs per hour": "short",
        "Launches per hour": "short",
        "Removals per hour": "short",
    },
}
"""What the query of each panel returns: of bytes, a rate per second; of CPU and memory, 0 to 100."""
UNIT_OF_METRIC = {"Percent": "percent", "Count": "short", "Seconds": "s", "None": "currencyUSD"}


def test_every_panel_has_the_unit_of_what_its_query_returns() -> None:
    found = {
        uid: {panel["title"]: panel["fieldConfig"]["defaults"]["unit"] for panel in one["panels"]}
        for uid, one in dashboards().items()
    }
    assert found == UNITS_OF_PANELS


def test_a_panel_of_a_metric_has_the_unit_with_which_the_functions_write_it() -> None:
    checked = 0
    for one in dashboards().values():
        for panel in one["panels"]:
            for target in panel["targets"]:
                if (name := target.get("metricName")) and not target["hide"]:
                    assert panel["fieldConfig"]["defaults"]["unit"] == UNIT_OF_METRIC[UNITS[name].value], panel["title"]
                    checked += 1
    assert checked > 5


def test_a_share_is_a_percentage_and_a_rate_counts_bytes(recorded: Recorded) -> None:
    for uid, title, query in prometheus_targets():
        if UNITS_OF_PANELS[uid][title[:-2]] == "percent":
            values = [value for _, value in recorded.ask(query)]
            assert all(0 <= value <= 100 for value in values), title
            assert title.startswith("Error rate") or max(values) > 1, title
    received = recorded.ask(expression("cluster-overview", "Network I/O"))
    devices = 'device!~"lo|veth.*|cni.*|flannel.*"'
    raw = recorded.ask(f"sum by (instance_id) (rate(node_network_receive_bytes_total{{{devices}}}[5m]))")
    assert dict(map(_by_instance, received)) == dict(map(_by_instance, raw))


def _by_instance(sample: tuple[dict[str, str], float]) -> tuple[str, float]:
    return sample[0]["instance_id"], sample[1]


def test_the_panel_of_workers_has_dashed_lines_at_the_limits_of_the_fleet(recorded: Recorded) -> None:
    (panel,) = [one for one in dashboards()["cluster-overview"]["panels"] if one["title"] == "Workers over time"]
    legends = {target["legendFormat"]: target["refId"] for target in panel["targets"]}
    for name, value in (("minimum", Settings().min_workers), ("maximum", Settings().max_workers)):
        assert recorded.value(expression("cluster-overview", "Workers over time", legends[name])) == value
    dashed = {
        one["matcher"]["options"]
        for one in panel["fieldConfig"]["overrides"]
        if any(part["id"] == "custom.lineStyle" for part in one["properties"])
    }
    assert dashed == {"minimum", "maximum"}


def test_a_worker_that_joins_or_is_removed_is_marked_once_and_a_first_reading_is_not(recorded: Recorded) -> None:
    clock = VirtualClock(recorded.server.next_start())
    cluster = SimulatedCluster(clock)
    cluster.add_server("i-0server", "us-east-1a")
    cluster.add_worker("i-0aaa", az="us-east-1a", market="spot")
    history = History(cluster, clock)
    start = clock.now()
    clock.advance(300)
    cluster.add_worker("i-0bbb", az="us-east-1a", market="spot")
    clock.advance(300)
    cluster.instance_ended("i-0aaa")
    cluster.delete("nodes", "", "i-0aaa")
    clock.advance(300)
    recorded.server.write(history)
    marked: dict[str, list[str]] = {}
    for one in dashboards()["cluster-overview"]["annotations"]["list"]:
        assert (one["step"], one["datasource"]["uid"], one["enable"]) == ("60s", "prometheus", True)
        answers = [recorded.server.query(one["expr"], start + 60 * minute) for minute in range(15)]
        marked[one["name"]] = [labels["node"] for answer in answers for labels, _ in answer]
    assert marked == {"Worker joined": ["i-0bbb"], "Worker removed": ["i-0aaa"]}


def test_the_statuses_of_the_lock_are_those_that_the_function_logs() -> None:
    assert set(LOCK_STATUSES) == set(get_args(AcquireStatus))


def test_the_committed_files_are_what_the_generator_makes() -> None:
    folder = CLUSTER / "monitoring/grafana/dashboards"
    assert {file.name: file.read_text() for file in folder.iterdir()} == files()


def test_the_dashboards_stand_at_the_seeds_addresses_with_the_seeds_panels() -> None:
    found = {uid: {panel["title"] for panel in one["panels"]} for uid, one in dashboards().items()}
    assert set(found) == set(SEED_PANELS)
    assert {uid: one["uid"] for uid, one in dashboards().items()} == {uid: uid for uid in found}
    for uid, panels in SEED_PANELS.items():
        assert panels <= found[uid]
    latency = [panel for _, panel, _ in prometheus_targets() if panel.startswith("Latency")]
    assert len(latency) == 2


def test_the_events_timeline_is_green_up_and_yellow_down() -> None:
    (panel,) = [one for one in dashboards()["cluster-overview"]["panels"] if "timeline" in one["title"]]
    colours = {
        one["matcher"]["options"]: one["properties"][0]["value"]["fixedColor"]
        for one in panel["fieldConfig"]["overrides"]
    }
    assert colours == {"scale-up": "green", "scale-down": "yellow"}


def cloudwatch_targets() -> list[dict[str, Any]]:
    targets = [t for one in dashboards().values() for panel in one["panels"] for t in panel["targets"]]
    return [target for target in targets if target["datasource"]["uid"] == "cloudwatch"]


def test_cloudwatch_panels_ask_only_for_metrics_that_the_functions_write() -> None:
    asked = {target["metricName"] for target in cloudwatch_targets() if "metricName" in target}
    assert asked <= set(UNITS)
    assert {target["namespace"] for target in cloudwatch_targets() if "namespace" in target} == {NAMESPACE}


def test_metric_math_names_only_metrics_of_its_own_panel_and_every_identifier_once() -> None:
    for dashboard in dashboards().values():
        for panel in dashboard["panels"]:
            identifiers = [t["id"] for t in panel["targets"] if t.get("id")]
            assert len(identifiers) == len(set(identifiers)), panel["title"]
            for target in panel["targets"]:
                formula = target.get("expression", "")
                if target.get("metricEditorMode") == 1 and "SEARCH" not in formula:
                    assert set(re.findall(r"(?<!\$)\b[a-z]\w*", formula)) <= set(identifiers), panel["title"]


def test_every_source_and_variable_that_a_panel_uses_exists() -> None:
    text = (CLUSTER / "monitoring/grafana/datasources.yml").read_text()
    sources = {one["uid"]: one["type"] for one in yaml.safe_load(text)["datasources"]}
    for dashboard in dashboards().values():
        variables = {one["name"] for one in dashboard["templating"]["list"]}
        for panel in dashboard["panels"]:
            assert sources[panel["datasource"]["uid"]] == panel["datasource"]["type"]
        used = set(re.findall(r"\$(\w+)", json.dumps(dashboard["panels"])))
        assert used <= variables, dashboard["uid"]


def test_panels_never_overlap_and_stay_on_the_grid() -> None:
    for dashboard in dashboards().values():
        taken: set[tuple[int, int]] = set()
        for panel in dashboard["panels"]:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            assert at["x"] + at["w"] <= 24
            assert not cells & taken, panel["title"]
            taken |= cells
