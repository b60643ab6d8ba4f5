"""Truth is EC2 by tag: what it lists is counted, known to the records or not; what it does not list is nothing."""

from __future__ import annotations

import pytest

from node_fleet.domain.model.assembly import assemble
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import Instance, NodeReading, PodShape, Reading
from node_fleet.domain.scaling.decision import decide
from tests.support.launches import NOW, instance, node


def reading(*nodes: NodeReading, pending: tuple[PodShape, ...] = ()) -> Reading:
    return Reading(
        at=NOW,
        cpu_percent=40.0,
        cpu_max_percent=40.0,
        memory_percent=40.0,
        memory_max_percent=40.0,
        pending=pending,
        nodes=nodes,
    )


@pytest.mark.parametrize("age_seconds", [30, 299, 301, 4200])
def test_40_an_instance_that_no_record_knows_is_counted(age_seconds: int) -> None:
    lost = instance(9, launched_at=NOW - age_seconds, operation_id="up-dead")
    snapshot = assemble([lost], reading(node(1)), (), Policy(), NOW)
    assert [w.instance_id for w in snapshot.counted] == [lost.instance_id]
    assert snapshot.workers[0].phase == ("joining" if age_seconds <= 300 else "unjoined")


@pytest.mark.parametrize("ready", [True, False])
@pytest.mark.parametrize("others", [0, 1, 3])
def test_6_a_node_whose_instance_is_gone_counts_for_nothing(ready: bool, others: int) -> None:
    fleet = [instance(n) for n in range(1, others + 1)]
    nodes = [node(n, cores=2.0, cpu_percent=10.0) for n in range(1, others + 1)]
    snapshot = assemble(fleet, reading(*nodes, node(0xDEAD, ready=ready)), (), Policy(), NOW)
    assert len(snapshot.counted) == others
    assert f"i-{0xDEAD:017x}" not in {w.instance_id for w in snapshot.workers}


def test_a_worker_without_our_tag_is_reported_and_never_a_worker() -> None:
    snapshot = assemble([instance(1)], reading(node(1), node(2)), (), Policy(), NOW)
    assert snapshot.unmanaged == (f"i-{2:017x}",) and len(snapshot.workers) == 1


def booting(age_seconds: int) -> Instance:
    return instance(9, launched_at=NOW - age_seconds, instance_type="t3.medium")


@pytest.mark.parametrize(("age_seconds", "pods"), [(120, 1), (120, 2), (1, 2), (299, 2)])
def test_7_pods_that_a_booting_worker_will_hold_launch_nothing_more(age_seconds: int, pods: int) -> None:
    workers = [instance(n, instance_type="t3.medium") for n in (1, 2, 3)]
    nodes = [
        node(
            n,
            cores=2.0,
            cpu_percent=40.0,
            memory_used_mib=1500,
            memory_total_mib=3800,
            cpu_allocatable_milli=1900,
            cpu_requested_milli=1800,
            memory_allocatable_mib=3400,
            memory_requested_mib=1000,
            pods=8,
            pods_allocatable=110,
        )
        for n in (1, 2, 3)
    ]
    shape = PodShape(cpu_milli=500, memory_mib=128, count=pods, oldest_seconds=150)
    snapshot = assemble([*workers, booting(age_seconds)], reading(*nodes, pending=(shape,)), (), Policy(), NOW)
    policy = Policy(instance_types=("t3.medium",))
    decision = decide(snapshot, Memory(), policy, NOW)
    assert decision.action == "none", decision.sentence


def test_a_quiet_tick_names_the_worker_to_look_for_and_an_active_one_does_not() -> None:
    lost = instance(9, launched_at=NOW - 900)
    fleet = [instance(1), instance(2), lost]
    nodes = [node(n, cores=2.0, cpu_percent=40.0, memory_used_mib=800, memory_total_mib=1900) for n in (1, 2)]
    quiet = decide(assemble(fleet, reading(*nodes), (), Policy(), NOW), Memory(), Policy(), NOW)
    assert (quiet.action, quiet.replace) == ("none", lost.instance_id)
    short = decide(assemble([lost], reading(node(1)), (), Policy(), NOW), Memory(), Policy(), NOW)
    assert (short.action, short.replace) == ("scale_up", "")
