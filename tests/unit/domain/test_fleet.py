"""The fleet as one: instances joined with nodes, phases, and load summed over what is known."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.model.assembly import assemble, blocking, refresh, total_load
from node_fleet.domain.model.fleet_state import Notice
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import HourlyLoad, Instance, NodeReading, PodShape, Reading, Snapshot

NOW = 1_780_300_800
POLICY = Policy(join_limit_seconds=300, live_share_percent=50)
OLD = NOW - 86_400


def instance(name: str = "i-a", **changes: Any) -> Instance:
    usual = {"zone": "a", "instance_type": "t3.small", "market": "spot", "state": "running", "launched_at": OLD}
    return Instance(**{"instance_id": name, **usual, **changes})


def node(name: str = "i-a", **changes: Any) -> NodeReading:
    usual = {
        "node_name": f"node-{name}",
        "provider_id": f"aws:///a/{name}",
        "ready": True,
        "cores": 2.0,
        "cpu_percent": 50.0,
        "memory_used_mib": 1000,
        "memory_total_mib": 2000,
    }
    return NodeReading(**{**usual, **changes})


def reading(*nodes: NodeReading, **changes: Any) -> Reading:
    usual: dict[str, Any] = {name: None for name in ("cpu_percent", "cpu_max_percent", "memory_percent")}
    usual |= {"memory_max_percent": None, "pending": (), "at": NOW - 3, "nodes": nodes}
    return Reading(**{**usual, **changes})


def snapshot(instances: list[Instance], *nodes: NodeReading, **changes: Any) -> Snapshot:
    return assemble(instances, reading(*nodes, **changes), (), POLICY, NOW)


def phase(found: NodeReading | None, **changes: Any) -> str:
    return snapshot([instance(**changes)], *([found] if found else [])).workers[0].phase


UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule"


@pytest.mark.parametrize(
    ("found", "young", "old"),
    [
        (node(), "usable", "usable"),
        (node(unschedulable=True), "cordoned", "cordoned"),
        (node(unschedulable=True, ready=False), "cordoned", "cordoned"),
        (node(ready=False), "joining", "not_ready"),
        (node(blocking_taints=(UNINITIALIZED,)), "joining", "unjoined"),
        (node(blocking_taints=("node.kubernetes.io/network-unavailable:NoSchedule",)), "joining", "unjoined"),
        (node(blocking_taints=("node-fleet.io/starting=180:NoSchedule",)), "joining", "unjoined"),
        (node(blocking_taints=("node.kubernetes.io/unreachable:NoExecute",)), "joining", "not_ready"),
        (None, "joining", "unjoined"),
    ],
)
def test_the_phase_follows_the_node_and_the_join_limit(found: NodeReading | None, young: str, old: str) -> None:
    assert phase(found, launched_at=NOW - 300) == young
    assert phase(found, launched_at=NOW - 301) == old


def test_an_instance_marked_as_failed_to_join_is_unjoined_however_young() -> None:
    assert phase(None, launched_at=NOW - 1, join_failed=True) == "unjoined"


def test_without_node_data_every_worker_is_unknown_and_never_unjoined() -> None:
    found = snapshot([instance(), instance("i-b", launched_at=NOW - 5)], missing=("nodes",))
    assert [worker.phase for worker in found.workers] == ["unknown", "unknown"]


def test_without_a_reading_the_source_is_none_and_the_problem_is_told() -> None:
    found = assemble([instance()], None, (), POLICY, NOW, problem="Prometheus is gone")
    assert (found.source, found.problem, found.missing) == ("none", "Prometheus is gone", ("reading",))
    assert found.pending is None
    assert [worker.phase for worker in found.workers] == ["unknown"]


def test_workers_are_joined_by_provider_id_whatever_the_node_is_called() -> None:
    found = snapshot([instance()], node(node_name="ip-10-0-0-7"))
    assert found.workers[0].node_name == "ip-10-0-0-7"
    assert found.workers[0].cpu_percent == 50
    assert (found.at, found.read_at, found.source) == (NOW, NOW - 3, "live")


def test_a_node_without_a_running_instance_of_the_fleet_is_unmanaged_and_not_counted() -> None:
    found = snapshot([instance()], node(), node("i-x", cpu_percent=100.0), node("", provider_id="k3s://home"))
    assert found.unmanaged == ("node-", "node-i-x")
    assert found.cpu_percent == 50


@pytest.mark.parametrize(("noticed", "tagged"), [(True, False), (False, True), (True, True), (False, False)])
def test_a_worker_is_under_notice_by_the_state_item_or_by_its_instance(noticed: bool, tagged: bool) -> None:
    notices = [Notice(instance_id="i-a", kind="spot", at=NOW)] if noticed else []
    found = assemble([instance(under_notice=tagged)], reading(node()), notices, POLICY, NOW)
    assert found.workers[0].under_notice is (noticed or tagged)
    assert len(found.usable) == (0 if noticed or tagged else 1)


def test_only_usable_workers_are_in_the_figures() -> None:
    instances = [instance(name) for name in ("i-a", "i-b", "i-c")]
    found = snapshot(
        instances,
        node("i-a", cpu_percent=90.0),
        node("i-b", cpu_percent=10.0, unschedulable=True),
        node("i-c", cpu_percent=0.0, ready=False),
    )
    assert (found.cpu_percent, found.cpu_max_percent) == (90, 90)


def test_the_mean_is_weighted_by_cores_and_memory_is_summed() -> None:
    load = total_load(
        [
            node(cores=8.0, cpu_percent=90.0, memory_used_mib=900, memory_total_mib=1000),
            node(cores=2.0, cpu_percent=0.0, memory_used_mib=900, memory_total_mib=9000),
        ]
    )
    assert load.cpu_percent == pytest.approx(72)
    assert load.memory_percent == pytest.approx(18)
    assert (load.cpu_max_percent, load.memory_max_percent) == (90, 90)


@pytest.mark.parametrize(
    ("known", "unknown", "counts"), [(1, 0, True), (1, 1, True), (2, 2, True), (1, 2, False), (49, 51, False)]
)
def test_a_figure_counts_when_half_of_the_settled_workers_are_known(known: int, unknown: int, counts: bool) -> None:
    names = [f"i-{number}" for number in range(known + unknown)]
    nodes = [node(name, cpu_percent=60.0 if number < known else None) for number, name in enumerate(names)]
    found = snapshot([instance(name) for name in names], *nodes)
    assert found.cpu_percent == (60 if counts else None)
    assert found.memory_percent == 50
    assert ("cpu_percent" in found.missing) is not counts
    assert len([name for name in found.missing if name.startswith("cpu_percent:")]) == unknown


def test_a_worker_that_has_just_joined_need_not_be_known_yet() -> None:
    instances = [instance("i-a"), *(instance(f"i-{n}", launched_at=NOW - 100) for n in range(3))]
    found = snapshot(instances, node("i-a"), *(node(f"i-{n}", cpu_percent=None) for n in range(3)))
    assert found.cpu_percent == 50
    assert found.missing == ()


def test_without_a_usable_worker_load_is_missing_and_not_zero() -> None:
    found = snapshot([instance()], node(unschedulable=True))
    assert (found.cpu_percent, found.memory_percent) == (None, None)
    assert found.missing == ("cpu_percent", "memory_percent")


def test_without_node_data_the_readings_own_figures_stand() -> None:
    found = snapshot([instance()], cpu_percent=91.0, cpu_max_percent=97.0, missing=("nodes", "pending"), pending=None)
    assert (found.cpu_percent, found.cpu_max_percent) == (91, 97)
    assert found.missing == ("nodes", "pending", "memory_percent")


# cached ---------------------------------------------------------------------------------------------------------------


def cached(*nodes: NodeReading, instances: list[Instance]) -> Snapshot:
    waiting = (PodShape(cpu_milli=100, memory_mib=64, count=3),)
    return assemble(instances, reading(*nodes, pending=waiting), (), POLICY, NOW - 120)


def refreshed(before: Snapshot, *instances: Instance, notices: tuple[Notice, ...] = ()) -> Snapshot:
    hourly = (HourlyLoad(hour_epoch=0, cpu_percent=1.0, readings=1),)
    return refresh(before, instances, notices, POLICY, NOW, problem="gone", hourly=hourly)


def test_a_cached_reading_keeps_its_figures_and_says_what_it_is() -> None:
    found = refreshed(cached(node(), instances=[instance()]), instance())
    assert (found.source, found.problem, found.at, found.read_at) == ("cached", "gone", NOW, NOW - 3)
    assert (found.cpu_percent, found.pending_count, found.workers[0].phase) == (50, 3, "usable")
    assert len(found.hourly) == 1


def test_over_a_cached_reading_the_instances_are_those_that_run_now() -> None:
    before = cached(node("i-a"), node("i-b"), instances=[instance("i-a"), instance("i-b")])
    found = refreshed(before, instance("i-b"), instance("i-new", launched_at=NOW - 10), instance("i-strange"))
    assert [(worker.instance_id, worker.phase) for worker in found.workers] == [
        ("i-b", "usable"),
        ("i-new", "joining"),
        ("i-strange", "unknown"),
    ]


def test_whether_a_joining_worker_has_joined_since_is_not_known() -> None:
    before = cached(instances=[instance(launched_at=NOW - 301)])
    assert before.workers[0].phase == "joining"
    assert refreshed(before, instance(launched_at=NOW - 301)).workers[0].phase == "unknown"
    assert refreshed(before, instance(launched_at=NOW - 300)).workers[0].phase == "joining"


def test_notices_are_fresh_over_a_cached_reading() -> None:
    notice = Notice(instance_id="i-a", kind="spot", at=NOW)
    found = refreshed(cached(node(), instances=[instance()]), instance(), notices=(notice,))
    assert found.usable == ()


# taints and sums ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("taint", "blocks"),
    [
        ("node.kubernetes.io/not-ready:NoSchedule", True),
        ("node.kubernetes.io/unreachable:NoExecute", True),
        ("node.kubernetes.io/network-unavailable:NoSchedule", True),
        (UNINITIALIZED, True),
        ("node.kubernetes.io/not-ready:PreferNoSchedule", False),
        ("node.kubernetes.io/memory-pressure:NoSchedule", False),
        ("team=batch:NoSchedule", False),
        ("", False),
    ],
)
def test_only_taints_of_a_node_that_cannot_work_block(taint: str, blocks: bool) -> None:
    assert blocking([taint]) == ((taint,) if blocks else ())


loads = st.builds(
    node,
    cores=st.one_of(st.none(), st.sampled_from([1.0, 2.0, 4.0, 96.0])),
    cpu_percent=st.one_of(st.none(), st.floats(0, 100)),
    memory_used_mib=st.one_of(st.none(), st.integers(0, 512)),
    memory_total_mib=st.one_of(st.none(), st.integers(512, 4096)),
)


@given(st.lists(loads, max_size=8))
def test_the_mean_lies_between_the_extremes_and_unknown_values_change_nothing(nodes: list[NodeReading]) -> None:
    load = total_load(nodes)
    known = [n.cpu_percent for n in nodes if n.cpu_percent is not None and n.cores]
    if known:
        assert load.cpu_percent is not None
        assert min(known) - 1e-9 <= load.cpu_percent <= max(known) + 1e-9
        assert load.cpu_max_percent == max(known)
    else:
        assert load.cpu_percent is None
    assert total_load([*nodes, node(cpu_percent=None, memory_used_mib=None)]) == load


@given(st.lists(st.sampled_from(["usable", "gone", "cordoned", "dead"]), max_size=12), st.booleans())
def test_every_instance_is_one_worker_in_the_order_of_ec2(kinds: list[str], known: bool) -> None:
    instances = [instance(f"i-{number}") for number in range(len(kinds))]
    nodes = [
        node(f"i-{number}", unschedulable=kind == "cordoned", ready=kind != "dead")
        for number, kind in enumerate(kinds)
        if kind != "gone"
    ]
    found = snapshot(instances, *nodes, missing=() if known else ("nodes",))
    assert [worker.instance_id for worker in found.workers] == [i.instance_id for i in instances]
    assert len(found.usable) == (kinds.count("usable") if known else 0)
