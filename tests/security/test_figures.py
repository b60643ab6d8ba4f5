"""No figure, count or label of one worker stops a run, fills the payload or outweighs the other workers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node_fleet.adapters.dynamodb import to_attributes
from node_fleet.domain.model.assembly import assemble
from node_fleet.domain.model.bounds import MAX_REFUSALS, MAX_TAINTS
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import Instance, Snapshot
from node_fleet.domain.scaling.decision import decide
from node_fleet.payload import from_payload, to_payload
from tests.support.fake_prometheus import NOW, Bench, Rows, fleet_rows, worker_rows

PAYLOAD_BYTES = 20_000
"""Far below the 256 KB of the state machine, for a fleet of three."""
LARGE = (1e300, 1.7e308, 2**63, 1e18, 10.0**12, -1e300, -1.0, 5e-324)
FIGURES = ("cores", "memory_total", "memory_available", "cpu", "requested", "allocatable", "pods", "age", "not_ready")


def instances() -> tuple[Instance, ...]:
    return tuple(
        Instance(
            instance_id=f"i-{name}",
            zone="a",
            instance_type="t3.medium",
            market="spot",
            state="running",
            launched_at=NOW - 86_400,
        )
        for name in "abc"
    )


def read(figures: dict[str, Rows]) -> Snapshot:
    bench = Bench()
    bench.session.figures = figures
    return assemble(instances(), bench.reader.read(NOW), (), Policy(), NOW)


def healthy(**hostile: Rows) -> dict[str, Rows]:
    """Three workers at 50 % of their CPU, and what the hostile one adds or puts in place of its own rows."""
    figures = fleet_rows(*(worker_rows(name) for name in "abc"))
    for name, rows in hostile.items():
        replaced = [labels for labels, _ in rows]
        figures[name] = [row for row in figures.get(name, []) if row[0] not in replaced] + rows
    return figures


def check_harmless(snapshot: Snapshot) -> None:
    """The run goes on: the decision is made, stored and passed on, and the other workers keep their figures."""
    decision = decide(snapshot, Memory(), Policy(), NOW)
    shown = to_payload(replace(decision, settings={}))
    text = json.dumps([to_payload(snapshot), shown], allow_nan=False)
    assert len(text) < PAYLOAD_BYTES
    assert to_payload(from_payload(Snapshot, to_payload(snapshot))) == to_payload(snapshot)
    to_attributes(to_payload(snapshot))
    assert [w.phase for w in snapshot.workers if w.instance_id != "i-a"] == ["usable", "usable"]
    assert all(w.cpu_percent == 50 and w.memory_total_mib == 4096 for w in snapshot.workers if w.instance_id != "i-a")


def rows_of(figure: str, value: float) -> Rows:
    """The rows that worker i-a states for one figure."""
    node, instance = {"node": "i-a"}, {"instance_id": "i-a"}
    if figure in ("allocatable", "requested"):
        return [({**node, "resource": resource}, value) for resource in ("cpu", "memory", "pods")]
    if figure == "age":
        return [({"namespace": "shop", "pod": "p", "uid": "u"}, value)]
    return [(instance if figure in ("cores", "memory_total", "memory_available", "cpu") else node, value)]


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize("value", LARGE)
def test_an_absurd_figure_is_missing_and_the_run_goes_on(figure: str, value: float) -> None:
    ready: dict[str, Rows] = {"ready": [({"node": "i-a"}, 0)]} if figure == "not_ready" else {}
    check_harmless(read(healthy(**{figure: rows_of(figure, value)}, **ready)))


@pytest.mark.parametrize("figure", ["memory_available", "memory_total", "allocatable"])
def test_an_absurd_figure_is_reported_with_its_worker_and_its_value(figure: str) -> None:
    snapshot = read(healthy(**{figure: rows_of(figure, 1e300)}))
    assert any("i-a" in sentence and "1e+300" in sentence for sentence in snapshot.refused)
    alerts = decide(snapshot, Memory(), Policy(), NOW).alerts
    assert [a.kind for a in alerts if a.kind == "figures_refused"] == ["figures_refused"]


figures = st.fixed_dictionaries(
    {},
    optional={
        name: st.floats(allow_nan=False, allow_infinity=False).map(lambda v, n=name: rows_of(n, v)) for name in FIGURES
    },
)


@given(figures)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_whatever_one_worker_states_the_mean_of_three_equal_ones_moves_by_a_third_at_most(stated: Any) -> None:
    snapshot = read(healthy(**stated))
    check_harmless(snapshot)
    assert snapshot.cpu_percent is None or 100 / 3 <= snapshot.cpu_percent <= 200 / 3


@pytest.mark.parametrize(("cores", "cpu"), [(2000.0, 100.0), (2000.0, 0.0), (0.0, 100.0)])
def test_the_cores_that_a_worker_states_do_not_weigh_and_a_difference_is_reported(cores: float, cpu: float) -> None:
    snapshot = read(healthy(cores=rows_of("cores", cores), cpu=rows_of("cpu", cpu)))
    assert snapshot.cpu_percent == pytest.approx((50 + 50 + cpu) / 3)
    assert any("i-a states" in sentence and "t3.medium has 2" in sentence for sentence in snapshot.refused)


def test_without_the_nodes_every_worker_weighs_the_same_too() -> None:
    stated = healthy(cores=rows_of("cores", 2000.0), cpu=rows_of("cpu", 100.0), nodes_known=[])
    without = {name: [] if name in ("node", "ready", "unschedulable") else rows for name, rows in stated.items()}
    assert read(without).cpu_percent == pytest.approx(200 / 3)


@pytest.mark.parametrize("count", [33, 2200, 16_000])
def test_any_number_of_taints_on_one_node_fits_the_payload_and_is_reported(count: int) -> None:
    taints: Rows = [
        ({"node": "i-a", "key": f"k{n}" * 20, "value": "v" * 63, "effect": "NoExecute"}, 1) for n in range(count)
    ]
    snapshot = read(healthy(taint=taints))
    check_harmless(snapshot)
    assert len(snapshot.workers[0].taints) == MAX_TAINTS
    assert snapshot.refused == (f"node i-a has {count} taints, expected at most {MAX_TAINTS}",)


def test_many_taints_do_not_hide_the_one_that_keeps_pods_away() -> None:
    key = "node.kubernetes.io/unreachable"
    taints: Rows = [({"node": "i-a", "key": f"k{n}", "effect": "NoExecute"}, 1) for n in range(500)]
    snapshot = read(healthy(taint=[*taints, ({"node": "i-a", "key": key, "effect": "NoExecute"}, 1)]))
    assert snapshot.workers[0].phase == "not_ready"


@pytest.mark.parametrize("ended", [False, True])
def test_any_number_of_nodes_of_no_worker_fits_the_payload(ended: bool) -> None:
    names = [f"i-{n:017x}" if ended else "n" * 240 + str(n) for n in range(3000)]
    nodes: Rows = [({"node": name, "provider_id": f"aws:///a/{name}" if ended else ""}, 1) for name in names]
    check_harmless(read(healthy(node=nodes, ready=[({"node": name}, 0) for name in names])))


def test_many_absurd_figures_are_reported_as_the_first_of_them() -> None:
    rows: Rows = [({"node": f"n{n}", "resource": "cpu"}, 1e300) for n in range(1000)]
    nodes: Rows = [({"node": f"n{n}"}, 1) for n in range(1000)]
    assert len(read(healthy(node=nodes, allocatable=rows)).refused) == MAX_REFUSALS
