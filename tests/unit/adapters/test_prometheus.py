"""PrometheusReader: the reading that it makes of the answers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.adapters.prometheus import queries
from node_fleet.adapters.prometheus.reader import MAX_SHAPES, PodKey, pod_shapes
from node_fleet.domain.model.custom_metric import CustomMetric
from node_fleet.domain.model.errors import MetricsUnavailableError
from node_fleet.settings import Settings
from tests.support.fake_prometheus import NOW, QUIET_REQUESTS, Bench, Rows, bench, fleet_rows, reply, worker_rows

UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"


def pod(number: int, uid: str = "") -> dict[str, str]:
    return {"namespace": "shop", "pod": f"p{number}", "uid": uid or f"u{number}"}


def test_a_quiet_reading_takes_five_requests_all_at_the_same_instant() -> None:
    found = bench()
    found.reader.read(NOW)
    assert len(found.session.forms) == QUIET_REQUESTS
    assert {form["time"] for form in found.session.forms} == {str(NOW)}


def test_a_worker_is_read_whole() -> None:
    node = bench().reader.read(NOW).nodes[0]
    assert (node.node_name, node.provider_id, node.instance_id) == ("i-a", "aws:///a/i-a", "i-a")
    assert (node.ready, node.unschedulable, node.usable) == (True, False, True)
    assert (node.cores, node.cpu_percent, node.memory_used_mib, node.memory_total_mib) == (2, 50, 3072, 4096)
    assert (node.cpu_allocatable_milli, node.memory_allocatable_mib, node.pods_allocatable) == (1900, 3600, 110)
    assert (node.cpu_requested_milli, node.memory_requested_mib, node.pods) == (750, 0, 4)


@pytest.mark.parametrize(
    ("figure", "bound", "shown", "value"),
    [
        ("cores", 4096, "cores", 4096),
        ("memory_total", 2**46, "memory_total_mib", 2**26),
        ("pods", 10_000, "pods", 10_000),
    ],
)
def test_a_figure_at_its_bound_is_read_and_one_beyond_it_is_refused(
    figure: str, bound: int, shown: str, value: int
) -> None:
    labels = {"node": "i-a"} if figure == "pods" else {"instance_id": "i-a"}
    for stated, kept in ((bound, value), (bound * 1.01, None)):
        reading = bench(**{figure: [(labels, stated)]}).reader.read(NOW)
        assert (getattr(reading.nodes[0], shown), len(reading.refused)) == (kept, int(kept is None))


@pytest.mark.parametrize(("stated", "seconds"), [(864_000, 864_000), (1e9, 315_360_000)])
def test_a_pod_has_waited_for_ten_years_at_most(stated: float, seconds: int) -> None:
    (shape,) = bench(age=[(pod(1), stated)]).reader.pending(NOW) or ()
    assert shape.oldest_seconds == seconds


def test_the_server_is_in_no_figure() -> None:
    reading = bench().reader.read(NOW)
    assert [node.node_name for node in reading.nodes] == ["i-a", "i-b"]
    assert reading.missing == ()


@pytest.mark.parametrize(
    ("rows", "shapes"),
    [
        ([(pod(1) | {"instance": "10.42.0.5:8080"}, 40), (pod(1) | {"instance": "10.42.1.7:8080"}, 41)], [(1, 41)]),
        ([(pod(1, "old"), 40), (pod(1, "new"), 3)], [(2, 40)]),
    ],
    ids=["one pod shown by two exporters", "two pods of one name"],
)
def test_pods_are_counted_by_their_uid(rows: Rows, shapes: list[tuple[int, int]]) -> None:
    pending = bench(age=rows).reader.pending(NOW)
    assert pending is not None
    assert [(shape.count, shape.oldest_seconds) for shape in pending] == shapes


def test_a_series_without_the_name_of_its_node_counts_for_no_worker() -> None:
    nodes = bench(pods=[({"node": "i-a"}, 4), ({}, 9), ({"node": "i-b"}, 1)]).reader.read(NOW).nodes
    assert [(node.node_name, node.pods) for node in nodes] == [("i-a", 4), ("i-b", 1)]


def test_an_empty_answer_is_missing_and_never_zero() -> None:
    found = Bench()
    reading = found.reader.read(NOW)
    assert (reading.cpu_percent, reading.memory_percent, reading.pending, reading.nodes) == (None, None, None, ())
    assert reading.missing == ("nodes", "requested", "cpu_percent", "memory_percent", "pending")


def test_no_waiting_pod_is_none_waiting_while_the_exporter_lives() -> None:
    assert bench().reader.pending(NOW) == ()
    assert bench(pods_known=[]).reader.pending(NOW) is None


def test_the_query_counts_only_what_the_scheduler_could_not_place_and_no_gate_holds() -> None:
    assert "kube_pod_status_unschedulable" in queries.PENDING_AGE
    assert 'reason="SchedulingGated"} == 1' in queries.PENDING_AGE
    assert "kube_pod_status_unschedulable" in queries.PENDING_REQUESTS
    assert 'phase="Pending"' not in queries.PENDING.text + queries.PENDING_REQUESTS


def test_the_cpu_query_divides_by_all_modes_and_takes_live_targets_only() -> None:
    assert 'mode="idle"' in queries.WORKER_CPU
    assert 'mode!="idle"' not in queries.WORKER_CPU
    assert 'up{job="node-exporter"' in queries.WORKER_CPU


def test_with_cadvisor_as_source_its_cpu_goes_before_node_exporters_where_there_is_one() -> None:
    found = Bench(settings=Settings(cpu_source="cadvisor"))
    found.session.figures = fleet_rows(worker_rows("a"), worker_rows("b")) | {"cadvisor": [({"node": "i-a"}, 70)]}
    assert [node.cpu_percent for node in found.reader.read(NOW).nodes] == [70, 50]


def test_requests_are_asked_only_when_a_pod_waits() -> None:
    found = bench(age=[(pod(1), 40)])
    found.reader.read(NOW)
    assert [form["query"] for form in found.session.forms].count(queries.PENDING_REQUESTS) == 1
    quiet = bench()
    quiet.reader.read(NOW)
    assert queries.PENDING_REQUESTS not in [form["query"] for form in quiet.session.forms]


def test_a_pod_too_large_for_any_worker_keeps_its_size_and_name() -> None:
    requests_: Rows = [(pod(1) | {"resource": "cpu"}, 8), (pod(1) | {"resource": "memory"}, 4096 * 2**20)]
    pending = bench(age=[(pod(1), 40)], pending_requests=requests_).reader.pending(NOW)
    assert pending is not None
    assert (pending[0].cpu_milli, pending[0].memory_mib, pending[0].example) == (8000, 4096, "shop/p1")


def test_a_pod_that_requests_nothing_has_size_zero() -> None:
    pending = bench(age=[(pod(1), 40)]).reader.pending(NOW)
    assert pending is not None
    assert (pending[0].cpu_milli, pending[0].memory_mib) == (0, 0)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
def test_a_value_that_is_not_finite_is_missing(value: str) -> None:
    reading = bench(cpu=[({"instance_id": "i-a"}, value), ({"instance_id": "i-b"}, "80")]).reader.read(NOW)
    assert reading.nodes[0].cpu_percent is None
    assert reading.cpu_percent == 80


@pytest.mark.parametrize(
    ("change", "usable"),
    [
        ({"ready": [({"node": "i-a"}, 0)]}, False),
        ({"ready": [({"node": "server"}, 1), ({"node": "i-b"}, 1)]}, False),
        ({"unschedulable": [({"node": "i-a"}, 1)]}, False),
        ({"unschedulable": [({"node": "server"}, 0), ({"node": "i-b"}, 0)]}, False),
        ({"taint": [({"node": "i-a", "key": UNINITIALIZED}, 1)]}, True),
        ({"taint": [({"node": "i-a", "key": UNINITIALIZED, "effect": "NoSchedule"}, 1)]}, False),
        ({"taint": [({"node": "i-a", "key": "team", "value": "batch", "effect": "NoSchedule"}, 1)]}, True),
    ],
)
def test_usable_is_ready_and_not_cordoned_and_without_a_blocking_taint(change: dict[str, Rows], usable: bool) -> None:
    nodes = {node.node_name: node for node in bench(**change).reader.read(NOW).nodes}
    assert nodes["i-a"].usable is usable


def test_taints_are_written_as_kubectl_writes_them() -> None:
    taints: Rows = [
        ({"node": "i-a", "key": "team", "value": "batch", "effect": "NoSchedule"}, 1),
        ({"node": "i-a", "key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}, 1),
    ]
    node = bench(taint=taints).reader.read(NOW).nodes[0]
    assert node.taints == ("node.kubernetes.io/not-ready:NoExecute", "team=batch:NoSchedule")
    assert node.blocking_taints == ("node.kubernetes.io/not-ready:NoExecute",)


def test_how_long_a_worker_is_not_ready_is_asked_only_when_one_is() -> None:
    found = bench(ready=[({"node": "i-a"}, 0), ({"node": "i-b"}, 1)], not_ready=[({"node": "i-a"}, 1260)])
    nodes = found.reader.nodes(NOW)
    assert [node.not_ready_seconds for node in nodes] == [1260, 0]
    assert len(found.session.forms) == 2
    quiet = bench()
    quiet.reader.nodes(NOW)
    assert len(quiet.session.forms) == 1


def test_requests_and_pods_are_missing_when_the_exporter_shows_no_pod() -> None:
    reading = bench(pods_known=[]).reader.read(NOW)
    assert reading.nodes[0].pods is None
    assert reading.nodes[0].cpu_requested_milli is None
    assert reading.missing == ("requested", "pending")


def test_without_node_data_the_load_of_every_live_worker_still_counts() -> None:
    reading = bench(nodes_known=[], node=[]).reader.read(NOW)
    assert reading.nodes == ()
    assert reading.cpu_percent == 50
    assert reading.missing == ("nodes",)


def test_nodes_raises_when_nothing_is_known_of_any_node() -> None:
    with pytest.raises(MetricsUnavailableError, match="no data of kube-state-metrics"):
        bench(nodes_known=[], node=[]).reader.nodes(NOW)


@pytest.mark.parametrize(
    ("part", "series"), [("ready", "kube_node_status_condition"), ("unschedulable", "kube_node_spec_unschedulable")]
)
def test_a_series_that_is_not_exported_makes_nodes_unknown_not_unusable(part: str, series: str) -> None:
    found = bench(**{part: []})
    reading = found.reader.read(NOW)
    assert (reading.nodes, reading.cpu_percent, reading.missing) == ((), 50, ("nodes", series))
    with pytest.raises(MetricsUnavailableError, match=rf"no data of kube-state-metrics: {series}$"):
        found.reader.nodes(NOW)


def test_a_cluster_without_workers_is_no_failure() -> None:
    found = Bench()
    found.session.figures = fleet_rows()
    assert found.reader.nodes(NOW) == ()
    assert found.reader.read(NOW).missing == ("cpu_percent", "memory_percent")


# custom metrics -------------------------------------------------------------------------------------------------------


def orders(**changes: Any) -> CustomMetric:
    return CustomMetric(**{"name": "orders", "query": "sum(orders)", "high": 10.0, "low": 1.0, **changes})


def test_a_custom_metric_of_several_series_takes_the_largest() -> None:
    found = Bench(settings=Settings(custom_metrics=(orders(),)))
    found.session.texts["sum(orders)"] = [({"shop": "a"}, 3), ({"shop": "b"}, 7)]
    assert found.reader.read(NOW).custom[0].value == 7


@pytest.mark.parametrize(("when_absent", "missing"), [("ignore", False), ("hold", True)])
def test_an_absent_custom_metric_is_missing_only_when_it_shall_hold(when_absent: str, missing: bool) -> None:
    found = Bench(settings=Settings(custom_metrics=(orders(when_absent=when_absent),)))
    reading = found.reader.read(NOW)
    assert reading.custom[0].value is None
    assert ("custom:orders" in reading.missing) is missing


@pytest.mark.parametrize(("traffic", "missing"), [(0.9, False), (1.0, True)])
def test_a_ratio_without_a_value_is_not_missing_while_there_is_no_traffic(traffic: float, missing: bool) -> None:
    metric = orders(traffic_query="sum(requests)", minimum_traffic=1.0)
    found = Bench(settings=Settings(custom_metrics=(metric,)))
    found.session.texts["sum(requests)"] = [({}, traffic)]
    assert ("custom:orders" in found.reader.read(NOW).missing) is missing


def test_built_in_metrics_and_their_traffic_are_one_request_together() -> None:
    found = bench(error_rate=[({}, 7)], request_traffic=[({}, 3)], queue_depth=[({}, 12)])
    readings = {one.name: one for one in found.reader.read(NOW).custom}
    assert (readings["error_rate"].value, readings["error_rate"].traffic) == (7, 3)
    assert readings["queue_depth"].value == 12
    assert len(found.session.forms) == QUIET_REQUESTS


def test_a_built_in_name_that_does_not_exist_lists_those_that_do() -> None:
    found = Bench(settings=Settings(custom_metrics=(orders(query="built-in:ordres"),)))
    (missing,) = [one for one in found.reader.read(NOW).missing if one.startswith("custom:")]
    assert "built-in:ordres is not built in, expected one of queue_depth, latency_p95" in missing


def test_a_refused_custom_query_makes_only_itself_missing() -> None:
    found = Bench(settings=Settings(custom_metrics=(orders(),)))
    found.session.figures = fleet_rows(worker_rows("a"))
    found.session.refuses = {"sum(orders)"}
    reading = found.reader.read(NOW)
    assert reading.cpu_percent == 50
    assert reading.missing == ("custom:orders (Prometheus refuses query orders: bad_data: parse error)",)


def test_a_scalar_is_a_value_and_a_range_is_refused() -> None:
    found = Bench(settings=Settings(custom_metrics=(orders(),)))
    scalar = '{"status":"success","data":{"resultType":"scalar","result":[1,"42"]}}'
    matrix = '{"status":"success","data":{"resultType":"matrix","result":[]}}'
    found.session.script = [None] * 4 + [reply(200, scalar)]
    assert found.reader.read(NOW).custom[0].value == 42
    found.session.script = [None] * 4 + [reply(200, matrix)]
    assert "orders gives a matrix, expected one value" in found.reader.read(NOW).missing[-1]


# shapes ---------------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 64_000), st.integers(0, 4096), st.integers(0, 100_000)), min_size=1, max_size=120)
)
def test_shapes_hold_every_pod_once_and_no_pod_is_larger_than_its_shape(pods: list[tuple[int, int, int]]) -> None:
    keys: list[PodKey] = [("shop", f"p{number}", f"u{number}") for number in range(len(pods))]
    ages = {key: float(age) for key, (_, _, age) in zip(keys, pods, strict=True)}
    asked = {
        key: {"cpu": cpu / 1000, "memory": float(memory * 2**20)}
        for key, (cpu, memory, _) in zip(keys, pods, strict=True)
    }
    shapes = pod_shapes(ages, asked)
    assert sum(shape.count for shape in shapes) == len(pods)
    assert len(shapes) <= MAX_SHAPES
    assert max(shape.cpu_milli for shape in shapes) == max(cpu for cpu, _, _ in pods)
    assert max(shape.memory_mib for shape in shapes) == max(memory for _, memory, _ in pods)
    assert max(shape.oldest_seconds for shape in shapes) == max(age for _, _, age in pods)


def test_more_than_twenty_sizes_are_merged_visibly() -> None:
    ages = {("shop", f"p{number}", str(number)): float(number) for number in range(25)}
    asked = {key: {"cpu": 1.0 + number, "memory": 0.0} for number, key in enumerate(ages)}
    shapes = pod_shapes(ages, asked)
    assert len(shapes) == MAX_SHAPES
    assert shapes[-1].count == 6
    assert shapes[-1].example == "shop/p5 and others of 6 sizes"
    assert shapes[-1].cpu_milli == 6000


def versions(*rows: tuple[str, str]) -> Rows:
    return [({"node": node, "kubelet_version": version}, 1) for node, version in rows]


def test_the_version_of_each_kubelet_and_of_the_server_is_read() -> None:
    reading = bench(
        version=versions(("i-a", "v1.34.1+k3s1"), ("server", "v1.35.5+k3s1"), ("i-b", "nonsense"))
    ).reader.read(NOW)
    assert [node.kubelet_version for node in reading.nodes] == ["v1.34.1+k3s1", ""]
    assert reading.server_version == "v1.35.5+k3s1"


def test_of_two_versions_of_one_node_or_of_two_servers_the_older_counts() -> None:
    twice = versions(("i-a", "v1.35.10+k3s1"), ("i-a", "v1.35.5+k3s1"), ("server", "v1.36.2+k3s1"))
    reading = bench(version=[*twice, *versions(("server-2", "v1.35.10+k3s1"))]).reader.read(NOW)
    assert reading.nodes[0].kubelet_version == "v1.35.5+k3s1"
    assert reading.server_version == "v1.35.10+k3s1"


def test_versions_that_are_not_exported_are_unknown() -> None:
    reading = bench().reader.read(NOW)
    assert reading.server_version == "" and {node.kubelet_version for node in reading.nodes} == {""}
